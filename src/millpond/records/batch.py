"""Kafka's RecordBatch v2 as a view over bytes: read its header, check it, stamp it. Records stay undecoded.

The header is 61 bytes. Its CRC32C covers everything from the attributes (byte 21) to the end, so the base
offset and the leader epoch can be stamped into a batch without reading the rest. `validate` checks what a
producer sent, once, at a cost per batch and not per record.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptBatch, InvalidRecord, RecordTooLarge
from millpond.records.compression import EXPANSION_MAX, Codec, known_codec
from millpond.records.crc import crc32c
from millpond.records.record import NO_TIMESTAMP

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
MAGIC = 2
LENGTH_END = 12
"""`batch_length` counts from here: base offset and the length itself come before."""
CRC_START = 21
RECORD_BYTES_MIN = 7
"""Length, attributes, timestamp, offset, key length, value length, header count: at least one byte each."""

CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

INT32_MAX = (1 << 31) - 1
NO_PRODUCER = -1
NO_SEQUENCE = -1

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_LEADER_EPOCH_START = 12
_CRC_FIELD_START = 17
_MAX_TIMESTAMP_START = 35


class BatchHeader(NamedTuple):
    """The fields of a batch in wire order, and values derived from them."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, including the header."""
        return self.batch_length + LENGTH_END

    @property
    def codec(self) -> Codec:
        return known_codec(self.attributes & CODEC_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31-1 to 0, as in Kafka."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def newest_timestamp(self) -> int:
        """The timestamp that decides how old the batch is. Batches stored before the broker set the maximum
        may have none (sarama leaves it unset); then the base timestamp counts. A base above the maximum has
        no meaning: with append time the base is the producer's, and in other batches the maximum was read
        from the records."""
        newest = self.max_timestamp
        return newest if newest != NO_TIMESTAMP else self.base_timestamp

    @property
    def oldest_timestamp(self) -> int:
        """The first record's timestamp, which is nearly always the oldest; never newer than the newest."""
        newest = self.max_timestamp
        return newest if self.has_append_time else min(self.base_timestamp, newest)


def read_header(buffer: Buffer, position: int = 0, end: int | None = None) -> BatchHeader:
    """The header of the batch at `position`, which must end at or before `end`. The CRC is not checked."""
    end = len(buffer) if end is None else min(end, len(buffer))
    if not 0 <= position <= end - HEADER_SIZE:
        raise CorruptBatch(reason=f"{end - position} bytes are too few for a header of {HEADER_SIZE}")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(reason=f"magic {header.magic} where {MAGIC} is needed")
    if not HEADER_SIZE <= header.batch_length + LENGTH_END <= end - position:
        raise CorruptBatch(
            reason=f"length {header.batch_length} does not fit the {end - position} bytes at hand"
        )
    return header


def walk(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `start` to `end`; they must fill that range exactly."""
    end = len(buffer) if end is None else min(end, len(buffer))
    position = start
    while position < end:
        header = read_header(buffer, position, end)
        yield position, header
        position += header.batch_length + LENGTH_END


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises CorruptBatch unless the checksum matches the bytes it covers."""
    actual = crc32c(memoryview(buffer)[position + CRC_START : position + header.batch_length + LENGTH_END])
    if actual != header.crc:
        raise CorruptBatch(reason=f"CRC32C is {actual:08x} where the header says {header.crc:08x}")


def validate(
    buffer: Buffer, *, max_batch_bytes: int, allow_control: bool = False
) -> list[tuple[int, BatchHeader]]:
    """Perform all of the broker's checks on what a producer sent; raises unless all batches pass.

    CorruptBatch means damaged bytes (a client may retry); InvalidRecord means an intact batch with invalid
    fields. The contents of records are not checked. Only the broker's own writes `allow_control`.
    """
    view = memoryview(buffer)
    batches = list(walk(view))
    if not batches:
        raise InvalidRecord(reason="there is no batch")
    for position, header in batches:
        if header.batch_length + LENGTH_END > max_batch_bytes:
            raise RecordTooLarge(size=header.size, limit=max_batch_bytes)
        check_crc(view, position, header)
        _check_attributes(header, allow_control)
        _check_count(header)
        _check_timestamps(header)
        _check_producer(header)
    return batches


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into the batch at `position`. Both fields are outside the CRC."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_START, leader_epoch)


def stamp_run(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int) -> int:
    """Stamp consecutive batches with consecutive offsets; returns the offset after the last."""
    for position, header in walk(buffer):
        stamp(buffer, position, base_offset, leader_epoch)
        base_offset += header.last_offset_delta + 1
    return base_offset


def with_append_time(batches: Buffer, now_ms: int) -> bytes:
    """A copy of one or more batches in which all records have the broker's time (`LogAppendTime`)."""
    out = bytearray(batches)
    for position, header in walk(out):
        _ATTRIBUTES.pack_into(out, position + CRC_START, header.attributes | APPEND_TIME_BIT)
        _MAX_TIMESTAMP.pack_into(out, position + _MAX_TIMESTAMP_START, now_ms)
        seal(out, position, position + header.size)
    return bytes(out)


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, newest: int
) -> None:
    """Write a new newest timestamp into the batch at `position`, and the new CRC."""
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_START, newest)
    seal(buffer, position, position + header.size)


def seal(buffer: bytearray | memoryview, start: int, end: int) -> None:
    """Write the CRC of the batch that fills `start` to `end`."""
    with memoryview(buffer) as view:
        _CRC.pack_into(buffer, start + _CRC_FIELD_START, crc32c(view[start + CRC_START : end]))


def _check_attributes(header: BatchHeader, allow_control: bool) -> None:
    attributes = header.attributes
    known_codec(attributes & CODEC_MASK)
    if attributes & APPEND_TIME_BIT:
        raise InvalidRecord(reason="only the broker sets append time")
    if attributes & DELETE_HORIZON_BIT:
        raise InvalidRecord(reason="only log compaction sets a delete horizon")
    if attributes & CONTROL_BIT and not allow_control:
        raise InvalidRecord(reason="only the broker writes control batches")


def _check_count(header: BatchHeader) -> None:
    count = header.record_count
    if count < 1 or count != header.last_offset_delta + 1:
        raise InvalidRecord(reason=f"{count} records with a last offset delta of {header.last_offset_delta}")
    # An inflated count would reserve offsets that no record fills.
    room = (header.batch_length + LENGTH_END - HEADER_SIZE) * EXPANSION_MAX[header.attributes & CODEC_MASK]
    if count * RECORD_BYTES_MIN > room:
        raise InvalidRecord(reason=f"{count} records cannot fit a batch of {header.size} bytes")


def _check_timestamps(header: BatchHeader) -> None:
    """A maximum below the base is corrected later (`read_times`), not refused: some clients send such headers."""
    base, newest = header.base_timestamp, header.max_timestamp
    if base < NO_TIMESTAMP or newest < NO_TIMESTAMP:
        raise InvalidRecord(reason=f"timestamps from {base} to {newest}")


def _check_producer(header: BatchHeader) -> None:
    producer_id = header.producer_id
    if producer_id < NO_PRODUCER or (producer_id == NO_PRODUCER and header.is_transactional):
        raise InvalidRecord(reason=f"producer id {producer_id}")
    if producer_id == NO_PRODUCER:
        return
    if header.producer_epoch < 0:
        raise InvalidRecord(reason=f"producer epoch {header.producer_epoch}")
    if header.base_sequence < 0 and not header.is_control:  # markers carry no sequence
        raise InvalidRecord(reason=f"base sequence {header.base_sequence} of producer {producer_id}")
