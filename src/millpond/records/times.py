"""Reads the timestamps of a batch's records from the records themselves, because the header cannot be trusted.

Only lengths and timestamp deltas are read, without creating an object for each record. All other fields are
skipped by means of the record's length.
"""

from collections.abc import Iterator
from itertools import compress
from typing import Final, NamedTuple

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptBatch
from millpond.records.batch import BatchHeader
from millpond.records.reader import INT64_MAX, plain_records
from millpond.records.record import NO_TIMESTAMP
from millpond.records.varint import VARLONG_BYTES_MAX, read_unsigned, read_varint

BODY_BYTES_MIN: Final = 6
"""Attributes, timestamp, offset, key length, value length, header count: at least one byte each."""
COLUMN_MIN: Final = 64
"""Fewer adjacent records of equal length than this are read one by one."""
COLUMNS_MAX: Final = 8
"""Maximum number of bytes of a delta that is read by columns."""
HEIGHT_FIRST: Final = 1024
HEIGHT_MAX: Final = 16_384
"""Maximum length of a column. It is at most `HEIGHT_GROWTH` times what the previous one had: lengths that change
often must not make every attempt look far ahead."""
HEIGHT_GROWTH: Final = 16
BISECTED_MIN: Final = 64
"""Of fewer bytes than this `max` finds the highest sooner than bisection."""
STRETCH_MAX: Final = 256
"""Maximum number of records that are read one by one before columns are tried again."""
RAW_LIMIT: Final = 1 << 64
UNREADABLE_LENGTH: Final = 1 << 62
"""More bytes than any batch has: what follows cannot be read."""

LENGTHS: Final = tuple(
    UNREADABLE_LENGTH if raw & 1 or raw < 2 * BODY_BYTES_MIN else (raw >> 1) + 1 for raw in range(0x80)
) + tuple(UNREADABLE_LENGTH if raw & 1 else 2 + ((raw & 0x7F) >> 1) for raw in range(0x80, 0x100))
"""Indexed by the first byte of a record's length: the size of the record in bytes, including the length. If a
second byte follows, 64 times that byte is added. A negative length becomes `UNREADABLE_LENGTH`."""
LAST_BYTES: Final = bytes(range(0x80))
MORE_BYTES: Final = bytes(range(0x80, 0x100))
IS_ODD: Final = bytes(raw & 1 for raw in range(0x100))
IS_ZERO: Final = bytes(raw == 0 for raw in range(0x100))
INVERTED: Final = bytes(range(0xFF, -1, -1))
BELOW: Final = tuple(bytes(range(limit)) for limit in range(0x100))
EQUALS: Final = tuple(bytes(raw == byte for raw in range(0x100)) for byte in range(0x100))


class RecordTimes(NamedTuple):
    """The lowest and the highest timestamp of a batch's records. A negative timestamp means no timestamp
    (Kafka's -1, and any other value below zero). `untimed` is set if there is one; `earliest` is the lowest
    that is not -1."""

    oldest: int
    newest: int
    untimed: bool
    earliest: int


def read_times(
    buffer: Buffer, position: int, header: BatchHeader, *, decompressed_bytes_max: int
) -> RecordTimes:
    """The times of the records of the batch at `position`, which must have some. Raises `CorruptBatch` if
    malformed."""
    if header.has_append_time:
        newest = header.max_timestamp
        return RecordTimes(newest, newest, newest < 0, newest)
    if header.record_count < 1:
        raise CorruptBatch(reason=f"{header.record_count} records")
    data = plain_records(buffer, position, header, decompressed_bytes_max)
    try:
        low, high = _delta_range(data, header.record_count)
    except IndexError:
        raise CorruptBatch(reason="the records are cut short") from None
    base = header.base_timestamp
    if not -INT64_MAX <= base + low <= base + high <= INT64_MAX:
        raise CorruptBatch(reason=f"timestamps from {base + low} to {base + high} do not fit 64 bits")
    if base + low >= 0:
        return RecordTimes(base + low, base + high, untimed=False, earliest=base + low)
    given = (base + delta for delta in _deltas(data, header.record_count) if base + delta != NO_TIMESTAMP)
    return RecordTimes(base + low, base + high, untimed=True, earliest=min(given, default=NO_TIMESTAMP))


def each_time(
    buffer: Buffer, position: int, header: BatchHeader, *, decompressed_bytes_max: int
) -> Iterator[int]:
    """The timestamp of every record of a batch that `read_times` has read."""
    data = plain_records(buffer, position, header, decompressed_bytes_max)
    return (header.base_timestamp + delta for delta in _deltas(data, header.record_count))


# -- the lowest and the highest delta -------------------------------------------------------------------------------


def _delta_range(data: bytes, count: int) -> tuple[int, int]:
    """The lowest and the highest timestamp delta of `count` records. Records of equal length, of which a
    backfill often has thousands in a row, are read by columns. All others are read one by one, a growing
    number of them before the next attempt to read columns."""
    extremes: list[int] = []
    at, left, stretch, height = 0, count, 1, HEIGHT_FIRST
    while left:
        end, taken = _read_columns(data, at, min(height, left), extremes)
        if taken:
            stretch = 1
            height = min(HEIGHT_GROWTH * taken, HEIGHT_MAX)
        else:
            taken = min(stretch, left)
            end = _read_one_by_one(data, at, taken, extremes)
            stretch = min(2 * stretch, STRETCH_MAX)
        at, left = end, left - taken
    if at != len(data):
        raise CorruptBatch(reason=f"the records end at {at} of {len(data)} bytes")
    return min(extremes), max(extremes)


def _read_one_by_one(  # noqa: C901  # written out on purpose
    data: bytes, at: int, count: int, extremes: list[int]
) -> int:
    """Returns the position of the record after the next `count`, and adds their lowest and highest delta to
    `extremes`. Not split into functions, because it runs for every record: lengths of one and two bytes are
    looked up in a table. Zigzag numbers stay encoded until the end: even ones are deltas from 0 up, odd ones
    are negative, and both kinds grow with the distance from 0."""
    even_low, even_high, odd_low, odd_high = RAW_LIMIT, -1, RAW_LIMIT, -1
    for _ in range(count):
        raw = data[at]
        if raw < 0x80:
            end = at + LENGTHS[raw]
            at += 2  # skips the length and the attributes, of which none are defined
        elif (high := data[at + 1]) < 0x80:
            end = at + LENGTHS[raw] + (high << 6)
            at += 3
        else:
            length, at = read_varint(data, at, len(data))
            end = at + (length if length >= BODY_BYTES_MIN else UNREADABLE_LENGTH)
            at += 1
        raw = data[at]
        if raw >= 0x80:
            raw -= 0x80
            shift = 7
            while (high := data[at := at + 1]) >= 0x80:
                raw += high - 0x80 << shift
                shift += 7
                if shift > 63:
                    raise CorruptBatch(reason="a timestamp delta is longer than 10 bytes")
            raw += high << shift
        if raw & 1:
            if raw > odd_high:
                odd_high = raw
            if raw < odd_low:
                odd_low = raw
        else:
            if raw > even_high:
                even_high = raw
            if raw < even_low:
                even_low = raw
        at = end
    if max(even_high, odd_high) >= RAW_LIMIT:
        raise CorruptBatch(reason="a timestamp delta does not fit 64 bits")
    extremes.extend(raw >> 1 for raw in (even_low, even_high) if even_high >= 0)
    extremes.extend(~raw >> 1 for raw in (odd_low, odd_high) if odd_high >= 0)
    return at


# -- by columns -----------------------------------------------------------------------------------------------------


def _read_columns(data: bytes, at: int, count: int, extremes: list[int]) -> tuple[int, int]:
    """Reads records of equal length whose deltas have equally many bytes, at most `count`. Returns the
    position of the next record and the number of records read; 0 if they are too few. A column is the same
    byte of each of these records: a slice with their length as its step. If all begin with the same length,
    each begins where the one before it ends."""
    width, step = _first_length(data, at)
    count = min(count, (len(data) - at) // step)
    if count < COLUMN_MIN or data[at + (COLUMN_MIN - 1) * step] != data[at]:
        return at, 0
    for place in range(width):
        column = data[at + place : at + count * step : step]
        count = len(column) - len(column.lstrip(column[:1]))
    columns: list[bytes] = []
    for place in range(width + 1, min(width + 1 + COLUMNS_MAX, step)):
        column = data[at + place : at + count * step : step]
        is_last = column[0] < 0x80
        count = len(column) - len(column.lstrip(LAST_BYTES if is_last else MORE_BYTES))
        columns.append(column)
        if is_last:
            break
    else:
        return at, 0
    if count < COLUMN_MIN:
        return at, 0
    extremes += _extremes(columns, count)
    return at + count * step, count


def _first_length(data: bytes, at: int) -> tuple[int, int]:
    """The number of bytes of the length of the record at `at`, and of the whole record. For a record that is
    too long for columns: 1, and `UNREADABLE_LENGTH`."""
    raw = data[at]
    if raw < 0x80:
        return 1, LENGTHS[raw]
    return (2, LENGTHS[raw] + (high << 6)) if (high := data[at + 1]) < 0x80 else (1, UNREADABLE_LENGTH)


def _extremes(columns: list[bytes], count: int) -> Iterator[int]:
    """The lowest and the highest delta, of either sign. Numbers with equally many bytes compare like these
    bytes, the last byte first, so they are compared without decoding them."""
    columns = [column[:count] for column in columns]
    odd = columns[0].translate(IS_ODD)
    for wanted in (odd, odd.translate(IS_ZERO)):
        chosen = _rows(columns, wanted)
        if chosen[0]:
            yield from (_decode(_lowest(chosen)), _decode(_highest(chosen)))


def _rows(columns: list[bytes], wanted: bytes) -> list[bytes]:
    """The columns without the rows whose byte in `wanted` is 0. Rows that are neighbours, as in a batch whose
    times rise, are cut out with a slice."""
    first, end = wanted.find(1), wanted.rfind(1) + 1
    if first < 0:
        return [b""]
    if 0 not in wanted[first:end]:
        return [column[first:end] for column in columns]
    return [bytes(compress(column, wanted)) for column in columns]


def _lowest(columns: list[bytes]) -> bytes:
    """The bytes of the lowest number. XOR with 0xff reverses the order of bytes, so the highest can be sought."""
    return _highest([column.translate(INVERTED) for column in columns]).translate(INVERTED)


def _highest(columns: list[bytes]) -> bytes:
    """The bytes of the highest number: the last column decides, and then the others among the rows that have
    its highest byte."""
    *columns, last = columns
    byte = _highest_byte(last)
    if not columns:
        return bytes((byte,))
    return _highest(_rows(columns, last.translate(EQUALS[byte]))) + bytes((byte,))


def _highest_byte(column: bytes) -> int:
    """By bisection over the values of a byte: `translate` removes lower bytes at the speed of a copy, `max`
    takes ten times as long."""
    low, high = 0, 0xFF
    while low < high and len(column) > BISECTED_MIN:
        middle = (low + high + 1) // 2
        rest = column.translate(None, BELOW[middle])
        if rest:
            low, column = middle, rest
        else:
            high = middle - 1
    return low if low == high else max(column)


def _decode(number: bytes) -> int:
    raw = 0
    for place, byte in enumerate(number):
        raw |= (byte & 0x7F) << 7 * place
    return raw >> 1 ^ -(raw & 1)


# -- one by one, where some have no timestamp -------------------------------------------------------------------------


def _deltas(data: bytes, count: int) -> Iterator[int]:
    """Every timestamp delta of records that `_delta_range` has already checked."""
    at = 0
    for _ in range(count):
        length, at = read_varint(data, at, len(data))
        raw = _raw_varlong(data, at + 1, at + length)
        yield raw >> 1 ^ -(raw & 1)
        at += length


def _raw_varlong(data: bytes, at: int, end: int) -> int:
    raw, _ = read_unsigned(data, at, end, VARLONG_BYTES_MAX)
    if raw >> 64:
        raise CorruptBatch(reason="a varlong does not fit 64 bits")
    return raw
