"""Encodes rows as RecordBatches: choose partitions, cut batches, write records, each in one compiled pass
over all rows.

A *lane* is one partition of one of the topics that the rows go to; lanes are numbered topic by topic. Rows
keep their order within a lane. Batches are written with space for their headers, which Python fills in
afterwards (`sink/packing.py`), because there are few of them.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from millpond.model.partitioning import MASK, MULTIPLIER, SEED
from millpond.records import HEADER_SIZE
from millpond.spark.kernels.arrays import Bools, Int32s, Int64s

NO_PARTITION: Final = -(2**31)
"""A row's partition if it names none: the key's hash decides, and rows without a key go round-robin."""

OK: Final = 0
NO_SUCH_PARTITION: Final = 1
NEEDS_KEY: Final = 2
HEADER_WITHOUT_KEY: Final = 3

_SEED, _MULTIPLIER, _MASK = np.uint64(SEED), np.uint64(MULTIPLIER), np.uint64(MASK)


class ByteColumn(NamedTuple):
    """A column of byte strings: row i is `data[offsets[i]:offsets[i + 1]]`, or null."""

    data: NDArray[np.uint8]
    offsets: Int64s
    null: Bools


class Rows(NamedTuple):
    """The columns of the rows. The headers of row i are the entries from `header_start[i]` to
    `header_end[i]`."""

    topic: Int32s
    partition: Int32s
    timestamp: Int64s
    key: ByteColumn
    value: ByteColumn
    header_start: Int64s
    header_end: Int64s
    header_key: ByteColumn
    header_value: ByteColumn


class TopicLanes(NamedTuple):
    """What the kernels need of each topic: its first lane, its partition count, whether its records need
    keys, and the size at which its batches are cut."""

    first: Int64s
    partitions: Int64s
    needs_key: Bools
    batch_bytes: Int64s


class Batches(NamedTuple):
    """One row per batch, in lane order: its position in `data` (header included), number of records,
    timestamps."""

    data: NDArray[np.uint8]
    lane: Int64s
    start: Int64s
    end: Int64s
    records: Int64s
    base_timestamp: Int64s
    min_timestamp: Int64s
    max_timestamp: Int64s


def choose(rows: Rows, lanes: TopicLanes, round_robin: int) -> tuple[Int32s, int, int, int]:
    """(the lane of each row, the next round-robin counter, a bad row, what is wrong with it or `OK`)."""
    lane = np.empty(len(rows.topic), dtype=np.int32)
    round_robin, bad, problem = _choose(rows, lanes, round_robin, lane)
    return lane, round_robin, bad, problem


def encode(rows: Rows, lane: Int32s, lanes: TopicLanes) -> Batches:
    """Encode all rows as batches, with space left for their headers."""
    count = len(lane)
    lane_count = int(lanes.first[-1] + lanes.partitions[-1])
    order = _sorted_by_lane(lane, lane_count)
    topic_of_lane = np.repeat(np.arange(len(lanes.first)), lanes.partitions)
    body = np.empty(count, dtype=np.int64)
    facts = np.empty((7, count), dtype=np.int64)
    made = _cut(rows, lane, order, lanes.batch_bytes[topic_of_lane], body, facts)
    kept = facts[:, :made].copy()
    data = np.empty(int(kept[2, -1]) if made else 0, dtype=np.uint8)
    _write(rows, order, body, kept, data)
    return Batches(data, *kept)


@njit(cache=True, nogil=True)
def murmur2(data: Any, start: int, end: int) -> Any:
    """Kafka's hash, as in `model.partitioning`."""
    length = end - start
    whole = start + (length & ~3)
    hashed = (_SEED ^ np.uint64(length)) & _MASK
    for at in range(start, whole, 4):
        word = (
            np.uint64(data[at])
            | np.uint64(data[at + 1]) << np.uint64(8)
            | np.uint64(data[at + 2]) << np.uint64(16)
            | np.uint64(data[at + 3]) << np.uint64(24)
        )
        word = (word * _MULTIPLIER) & _MASK
        word = ((word ^ (word >> np.uint64(24))) * _MULTIPLIER) & _MASK
        hashed = ((hashed * _MULTIPLIER) & _MASK) ^ word
    if whole < end:
        shift = np.uint64(0)
        for at in range(whole, end):
            hashed ^= np.uint64(data[at]) << shift
            shift += np.uint64(8)
        hashed = (hashed * _MULTIPLIER) & _MASK
    hashed = ((hashed ^ (hashed >> np.uint64(13))) * _MULTIPLIER) & _MASK
    return hashed ^ (hashed >> np.uint64(15))


@njit(cache=True, nogil=True)
def _choose(rows: Any, lanes: Any, round_robin: int, lane: Any) -> tuple[int, int, int]:
    for row in range(len(lane)):
        topic = rows.topic[row]
        count = lanes.partitions[topic]
        chosen: Any = np.int64(rows.partition[row])
        if rows.key.null[row] and lanes.needs_key[topic]:
            return round_robin, row, NEEDS_KEY
        for entry in range(rows.header_start[row], rows.header_end[row]):
            if rows.header_key.null[entry]:
                return round_robin, row, HEADER_WITHOUT_KEY
        if chosen != NO_PARTITION:
            if chosen < 0 or chosen >= count:
                return round_robin, row, NO_SUCH_PARTITION
        elif rows.key.null[row]:
            chosen = round_robin % count
            round_robin += 1
        elif count == 1:
            chosen = 0
        else:
            hashed = murmur2(rows.key.data, rows.key.offsets[row], rows.key.offsets[row + 1])
            chosen = np.int64(hashed & np.uint64(0x7FFFFFFF)) % count
        lane[row] = lanes.first[topic] + chosen
    return round_robin, -1, OK


@njit(cache=True, nogil=True)
def _sorted_by_lane(lane: Any, lane_count: int) -> Any:
    """The row numbers sorted by lane, in their original order within each lane."""
    starts = np.zeros(lane_count + 1, dtype=np.int64)
    for row in range(len(lane)):
        starts[lane[row] + 1] += 1
    for number in range(lane_count):
        starts[number + 1] += starts[number]
    order = np.empty(len(lane), dtype=np.int64)
    for row in range(len(lane)):
        order[starts[lane[row]]] = row
        starts[lane[row]] += 1
    return order


@njit(cache=True, nogil=True)
def _varint_size(value: int) -> int:
    left = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)
    size = 1
    while left >= np.uint64(0x80):
        left >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True)
def _field_size(column: Any, row: int) -> int:
    if column.null[row]:
        return 1
    length: int = column.offsets[row + 1] - column.offsets[row]
    return _varint_size(length) + length


@njit(cache=True, nogil=True)
def _fields_size(rows: Any, row: int) -> int:
    """Size of the fields that do not depend on the batch: attributes, key, value, headers."""
    first, end = rows.header_start[row], rows.header_end[row]
    size = 1 + _field_size(rows.key, row) + _field_size(rows.value, row) + _varint_size(end - first)
    for entry in range(first, end):
        size += _field_size(rows.header_key, entry) + _field_size(rows.header_value, entry)
    return size


@njit(cache=True, nogil=True)
def _cut(rows: Any, lane: Any, order: Any, batch_bytes: Any, body: Any, facts: Any) -> int:
    """Assign the rows to batches and return the number of batches. A batch has at least one record, however
    large that is."""
    made = -1
    lane_before = -1
    end = 0
    for at in range(len(order)):
        row = order[at]
        timestamp = rows.timestamp[row]
        fields = _fields_size(rows, row)
        is_first = lane[row] != lane_before
        if not is_first:
            size = fields + _varint_size(timestamp - facts[4, made]) + _varint_size(facts[3, made])
            whole = size + _varint_size(size)
            is_first = end - facts[1, made] + whole > batch_bytes[lane[row]]
        if is_first:
            made += 1
            size = fields + 2
            whole = size + _varint_size(size)
            facts[0, made] = lane_before = lane[row]
            facts[1, made] = end
            end += HEADER_SIZE
            facts[3, made] = 0
            facts[4, made] = facts[5, made] = facts[6, made] = timestamp
        body[at] = size
        end += whole
        facts[2, made] = end
        facts[3, made] += 1
        facts[5, made] = min(facts[5, made], timestamp)
        facts[6, made] = max(facts[6, made], timestamp)
    return made + 1


@njit(cache=True, nogil=True)
def _put_varint(out: Any, at: int, value: int) -> int:
    left = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)
    while left >= np.uint64(0x80):
        out[at] = np.uint8(left & np.uint64(0x7F)) | np.uint8(0x80)
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


def _type_copy(_context: Any, out: Any, _at: Any, data: Any, _start: Any, _length: Any) -> Any:
    """`out[at:at + length] = data[start:start + length]` as one memcpy: twice as fast as a loop here."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        to, at, source, start, length = arguments
        to_data = context.make_array(out)(context, builder, value=to).data
        source_data = context.make_array(data)(context, builder, value=source).data
        memcpy: Any = cgutils.raw_memcpy
        memcpy(builder, builder.gep(to_data, [at]), builder.gep(source_data, [start]), length, 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), generate


_copy: Any = intrinsic(_type_copy)


@njit(cache=True, nogil=True)
def _put_field(out: Any, at: int, column: Any, row: int) -> int:
    if column.null[row]:
        return _put_varint(out, at, -1)
    start = column.offsets[row]
    length = column.offsets[row + 1] - start
    at = _put_varint(out, at, length)
    _copy(out, at, column.data, start, length)
    end: int = at + length
    return end


@njit(cache=True, nogil=True)
def _write(rows: Any, order: Any, body: Any, facts: Any, out: Any) -> None:
    row_at = 0
    for batch in range(facts.shape[1]):
        at = facts[1, batch] + HEADER_SIZE
        for delta in range(facts[3, batch]):
            row = order[row_at]
            at = _put_varint(out, at, body[row_at])
            out[at] = 0
            at = _put_varint(out, at + 1, rows.timestamp[row] - facts[4, batch])
            at = _put_varint(out, at, delta)
            at = _put_field(out, at, rows.key, row)
            at = _put_field(out, at, rows.value, row)
            first, end = rows.header_start[row], rows.header_end[row]
            at = _put_varint(out, at, end - first)
            for entry in range(first, end):
                at = _put_field(out, at, rows.header_key, entry)
                at = _put_field(out, at, rows.header_value, entry)
            row_at += 1
