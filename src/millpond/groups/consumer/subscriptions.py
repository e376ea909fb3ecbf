"""The topics that the members of a group subscribe to together: by name, and by regular expressions.

Regular expressions are matched with all topic names when they are new, and again when the topics have changed, no more
often than `regex_resolution_every_ms`, and not all in one heartbeat if there are many names. What a member may not
describe, its regular expressions do not match.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

from millpond.groups.consumer.members import ConsumerMember
from millpond.groups.consumer.messages import Topics
from millpond.groups.consumer.topic_regex import TopicRegex
from millpond.groups.limits import GroupLimits
from millpond.model.errors import InvalidRegularExpression
from millpond.model.ids import TopicId

MayDescribe = Callable[[str], bool]
NOTHING: frozenset[str] = frozenset()


class GroupSubscriptions:
    """`partitions` has the number of partitions of each subscribed topic that exists, and `resolved` the topics that
    each regular expression matches, both as of the last `update`."""

    def __init__(
        self, limits: GroupLimits, resolved: Mapping[str, frozenset[str]] | None = None, fingerprint: str = ""
    ) -> None:
        self._limits = limits
        self.partitions: dict[TopicId, int] = {}
        self.resolved = dict(resolved or {})
        self.fingerprint = fingerprint
        """Differs for different `partitions`. Stored in their place."""
        self._names: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._compiled: dict[str, TopicRegex] = {}
        self._topic_ids: dict[tuple[tuple[str, ...], str], frozenset[TopicId]] = {}
        self.topics: Topics | None = None
        """The argument of the last `update`."""
        self._names_changed = True
        self._matched_topics: Topics | None = None
        self._matched_at_ms: int | None = None
        self._stale: list[str] = []
        """Regular expressions that have not been matched again since then."""

    def check_regex(self, regex: str) -> None:
        """Raises `InvalidRegularExpression` unless a member may subscribe to it."""
        if not regex or regex in self._compiled:
            return
        if regex not in self._regexes and len(self._regexes) >= self._limits.regexes_max:
            reason = f"its group has {len(self._regexes)} others, which is the limit"
            raise InvalidRegularExpression(regex=regex, reason=reason)
        self._compiled[regex] = TopicRegex(regex)

    def replace(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        """A member has come, has left, or has changed."""
        if former is not None and member is not None and _subscription(former) == _subscription(member):
            return
        if member is not None:
            self._add(member)
        if former is not None:
            self._remove(former)

    def update(self, topics: Topics, now_ms: int, may_describe: MayDescribe | None) -> bool:
        """Returns whether other topics are subscribed to than before, or one of them has more partitions. Without
        `may_describe` what regular expressions match stays as it is."""
        changed = may_describe is not None and self._resolve(topics, now_ms, may_describe)
        if topics is self.topics and not changed and not self._names_changed:
            return False
        self.topics, self._names_changed = topics, False
        self._topic_ids.clear()
        found = map(topics.find, self.names())
        self.partitions = {each.topic_id: each.partitions for each in found if each is not None}
        former, self.fingerprint = self.fingerprint, _fingerprint(self.partitions)
        return changed or self.fingerprint != former

    def names(self) -> frozenset[str]:
        """Includes topics that do not exist."""
        return frozenset(self._names).union(*(self.resolved.get(each, NOTHING) for each in self._regexes))

    def topics_of(self, member: ConsumerMember) -> frozenset[TopicId]:
        """The existing topics that a member subscribes to, as of the last `update`."""
        key = _subscription(member)
        found = self._topic_ids.get(key)
        if found is None:
            found = self._topic_ids[key] = frozenset(self._existing(member))
        return found

    # -- internals --------------------------------------------------------------------------------------------

    def _existing(self, member: ConsumerMember) -> Iterable[TopicId]:
        for name in {*member.topic_names, *self.resolved.get(member.topic_regex, NOTHING)}:
            topic = self.topics.find(name) if self.topics is not None else None
            if topic is not None:
                yield topic.topic_id

    def _resolve(self, topics: Topics, now_ms: int, may_describe: MayDescribe) -> bool:
        changed = False
        for regex in self._unresolved(topics, now_ms):
            found = frozenset(name for name in self._matching(regex, topics) if may_describe(name))
            changed = changed or found != self.resolved.get(regex)
            self.resolved[regex] = found
        return changed

    def _unresolved(self, topics: Topics, now_ms: int) -> list[str]:
        """New regular expressions, and some of those that are to be matched again."""
        if not self._stale and self._is_due(topics, now_ms):
            self._matched_topics, self._matched_at_ms = topics, now_ms
            self._stale = list(self._regexes)
        new = [each for each in self._regexes if each not in self.resolved]
        if not self._stale:
            return new
        count = max(1, self._limits.regex_matches_max // max(1, len(tuple(topics.names()))))
        again, self._stale = self._stale[:count], self._stale[count:]
        return list(dict.fromkeys([*new, *(each for each in again if each in self._regexes)]))

    def _is_due(self, topics: Topics, now_ms: int) -> bool:
        """Whether all are to be matched again: the topics have changed, or the rights of members may have."""
        if self._matched_at_ms is None or not self._regexes:
            return bool(self._regexes)
        has_new_topics = topics is not self._matched_topics
        every_ms = self._limits.regex_resolution_every_ms if has_new_topics else self._limits.regex_refresh_ms
        return now_ms - self._matched_at_ms >= every_ms

    def _matching(self, regex: str, topics: Topics) -> frozenset[str]:
        if regex not in self._compiled:
            try:
                self._compiled[regex] = TopicRegex(regex)
            except InvalidRegularExpression:  # stored by a version that accepted it
                return NOTHING
        return self._compiled[regex].matching(topics.names())

    def _add(self, member: ConsumerMember) -> None:
        for name in member.topic_names:
            self._names_changed = self._names_changed or name not in self._names
            self._names[name] += 1
        if member.topic_regex:
            self._names_changed = self._names_changed or member.topic_regex not in self._regexes
            self._regexes[member.topic_regex] += 1

    def _remove(self, member: ConsumerMember) -> None:
        for name in member.topic_names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
                self._names_changed = True
        if regex := member.topic_regex:
            self._regexes[regex] -= 1
            if not self._regexes[regex]:
                del self._regexes[regex]
                self.resolved.pop(regex, None)
                self._compiled.pop(regex, None)
                self._names_changed = True


def _subscription(member: ConsumerMember) -> tuple[tuple[str, ...], str]:
    return member.topic_names, member.topic_regex


def _fingerprint(partitions: Mapping[TopicId, int]) -> str:
    digest = blake2b(digest_size=8)
    for topic_id, count in sorted(partitions.items()):
        digest.update(topic_id + count.to_bytes(4, "big"))
    return digest.hexdigest()
