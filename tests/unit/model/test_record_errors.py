"""Which records a refusal names, and how it writes them down."""

from millpond.model.record_errors import (
    RECORD_ERRORS_MAX,
    RecordErrors,
    keyless_records,
    record_errors,
    untimely_records,
)

TEXTS = {
    (): "",
    (7,): "7",
    (0, 1): "0-1",
    (1, 3, 5, 6, 7, 9): "1, 3, 5-7, 9",
    tuple(range(1_000)): "0-999",
}


def test_indexes_are_written_as_ranges():
    assert {indexes: str(RecordErrors(indexes, "bad")) for indexes in TEXTS} == TEXTS


def test_a_text_that_would_be_long_ends_early_at_a_whole_number():
    text = str(RecordErrors(tuple(range(0, 1_000, 2)), "bad"))
    assert text.endswith(", …")
    numbers = [int(each) for each in text.removesuffix(", …").split(", ")]
    assert numbers == list(range(0, 2 * len(numbers), 2))
    assert len(text) < 250


def test_only_so_many_are_named():
    """The rest is not even looked for."""
    every = iter(range(10**9))
    found = record_errors(every, "bad")
    assert found.indexes == tuple(range(RECORD_ERRORS_MAX))
    assert next(every) == RECORD_ERRORS_MAX


def test_nothing_is_wrong_with_keys():
    assert keyless_records(()) is None


def test_a_time_is_ahead_or_behind():
    limits = {"before_max_ms": 5, "after_max_ms": 7}
    behind = untimely_records(90, 100, indexes=(4, 6), **limits)
    assert str(behind) == "Batch timestamp 90 lies 10 ms behind the broker's time; 5 ms are allowed."
    assert behind.facts["record"] == 4
    ahead = untimely_records(110, 100, indexes=(0,), **limits)
    assert str(ahead) == "Batch timestamp 110 lies 10 ms ahead of the broker's time; 7 ms are allowed."
