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
