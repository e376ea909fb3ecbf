"""What the `simple` assignor promises, checked in naive ways on random small groups: how many members read each
partition, how many partitions each member reads, and by exhaustive search how much of an assignment can stay."""

import itertools
import random
from collections.abc import Iterator

from millpond.groups.consumer.assignors import AssignableMember, TargetAssignment
from millpond.model.ids import TopicId, TopicPartition

Partitions = dict[TopicId, int]


def topic(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"\0"))


def member(name: str, topics: str, target: frozenset[TopicPartition] = frozenset()) -> AssignableMember:
    return AssignableMember(name, None, frozenset(map(topic, topics)), target)


def pools(
    members: list[AssignableMember], partitions: Partitions
) -> Iterator[tuple[list[AssignableMember], list[TopicPartition]]]:
    """Members by id, and the partitions that they share."""
    ordered = sorted(members)
    existing = [frozenset(each for each in found.topics if each in partitions) for found in ordered]
    if len(set(existing)) == 1:
        yield (
            ordered,
            [TopicPartition(each, n) for each in sorted(existing[0]) for n in range(partitions[each])],
        )
        return
    for topic_id, count in sorted(partitions.items()):
        subscribers = [each for each, topics in zip(ordered, existing, strict=True) if topic_id in topics]
        if subscribers:
            yield subscribers, [TopicPartition(topic_id, n) for n in range(count)]


def check(members: list[AssignableMember], partitions: Partitions, found: TargetAssignment) -> None:
    """Every partition has as many readers as every other one of its pool, and every member its quota."""
    assert found.keys() == {each.member_id for each in members}
    expected = {each.member_id: 0 for each in members}
    for subscribers, pool in pools(members, partitions):
        sharing, quotas = shares(len(subscribers), len(pool))
        for partition in pool:
            readers = [each for each in subscribers if partition in found[each.member_id]]
            assert len(readers) == sharing, f"{len(readers)} members read {partition}"
        for each, quota in zip(subscribers, quotas, strict=True):
            assert len(found[each.member_id].intersection(pool)) == quota
            expected[each.member_id] += quota
    assert {name: len(target) for name, target in found.items()} == expected, "partitions beyond the pools"


def shares(members: int, partitions: int) -> tuple[int, list[int]]:
    """Readers of each partition, and partitions of each member, counted out one by one."""
    if not partitions:
        return 0, [0] * members
    sharing = next(each for each in itertools.count(1) if each * partitions >= members)
    quotas = [0] * members
    for place in range(sharing * partitions):
        quotas[place * members // (sharing * partitions)] += 1
    return sharing, quotas


def most_that_can_stay(members: list[AssignableMember], partitions: Partitions) -> int:
    """By trying all assignments of a group with equal subscriptions."""
    [(ordered, pool)] = pools(members, partitions)
    sharing, quotas = shares(len(ordered), len(pool))
    had = [each.target.intersection(pool) for each in ordered]

    def best(position: int, readers: tuple[int, ...]) -> int:
        if position == len(ordered):
            return 0 if set(readers) <= {sharing} else -1_000
        found = -1_000
        for chosen in itertools.combinations(range(len(pool)), quotas[position]):
            after = tuple(count + (index in chosen) for index, count in enumerate(readers))
            if max(after) <= sharing:
                kept = len(had[position].intersection(pool[index] for index in chosen))
                found = max(found, kept + best(position + 1, after))
        return found

    return best(0, (0,) * len(pool))


def kept(members: list[AssignableMember], found: TargetAssignment) -> int:
    return sum(len(each.target & found[each.member_id]) for each in members)


def random_group(rng: random.Random) -> tuple[list[AssignableMember], Partitions]:
    """Members with any subscriptions and any former targets, also of partitions that do not exist."""
    topics = "abc"[: rng.randint(1, 3)]
    partitions = {topic(name): rng.randint(1, 6) for name in topics if rng.random() < 0.9}
    is_mixed = rng.random() < 0.5
    possible = [TopicPartition(topic(name), number) for name in topics for number in range(7)]
    members = [
        member(
            f"m{number:02d}",
            "".join(name for name in topics if not is_mixed or rng.random() < 0.6),
            frozenset(each for each in possible if rng.random() < 0.3),
        )
        for number in range(rng.randint(1, 12))
    ]
    rng.shuffle(members)
    return members, partitions
