"""The data of a consumer group: its members with their targets, its epochs, deadlines, and what is not stored yet.

`ConsumerGroup` owns one and has the transitions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from millpond.groups.classic.members import Protocol
from millpond.groups.consumer.assignors import ASSIGNORS, AssignableMember
from millpond.groups.consumer.members import ConsumerMember
from millpond.groups.consumer.messages import ConsumerGroupPhase, GroupChanges, StoredGroup
from millpond.groups.consumer.stored import (
    GroupHeader,
    decode_header,
    decode_matches,
    decode_member,
    encode_header,
    encode_matches,
    encode_member,
    is_regex_row,
    regex_row,
)
from millpond.groups.consumer.subscriptions import GroupSubscriptions
from millpond.groups.deadlines import NamedDeadlines
from millpond.groups.limits import GroupLimits
from millpond.model.errors import FencedInstance, UnknownMember
from millpond.model.group_configs import GroupConfig
from millpond.model.ids import TopicPartition

DEFAULT_ASSIGNOR: Final = next(iter(ASSIGNORS))
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class ConsumerGroupState:
    """`targets` is computed for the group at `target_epoch`; if `epoch` is higher, the next heartbeat computes it
    again. `sessions` end when a member is silent; `progress` has the members that must confirm or rejoin in time. It
    has more than 20 methods, all of them small, so that the machine has only transitions."""

    def __init__(
        self, group_id: str, limits: GroupLimits, subscriptions: GroupSubscriptions | None = None
    ) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.assigned_at_ms: int | None = None
        """When this coordinator has computed the target."""
        self.assignor = DEFAULT_ASSIGNOR
        self.session_timeout_ms = GroupConfig().session_timeout_ms
        self.is_dead = False
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, frozenset[TopicPartition]] = {}
        self.subscriptions = subscriptions or GroupSubscriptions(limits)
        self.sessions = NamedDeadlines()
        self.progress = NamedDeadlines()
        self.expected = NamedDeadlines()
        """Ids issued to new members of the classic protocol that have not joined with them yet. They are not stored."""
        self.classic_members = 0
        self.connections: dict[str, object] = {}
        """By which each member has sent its last heartbeat."""
        self._limits = limits
        self._instances: dict[str, str] = {}
        self._holders: dict[TopicPartition, str] = {}
        self._assignors: Counter[str] = Counter()
        self._supporters: Counter[str] = Counter()
        self._unstored: set[str] = set()
        self._stored_header: GroupHeader | None = self._header()
        self._stored_matches: dict[str, frozenset[str]] = {}

    @classmethod
    def restored(cls, group_id: str, limits: GroupLimits, stored: StoredGroup) -> "ConsumerGroupState":
        header = decode_header(stored.state)
        matches = dict(decode_matches(text) for row, text in stored.members.items() if is_regex_row(row))
        state = cls(group_id, limits, GroupSubscriptions(limits, matches, header.topics))
        state.epoch, state.target_epoch = stored.epoch, header.target_epoch
        state.assignor, state.session_timeout_ms = header.assignor, header.session_timeout_ms
        for member_id, text in stored.members.items():
            if is_regex_row(member_id):
                continue
            member, target = decode_member(member_id, text)
            state.put(member)
            state.targets[member_id] = target
        state._unstored.clear()
        state._stored_header, state._stored_matches = header, matches
        return state

    # -- queries ----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> ConsumerGroupPhase:
        if self.is_dead:
            return ConsumerGroupPhase.DEAD
        if not self.members:
            return ConsumerGroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupPhase.ASSIGNING
        settled = all(member.is_settled(self.target_epoch) for member in self.members.values())
        return ConsumerGroupPhase.STABLE if settled else ConsumerGroupPhase.RECONCILING

    def target(self, member_id: str) -> frozenset[TopicPartition]:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_free(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether no other member has the partition, or was asked to give it up and has not confirmed it."""
        return self._holders.get(partition, member_id) == member_id

    def preferred_assignor(self) -> str:
        """The one that most of the members ask for; the default if none of them asks for any."""
        return max(ASSIGNORS, key=lambda name: self._assignors[name])

    def all_support_one_of(self, protocols: Sequence[Protocol]) -> bool:
        """Whether all classic members support one of these protocols."""
        return any(self._supporters[each.name] == self.classic_members for each in protocols)

    def holder(self, instance_id: str | None) -> ConsumerMember | None:
        """The member of this instance."""
        return None if instance_id is None else self.members.get(self._instances.get(instance_id, ""))

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Raises `FencedInstance` if another member has the instance."""
        holder = self.holder(instance_id)
        if holder is not None and holder.member_id != member_id:
            raise FencedInstance(group=self.group_id, instance_id=instance_id)
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and holder is None):
            raise UnknownMember(group=self.group_id, member_id=member_id)
        return member

    def is_connected_again(self, member_id: str, connection: object) -> bool:
        """Whether the last heartbeat of the member came by another connection. If that has failed, the member did not
        receive the response."""
        return self.connections.get(member_id) is not connection

    # -- changes ----------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace the one of the same id."""
        former = self.members.get(member.member_id)
        if former is not member:
            self.members[member.member_id] = member
            self._index(former, member)
            self._unstored.add(member.member_id)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._index(member, None)
        self.targets.pop(member_id, None)
        self.connections.pop(member_id, None)
        self.sessions.clear(member_id)
        self.progress.clear(member_id)
        self._unstored.add(member_id)

    def rename(self, member_id: str, new_id: str) -> ConsumerMember:
        """Another process continues as a static member, with its assignment and target. The former id is unknown."""
        member = replace(self.members[member_id], member_id=new_id)
        target = self.target(member_id)
        self.remove(member_id)
        self.put(member)
        self.targets[new_id] = target
        return member

    def may_assign(self, now_ms: int) -> bool:
        """A large group waits, so that members that join together need one target. A heartbeat after that computes
        it."""
        limits, last_ms = self._limits, self.assigned_at_ms
        if last_ms is None or now_ms - last_ms >= limits.target_every_ms:
            return True
        partitions = sum(self.subscriptions.partitions.values())
        return len(self.members) * partitions <= limits.instant_target_size_max

    def assign(self, now_ms: int) -> None:
        """Compute the target of the current epoch."""
        self.assigned_at_ms = now_ms
        members = [
            AssignableMember(each.member_id, each.instance_id, topics, self.target(each.member_id))
            for each in self.members.values()
            for topics in (self.subscriptions.topics_of(each),)
        ]
        self.assignor = self.preferred_assignor()
        for member_id, target in ASSIGNORS[self.assignor](members, self.subscriptions.partitions).items():
            if target != self.target(member_id):
                self.targets[member_id] = target
                self._unstored.add(member_id)
        self.target_epoch = self.epoch

    def forget_stored(self) -> None:
        """Nothing of the group is stored in this form."""
        self._stored_header = None
        self._stored_matches = {}

    def kill(self) -> None:
        self.is_dead = True
        self.sessions, self.progress = NamedDeadlines(), NamedDeadlines()

    def take_changes(self) -> GroupChanges | None:
        header = self._header()
        changed_header = header if header != self._stored_header else None
        members = {**dict(self._encoded_members()), **dict(self._encoded_matches())}
        if changed_header is None and not members:
            return None
        complete = self._stored_header is None
        self._stored_header, self._stored_matches = header, dict(self.subscriptions.resolved)
        self._unstored.clear()
        text = encode_header(changed_header) if changed_header is not None else None
        return GroupChanges(self.epoch, not self.members, text, members, complete)

    # -- internals --------------------------------------------------------------------------------------------

    def _header(self) -> GroupHeader:
        subscriptions = self.subscriptions
        return GroupHeader(
            self.target_epoch,
            self.assignor,
            self.session_timeout_ms,
            subscriptions.fingerprint,
        )

    def _encoded_members(self) -> Iterator[tuple[str, str | None]]:
        for member_id in sorted(self._unstored):
            member = self.members.get(member_id)
            yield member_id, encode_member(member, self.target(member_id)) if member is not None else None

    def _encoded_matches(self) -> Iterator[tuple[str, str | None]]:
        """Of the regular expressions that match other topics than what is stored of them."""
        now, stored = self.subscriptions.resolved, self._stored_matches
        for regex in stored.keys() - now.keys():
            yield regex_row(regex), None
        for regex, topics in now.items():
            if stored.get(regex) is not topics:
                yield regex_row(regex), encode_matches(regex, topics)

    def _index(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        self.subscriptions.replace(former, member)
        if former is not None:
            self._count(former, -1)
        if member is not None:
            self._count(member, 1)
        self._hold(former, member)

    def _count(self, member: ConsumerMember, step: int) -> None:
        if member.instance_id is not None and step < 0:
            self._instances.pop(member.instance_id, None)
        elif member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        if member.assignor is not None:
            self._assignors[member.assignor] += step
        if member.classic is not None:
            self.classic_members += step
            for each in member.classic.protocols:
                self._supporters[each.name] += step
                if not self._supporters[each.name]:
                    del self._supporters[each.name]

    def _hold(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        held = _partitions(member)
        for each in _partitions(former) - held:
            self._holders.pop(each, None)
        if member is not None:
            self._holders.update(dict.fromkeys(held, member.member_id))


def _partitions(member: ConsumerMember | None) -> AbstractSet[TopicPartition]:
    """Those that a member has, and those that it may not have given up."""
    return NO_PARTITIONS if member is None else member.assigned.keys() | member.pending.keys()
