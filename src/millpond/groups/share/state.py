"""The data of a share group: its members with their targets, its epochs, sessions, and what is not stored yet.

`ShareGroup` owns one and has the transitions.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from millpond.groups.consumer.assignors import AssignableMember
from millpond.groups.consumer.messages import GroupChanges, StoredGroup, Topics
from millpond.groups.deadlines import NamedDeadlines
from millpond.groups.limits import GroupLimits
from millpond.groups.share.assignor import assign_simple
from millpond.groups.share.members import NO_PARTITIONS, ShareMember
from millpond.groups.share.messages import SHARE, ShareGroupPhase
from millpond.groups.share.stored import (
    ShareGroupHeader,
    decode_header,
    decode_member,
    encode_header,
    encode_member,
)
from millpond.groups.topic_fingerprint import fingerprint_of
from millpond.model.errors import UnknownMember
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.share_groups import ShareGroupConfig


class ShareGroupState:
    """`targets` is computed for the group at `target_epoch`; if `epoch` is higher, the next heartbeat computes it
    again. `partitions` has the number of partitions of each subscribed topic that exists, as of the last `update`.
    `sessions` end when a member is silent."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.assigned_at_ms: int | None = None
        """When this coordinator has computed the target."""
        self.session_timeout_ms = ShareGroupConfig().session_timeout_ms
        self.is_dead = False
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, frozenset[TopicPartition]] = {}
        self.partitions: dict[TopicId, int] = {}
        self.fingerprint = ""
        """Differs for different `partitions`. Stored in their place."""
        self.sessions = NamedDeadlines()
        self._limits = limits
        self._names: Counter[str] = Counter()
        self._topic_ids: dict[str, frozenset[TopicId]] = {}
        """The existing topics of members, by member id, as of the last `update`."""
        self._topics: Topics | None = None
        """The argument of the last `update`."""
        self._names_changed = True
        self._unstored: set[str] = set()
        self._stored_header: ShareGroupHeader | None = None
        self._stored_epoch = 0

    @classmethod
    def restored(cls, group_id: str, limits: GroupLimits, stored: StoredGroup) -> "ShareGroupState":
        header = decode_header(stored.state)
        state = cls(group_id, limits)
        state.epoch, state.target_epoch = stored.epoch, header.target_epoch
        state.session_timeout_ms, state.fingerprint = header.session_timeout_ms, header.topics
        for member_id, text in stored.members.items():
            member, target = decode_member(member_id, text)
            state.put(member)
            state.targets[member_id] = target
        state._unstored.clear()
        state._stored_header, state._stored_epoch = header, stored.epoch
        return state

    # -- queries ----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> ShareGroupPhase:
        if self.is_dead:
            return ShareGroupPhase.DEAD
        return ShareGroupPhase.STABLE if self.members else ShareGroupPhase.EMPTY

    def find(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(group=self.group_id, member_id=member_id)
        return member

    def target(self, member_id: str) -> frozenset[TopicPartition]:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topic_names(self) -> frozenset[str]:
        """Includes topics that do not exist."""
        return frozenset(self._names)

    # -- changes ----------------------------------------------------------------------------------------------

    def put(self, member: ShareMember) -> None:
        """Add a member, or replace the one of the same id."""
        former = self.members.get(member.member_id)
        if former == member:
            return
        self.members[member.member_id] = member
        self._unstored.add(member.member_id)
        if former is not None and former.topic_names == member.topic_names:
            return
        self._count(member.topic_names, 1)
        self._count(former.topic_names if former is not None else (), -1)
        self._topic_ids.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._count(member.topic_names, -1)
        self.targets.pop(member_id, None)
        self._topic_ids.pop(member_id, None)
        self.sessions.clear(member_id)
        self._unstored.add(member_id)

    def update(self, topics: Topics) -> bool:
        """Returns whether other topics are subscribed to than before, or one of them has more partitions."""
        if topics is self._topics and not self._names_changed:
            return False
        if topics is not self._topics:
            self._topic_ids.clear()
        self._topics, self._names_changed = topics, False
        found = map(topics.find, _common(self._names, topics))
        self.partitions = {each.topic_id: each.partitions for each in found if each is not None}
        former, self.fingerprint = self.fingerprint, fingerprint_of(self.partitions)
        return self.fingerprint != former

    def may_assign(self, now_ms: int) -> bool:
        """A large group waits, so that members that join together need one target. A heartbeat after that computes
        it."""
        limits, last_ms = self._limits, self.assigned_at_ms
        if last_ms is None or now_ms - last_ms >= limits.target_every_ms:
            return True
        return len(self.members) * sum(self.partitions.values()) <= limits.instant_target_size_max

    def assign(self, now_ms: int) -> None:
        """Compute the target of the current epoch."""
        self.assigned_at_ms = now_ms
        members = [
            AssignableMember(each.member_id, None, self._topics_of(each), self.target(each.member_id))
            for each in self.members.values()
        ]
        for member_id, target in assign_simple(members, self.partitions).items():
            if target != self.target(member_id):
                self.targets[member_id] = target
                self._unstored.add(member_id)
        self.target_epoch = self.epoch

    def kill(self) -> None:
        self.is_dead = True
        self.sessions = NamedDeadlines()

    def take_changes(self) -> GroupChanges | None:
        header = ShareGroupHeader(self.target_epoch, self.session_timeout_ms, self.fingerprint)
        is_stored = header == self._stored_header and self.epoch == self._stored_epoch
        if (is_stored and not self._unstored) or not self.epoch:
            return None
        text = encode_header(header) if header != self._stored_header else None
        members = dict(self._encoded_members())
        complete = self._stored_header is None
        self._stored_header, self._stored_epoch = header, self.epoch
        self._unstored.clear()
        return GroupChanges(self.epoch, not self.members, text, members, complete, SHARE)

    # -- internals --------------------------------------------------------------------------------------------

    def _encoded_members(self) -> Iterator[tuple[str, str | None]]:
        for member_id in sorted(self._unstored):
            member = self.members.get(member_id)
            yield member_id, encode_member(member, self.target(member_id)) if member is not None else None

    def _topics_of(self, member: ShareMember) -> frozenset[TopicId]:
        """Those that exist, as of the last `update`."""
        known = self._topic_ids.get(member.member_id)
        if known is None:
            topics = self._topics
            found = map(topics.find, member.topic_names) if topics is not None else ()
            known = frozenset(each.topic_id for each in found if each is not None)
            self._topic_ids[member.member_id] = known
        return known

    def _count(self, names: Iterable[str], step: int) -> None:
        for name in names:
            had = name in self._names
            self._names[name] += step
            if not self._names[name]:
                del self._names[name]
            self._names_changed = self._names_changed or had != (name in self._names)


def _common(names: Mapping[str, int], topics: Topics) -> list[str]:
    """Those of the names that are names of topics. Members may subscribe to very many topics that do not exist."""
    existing = topics.names()
    return [name for name in existing if name in names]
