"""The faulty store does what its plan says, and nothing else."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from millpond.model.errors import CorruptObject, StoreFull, StoreUnavailable
from millpond.model.ids import Session
from millpond.objects.memory import MemoryStore
from millpond.testing.faults import Faults, FaultyStore


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(Session("s1"))


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def store(memory: MemoryStore, faults: Faults) -> FaultyStore:
    return FaultyStore(memory, faults)


def test_before_nothing_is_applied(store: FaultyStore, faults: Faults, memory: MemoryStore) -> None:
    faults.fail_before("put")
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"x"])
    assert list(memory.list("")) == []
    store.put("a", [b"x"])


def test_after_it_is_applied(store: FaultyStore, faults: Faults, memory: MemoryStore) -> None:
    faults.fail_after("put", StoreFull(reason="so it says"))
    with pytest.raises(StoreFull):
        store.put("a", [b"x"])
    assert list(memory.list("")) == ["a"]


def test_script_is_used_in_order_and_by_operation(store: FaultyStore, faults: Faults) -> None:
    faults.let_through("append", times=2)
    faults.fail_before("append")
    store.put("a", [b"x"])
    store.append([b"1"])
    store.append([b"2"])
    with pytest.raises(StoreUnavailable):
        store.append([b"3"])
    store.append([b"4"])


@pytest.mark.parametrize("applied", [False, True])
def test_hold(store: FaultyStore, faults: Faults, memory: MemoryStore, applied: bool) -> None:
    """A slow put is overtaken by a later one."""
    slow = faults.hold("put", applied=applied)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(store.put, "slow", [b"x"])
        slow.wait_reached()
        store.put("fast", [b"x"])
        assert not future.done()
        assert list(memory.list("")) == (["fast", "slow"] if applied else ["fast"])
        slow.release()
        future.result()
    assert list(memory.list("")) == ["fast", "slow"]


def test_a_hold_nobody_reaches(faults: Faults) -> None:
    with pytest.raises(TimeoutError):
        faults.hold("put").wait_reached(timeout=0.01)


def test_short_read(store: FaultyStore, faults: Faults) -> None:
    store.put("a", [b"hello"])
    faults.shorten_read(missing_bytes=2)
    assert store.read("a", 0, 5) == b"hel"
    assert store.read("a", 0, 5) == b"hello"
    faults.fail_before("read", CorruptObject(key="a", position=0, reason="rot"))
    with pytest.raises(CorruptObject, match="rot"):
        store.read("a", 0, 5)


def test_error_rate_is_met_and_repeatable(memory: MemoryStore) -> None:
    def failures(seed: int) -> tuple[list[bool], int]:
        memory = MemoryStore(Session("s1"))
        store = FaultyStore(memory, Faults(error_rate=0.3, random=Random(seed)))
        outcomes = []
        for _ in range(2000):
            try:
                store.append([b"x"])
            except StoreUnavailable:
                outcomes.append(True)
            else:
                outcomes.append(False)
        return outcomes, len(list(memory.list("")))

    outcomes, applied = failures(1)
    assert 0.25 < sum(outcomes) / 2000 < 0.35
    assert 0.8 < applied / 2000 < 0.9
    assert failures(1) == (outcomes, applied)
    assert failures(2)[0] != outcomes
