from types import MappingProxyType

import pytest
from tests.each import for_each
from tests.unit.groups.consumer.assignor_model import (
    MEDIUM,
    SMALL,
    arbitrary,
    check,
    histories,
    most_kept_by_formula,
    most_kept_of_all,
)

from millpond.groups.consumer.assignors import ASSIGNORS, AssignableMember
from millpond.model.ids import TopicId, TopicPartition

ORDERS, BILLS = TopicId(bytes([1] * 16)), TopicId(bytes([2] * 16))


def member(member_id, topics=(ORDERS,), target=(), instance_id=None):
    return AssignableMember(member_id, instance_id, frozenset(topics), frozenset(target))


def of(topic_id, *partitions):
    return {TopicPartition(topic_id, partition) for partition in partitions}


def test_uniform_is_the_default():
    assert list(ASSIGNORS) == ["uniform", "range"]
    assert isinstance(ASSIGNORS, MappingProxyType)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_assignors_keep_their_promises_in_the_history_of_a_group(name):
    for sizes, seeds in ((SMALL, 150), (MEDIUM, 20)):
        for seed in range(seeds):
            for group in histories(seed, ASSIGNORS[name], sizes):
                check(name, ASSIGNORS[name], group)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_assignors_keep_their_promises_after_any_target(name):
    for seed in range(400):
        check(name, ASSIGNORS[name], arbitrary(seed))


@for_each("name", ASSIGNORS)
def test_a_group_without_members_has_no_assignment(name):
    assert ASSIGNORS[name]([], {ORDERS: 3}) == {}


@for_each("name", ASSIGNORS)
def test_what_is_subscribed_but_does_not_exist_is_not_assigned(name):
    members = [member("a", [ORDERS, BILLS], of(BILLS, 0)), member("b", [ORDERS])]
    assert ASSIGNORS[name](members, {ORDERS: 2}) == {"a": of(ORDERS, 0), "b": of(ORDERS, 1)}
    assert ASSIGNORS[name](members, {}) == {"a": frozenset(), "b": frozenset()}


@for_each("name", ASSIGNORS)
def test_a_partition_in_two_targets_is_assigned_once(name):
    for topics in ([ORDERS], [ORDERS, BILLS]):
        members = [member("b", topics, of(ORDERS, 0, 1)), member("a", [ORDERS], of(ORDERS, 1, 2))]
        assigned = ASSIGNORS[name](members, {ORDERS: 4, BILLS: 1})
        assert sorted([*assigned["a"], *assigned["b"]]) == sorted(
            of(ORDERS, 0, 1, 2, 3) | (of(BILLS, 0) if BILLS in topics else set())
        )


def test_uniform_moves_as_little_as_possible_when_a_member_joins():
    before = [member("a", target=of(ORDERS, 0, 1, 2)), member("b", target=of(ORDERS, 3, 4, 5)), member("c")]
    assigned = ASSIGNORS["uniform"](before, {ORDERS: 6})
    assert assigned == {"a": of(ORDERS, 0, 1), "b": of(ORDERS, 3, 4), "c": of(ORDERS, 2, 5)}


def test_uniform_leaves_the_extra_partition_where_it_is():
    before = [member("a", target=of(ORDERS, 0)), member("b", target=of(ORDERS, 1, 2))]
    assert ASSIGNORS["uniform"](before, {ORDERS: 3}) == {"a": of(ORDERS, 0), "b": of(ORDERS, 1, 2)}


def test_uniform_gives_more_to_members_that_can_take_it():
    """`b` alone may have BILLS, so `a` gets more of ORDERS."""
    members = [member("a"), member("b", [ORDERS, BILLS])]
    assigned = ASSIGNORS["uniform"](members, {ORDERS: 4, BILLS: 2})
    assert assigned == {"a": of(ORDERS, 0, 1, 2), "b": of(ORDERS, 3) | of(BILLS, 0, 1)}


def test_an_unchanged_target_is_returned_as_it_is():
    """Callers may compare targets by identity first."""
    same = [member("a", target=of(ORDERS, 0)), member("b", [ORDERS, BILLS], of(ORDERS, 1) | of(BILLS, 0))]
    assert ASSIGNORS["uniform"](same, {ORDERS: 2, BILLS: 1})["b"] is same[1].target
    equal = [each._replace(topics=frozenset([ORDERS, BILLS])) for each in same]
    assert ASSIGNORS["uniform"](equal, {ORDERS: 2, BILLS: 1})["b"] is equal[1].target


def test_range_goes_by_instance_ids_first():
    members = [member("z", instance_id="1"), member("y", instance_id="2"), member("a"), member("b")]
    assert ASSIGNORS["range"](members, {ORDERS: 6}) == {
        "z": of(ORDERS, 0, 1),
        "y": of(ORDERS, 2, 3),
        "a": of(ORDERS, 4),
        "b": of(ORDERS, 5),
    }


def test_range_assigns_the_same_numbers_of_topics_that_are_alike():
    members = [member("a", [ORDERS, BILLS]), member("b", [ORDERS, BILLS])]
    assigned = ASSIGNORS["range"](members, {ORDERS: 3, BILLS: 3})
    assert assigned == {"a": of(ORDERS, 0, 1) | of(BILLS, 0, 1), "b": of(ORDERS, 2) | of(BILLS, 2)}


def test_the_search_for_the_fewest_moves_agrees_with_the_formula():
    """The model's two ways of counting: only the formula can be used for larger groups."""
    groups = [each for each in map(arbitrary, range(0, 200, 2)) if not each.has_overlaps()]
    groups = [group for group in groups if len(group.subscribed()) < 7]
    assert len(groups) > 30
    for group in groups:
        assert most_kept_of_all(group) == most_kept_by_formula(group)
