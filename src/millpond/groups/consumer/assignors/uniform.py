"""The `uniform` assignor: all members get as many partitions as the others, or one more, and as few partitions as
possible move. Where subscriptions differ, `uniform_mixed.py` comes as near to this as they allow."""

from collections.abc import Mapping, Sequence
from itertools import islice

from millpond.groups.consumer.assignors.members import AssignableMember, TargetAssignment
from millpond.groups.consumer.assignors.uniform_mixed import assign_mixed
from millpond.model.ids import TopicId, TopicPartition


def assign_uniform(
    members: Sequence[AssignableMember], partitions: Mapping[TopicId, int]
) -> TargetAssignment:
    members = sorted(members)
    existing = {topics: topics & partitions.keys() for topics in {member.topics for member in members}}
    subscriptions = {frozenset(topics) for topics in existing.values()}
    if not subscriptions:
        return {}
    if len(subscriptions) == 1:
        return _assign_equal(members, subscriptions.pop(), partitions)
    return assign_mixed(members, partitions)


def _assign_equal(
    members: Sequence[AssignableMember], topics: frozenset[TopicId], partitions: Mapping[TopicId, int]
) -> TargetAssignment:
    """All members are subscribed to `topics`."""
    every = [
        TopicPartition(topic_id, partition)
        for topic_id in sorted(topics)
        for partition in range(partitions[topic_id])
    ]
    kept, unowned = _previous(members, every)
    quotas = _quotas([len(each) for each in kept], len(every))
    surplus: list[TopicPartition] = []
    for index, quota in enumerate(quotas):
        if len(kept[index]) > quota:
            ordered = sorted(kept[index])
            kept[index] = frozenset(ordered[:quota])
            surplus += ordered[quota:]
    free = iter([each for each in every if each in unowned] + surplus)
    return {
        member.member_id: held if len(held) == quota else held.union(islice(free, quota - len(held)))
        for member, held, quota in zip(members, kept, quotas, strict=True)
    }


def _previous(
    members: Sequence[AssignableMember], every: Sequence[TopicPartition]
) -> tuple[list[frozenset[TopicPartition]], set[TopicPartition]]:
    """What each member has had of these partitions, and the partitions that no member has had."""
    unowned = set(every)
    held = []
    for member in members:
        still = member.target & unowned
        unowned -= still
        held.append(still if len(still) < len(member.target) else member.target)
    return held, unowned


def _quotas(sizes: Sequence[int], total: int) -> list[int]:
    """How many partitions each member gets. An extra one goes to a member that has it already, as long as enough
    members are left to take the others."""
    quota, extras = divmod(total, len(sizes))
    quotas = []
    for index, size in enumerate(sizes):
        must_take = len(sizes) - index <= extras
        takes = extras > 0 and (size > quota or must_take)
        extras -= takes
        quotas.append(quota + takes)
    return quotas
