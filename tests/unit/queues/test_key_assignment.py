from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.queues.key_assignment import SLOT_BITS, FirstCome, KeyAssignment, key_hash

SLOTS = [slot << (64 - SLOT_BITS) for slot in range(0, 1 << SLOT_BITS, 37)]
FEW = settings(max_examples=20, deadline=None)
NAMES = st.lists(st.text("abcdefgh-", min_size=1, max_size=8), min_size=2, max_size=6, unique=True)


def owners(weights):
    assignment = KeyAssignment()
    assignment.replace(weights)
    return [assignment.owner(slot) for slot in SLOTS]


def equally(names):
    return dict.fromkeys(names, 1.0)


@FEW
@given(names=NAMES)
def test_who_comes_takes_some_keys_and_moves_no_others(names):
    before, after = owners(equally(names[:-1])), owners(equally(names))
    assert {new for old, new in zip(before, after, strict=True) if new != old} <= {names[-1]}


@FEW
@given(names=NAMES)
def test_the_order_in_which_they_came_does_not_matter(names):
    assert owners(equally(names)) == owners(equally(reversed(names)))


@FEW
@given(names=NAMES, weight=st.floats(0.1, 0.99))
def test_a_lower_weight_moves_only_keys_of_its_own(names, weight):
    before, after = owners(equally(names)), owners({**equally(names), names[0]: weight})
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {old for old, _ in moved} <= {names[0]}


@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_keys_are_spread_evenly(count):
    held = Counter(owners(equally(f"consumer-{number}" for number in range(count))))
    mean = len(SLOTS) / count
    assert len(held) == count
    assert all(0.5 * mean < each < 1.6 * mean for each in held.values())


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
def test_a_consumer_has_keys_in_proportion_to_its_weight(weight):
    held = Counter(owners({"anna": weight, "bert": 1.0}))
    assert held["anna"] / len(SLOTS) == pytest.approx(weight / (1 + weight), abs=0.04)


def test_a_key_keeps_its_consumer_when_somebody_goes_and_comes_back():
    assignment = KeyAssignment()
    names = ["anna", "bert", "carl"]
    assignment.replace(equally(names))
    before = [assignment.owner(slot) for slot in SLOTS]
    assert assignment.replace(equally(names[:2]))
    assert assignment.replace(equally(names))
    assert [assignment.owner(slot) for slot in SLOTS] == before


def test_nothing_has_changed_if_the_consumers_are_the_same():
    assignment = KeyAssignment()
    assert assignment.replace({"anna": 1.0, "bert": 0.5})
    assert not assignment.replace({"bert": 0.5, "anna": 1.0})


@pytest.mark.parametrize("assignment", [KeyAssignment(), FirstCome()])
def test_without_consumers_a_key_is_nobodys(assignment):
    assert assignment.owner(7) is None
    assignment.replace({"anna": 1.0})
    assignment.replace({})
    assert assignment.owner(7) is None


def test_keys_of_a_slot_belong_together_and_the_hash_does_not_change():
    assignment = KeyAssignment()
    assignment.replace(equally("abc"))
    assert len({assignment.owner(5 << 48 | low) for low in range(100)}) == 1
    assert key_hash(b"orders") == 5584380421345094869


def test_a_whole_partition_belongs_to_whoever_came_first():
    assignment = FirstCome()
    assert assignment.replace({"bert": 1.0, "anna": 1.0})
    assert {assignment.owner(slot) for slot in SLOTS} == {"bert"}
    assert not assignment.replace({"bert": 1.0})
    assert assignment.replace({"anna": 1.0})
    assert assignment.owner(0) == "anna"
