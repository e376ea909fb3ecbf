"""How the messages of a request become batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import RecordTooLarge
from millpond.records import HEADER_SIZE, Record, encoded_size_max, iter_records
from millpond.service.messages import pack

LIMIT = 1 << 20


def decoded(batch):
    return list(iter_records(batch.data, decompressed_bytes_max=LIMIT))


messages = st.lists(st.tuples(st.binary(max_size=60), st.integers(0, 3)), min_size=1, max_size=60)


@given(messages, st.integers(0, 400))
def test_every_message_is_packed_once_in_its_partition_and_order(given_messages, batch_bytes):
    records = [Record(b"%d:" % number + value) for number, (value, _) in enumerate(given_messages)]
    chosen = [partition for _, partition in given_messages]
    batches = pack(records, chosen, batch_bytes, LIMIT, now_ms=5)
    seen = {}
    for batch in batches:
        assert [record.value for record in decoded(batch)] == [
            records[number].value for number in batch.indexes
        ]
        assert {record.timestamp for record in decoded(batch)} == {5}
        seen.setdefault(batch.partition, []).extend(batch.indexes)
    for partition, members in seen.items():
        assert members == [number for number, where in enumerate(chosen) if where == partition]
    assert sum(map(len, seen.values())) == len(records)


@given(messages, st.integers(HEADER_SIZE + 120, 600))
def test_batches_stay_below_the_limit_and_are_not_smaller_than_need_be(given_messages, batch_bytes):
    records = [Record(value) for value, _ in given_messages]
    batches = pack(records, [0] * len(records), batch_bytes, LIMIT, now_ms=0)
    sizes = [sum(encoded_size_max(records[number]) for number in batch.indexes) for batch in batches]
    for batch, size, following in zip(batches, sizes, batches[1:], strict=False):
        first_of_next = encoded_size_max(records[following.indexes[0]])
        assert HEADER_SIZE + size + first_of_next > batch_bytes
        assert len(batch.data) <= batch_bytes
    assert all(len(batch.data) <= batch_bytes for batch in batches)


def test_the_topics_limit_counts_as_well():
    batches = pack([Record(b"x" * 100)] * 10, [0] * 10, LIMIT, 400, now_ms=0)
    assert len(batches) == 5
    assert all(len(batch.data) <= 400 for batch in batches)


def test_a_message_that_fits_no_batch_is_named():
    with pytest.raises(RecordTooLarge) as refused:
        pack([Record(b"x"), Record(b"x" * 1_000)], [0, 0], LIMIT, 500, now_ms=0)
    assert refused.value.facts["record"] == 1


def test_a_message_larger_than_a_batch_goes_alone():
    batches = pack([Record(b"x"), Record(b"x" * 500), Record(b"x")], [0] * 3, 200, LIMIT, now_ms=0)
    assert [batch.indexes for batch in batches] == [[0], [1], [2]]


def test_what_has_a_timestamp_keeps_it():
    [batch] = pack([Record(b"x", timestamp=3), Record(b"y")], [0, 0], LIMIT, LIMIT, now_ms=9)
    assert [record.timestamp for record in decoded(batch)] == [3, 9]
