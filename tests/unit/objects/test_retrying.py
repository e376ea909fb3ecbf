"""Retries: bounded, jittered, and right about calls that were applied though their answer was lost."""

from collections.abc import Iterable
from random import Random

import pytest

from millpond.model.errors import (
    MillpondError,
    ObjectExists,
    ObjectMissing,
    StoreFull,
    StoreUnavailable,
)
from millpond.model.ids import Session
from millpond.objects.memory import MemoryStore
from millpond.objects.retrying import Retrying, RetryPolicy
from millpond.testing.faults import Faults, FaultyStore

POLICY = RetryPolicy(attempts_max=4, deadline_ms=10_000, base_delay_ms=100, delay_ms_max=300)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self.seconds * 1000)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


class Longest(Random):
    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(Session("s1"))


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def store(memory: MemoryStore, faults: Faults, time: Time) -> Retrying:
    return Retrying(FaultyStore(memory, faults), POLICY, clock=time, random=Longest(), sleep=time.sleep)


class TestBounds:
    def test_attempts(self, store: Retrying, faults: Faults, time: Time, memory: MemoryStore) -> None:
        faults.fail_before("append", times=3)
        store.append([b"x"])
        assert time.slept == [0.1, 0.2, 0.3]
        faults.fail_before("append", times=4)
        with pytest.raises(StoreUnavailable):
            store.append([b"x"])
        assert len(list(memory.list(""))) == 1
        store.append([b"all four were used up"])

    def test_deadline(self, memory: MemoryStore, faults: Faults, time: Time) -> None:
        policy = RetryPolicy(attempts_max=1000, deadline_ms=1_000, base_delay_ms=100, delay_ms_max=300)
        store = Retrying(FaultyStore(memory, faults), policy, clock=time, random=Longest(), sleep=time.sleep)
        faults.fail_before("read", times=1000)
        with pytest.raises(StoreUnavailable):
            store.read("a", 0, 1)
        assert time.slept == [0.1, 0.2, 0.3, 0.3]

    def test_jitter_is_full_and_bounded(self, memory: MemoryStore, time: Time) -> None:
        faults = Faults()
        store = Retrying(FaultyStore(memory, faults), POLICY, clock=time, random=Random(1), sleep=time.sleep)
        for _ in range(200):
            faults.fail_before("append", times=3)
            store.append([b"x"])
        for number, ceiling in enumerate((0.1, 0.2, 0.3)):
            pauses = time.slept[number::3]
            assert all(0 <= pause <= ceiling for pause in pauses)
            assert min(pauses) < 0.1 * ceiling
            assert max(pauses) > 0.9 * ceiling

    def test_first_attempt_does_not_wait(self, store: Retrying, time: Time) -> None:
        store.append([b"x"])
        assert time.slept == []

    def test_closing_ends_the_attempts(self, store: Retrying, time: Time) -> None:
        store.close()
        with pytest.raises(StoreUnavailable):
            store.append([b"x"])
        assert time.slept == []

    def test_retries_are_told(self, memory: MemoryStore, faults: Faults, time: Time) -> None:
        told: list[str] = []
        store = Retrying(FaultyStore(memory, faults), POLICY, sleep=time.sleep, on_retry=told.append)
        faults.fail_before("put", times=2)
        store.put("a", [b"x"])
        assert told == ["put", "put"]


@pytest.mark.parametrize(
    "error",
    [StoreFull(reason="full"), ObjectMissing(key="a"), ObjectExists(key="a")],
    ids=lambda e: type(e).__name__,
)
def test_other_errors_are_not_retried(
    store: Retrying, faults: Faults, time: Time, error: MillpondError
) -> None:
    faults.fail_before("append", error)
    with pytest.raises(type(error)):
        store.append([b"x"])
    assert time.slept == []


class TestLostAnswers:
    def test_append_is_stored_again_elsewhere(
        self, store: Retrying, faults: Faults, memory: MemoryStore
    ) -> None:
        faults.fail_after("append")
        location = store.append([b"twice"])
        first, second = memory.list("")
        assert location.key == second
        assert memory.read(first, 0, 5) == memory.read(second, 0, 5) == b"twice"

    def test_put_is_found_and_taken_for_ours(self, store: Retrying, faults: Faults) -> None:
        faults.fail_after("put")
        store.put("a", [b"he", b"llo"])
        assert store.read("a", 0, 5) == b"hello"

    @pytest.mark.parametrize("foreign", [b"world", b"hell", b"hello!"])
    def test_a_foreign_object_is_not(
        self, store: Retrying, faults: Faults, memory: MemoryStore, foreign: bytes
    ) -> None:
        memory.put("a", [foreign])
        faults.fail_before("put")
        with pytest.raises(ObjectExists):
            store.put("a", [b"hello"])
        assert memory.read("a", 0, len(foreign)) == foreign

    def test_a_first_conflict_is_a_conflict_even_with_equal_bytes(
        self, store: Retrying, memory: MemoryStore
    ) -> None:
        memory.put("a", [b"hello"])
        with pytest.raises(ObjectExists):
            store.put("a", [b"hello"])

    def test_the_comparison_is_retried_too(self, store: Retrying, faults: Faults) -> None:
        faults.fail_after("put")
        faults.fail_before("read")
        faults.fail_before("size")
        store.put("a", [b"hello"])
        assert store.read("a", 0, 5) == b"hello"

    def test_a_conflict_over_nothing_is_tried_again(
        self, store: Retrying, faults: Faults, memory: MemoryStore
    ) -> None:
        """S3 answers 409 while another request for the key is under way."""
        faults.fail_before("put")
        faults.fail_before("put", ObjectExists(key="a"))
        store.put("a", [b"hello"])
        assert memory.read("a", 0, 5) == b"hello"

    def test_delete(self, store: Retrying, faults: Faults, memory: MemoryStore) -> None:
        memory.put("a", [b"x"])
        memory.put("b", [b"x"])
        faults.fail_after("delete")
        faults.fail_before("delete")
        store.delete(iter(["a", "b"]))
        assert list(memory.list("")) == []

    def test_delete_takes_the_keys_before_the_first_attempt(self, time: Time) -> None:
        class BreaksOffOnce(MemoryStore):
            broken = False

            def delete(self, keys: Iterable[str]) -> None:
                chosen = list(keys)
                if not self.broken:
                    self.broken = True
                    raise StoreUnavailable(reason="once")
                super().delete(chosen)

        memory = BreaksOffOnce(Session("s1"))
        memory.put("a", [b"x"])
        Retrying(memory, POLICY, clock=time, sleep=time.sleep).delete(iter(["a"]))
        assert list(memory.list("")) == []

    def test_a_listing_goes_on_where_it_broke_off(
        self, store: Retrying, faults: Faults, memory: MemoryStore
    ) -> None:
        for key in "abcd":
            memory.put(key, [b"x"])
        faults.fail_before("list", times=2)
        faults.fail_after("list", times=2)
        assert list(store.list("")) == ["a", "b", "c", "d"]

    def test_a_listing_without_progress_ends(self, store: Retrying, faults: Faults, time: Time) -> None:
        faults.fail_before("list", times=10)
        with pytest.raises(StoreUnavailable):
            list(store.list(""))
        assert len(time.slept) == 3
