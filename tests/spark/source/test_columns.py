"""Arrow columns from scanned records, against the plain Python reader."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch
from millpond.reading.visible import visible
from millpond.records import HEADER_SIZE, NO_OFFSET, Codec, Record, build_batch, crc32c, walk
from millpond.spark.kernels.sections import to_section_groups, to_sections
from millpond.spark.source.offsets import NamedPartition
from millpond.spark.source.rows import ROWS_PER_BATCH, RowMaker

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
NAME = NamedPartition("orders", 3)


def rows(buffer: bytes, start: int = 0, end: int = 2**62, schema: pa.Schema = SCHEMA) -> list[dict]:
    sections = to_sections(list(visible([buffer], ())))
    batches = list(RowMaker(NAME, schema).record_batches(sections, start, end))
    for each in batches:
        each.validate(full=True)
    return [row for each in batches for row in each.to_pylist()]


bytes_or_none = st.one_of(st.none(), st.binary(max_size=40))
records = st.lists(
    st.builds(
        Record,
        bytes_or_none,
        bytes_or_none,
        st.lists(st.tuples(st.text(max_size=5), bytes_or_none), max_size=3).map(tuple),
        st.integers(0, 2**41),
        st.just(NO_OFFSET),
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(records, st.sampled_from(Codec)), min_size=1, max_size=4),
    st.integers(0, 30),
    st.integers(0, 60),
)
def test_rows_are_the_records(batches, start, end):
    data, base, expected = b"", 100, []
    for several, codec in batches:
        data += build_batch(several, compression=codec, base_offset=base)
        for number, record in enumerate(several):
            expected.append(
                (base + number, record.key, record.value, record.timestamp, list(record.headers) or None)
            )
        base += len(several)
    found = [
        (
            row["offset"],
            row["key"],
            row["value"],
            round(row["timestamp"].timestamp() * 1000),
            row["headers"] and [(each["key"], each["value"]) for each in row["headers"]],
        )
        for row in rows(data, 100 + start, 100 + end)
    ]
    assert found == [each for each in expected if 100 + start <= each[0] < 100 + end]


def test_the_same_in_every_row():
    first = rows(build_batch([Record(b"v", timestamp=5)]))[0]
    assert (first["topic"], first["partition"], first["timestampType"]) == ("orders", 3, 0)


def test_more_rows_than_fit_one_record_batch():
    count = ROWS_PER_BATCH * 2 + 5
    data = build_batch([Record(b"%d" % n, timestamp=n) for n in range(count)], base_offset=7)
    sections = to_sections(list(visible([data], ())))
    batches = list(RowMaker(NAME, SCHEMA).record_batches(sections, 0, 2**62))
    assert [each.num_rows for each in batches] == [ROWS_PER_BATCH, ROWS_PER_BATCH, 5]
    assert [row["value"] for each in batches for row in each.to_pylist()] == [b"%d" % n for n in range(count)]


def test_a_time_past_what_microseconds_can_hold_is_the_last_that_they_can():
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    sections = to_sections(list(visible([build_batch([Record(b"v", timestamp=2**62)])], ())))
    column = next(RowMaker(NAME, schema).record_batches(sections, 0, 9))["timestamp"]
    assert column.cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]


def test_groups_end_by_their_size_without_compression():
    batches = [
        build_batch([Record(b"x" * 1_000, timestamp=1)], compression=Codec.ZSTD, base_offset=n)
        for n in range(10)
    ]
    placed = list(visible(batches, ()))
    groups = list(to_section_groups(placed, bytes_max=2_500))
    assert [len(each.count) for each in groups] == [3, 3, 3, 1]
    assert [n for each in groups for n in each.base_offset] == list(range(10))


def _with_headers_cut(record: Record) -> bytes:
    """A batch whose record says it has one header more than there is."""
    data = bytearray(build_batch([record]))
    at = data.index(b"\x02\x02h")  # one header, whose key has one byte
    data[at] = 4
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return bytes(data)


def test_damaged_headers_are_refused_only_where_they_are_read():
    data = _with_headers_cut(Record(b"value", headers=(("h", b"12345678"),), timestamp=1))
    without = pa.schema([field for field in SCHEMA if field.name != "headers"])
    assert rows(data, schema=without)[0]["value"] == b"value"
    with pytest.raises(CorruptBatch) as refused:
        rows(data)
    assert refused.value.facts["offset"] == 0


def test_a_batch_that_cannot_be_unpacked_is_named():
    data = bytearray(build_batch([Record(b"v" * 100, timestamp=1)], compression=Codec.GZIP, base_offset=41))
    data[HEADER_SIZE + 3] ^= 0xFF
    assert next(walk(data))[1].base_offset == 41
    with pytest.raises(CorruptBatch, match="the batch at offset 41 cannot be unpacked") as refused:
        rows(bytes(data))
    assert refused.value.facts["offset"] == 41
