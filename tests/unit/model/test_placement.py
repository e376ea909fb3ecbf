"""Shares that differ by one at most, with as few moves as that allows, and the same whoever works them out."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.placement import has_too_many, moves, spread

BROKERS = st.sets(st.sampled_from([f"b{number}" for number in range(8)]), min_size=1)
OWNERS = st.dictionaries(
    st.tuples(st.sampled_from("tuvw"), st.integers(0, 30)),
    st.sampled_from([f"b{number}" for number in range(10)]),
    max_size=80,
)


def topic_of(unit):
    return unit[0]


def shares(owners, brokers):
    counts = Counter(owners.values())
    return [counts[broker] for broker in brokers]


def fewest_moves(owners, brokers):
    """Whoever is above its share must give the difference, whoever is gone everything; the odd ones stay where most
    is."""
    counts = sorted(shares(owners, brokers), reverse=True)
    share, odd = divmod(len(owners), len(brokers))
    kept = sum(min(count, share + (rank < odd)) for rank, count in enumerate(counts))
    return len(owners) - kept


@given(OWNERS, BROKERS)
def test_shares_are_even_afterwards_with_the_fewest_moves(owners, brokers):
    moved = moves(owners, brokers, family=topic_of)
    after = {**owners, **moved}
    assert set(after.values()) <= brokers
    counts = shares(after, brokers)
    assert max(counts) - min(counts) <= 1
    assert len(moved) == fewest_moves(owners, brokers)
    assert all(owners[unit] != to for unit, to in moved.items())


@given(OWNERS, BROKERS)
def test_what_is_even_stays(owners, brokers):
    after = {**owners, **moves(owners, brokers)}
    assert moves(after, brokers) == {}


@given(OWNERS, BROKERS, st.randoms())
def test_the_order_of_what_was_read_does_not_matter(owners, brokers, random):
    shuffled = list(owners.items())
    random.shuffle(shuffled)
    assert moves(dict(shuffled), sorted(brokers), family=topic_of) == moves(
        owners, sorted(brokers, reverse=True), family=topic_of
    )


@given(OWNERS, BROKERS)
def test_those_without_an_owner_go_where_there_is_least(owners, brokers):
    placed = spread(sorted(owners), brokers, {})
    counts = shares(placed, brokers)
    assert max(counts) - min(counts) <= 1


def test_a_topic_is_spread_although_others_are_already_there():
    owners = {("old", number): "ab"[number % 2] for number in range(10)}
    new = [("new", number) for number in range(6)]
    placed = spread(new, ["a", "b"], Counter(owners.values()), family=topic_of)
    assert Counter(placed.values()) == {"a": 3, "b": 3}


def test_a_newcomer_gets_some_of_every_topic():
    owners = {(topic, number): "ab"[number % 2] for topic in "tuv" for number in range(20)}
    moved = moves(owners, ["a", "b", "c"], family=topic_of)
    assert sorted(Counter(topic for topic, _ in moved).values()) == [6, 7, 7]
    assert set(moved.values()) == {"c"}


def test_nobody_to_give_to():
    assert moves({1: "a"}, []) == {}
    assert spread([1], [], {}) == {}


@given(
    owners=st.lists(st.sampled_from("abcd"), max_size=30), brokers=st.sets(st.sampled_from("abc"), min_size=1)
)
def test_who_has_too_many_is_who_gives(owners, brokers):
    owned = dict(enumerate(owners))
    givers = {owned[unit] for unit in moves(owned, sorted(brokers))}
    counts = Counter(owners)
    assert {each for each in "abcd" if has_too_many(counts, sorted(brokers), each)} == givers


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("total", [100, 101, 7, 998])
def test_those_who_give_one_after_the_other_give_no_more_than_all_at_once(order, total):
    """Each gives by what was there when all began, and those who have given look again meanwhile."""
    before = {number: "abc"[number % 3] for number in range(total)}
    brokers = ["a", "b", "c", "d", "e"]
    owners, count = dict(before), 0
    for place, giver in enumerate(order):
        steps = [(giver, before), *((each, owners) for each in order[: place + 1])]
        for who, seen in steps:
            mine = {unit: to for unit, to in moves(seen, brokers).items() if owners[unit] == who}
            owners |= mine
            count += len(mine)
    assert count == len(moves(before, brokers))
    assert moves(owners, brokers) == {}
