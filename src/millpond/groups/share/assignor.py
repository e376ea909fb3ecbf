"""The `simple` assignor of share groups: which member reads which partitions. Several members may read one partition.

With equal subscriptions all partitions are one pool; otherwise each topic is a pool of its own, for its subscribers.
In a pool of p partitions and m members, s = ⌈m/p⌉ members read each partition, so that the quota of member i is
⌈q·(i+1)⌉ - ⌈q·i⌉ with q = s·p/m. Every member keeps what it had, as far as its quota and s allow.

A pure function; the order of its arguments does not matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millpond.groups.consumer.assignors import AssignableMember, TargetAssignment
from millpond.model.ids import TopicId, TopicPartition


def assign_simple(members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]) -> TargetAssignment:
    """The new target of each member. Topics that are not in `partitions` do not exist, and are ignored."""
    ordered = sorted(members, key=lambda member: member.member_id)
    found: dict[str, set[TopicPartition]] = {member.member_id: set() for member in ordered}
    for topic_ids, subscribers in _pools(ordered, partitions):
        pool = [
            TopicPartition(topic_id, number)
            for topic_id in sorted(topic_ids)
            for number in range(partitions[topic_id])
        ]
        dealt = _Pool(pool, [member.target for member in subscribers]).deal()
        for member, assigned in zip(subscribers, dealt, strict=True):
            found[member.member_id] |= assigned
    return {member_id: frozenset(assigned) for member_id, assigned in found.items()}


Pools = list[tuple[frozenset[TopicId], list[AssignableMember]]]


def _pools(members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]) -> Pools:
    """Topics, and the members that share their partitions."""
    known = frozenset(partitions)
    existing = {member.member_id: member.topics & known for member in members}
    subscriptions = set(existing.values())
    if len(subscriptions) == 1:
        [topic_ids] = subscriptions
        return [(topic_ids, list(members))] if topic_ids else []
    topics = frozenset[TopicId]().union(*subscriptions)
    return [
        (frozenset([topic_id]), [member for member in members if topic_id in existing[member.member_id]])
        for topic_id in sorted(topics)
    ]


@dataclass(slots=True)
class _Pool:
    """Partitions, and what each member, by its position, had before."""

    partitions: list[TopicPartition]
    before: Sequence[frozenset[TopicPartition]]
    sharing: int = 0
    quotas: list[int] = field(default_factory=list)
    assigned: list[set[TopicPartition]] = field(default_factory=list)
    readers: dict[TopicPartition, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count, size = len(self.before), len(self.partitions)
        self.sharing = -(-count // size)
        places = self.sharing * size
        bounds = [-(-places * index // count) for index in range(count + 1)]
        self.quotas = [bounds[index + 1] - bounds[index] for index in range(count)]
        self.readers = {partition: set() for partition in self.partitions}
        self.assigned = [set(had & self.readers.keys()) for had in self.before]
        for member, assigned in enumerate(self.assigned):
            for partition in assigned:
                self.readers[partition].add(member)

    def deal(self) -> list[set[TopicPartition]]:
        for member in range(len(self.before)):
            self._trim_member(member)
        for partition in self.partitions:
            self._trim_partition(partition)
        unfilled = [member for member in range(len(self.before)) if self._has_room(member)]
        for partition in self.partitions:
            self._fill(partition, unfilled)
        return self.assigned

    def _trim_member(self, member: int) -> None:
        """A member over its quota gives up the partitions that most members read."""
        surplus = len(self.assigned[member]) - self.quotas[member]
        if surplus > 0:
            most_read = sorted(self.assigned[member], key=lambda each: (len(self.readers[each]), each))[::-1]
            for partition in most_read[:surplus]:
                self._remove(partition, member)

    def _trim_partition(self, partition: TopicPartition) -> None:
        """A partition with too many readers loses those with the most partitions."""
        surplus = len(self.readers[partition]) - self.sharing
        if surplus > 0:
            fullest = sorted(self.readers[partition], key=lambda each: (len(self.assigned[each]), each))[::-1]
            for member in fullest[:surplus]:
                self._remove(partition, member)

    def _fill(self, partition: TopicPartition, unfilled: list[int]) -> None:
        """Give a partition to members that have room, in turn."""
        while len(self.readers[partition]) < self.sharing:
            found = next((each for each in unfilled if each not in self.readers[partition]), None)
            if found is None:
                found = self._exchange(partition, unfilled[0])
            self._add(partition, found)
            if found in unfilled:
                unfilled.remove(found)
                if self._has_room(found):
                    unfilled.append(found)
            else:
                unfilled[:] = [each for each in unfilled if self._has_room(each)]

    def _exchange(self, partition: TopicPartition, unfilled: int) -> int:
        """All members that have room read the partition already. Another one gives one of its partitions to such a
        member, and returns; rather one that it has just received. There is one: it has no fewer partitions than that
        member, and not this one."""
        reads = self.assigned[unfilled]
        _, other, member = min(
            (each in self.before[member], each, member)
            for member, assigned in enumerate(self.assigned)
            if partition not in assigned
            for each in assigned - reads
        )
        self._remove(other, member)
        self._add(other, unfilled)
        return member

    def _has_room(self, member: int) -> bool:
        return len(self.assigned[member]) < self.quotas[member]

    def _add(self, partition: TopicPartition, member: int) -> None:
        self.assigned[member].add(partition)
        self.readers[partition].add(member)

    def _remove(self, partition: TopicPartition, member: int) -> None:
        self.assigned[member].discard(partition)
        self.readers[partition].discard(member)
