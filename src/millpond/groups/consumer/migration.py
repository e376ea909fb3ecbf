"""A group changes its protocol while it has members: from the classic one when the first member of the consumer
protocol joins, and back when the last of those has gone. Offsets and members stay.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from millpond.groups.classic.members import GroupMember
from millpond.groups.classic.snapshot import Snapshot
from millpond.groups.classic.state import ClassicGroupState
from millpond.groups.consumer.classic_members import encode_assignment
from millpond.groups.consumer.members import ClassicSupport, ConsumerMember, MemberState
from millpond.groups.consumer.messages import Topics
from millpond.groups.consumer.state import ConsumerGroupState
from millpond.groups.consumer_protocol import (
    CONSUMER,
    MemberMetadata,
    NamedPartitions,
    read_assignment,
    read_metadata,
)
from millpond.groups.limits import GroupLimits
from millpond.model.errors import UnknownGroup
from millpond.model.group_ids import is_storable_member_id
from millpond.model.ids import TopicPartition

COOPERATIVE_STICKY: Final = "cooperative-sticky"
"""librdkafka adds data to the assignments of this assignor, which no client reads: only that of custom assignors would
be lost. Kafka refuses it, and librdkafka's new members end with an error then."""


def upgraded_state(classic: ClassicGroupState, topics: Topics, limits: GroupLimits) -> ConsumerGroupState:
    """The members of a classic group with the assignment of its last generation. Raises `UnknownGroup` with the reason
    if that is not possible."""
    if len(classic.roster):
        _check_upgrade(classic, limits)
    state = ConsumerGroupState(classic.group_id, limits)
    state.epoch = state.target_epoch = classic.generation
    claims: list[tuple[str, MemberMetadata]] = []
    for each in classic.roster:
        if each.member_id not in classic.new_members:  # they wait for their first join, and repeat it
            metadata = _metadata(each, classic)
            member = _upgraded(each, metadata, classic, topics)
            if not all(state.is_free(member.member_id, partition) for partition in member.assigned):
                raise _refused(classic.group_id, "two of its members have the same partition")
            state.put(member)
            state.targets[member.member_id] = frozenset(member.assigned)
            claims.append((each.member_id, metadata))
    for member_id, metadata in sorted(claims, key=lambda claim: -claim[1].generation):
        _claim(state, member_id, frozenset(_existing(metadata.owned, topics)))
    state.forget_stored()
    return state


def _claim(state: ConsumerGroupState, member_id: str, owned: frozenset[TopicPartition]) -> None:
    """A member may still read what it owned when it last joined and was not assigned again, until it has joined once
    more. If two members say that they own a partition, the one of the newer generation does."""
    member = state.members[member_id]
    kept = [each for each in sorted(owned - member.assigned.keys()) if state.is_free(member_id, each)]
    if kept:
        pending = dict.fromkeys(kept, member.epoch)
        state.put(replace(member, state=MemberState.UNREVOKED, pending=pending))


def downgraded(state: ConsumerGroupState, topics: Topics) -> Snapshot:
    """The members, all of which are classic ones, before a generation: a snapshot without protocol and leader. A member
    keeps what it has not confirmed to have given up."""
    members = tuple(
        GroupMember(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.classic.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=member.classic.protocols,
            instance_id=member.instance_id,
            assignment=encode_assignment(member.assigned.keys() | member.pending.keys(), topics),
        )
        for _, member in sorted(state.members.items())
        if member.classic is not None
    )
    return Snapshot(state.target_epoch, CONSUMER, members=members)


def _check_upgrade(classic: ClassicGroupState, limits: GroupLimits) -> None:
    policy = limits.consumer_migration_policy
    if not policy.allows_upgrade:
        reason = f"it has members of the classic protocol, and the migration policy is {policy.value!r}"
        raise _refused(classic.group_id, reason)
    if classic.protocol_type != CONSUMER:
        raise _refused(classic.group_id, f"its members are of the type {classic.protocol_type!r}")


def _metadata(member: GroupMember, classic: ClassicGroupState) -> MemberMetadata:
    metadata = read_metadata(member.metadata(classic.protocol) or member.protocols[0].metadata)
    if metadata is None:
        raise _unreadable(member, classic)
    return metadata


def _upgraded(
    member: GroupMember, metadata: MemberMetadata, classic: ClassicGroupState, topics: Topics
) -> ConsumerMember:
    assignment = read_assignment(member.assignment)
    if assignment is None:
        raise _unreadable(member, classic)
    if not is_storable_member_id(member.member_id):
        raise _refused(classic.group_id, "an older version made an id for a member that is too long")
    if assignment.has_user_data and classic.protocol != COOPERATIVE_STICKY:
        raise _refused(classic.group_id, "its assignor adds data of its own to assignments")
    since = classic.generation
    return ConsumerMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        rack_id=metadata.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=tuple(sorted(metadata.topics)),
        epoch=since,
        previous_epoch=since,
        assigned=dict.fromkeys(_existing(assignment.partitions, topics), since),
        classic=ClassicSupport(member.session_timeout_ms, member.protocols),
    )


def _existing(partitions: NamedPartitions, topics: Topics) -> Iterable[TopicPartition]:
    for name, number in sorted(partitions):
        topic = topics.find(name)
        if topic is not None and 0 <= number < topic.partitions:
            yield TopicPartition(topic.topic_id, number)


def _unreadable(member: GroupMember, classic: ClassicGroupState) -> UnknownGroup:
    return _refused(classic.group_id, f"what member {member.member_id!r} has stored cannot be read")


def _refused(group_id: str, reason: str) -> UnknownGroup:
    message = f"Group {group_id!r} cannot use the consumer protocol: {reason}."
    return UnknownGroup(message, group=group_id)
