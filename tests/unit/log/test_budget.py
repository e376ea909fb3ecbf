"""The byte budget of inline flushes."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.log.budget import ByteBudget


def test_a_second_is_worth_a_seconds_bytes():
    budget = ByteBudget(100)
    assert budget.take(60, 10.0)
    assert not budget.take(60, 10.0)
    assert budget.take(40, 10.0)
    assert not budget.take(60, 10.5)
    assert budget.take(60, 10.75)


def test_it_never_holds_more_than_a_second():
    budget = ByteBudget(100)
    assert budget.take(100, 1_000.0)
    assert budget.has(100, 9_000.0)
    assert not budget.has(101, 9_000.0)


def test_asking_takes_nothing():
    budget = ByteBudget(100)
    assert all(budget.has(100, 1.0) for _ in range(5))
    assert budget.take(100, 1.0)


def test_time_that_stands_or_goes_back_gives_nothing():
    budget = ByteBudget(100)
    assert budget.take(100, 50.0)
    assert not budget.has(1, 40.0)
    assert not budget.has(1, 40.0)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 150)), max_size=40))
def test_over_any_time_no_more_is_taken_than_the_rate_and_one_second(steps):
    budget, now, taken = ByteBudget(100), 5.0, 0
    for passed, size in steps:
        now += passed
        if budget.take(size, now):
            taken += size
        assert taken <= 100 + (now - 5.0) * 100 + 1e-6
