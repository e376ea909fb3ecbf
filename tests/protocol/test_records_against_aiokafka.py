"""RecordBatch v2 against aiokafka, with every codec, in both directions: we write, it reads, and the reverse.

aiokafka has two implementations, one compiled and one in Python; both are asked. Both drop the codec when a
batch would not get smaller, so what they write may be uncompressed whatever they were told.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.record import default_records
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.records import (
    NO_OFFSET,
    Codec,
    MarkerKind,
    Record,
    build_batch,
    build_control_batch,
    iter_records,
    stamp_run,
    validate,
    with_append_time,
)

LIMIT = 1 << 22
BUILDERS = [default_records.DefaultRecordBatchBuilder, default_records._DefaultRecordBatchBuilderPy]
READERS = [default_records.DefaultRecordBatch, default_records._DefaultRecordBatchPy]

CONTENTS = st.none() | st.binary(max_size=100) | st.builds(bytes, st.integers(0, 5000))
HEADERS = st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=12)), max_size=4).map(tuple)
TIMESTAMPS = st.integers(0, 1 << 52) | st.integers(1_700_000_000_000, 1_700_000_100_000)
RECORDS = st.lists(
    st.builds(
        Record, value=CONTENTS, key=CONTENTS, headers=HEADERS, timestamp=TIMESTAMPS, offset=st.just(NO_OFFSET)
    ),
    min_size=1,
    max_size=8,
)
PRODUCERS = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "producer_id": st.integers(0, 2**63 - 1),
            "producer_epoch": st.integers(0, 2**15 - 1),
            "base_sequence": st.integers(0, 2**31 - 1),
            "transactional": st.booleans(),
        }
    ),
)


def numbered(records: list[Record], base: int) -> list[Record]:
    return [
        Record(record.value, record.key, record.headers, record.timestamp, base + index)
        for index, record in enumerate(records)
    ]


def from_aiokafka(batch: Any) -> Iterator[Record]:
    for record in batch:
        yield Record(record.value, record.key, tuple(record.headers), record.timestamp, record.offset)


def written_by_aiokafka(
    builder: type, codec: Codec, records: list[Record], producer: dict[str, int]
) -> bytes:
    writer = builder(
        magic=2,
        compression_type=codec,
        is_transactional=producer.get("transactional", 0),
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=LIMIT,
    )
    for index, record in enumerate(records):
        headers = list(record.headers)
        assert writer.append(index, record.timestamp, record.key, record.value, headers) is not None
    return bytes(writer.build())


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=40, deadline=None)
@given(records=RECORDS, producer=PRODUCERS, base=st.integers(0, 2**62))
def test_we_write_and_it_reads(
    codec: Codec, reader: type, records: list[Record], producer: dict[str, int], base: int
) -> None:
    batch = reader(build_batch(records, compression=codec, base_offset=base, **producer))
    assert batch.validate_crc()
    assert (batch.base_offset, batch.compression_type) == (base, codec)
    assert batch.next_offset == base + len(records)
    assert batch.max_timestamp == max(record.timestamp for record in records)
    assert batch.producer_id == producer.get("producer_id", -1)
    assert batch.producer_epoch == producer.get("producer_epoch", -1)
    assert batch.base_sequence == producer.get("base_sequence", -1)
    assert batch.is_transactional == producer.get("transactional", False)
    assert not batch.is_control_batch
    assert list(from_aiokafka(batch)) == numbered(records, base)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=40, deadline=None)
@given(records=RECORDS, producer=PRODUCERS, base=st.integers(0, 2**62))
def test_it_writes_and_we_read(
    codec: Codec, builder: type, records: list[Record], producer: dict[str, int], base: int
) -> None:
    batch = bytearray(written_by_aiokafka(builder, codec, records, producer))
    [(_, header)] = validate(batch, max_batch_bytes=LIMIT)
    assert header.codec in (codec, Codec.NONE)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.producer_id == producer.get("producer_id", -1)
    assert header.base_sequence == producer.get("base_sequence", -1)
    assert header.is_transactional == bool(producer.get("transactional"))
    assert stamp_run(batch, base, leader_epoch=3) == base + len(records)
    assert list(iter_records(batch, decompressed_bytes_max=LIMIT)) == numbered(records, base)


@settings(max_examples=40, deadline=None)
@given(records=RECORDS, producer=PRODUCERS)
def test_uncompressed_the_two_write_the_same_bytes(records: list[Record], producer: dict[str, int]) -> None:
    theirs = written_by_aiokafka(BUILDERS[0], Codec.NONE, records, producer)
    assert build_batch(records, **producer) == theirs


@settings(max_examples=40, deadline=None)
@given(
    runs=st.lists(RECORDS, min_size=1, max_size=4), base=st.integers(0, 2**40), codec=st.sampled_from(Codec)
)
def test_it_walks_a_run_that_we_stamped(runs: list[list[Record]], base: int, codec: Codec) -> None:
    run = bytearray(b"".join(build_batch(records, compression=codec) for records in runs))
    stamp_run(run, base, leader_epoch=1)
    theirs = MemoryRecords(bytes(run))
    read: list[Record] = []
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        read += from_aiokafka(batch)
    assert read == numbered([record for records in runs for record in records], base)


@settings(max_examples=40, deadline=None)
@given(records=RECORDS, now_ms=st.integers(0, 1 << 52), codec=st.sampled_from(Codec))
def test_it_sees_the_append_time_we_set(records: list[Record], now_ms: int, codec: Codec) -> None:
    batch = READERS[0](with_append_time(build_batch(records, compression=codec), now_ms))
    assert batch.validate_crc()
    assert batch.timestamp_type == 1
    assert [record.timestamp for record in batch] == [now_ms] * len(records)


@settings(max_examples=40, deadline=None)
@given(
    offsets=st.sets(st.integers(1000, 3000), min_size=1, max_size=20).map(sorted),
    before=st.integers(0, 9),
    after=st.integers(0, 9),
)
def test_it_reads_a_compacted_batch_with_its_gaps(offsets: list[int], before: int, after: int) -> None:
    records = [Record(b"kept", offset=offset, timestamp=1) for offset in offsets]
    base, last = offsets[0] - before, offsets[-1] + after
    batch = READERS[0](build_batch(records, base_offset=base, last_offset=last))
    assert (batch.base_offset, batch.next_offset) == (base, last + 1)
    assert [record.offset for record in batch] == offsets


@pytest.mark.parametrize(
    ("kind", "marker"), [(MarkerKind.ABORT, ABORT_MARKER), (MarkerKind.COMMIT, COMMIT_MARKER)]
)
def test_it_understands_our_markers(kind: MarkerKind, marker: ControlRecord) -> None:
    batch = READERS[0](build_control_batch(kind, producer_id=9, producer_epoch=2, timestamp=5))
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, -1)
    [record] = list(batch)
    assert ControlRecord.parse(record.key) == marker
