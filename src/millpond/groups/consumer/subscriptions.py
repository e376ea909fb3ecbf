"""The topics that the members of a group subscribe to together: by name, and by regular expressions.

A heartbeat matches its own member's regular expression with all topic names: when it is new, when the topics have
changed (no more often than `regex_resolution_every_ms`), and now and then, because rights may have changed. If that is
much work, the next heartbeats go on with it. It matches what that member may describe. This counts for all members that
have the expression, even if they have other rights, until one of them has matched it again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from millpond.groups.consumer.members import ConsumerMember
from millpond.groups.consumer.messages import Topics
from millpond.groups.consumer.topic_regex import TopicRegex
from millpond.groups.limits import GroupLimits
from millpond.groups.topic_fingerprint import fingerprint_of
from millpond.model.errors import InvalidRegularExpression
from millpond.model.ids import TopicId

MayDescribe = Callable[[str], bool]
TopicChoice = tuple[tuple[str, ...], str]
NOTHING: frozenset[str] = frozenset()
NAME_WORK = 2_000
"""Of matching a name and finding out whether it may be described, beside that of the expression's instructions."""


@dataclass(slots=True)
class RegexMatching:
    """A regular expression that is being matched with all topic names; those before `position` are."""

    names: tuple[str, ...]
    position: int = 0
    found: list[str] = field(default_factory=list)


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
        self._subscribers: Counter[TopicChoice] = Counter()
        self._topic_ids: dict[TopicChoice, frozenset[TopicId]] = {}
        """Of subscriptions that members have."""
        self.topics: Topics | None = None
        """The argument of the last `update`."""
        self._names_changed = True
        self._matched: dict[str, tuple[Topics, int]] = {}
        """With which topics, and when, each regular expression was matched last."""
        self._matching: dict[str, RegexMatching] = {}

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

    def update(
        self, topics: Topics, now_ms: int, regex: str = "", may_describe: MayDescribe = lambda _: True
    ) -> bool:
        """Returns whether other topics are subscribed to than before, or one of them has more partitions. Matches only
        the regular expression `regex`, if one is given, with what its member `may_describe`."""
        changed = bool(regex) and self._resolve(regex, topics, now_ms, may_describe)
        if topics is self.topics and not changed and not self._names_changed:
            return False
        self.topics, self._names_changed = topics, False
        self._topic_ids.clear()
        found = map(topics.find, self.names())
        self.partitions = {each.topic_id: each.partitions for each in found if each is not None}
        former, self.fingerprint = self.fingerprint, fingerprint_of(self.partitions)
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

    def _resolve(self, regex: str, topics: Topics, now_ms: int, may_describe: MayDescribe) -> bool:
        """Returns whether it matches other topics than before."""
        if regex not in self._matching and not self._is_due(regex, topics, now_ms):
            return False
        matching = self._matching.get(regex)
        if matching is None:
            self._matched[regex] = topics, now_ms
            matching = self._matching[regex] = RegexMatching(tuple(topics.names()))
        self._match(regex, matching, may_describe)
        if matching.position < len(matching.names):
            return False
        del self._matching[regex]
        found = frozenset(matching.found)
        if found == self.resolved.get(regex):
            return False
        self.resolved[regex] = found
        return True

    def _is_due(self, regex: str, topics: Topics, now_ms: int) -> bool:
        """It is new, the topics have changed, or the rights of members may have."""
        if regex not in self._matched:
            return True
        matched_topics, matched_at_ms = self._matched[regex]
        has_new_topics = topics is not matched_topics
        every_ms = self._limits.regex_resolution_every_ms if has_new_topics else self._limits.regex_refresh_ms
        return now_ms - matched_at_ms >= every_ms

    def _match(self, regex: str, matching: RegexMatching, may_describe: MayDescribe) -> None:
        """As many names as one heartbeat may match, at least one."""
        if regex not in self._compiled:
            try:
                self._compiled[regex] = TopicRegex(regex)
            except InvalidRegularExpression:  # stored by a version that accepted it
                matching.position = len(matching.names)
                return
        compiled, first, work = self._compiled[regex], matching.position, self._limits.regex_work_max
        while matching.position < len(matching.names) and work > 0:
            work -= NAME_WORK + compiled.instructions * len(matching.names[matching.position])
            matching.position += 1
        found = compiled.matching(matching.names[first : matching.position])
        matching.found.extend(name for name in found if may_describe(name))

    def _add(self, member: ConsumerMember) -> None:
        self._subscribers[_subscription(member)] += 1
        for name in member.topic_names:
            self._names_changed = self._names_changed or name not in self._names
            self._names[name] += 1
        if member.topic_regex:
            self._names_changed = self._names_changed or member.topic_regex not in self._regexes
            self._regexes[member.topic_regex] += 1

    def _remove(self, member: ConsumerMember) -> None:
        subscription = _subscription(member)
        self._subscribers[subscription] -= 1
        if not self._subscribers[subscription]:
            del self._subscribers[subscription]
            self._topic_ids.pop(subscription, None)
        for name in member.topic_names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
                self._names_changed = True
        if regex := member.topic_regex:
            self._regexes[regex] -= 1
            if not self._regexes[regex]:
                del self._regexes[regex]
                for each in (self.resolved, self._compiled, self._matched, self._matching):
                    each.pop(regex, None)
                self._names_changed = True


def _subscription(member: ConsumerMember) -> TopicChoice:
    return member.topic_names, member.topic_regex
