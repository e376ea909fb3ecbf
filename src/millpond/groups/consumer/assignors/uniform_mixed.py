"""`uniform` for members whose subscriptions differ. Members keep what they are still subscribed to. Free partitions go
to the least loaded subscribers. Then partitions of each topic move from its most to its least loaded subscribers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from millpond.groups.consumer.assignors.members import (
    AssignableMember,
    TargetAssignment,
    subscribers_by_topic,
)
from millpond.model.ids import TopicId, TopicPartition

ROUNDS_MAX: Final = 16
"""Rounds over all topics. Subscriptions that overlap in chains converge slowly; an almost even assignment will do."""
FREE: Final = -1
"""The owner of a partition that no member owns."""


def assign_mixed(members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]) -> TargetAssignment:
    """`members` are sorted by id."""
    balancing = _Balancing(members, partitions)
    balancing.distribute_free()
    balancing.balance()
    return balancing.assignment()


class _Balancing:
    """One assignment that is being worked out. Members are numbers, in the order of their ids."""

    def __init__(self, members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]) -> None:
        self._members = members
        self._subscribers = subscribers_by_topic(members, partitions)
        self._owners = {topic_id: [FREE] * partitions[topic_id] for topic_id in self._subscribers}
        self._loads = [0] * len(members)
        self._changed: set[int] = set()
        for index, member in enumerate(members):
            self._keep(index, member)
        # Topics with many partitions per subscriber first, so that the others can even out what they leave uneven.
        self._topics = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -partitions[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )

    def _keep(self, index: int, member: AssignableMember) -> None:
        for topic_id, partition in member.target:
            owners = self._owners.get(topic_id, []) if topic_id in member.topics else []
            if partition < len(owners) and owners[partition] == FREE:
                owners[partition] = index
                self._loads[index] += 1
            else:
                self._changed.add(index)

    def distribute_free(self) -> None:
        for topic_id in self._topics:
            owners = self._owners[topic_id]
            free = [partition for partition, owner in enumerate(owners) if owner == FREE]
            if free:
                takers = _least_loaded_first(self._by_load(topic_id), self._loads)
                for partition, taker in zip(free, takers, strict=False):
                    self._give(owners, partition, taker)

    def balance(self) -> None:
        topics = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        balanced = 0  # topics in a row from which nothing had to move
        for _ in range(ROUNDS_MAX):
            for topic_id in topics:
                balanced = 0 if self._balance_topic(topic_id) else balanced + 1
                if balanced == len(topics):
                    return

    def _balance_topic(self, topic_id: TopicId) -> bool:
        """True if a partition has moved."""
        subscribers, loads = self._subscribers[topic_id], self._loads
        subscriber_loads = [loads[index] for index in subscribers]
        if max(subscriber_loads) - min(subscriber_loads) <= 1:
            return False
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        order = self._by_load(topic_id)
        givers = _most_loaded_first(list(order), loads, owned)
        moved = False
        for giver, taker in zip(givers, _least_loaded_first(order, loads), strict=False):
            if loads[giver] - loads[taker] <= 1:
                break
            self._give(owners, owned[giver].pop(), taker)
            moved = True
        return moved

    def _by_load(self, topic_id: TopicId) -> list[int]:
        return sorted(self._subscribers[topic_id], key=self._loads.__getitem__)

    def _give(self, owners: list[int], partition: int, taker: int) -> None:
        giver = owners[partition]
        if giver != FREE:
            self._loads[giver] -= 1
            self._changed.add(giver)
        owners[partition] = taker
        self._loads[taker] += 1
        self._changed.add(taker)

    def assignment(self) -> TargetAssignment:
        changed: dict[int, list[TopicPartition]] = {index: [] for index in self._changed}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner in changed:
                    changed[owner].append(TopicPartition(topic_id, partition))
        return {
            member.member_id: frozenset(changed[index]) if index in changed else member.target
            for index, member in enumerate(self._members)
        }


def _least_loaded_first(order: Sequence[int], loads: Sequence[int]) -> Iterator[int]:
    """The member that is to take the next partition, for ever. `order` is by load; the caller adds what a member takes
    to its load."""
    level, end = loads[order[0]], 0
    while True:
        while end < len(order) and loads[order[end]] == level:
            end += 1
        yield from order[:end]
        level += 1


def _most_loaded_first(
    order: list[int], loads: Sequence[int], owned: Mapping[int, Sequence[int]]
) -> Iterator[int]:
    """The member that is to give the next partition, while there is one. `order` is by load; the caller subtracts what
    a member gives from its load, and removes it from `owned`. A member with nothing to give is skipped from then on,
    and changes places with the last one: Kafka breaks ties in this way."""
    start = end = len(order)
    level = 0
    while end > 0:
        level = loads[order[start - 1]] if start == end else level - 1
        while start > 0 and loads[order[start - 1]] == level:
            start -= 1
        for position in range(end - 1, start - 1, -1):
            member = order[position]
            if owned.get(member):
                yield member
            else:
                end -= 1
                order[position], order[end] = order[end], member
