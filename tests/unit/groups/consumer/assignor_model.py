"""What assignors promise, checked in naive ways on random small groups: by exhaustive search where that is possible,
and by following the rule partition by partition where it is not."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from millpond.groups.consumer.assignors import Assign, AssignableMember, TargetAssignment
from millpond.model.ids import TopicId, TopicPartition

EXHAUSTIVE_MAX = 4_096
"""Ways to assign the partitions of a group that is searched exhaustively."""


class Sizes(NamedTuple):
    """At most so many members, topics and partitions of a topic."""

    members: int
    topics: int
    partitions: int


SMALL = Sizes(5, 4, 6)
MEDIUM = Sizes(20, 6, 12)


class Group(NamedTuple):
    members: Sequence[AssignableMember]
    partitions: Mapping[TopicId, int]

    def subscribed(self) -> set[TopicPartition]:
        topics = {topic_id for member in self.members for topic_id in member.topics}
        return {
            TopicPartition(topic_id, partition)
            for topic_id in topics & self.partitions.keys()
            for partition in range(self.partitions[topic_id])
        }

    def has_equal_subscriptions(self) -> bool:
        return len({frozenset(member.topics & self.partitions.keys()) for member in self.members}) == 1

    def has_overlaps(self) -> bool:
        """Whether a partition is in two targets, which no assignor leaves behind."""
        held = [each for member in self.members for each in member.target]
        return len(held) > len(set(held))

    def owners(self) -> dict[TopicPartition, str]:
        """The members whose target had a partition to which they are still subscribed."""
        subscribed = self.subscribed()
        found: dict[TopicPartition, str] = {}
        for member in sorted(self.members):
            for each in member.target:
                if each in subscribed and each.topic_id in member.topics:
                    found.setdefault(each, member.member_id)
        return found


# -- random groups ------------------------------------------------------------------------------------------------


def histories(seed: int, assign: Assign, sizes: Sizes = SMALL, rounds: int = 6) -> Iterator[Group]:
    """One group through rounds in which members come and go and topics grow; each starts with the last one's target.
    Groups of odd seeds have members with different subscriptions."""
    rng = random.Random(seed)
    ids = [_topic_id(rng) for _ in range(rng.randint(1, sizes.topics))]
    partitions = {topic_id: rng.randint(1, sizes.partitions) for topic_id in ids}
    members = [_member(rng, ids, is_mixed=seed % 2 == 1) for _ in range(rng.randint(1, sizes.members))]
    for _ in range(rounds):
        yield Group(members, dict(partitions))
        assigned = assign(members, partitions)
        members = [member._replace(target=assigned[member.member_id]) for member in members]
        for _ in range(rng.randint(1, max(1, sizes.members // 5))):
            _change(rng, ids, members, partitions, sizes, is_mixed=seed % 2 == 1)


def _topic_id(rng: random.Random) -> TopicId:
    """Positive, because Kafka compares ids as signed numbers."""
    return TopicId(bytes([rng.randrange(128)]) + rng.randbytes(15))


def _member(rng: random.Random, ids: Sequence[TopicId], *, is_mixed: bool) -> AssignableMember:
    topics = frozenset(rng.sample(ids, rng.randint(0, len(ids))) if is_mixed else ids)
    instance_id = f"instance-{rng.randrange(10**6)}" if rng.random() < 0.3 else None
    return AssignableMember(f"member-{rng.randrange(10**6)}", instance_id, topics, frozenset())


def _change(
    rng: random.Random,
    ids: list[TopicId],
    members: list[AssignableMember],
    partitions: dict[TopicId, int],
    sizes: Sizes,
    *,
    is_mixed: bool,
) -> None:
    if len(members) > 1 and rng.random() < 0.5:
        members.pop(rng.randrange(len(members)))
    if len(members) < sizes.members and rng.random() < 0.6:
        members.append(_member(rng, ids, is_mixed=is_mixed))
    if rng.random() < 0.3:
        partitions[rng.choice(list(partitions))] += rng.randint(1, 3)
    if len(partitions) > 1 and rng.random() < 0.15:
        del partitions[rng.choice(list(partitions))]
    if is_mixed and rng.random() < 0.3:
        index = rng.randrange(len(members))
        topics = frozenset(rng.sample(ids, rng.randint(0, len(ids))))
        members[index] = members[index]._replace(topics=topics)


def arbitrary(seed: int) -> Group:
    """A group whose previous targets no assignor would have made."""
    rng = random.Random(seed)
    ids = [_topic_id(rng) for _ in range(rng.randint(1, 3))]
    partitions = {topic_id: rng.randint(1, 4) for topic_id in ids}
    members = [_member(rng, ids, is_mixed=seed % 2 == 1) for _ in range(rng.randint(1, 4))]
    targets: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
    favourites = rng.sample(list(targets), rng.randint(1, len(targets)))
    for topic_id in [*ids, TopicId(bytes(16))]:
        for partition in range(6):
            if rng.random() < 0.7:
                targets[rng.choice(favourites)].add(TopicPartition(topic_id, partition))
            if rng.random() < 0.01:
                targets[rng.choice(favourites)].add(TopicPartition(topic_id, partition))
    return Group(
        [member._replace(target=frozenset(targets[member.member_id])) for member in members], partitions
    )


# -- promises -----------------------------------------------------------------------------------------------------


def check(name: str, assign: Assign, group: Group) -> None:
    assigned = assign(group.members, group.partitions)
    _check_complete(group, assigned)
    _check_order_does_not_matter(assign, group, assigned)
    if name == "range":
        assert assigned == ranges(group)
        return
    again = assign(
        [member._replace(target=assigned[member.member_id]) for member in group.members], group.partitions
    )
    assert again == assigned, "what is balanced moves"
    if group.has_equal_subscriptions():
        _check_equal(group, assigned)
    else:
        assert assigned == mixed(group)


def _check_complete(group: Group, assigned: TargetAssignment) -> None:
    """Every partition that a member is subscribed to is assigned, once, and to a subscriber."""
    assert assigned.keys() == {member.member_id for member in group.members}
    every = [each for topic_partitions in assigned.values() for each in topic_partitions]
    assert len(every) == len(set(every)), "a partition is assigned twice"
    assert set(every) == group.subscribed()
    for member in group.members:
        assert {each.topic_id for each in assigned[member.member_id]} <= member.topics


def _check_order_does_not_matter(assign: Assign, group: Group, assigned: TargetAssignment) -> None:
    rng = random.Random(1)
    members = rng.sample(list(group.members), len(group.members))
    partitions = dict(rng.sample(sorted(group.partitions.items()), len(group.partitions)))
    assert assign(members, partitions) == assigned, "the order of the arguments matters"


def _check_equal(group: Group, assigned: TargetAssignment) -> None:
    sizes = [len(topic_partitions) for topic_partitions in assigned.values()]
    assert max(sizes) - min(sizes) <= 1, "not balanced"
    if group.has_overlaps():
        return
    owners = group.owners()
    kept = {
        member_id: [each for each in held if owners.get(each) == member_id]
        for member_id, held in assigned.items()
    }
    assert sum(map(len, kept.values())) == most_kept(group), "more partitions move than must"
    for member_id, held in kept.items():
        had = sorted(each for each, owner in owners.items() if owner == member_id)
        assert sorted(held) == had[: len(held)], "a member does not keep its first partitions"


def most_kept(group: Group) -> int:
    """How many partitions can stay where they were in a balanced assignment, at most."""
    if len(group.members) ** len(group.subscribed()) <= EXHAUSTIVE_MAX:
        return most_kept_of_all(group)
    return most_kept_by_formula(group)


def most_kept_of_all(group: Group) -> int:
    subscribed, owners = sorted(group.subscribed()), group.owners()
    members = [member.member_id for member in group.members]
    return max(
        sum(owners.get(each) == owner for each, owner in zip(subscribed, chosen, strict=True))
        for chosen in itertools.product(members, repeat=len(subscribed))
        if _is_balanced([chosen.count(member_id) for member_id in members])
    )


def most_kept_by_formula(group: Group) -> int:
    quota, extras = divmod(len(group.subscribed()), len(group.members))
    owned = list(group.owners().values())
    held = [owned.count(member.member_id) for member in group.members]
    return sum(min(size, quota) for size in held) + min(extras, sum(size > quota for size in held))


def _is_balanced(sizes: Sequence[int]) -> bool:
    return max(sizes) - min(sizes) <= 1


def ranges(group: Group) -> TargetAssignment:
    """The rule of `range`, for one member and topic after the other."""
    assigned: dict[str, set[TopicPartition]] = {member.member_id: set() for member in group.members}
    static = sorted((each.instance_id, each) for each in group.members if each.instance_id is not None)
    order = [each for _, each in static] + sorted(each for each in group.members if each.instance_id is None)
    for topic_id, count in group.partitions.items():
        subscribers = [member for member in order if topic_id in member.topics]
        for index, member in enumerate(subscribers):
            quota, extras = divmod(count, len(subscribers))
            start = index * quota + min(index, extras)
            end = start + quota + (1 if index < extras else 0)
            assigned[member.member_id] |= {TopicPartition(topic_id, each) for each in range(start, end)}
    return {member_id: frozenset(held) for member_id, held in assigned.items()}


def mixed(group: Group) -> TargetAssignment:
    """The rule of `uniform` for subscriptions that differ, for one partition after the other."""
    owners = group.owners()
    loads = {member.member_id: 0 for member in group.members}
    for owner in owners.values():
        loads[owner] += 1
    subscribers = {
        topic_id: sorted(member.member_id for member in group.members if topic_id in member.topics)
        for topic_id in {each.topic_id for each in group.subscribed()}
    }
    topics = sorted(subscribers)
    topics.sort(key=lambda topic_id: len(subscribers[topic_id]))
    topics.sort(key=lambda topic_id: group.partitions[topic_id] / len(subscribers[topic_id]), reverse=True)
    for topic_id in topics:
        before = dict(loads)
        for each in [TopicPartition(topic_id, partition) for partition in range(group.partitions[topic_id])]:
            if each not in owners:
                owners[each] = min(
                    subscribers[topic_id], key=lambda member: (loads[member], before[member], member)
                )
                loads[owners[each]] += 1
    for _ in range(16):
        for topic_id in topics:
            _even_out(topic_id, subscribers[topic_id], owners, loads)
    return {
        member_id: frozenset(each for each, owner in owners.items() if owner == member_id)
        for member_id in loads
    }


def _even_out(
    topic_id: TopicId, subscribers: Sequence[str], owners: dict[TopicPartition, str], loads: dict[str, int]
) -> None:
    before = dict(loads)
    owned = {
        member: sorted(
            each for each, owner in owners.items() if owner == member and each.topic_id == topic_id
        )
        for member in subscribers
    }
    order = sorted(subscribers, key=lambda member: (loads[member], member))
    end = len(order)
    while end:
        place = max(range(end), key=lambda place: (loads[order[place]], place))
        giver = order[place]
        if not owned[giver]:
            end -= 1
            order[place], order[end] = order[end], giver
            continue
        taker = min(subscribers, key=lambda member: (loads[member], before[member], member))
        if loads[giver] - loads[taker] <= 1:
            return
        owners[owned[giver].pop()] = taker
        loads[giver] -= 1
        loads[taker] += 1
