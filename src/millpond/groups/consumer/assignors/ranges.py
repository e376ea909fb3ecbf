"""The `range` assignor: of each topic, every subscriber gets one range of consecutive partitions. With equal
subscriptions and equal partition counts a member has the same partition numbers of every topic, which joins rely on."""

from collections.abc import Mapping, Sequence

from millpond.groups.consumer.assignors.members import AssignableMember, TargetAssignment
from millpond.model.ids import TopicId, TopicPartition


def assign_ranges(members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]) -> TargetAssignment:
    """Previous targets do not matter: ranges move little only because the order of the members is stable."""
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic_id, subscribers in _subscribers(sorted(members, key=_range_order)).items():
        if topic_id in partitions:
            _divide(topic_id, partitions[topic_id], subscribers, assigned)
    return {member_id: frozenset(topic_partitions) for member_id, topic_partitions in assigned.items()}


def _range_order(member: AssignableMember) -> tuple[bool, str]:
    """Static members come first, by instance id: they keep their ranges when they restart with a new member id."""
    if member.instance_id is None:
        return True, member.member_id
    return False, member.instance_id


def _subscribers(members: Sequence[AssignableMember]) -> dict[TopicId, list[str]]:
    """Member ids by topic. Members often share a subscription; then their topics share one list, too."""
    if len({member.topics for member in members}) == 1:
        everyone = [member.member_id for member in members]
        return dict.fromkeys(members[0].topics, everyone)
    subscribers: dict[TopicId, list[str]] = {}
    for member in members:
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    return subscribers


def _divide(
    topic_id: TopicId, count: int, subscribers: Sequence[str], assigned: Mapping[str, list[TopicPartition]]
) -> None:
    """The first members get one partition more if the count is not divisible."""
    quota, extras = divmod(count, len(subscribers))
    end = 0
    for index, member_id in enumerate(subscribers[:count]):
        start, end = end, end + quota + (index < extras)
        assigned[member_id].extend([TopicPartition(topic_id, partition) for partition in range(start, end)])
