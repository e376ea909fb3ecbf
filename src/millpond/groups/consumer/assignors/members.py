"""The arguments and the result of an assignor. Assignors are pure functions, and the order of their arguments does
not matter: they sort members and topics by id."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from millpond.model.ids import TopicId, TopicPartition

TargetAssignment = dict[str, frozenset[TopicPartition]]
"""What each member is to own, by member id. Every member is in it."""


class AssignableMember(NamedTuple):
    """A member, the topics that it is subscribed to, and its previous target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]
    target: frozenset[TopicPartition]


Assign = Callable[[Sequence[AssignableMember], Mapping[TopicId, int]], TargetAssignment]
"""An assignor: members and the number of partitions of each existing topic in, the new target of each member out.
Topics that are not in the mapping do not exist, and are ignored in subscriptions and previous targets."""


def subscribers_by_topic(
    members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]
) -> dict[TopicId, list[int]]:
    """The positions of the members that are subscribed to each existing topic, in order. Topics with the same
    subscribers share one list."""
    with_subscription: dict[frozenset[TopicId], list[int]] = {}
    for index, member in enumerate(members):
        with_subscription.setdefault(member.topics, []).append(index)
    groups_of: dict[TopicId, list[int]] = {}
    groups = list(with_subscription.values())
    for number, topics in enumerate(with_subscription):
        for topic_id in topics & partitions.keys():
            groups_of.setdefault(topic_id, []).append(number)
    merged: dict[tuple[int, ...], list[int]] = {}
    for numbers in map(tuple, groups_of.values()):
        if numbers not in merged:
            merged[numbers] = sorted(index for number in numbers for index in groups[number])
    return {topic_id: merged[tuple(numbers)] for topic_id, numbers in groups_of.items()}
