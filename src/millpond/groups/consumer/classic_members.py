"""Members of the classic protocol in a group of the consumer protocol, while their clients are being upgraded.

The coordinator assigns their partitions, too. A join is one step towards the target, and has its response at once: the
generation is the member's epoch, and no member is the leader. A sync returns the assignment. A heartbeat requests
another join when there is another step to take.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from millpond.groups.classic.group import NewId
from millpond.groups.classic.messages import Joined, JoinRequest, Synced, SyncRequest
from millpond.groups.consumer.members import ClassicSupport, ConsumerMember, MemberState
from millpond.groups.consumer.messages import JOIN_EPOCH, Topics
from millpond.groups.consumer.reconciliation import Owned
from millpond.groups.consumer.state import ConsumerGroupState
from millpond.groups.consumer_protocol import CONSUMER, MemberMetadata, read_metadata, write_assignment
from millpond.groups.limits import GroupLimits
from millpond.model.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    MillpondError,
    RebalanceInProgress,
    UnknownMember,
)
from millpond.model.group_configs import MigrationPolicy
from millpond.model.ids import TopicPartition


class Advance(Protocol):
    """Takes a member a step towards its target: `ConsumerGroup.advance`."""

    def __call__(
        self,
        before: ConsumerMember,
        member: ConsumerMember,
        owned: Owned,
        topics: Topics,
        now_ms: int,
    ) -> ConsumerMember: ...


@dataclass(frozen=True, slots=True)
class ClassicMembers:
    state: ConsumerGroupState
    limits: GroupLimits
    new_id: NewId
    advance: Advance

    def join(self, request: JoinRequest, topics: Topics, now_ms: int) -> Joined:
        state = self.state
        for _ in state.expected.take_due(now_ms):
            pass  # it is forgotten
        metadata = self._check_join(request)
        former = self._former(request, now_ms)
        before = self._admit(request, former)
        member = self.advance(
            before, _described(before, request, metadata), _known(metadata, topics), topics, now_ms
        )
        state.sessions.set(member.member_id, now_ms + request.session_timeout_ms)
        self._limit(member, now_ms)  # until it syncs
        return Joined(member.member_id, member.epoch, CONSUMER, request.protocols[0].name, leader="")

    def sync(self, request: SyncRequest, now_ms: int) -> Synced:
        state = self.state
        member, classic = self._check(request.member_id, request.instance_id, request.generation)
        topics = state.subscriptions.topics
        is_behind = member.epoch < self._next_epoch(now_ms) and member.state is not MemberState.UNREVOKED
        if is_behind or topics is None:  # a group that was just loaded knows no topics before the next join
            raise self._join_requested(member, now_ms)
        protocol = request.protocol or classic.protocols[0].name
        if request.protocol_type not in (None, CONSUMER) or not classic.supports(protocol):
            raise InconsistentProtocol(group=state.group_id)
        state.progress.clear(member.member_id)
        state.sessions.set(member.member_id, now_ms + classic.session_timeout_ms)
        return Synced(CONSUMER, protocol, encode_assignment(member.assigned, topics))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        member, classic = self._check(member_id, instance_id, generation)
        self.state.sessions.set(member_id, now_ms + classic.session_timeout_ms)
        if member.epoch < self._next_epoch(now_ms) or self._has_next_step(member):
            raise self._join_requested(member, now_ms)

    # -- internals --------------------------------------------------------------------------------------------

    def _check_join(self, request: JoinRequest) -> MemberMetadata:
        group_id, limits = self.state.group_id, self.limits
        low, high = limits.session_timeout_min_ms, limits.session_timeout_max_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(timeout_ms=request.session_timeout_ms, min_ms=low, max_ms=high)
        is_refused = limits.consumer_migration_policy is MigrationPolicy.DISABLED
        if is_refused or request.protocol_type != CONSUMER or not request.protocols:
            raise InconsistentProtocol(group=group_id)
        metadata = read_metadata(request.protocols[0].metadata)
        if metadata is None or not self.state.all_support_one_of(request.protocols):
            raise InconsistentProtocol(group=group_id)
        if len(metadata.topics) > limits.topic_names_max:
            reason = f"{len(metadata.topics)} topic names are more than {limits.topic_names_max}"
            raise InvalidRequest(reason=reason)
        return metadata

    def _former(self, request: JoinRequest, now_ms: int) -> ConsumerMember | None:
        """The member as which a joining one continues: itself, or the former member of its instance. A new one without
        an instance is to join again with the id that it receives: if it never gets that, it does not stay as a member.
        """
        state = self.state
        is_expected = request.member_id in state.expected and request.instance_id is None
        if request.member_id and not is_expected:
            member = state.find(request.member_id, request.instance_id)
            if member.classic is None:
                raise UnknownMember(group=state.group_id, member_id=request.member_id)
            return member
        holder = state.holder(request.instance_id)
        if holder is None and len(state.members) >= self.limits.members_max:
            raise GroupFull(group=state.group_id, limit=self.limits.members_max)
        if not is_expected and request.instance_id is None and request.require_known_id:
            raise self._expect(request, now_ms)
        return holder

    def _expect(self, request: JoinRequest, now_ms: int) -> MillpondError:
        expected, group_id, limit = self.state.expected, self.state.group_id, self.limits.members_max
        if len(expected) >= limit:
            return GroupFull(group=group_id, limit=limit)
        member_id = self.new_id(request.client_id)
        expected.set(member_id, now_ms + request.session_timeout_ms)
        return MemberIdRequired(group=group_id, member_id=member_id)

    def _admit(self, request: JoinRequest, former: ConsumerMember | None) -> ConsumerMember:
        """The member before its join, under the id that it has now."""
        if former is not None and former.member_id == request.member_id:
            return former
        member_id = request.member_id or self.new_id(request.instance_id or request.client_id)
        if former is None:
            self.state.expected.clear(member_id)
            return ConsumerMember(member_id, request.client_id, request.client_host)
        renamed = self.state.rename(former.member_id, member_id)
        return replace(renamed, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    def _check(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicSupport]:
        member = self.state.find(member_id, instance_id)
        if member.classic is None:
            raise UnknownMember(group=self.state.group_id, member_id=member_id)
        if generation != member.epoch:
            raise IllegalGeneration(group=self.state.group_id, generation=generation, current=member.epoch)
        return member, member.classic

    def _next_epoch(self, now_ms: int) -> int:
        """Which a member can reach by a join now."""
        return self.state.epoch if self.state.may_assign(now_ms) else self.state.target_epoch

    def _has_next_step(self, member: ConsumerMember) -> bool:
        """A member that still has to give up partitions reports by a join that it has done so. One that waits for
        partitions joins when all of them are free."""
        if member.state is not MemberState.UNRELEASED:
            return member.state is MemberState.UNREVOKED
        state, member_id = self.state, member.member_id
        missing = state.target(member_id) - member.assigned.keys()
        return all(state.is_free(member_id, each) for each in missing)

    def _join_requested(self, member: ConsumerMember, now_ms: int) -> RebalanceInProgress:
        """The member must join within its rebalance timeout after the first request."""
        if member.member_id not in self.state.progress:
            self._limit(member, now_ms)
        return RebalanceInProgress(group=self.state.group_id)

    def _limit(self, member: ConsumerMember, now_ms: int) -> None:
        timeout_ms = max(member.rebalance_timeout_ms, self.limits.rebalance_timeout_min_ms)
        self.state.progress.set(member.member_id, now_ms + timeout_ms)


def encode_assignment(partitions: Iterable[TopicPartition], topics: Topics) -> bytes:
    """Partitions of deleted topics are left out."""
    named = ((topics.with_id(topic_id), number) for topic_id, number in partitions)
    return write_assignment((topic.name, number) for topic, number in named if topic is not None)


def _known(metadata: MemberMetadata, topics: Topics) -> frozenset[TopicPartition]:
    """The partitions that a member owns; those of unknown topics are left out."""
    named = ((topics.find(name), number) for name, number in metadata.owned)
    return frozenset(TopicPartition(topic.topic_id, number) for topic, number in named if topic is not None)


def _described(member: ConsumerMember, request: JoinRequest, metadata: MemberMetadata) -> ConsumerMember:
    values: dict[str, Any] = {
        "client_id": request.client_id,
        "client_host": request.client_host,
        "instance_id": request.instance_id or member.instance_id,
        "rack_id": metadata.rack_id,
        "rebalance_timeout_ms": request.rebalance_timeout_ms,
        "topic_names": tuple(sorted(metadata.topics)),
        "topic_regex": "",
        "assignor": None,
        "classic": ClassicSupport(request.session_timeout_ms, request.distinct_protocols()),
    }
    changed = {name: value for name, value in values.items() if getattr(member, name) != value}
    return replace(member, **changed) if changed else member
