"""The `simple` assignor of share groups, against naive models; see `simple_model`."""

import random
from fractions import Fraction
from math import ceil

from tests.each import for_each
from tests.unit.groups.share.simple_model import (
    check,
    kept,
    member,
    most_that_can_stay,
    random_group,
    shares,
    topic,
)

from millpond.groups.share.assignor import assign_simple
from millpond.model.ids import TopicPartition

GROUPS = 1_500
HISTORIES = 40


def sizes(members, partitions):
    found = assign_simple([member(f"m{number}", "a") for number in range(members)], {topic("a"): partitions})
    return [len(found[f"m{number}"]) for number in range(members)]


def test_more_partitions_than_members_are_read_once():
    assert sizes(1, 4) == [4]
    assert sizes(2, 4) == [2, 2]
    assert sizes(3, 4) == [2, 1, 1]


def test_more_members_than_partitions_share_them():
    assert sizes(4, 1) == [1, 1, 1, 1]
    assert sizes(3, 2) == [2, 1, 1]
    assert sizes(5, 4) == [2, 2, 1, 2, 1]


def test_quotas_are_those_of_kafka():
    """⌈q·(i+1)⌉ - ⌈q·i⌉, with fractions."""

    for members in range(1, 13):
        for partitions in range(1, 13):
            sharing, quotas = shares(members, partitions)
            assert sharing == ceil(Fraction(members, partitions))
            q = Fraction(sharing * partitions, members)
            assert quotas == [ceil(q * (i + 1)) - ceil(q * i) for i in range(members)]


def test_random_groups_are_balanced():
    rng = random.Random(1)
    for _ in range(GROUPS):
        members, partitions = random_group(rng)
        check(members, partitions, assign_simple(members, partitions))


def test_the_order_of_the_arguments_does_not_matter():
    rng = random.Random(2)
    for _ in range(200):
        members, partitions = random_group(rng)
        found = assign_simple(members, partitions)
        again = assign_simple(members[::-1], dict(reversed(partitions.items())))
        assert found == again


def test_nothing_moves_without_a_reason():
    """A target that is assigned again is the same."""
    rng = random.Random(3)
    for _ in range(300):
        members, partitions = random_group(rng)
        found = assign_simple(members, partitions)
        settled = [each._replace(target=found[each.member_id]) for each in members]
        assert assign_simple(settled, partitions) == found


@for_each("seed", range(HISTORIES))
def test_hardly_anything_moves_that_could_stay(seed):
    """Members come and go, and the topic grows: at most one partition more moves than an exhaustive search needs."""
    rng = random.Random(seed)
    names, partitions, target = ["m50"], {topic("a"): rng.randint(1, 4)}, {}
    for _ in range(8):
        members = [member(name, "a", target.get(name, frozenset())) for name in names]
        target = assign_simple(members, partitions)
        check(members, partitions, target)
        assert kept(members, target) >= most_that_can_stay(members, partitions) - 1
        event = rng.random()
        if event < 0.5 and len(names) < 5:
            names.append(
                next(name for name in map("m{:02d}".format, rng.sample(range(99), 9)) if name not in names)
            )
        elif event < 0.8 and len(names) > 1:
            names.remove(rng.choice(names))
        else:
            partitions = {topic("a"): min(partitions[topic("a")] + 1, 5)}


def test_a_member_without_topics_and_a_group_without_partitions_get_nothing():
    members = [member("m1", ""), member("m2", "a")]
    assert assign_simple(members, {}) == {"m1": frozenset(), "m2": frozenset()}
    assert {name: len(each) for name, each in assign_simple(members, {topic("a"): 3}).items()} == {
        "m1": 0,
        "m2": 3,
    }


def test_members_exchange_partitions_if_one_with_room_reads_the_last_one_already():
    """m1 to m4 fill up first; the last place of a partition is left for a member that reads it."""
    before = [("m1", {0}), ("m2", {2}), ("m3", set()), ("m4", {3}), ("m5", {1})]

    members = [
        member(name, "a", frozenset(TopicPartition(topic("a"), number) for number in had))
        for name, had in before
    ]
    found = assign_simple(members, {topic("a"): 4})
    check(members, {topic("a"): 4}, found)
    assert kept(members, found) == 4
