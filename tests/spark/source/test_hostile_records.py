"""Records that a client wrote to do harm, with a right checksum: no broker looks inside. What the plain Python reader
refuses the compiled one refuses, and what it reads is the same; nothing is read or written out of bounds."""

import os
import subprocess
import sys
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.source.reads import batch_reader, read_all
from tests.spark.topics import serving

from millpond.model.clock import SystemClock
from millpond.model.errors import CorruptBatch, InvalidInput
from millpond.reading.visible import visible
from millpond.records import HEADER_SIZE, Codec, Record, build_batch, compress, crc32c, iter_records, walk
from millpond.records.batch import HEADER, seal
from millpond.records.varint import varlong
from millpond.spark.kernels.batches import messages_in_groups
from millpond.spark.kernels.compaction import CompiledKeys
from millpond.spark.kernels.sections import to_sections
from millpond.spark.source.offsets import NamedPartition
from millpond.spark.source.rows import RowMaker

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64()), ("headers", HEADERS)]
)
NUMBERS = (
    2**63 - 1, 2**62, 2**62 + 1, 2**61, 2**32 - 1, 2**32, 2**31 - 1, 2**31, 2**30, 1_000, 100, 10,
    2, 1, 0, -1, -2, -(2**31), -(2**32), -(2**62), -(2**63) + 1, -(2**63),
)  # fmt: skip
PLENTY = 1 << 20


class Claims(NamedTuple):
    """The numbers of a record; those of an honest one are found by counting."""

    length: int | None = None
    timestamp: int = 0
    offset: int = 0
    key_length: int = 1
    value_length: int = 1
    header_count: int = 1
    header_key_length: int = 1
    header_value_length: int = 1


def number(value: int) -> bytes:
    return varlong(value)


def record(claims: Claims) -> bytes:
    headers = number(claims.header_key_length) + b"h" + number(claims.header_value_length) + b"w"
    body = b"\0" + number(claims.timestamp) + number(claims.offset) + number(claims.key_length) + b"k"
    body += number(claims.value_length) + b"v" + number(claims.header_count) + headers
    return number(len(body) if claims.length is None else claims.length) + body


def sealed(payload: bytes, count: int, *, base_offset: int = 0, timestamp: int = 1_000, codec=Codec.NONE):
    packed = payload if codec is Codec.NONE else compress(codec, payload)
    data = bytearray(HEADER_SIZE + len(packed))
    data[HEADER_SIZE:] = packed
    length = len(data) - 12
    HEADER.pack_into(
        data, 0, base_offset, length, -1, 2, 0, codec, count - 1, timestamp, timestamp, -1, -1, -1, count
    )
    seal(data, 0, len(data))
    return bytes(data)


def in_python(data: bytes):
    """(key, value, offset, headers) of each record, or None if they are refused."""
    try:
        found = list(iter_records(data, decompressed_bytes_max=PLENTY))
    except InvalidInput:
        return None
    return [(each.key, each.value, each.offset, list(each.headers) or None) for each in found]


def compiled(sections) -> list[tuple]:
    batches = list(RowMaker(NamedPartition("t", 0), SCHEMA).record_batches(sections, 0, 2**63 - 1))
    for each in batches:
        each.validate(full=True)
    rows = [row for each in batches for row in each.to_pylist()]
    return [(r["key"], r["value"], r["offset"], _pairs(r["headers"])) for r in rows]


def _pairs(headers):
    return None if headers is None else [(each["key"], each["value"]) for each in headers]


def assert_read_alike(data: bytes) -> None:
    expected = in_python(data)
    ways = (
        lambda: compiled(to_sections(list(visible([data], ())))),
        lambda: [row for each in messages_in_groups([data], bytes_max=PLENTY) for row in compiled(each)],
    )
    for way in ways:
        if expected is None:
            with pytest.raises(InvalidInput):
                way()
        else:
            assert way() == expected


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("field", Claims._fields)
def test_any_number_in_any_place_is_read_or_refused_as_in_python(field, codec):
    honest = record(Claims(offset=1))
    for claimed in NUMBERS:
        hostile = record(Claims()._replace(**{field: claimed}))
        assert_read_alike(sealed(hostile, 1, codec=codec))
        assert_read_alike(sealed(hostile + honest, 2, codec=codec))
    assert in_python(sealed(record(Claims()) + honest, 2, codec=codec)) is not None


@pytest.mark.parametrize("field", Claims._fields)
def test_no_number_harms_a_key_map(field):
    """Headers are none of its business: it may take in a record whose headers are wrong."""
    for claimed in NUMBERS:
        data = sealed(record(Claims()._replace(**{field: claimed})), 1)
        keys = CompiledKeys(PLENTY)
        try:
            keys.collect_keys([(data, 0, next(walk(data))[1])], 0, 1)
        except InvalidInput:
            assert in_python(data) is None
        else:
            assert len(keys) == (0 if claimed == -1 and field == "key_length" else 1)


def test_counts_of_headers_that_cancel_out_are_refused():
    """Twice 2^63-1 is -2 in 64 bits: as counts, thousands of them make room for less than the honest ones need."""
    headers = (number(1) + b"k" + number(1) + b"w") * 2_000
    body = b"\0" + number(0) + number(2_000) + number(-1) + number(-1) + number(2_000) + headers
    hostile = [record(Claims(offset=n, header_count=2**63 - 1)) for n in range(2_000)]
    assert_read_alike(sealed(b"".join(hostile) + number(len(body)) + body, 2_001))


@pytest.mark.parametrize("timestamp", [2**63 - 1, 2**63 - 2, 0, -1])
@pytest.mark.parametrize("delta", [2**63 - 1, 1, 0, -1, -(2**63) + 1, -(2**63)])
def test_a_time_that_does_not_fit_is_refused(timestamp, delta):
    assert_read_alike(sealed(record(Claims(timestamp=delta)), 1, timestamp=timestamp))


@pytest.mark.parametrize("base_offset", [2**63 - 1, 2**63 - 2, 2**62])
def test_offsets_that_do_not_fit_are_refused(base_offset):
    data = sealed(record(Claims()) + record(Claims(offset=1)), 2, base_offset=base_offset)
    expected = in_python(data)
    for sections in (
        lambda: to_sections(list(visible([data], ()))),
        lambda: next(messages_in_groups([data], bytes_max=PLENTY)),
    ):
        if expected is None:
            with pytest.raises(CorruptBatch):
                sections()
        else:
            assert len(sections().count) == 1
    assert (expected is None) == (base_offset == 2**63 - 1)


@pytest.mark.parametrize(
    "overlong",
    [b"\x82\x00", b"\x82\x80\x80\x80\x00", b"\x82\x80\x80\x80\x80\x00", b"\x82" + b"\x80" * 8 + b"\x02"],
)
def test_a_number_of_too_many_bytes_is_refused(overlong):
    """The value's length, 1, written in more bytes than it needs: up to five are right."""
    for time in (number(0), overlong):
        body = b"\0" + time + number(0) + number(-1) + overlong + b"v" + number(0)
        assert_read_alike(sealed(number(len(body)) + body, 1))
        body = b"\0" + time + number(0) + number(-1) + number(-1) + number(0)
        assert_read_alike(sealed(number(len(body)) + body, 1))


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.binary(max_size=6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=10)), max_size=3),
)
def test_any_bytes_are_read_or_refused_as_in_python(values, patches):
    records = [Record(value, value or None, (("h", value),), 1_000) for value in values]
    data = bytearray(build_batch(records))
    for at, patch in patches:
        place = HEADER_SIZE + at % (len(data) - HEADER_SIZE)
        patch = bytes(byte & 0x7F if at % 2 else byte for byte in patch)[: len(data) - place]
        data[place : place + len(patch)] = patch
    if not _has_header_of_bytes(bytes(data)):
        assert_read_alike(bytes(data))


def _has_header_of_bytes(data: bytes) -> bool:
    """Python refuses a header's key that is no text. What the source makes of it is told elsewhere."""
    try:
        list(iter_records(data, decompressed_bytes_max=PLENTY))
    except CorruptBatch as error:
        return "UTF-8" in str(error)
    return False


async def test_hostile_counts_through_a_broker_are_named_and_nothing_is_read(tmp_path):
    now_ms = SystemClock().now_ms()  # the log looks into what is old
    hostile = sealed(record(Claims(header_count=2**63 - 1)), 1, timestamp=now_ms)
    nothing = sealed(b"", 5, timestamp=now_ms, codec=Codec.ZSTD)
    async with serving(tmp_path) as broker:
        for topic, data in (("hostile", hostile), ("nothing", nothing)):
            await broker.log.create_topic(topic, 1, {})
            await broker.log.append(broker.log.topics.partition(topic, 0), data)
    for topic, words in (("hostile", "are not whole"), ("nothing", "claims 5 records")):
        reader = batch_reader(tmp_path, subscribe=topic, includeHeaders="true")
        with pytest.raises(CorruptBatch, match=f"Topic '{topic}', partition 0, offset 0: .*{words}"):
            read_all(reader, reader.partitions())


def test_a_batch_that_unpacks_to_nothing_and_claims_nothing_is_no_row():
    data = bytearray(sealed(b"", 1, codec=Codec.ZSTD))
    data[57:61] = bytes(4)
    seal(data, 0, len(data))
    assert crc32c(memoryview(data)[21:]) == next(walk(data))[1].crc
    assert_read_alike(bytes(data))


@pytest.mark.long
def test_nothing_is_out_of_bounds_where_bounds_are_checked(tmp_path):
    """The tests above once more, compiled so that an index out of bounds raises `IndexError`."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "not long", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3_000:]
