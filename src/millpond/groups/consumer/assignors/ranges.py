"""The `range` assignor: of each topic, every subscriber gets one range of consecutive partitions. With equal
subscriptions and equal partition counts a member has the same partition numbers of every topic, which joins rely on."""

from collections.abc import Mapping, Sequence

from millpond.groups.consumer.assignors.members import (
    AssignableMember,
    TargetAssignment,
    subscribers_by_topic,
)
from millpond.model.ids import TopicId, TopicPartition


def assign_ranges(members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]) -> TargetAssignment:
    """Previous targets do not matter: ranges move little only because the order of the members is stable."""
    members = sorted(members, key=_range_order)
    assigned: list[list[TopicPartition]] = [[] for _ in members]
    for topic_id, subscribers in subscribers_by_topic(members, partitions).items():
        _divide(topic_id, partitions[topic_id], subscribers, assigned)
    return {member.member_id: frozenset(each) for member, each in zip(members, assigned, strict=True)}


def _range_order(member: AssignableMember) -> tuple[bool, str]:
    """Static members come first, by instance id: they keep their ranges when they restart with a new member id."""
    if member.instance_id is None:
        return True, member.member_id
    return False, member.instance_id


def _divide(
    topic_id: TopicId, count: int, subscribers: Sequence[int], assigned: Sequence[list[TopicPartition]]
) -> None:
    """The first members get one partition more if the count is not divisible."""
    quota, extras = divmod(count, len(subscribers))
    end = 0
    for index, subscriber in enumerate(subscribers[:count]):
        start, end = end, end + quota + (index < extras)
        assigned[subscriber].extend([TopicPartition(topic_id, partition) for partition in range(start, end)])
