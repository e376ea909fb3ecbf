"""Builds batches: from records, at the edges where these exist, and the broker's own transaction markers."""

from collections.abc import Iterator, Sequence

from millpond.model.errors import InvalidRecord
from millpond.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    INT32_MAX,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    seal,
)
from millpond.records.compression import Codec, compress
from millpond.records.markers import ControlMarker, MarkerKind, marker_to_record
from millpond.records.record import NO_OFFSET, NO_TIMESTAMP, Header, Record
from millpond.records.varint import NULL_LENGTH, varint, varlong

NO_LEADER_EPOCH = -1
TIMESTAMP_MAX = (1 << 63) - 1
RECORD_OVERHEAD = 36
"""Maximum size of the lengths, deltas and counts of a record."""
HEADER_OVERHEAD = 10
UTF8_BYTES_MAX = 4
NO_ATTRIBUTES = b"\0"
"""The attributes of a record: none are defined."""
NULL = varint(NULL_LENGTH)


def build_batch(
    records: Sequence[Record],
    *,
    compression: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    now_ms: int = NO_TIMESTAMP,
) -> bytes:
    """Build one batch of `records`, with its CRC.

    A record without a timestamp gets `now_ms`; one without an offset follows the record before it. Given
    offsets must rise and may leave gaps, as compaction does; `last_offset` keeps a gap at the end. The batch
    starts at `base_offset`, else at the first record's offset, else at 0.
    """
    if not records:
        raise InvalidRecord(reason="a batch needs at least one record")
    base = _base_offset(records[0], base_offset)
    deltas = _offset_deltas(records, base)
    timestamps = _timestamps(records, now_ms)
    payload = compress(compression, _encode_records(records, deltas, timestamps))
    attributes = compression | TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    out = bytearray(HEADER_SIZE)
    out += payload
    HEADER.pack_into(
        out,
        0,
        base,
        len(out) - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,  # the CRC is written last
        attributes,
        _last_delta(deltas, base, last_offset),
        timestamps[0],
        max(timestamps),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    seal(out, 0, len(out))
    return bytes(out)


def encoded_size_max(record: Record) -> int:
    """The maximum number of bytes of this record in a batch."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += HEADER_OVERHEAD + UTF8_BYTES_MAX * len(name) + len(value or b"")
    return size


def build_control_batch(
    kind: MarkerKind, producer_id: int, producer_epoch: int, timestamp: int, coordinator_epoch: int = 0
) -> bytes:
    """The marker that ends a transaction, byte for byte as Kafka writes it."""
    record = marker_to_record(ControlMarker(kind, coordinator_epoch), timestamp)
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def _base_offset(first: Record, base_offset: int | None) -> int:
    if base_offset is not None:
        return base_offset
    return first.offset if first.offset != NO_OFFSET else 0


def _offset_deltas(records: Sequence[Record], base: int) -> list[int]:
    deltas: list[int] = []
    following = 0
    for record in records:
        delta = following if record.offset == NO_OFFSET else record.offset - base
        if not following <= delta <= INT32_MAX:
            raise InvalidRecord(reason=f"offset {record.offset} does not follow {base + following - 1}")
        deltas.append(delta)
        following = delta + 1
    return deltas


def _last_delta(deltas: list[int], base: int, last_offset: int | None) -> int:
    if last_offset is None:
        return deltas[-1]
    if not deltas[-1] <= last_offset - base <= INT32_MAX:
        raise InvalidRecord(reason=f"last offset {last_offset} with a record at {base + deltas[-1]}")
    return last_offset - base


def _timestamps(records: Sequence[Record], now_ms: int) -> list[int]:
    timestamps = [now_ms if record.timestamp == NO_TIMESTAMP else record.timestamp for record in records]
    for timestamp in timestamps:
        if not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MAX - 1:  # a delta from -1 must still fit 64 bits
            raise InvalidRecord(reason=f"timestamp {timestamp}")
    return timestamps


def _encode_records(records: Sequence[Record], deltas: list[int], timestamps: list[int]) -> bytearray:
    out = bytearray()
    base_timestamp = timestamps[0]
    for record, delta, timestamp in zip(records, deltas, timestamps, strict=True):
        key, value, headers = record.key, record.value, record.headers
        parts = [
            NO_ATTRIBUTES,
            varlong(timestamp - base_timestamp),
            varint(delta),
            varint(len(key)) if key is not None else NULL,
            key or b"",
            varint(len(value)) if value is not None else NULL,
            value or b"",
            varint(len(headers)),
        ]
        if headers:
            parts += _header_parts(headers)
        body = b"".join(parts)
        out += varint(len(body))
        out += body
    return out


def _header_parts(headers: Sequence[Header]) -> Iterator[bytes]:
    for name, value in headers:
        encoded = _header_name(name)
        yield varint(len(encoded))
        yield encoded
        yield varint(len(value)) if value is not None else NULL
        yield value or b""


def _header_name(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError as error:  # a lone surrogate, which JSON can carry
        raise InvalidRecord(reason=f"header name {name!r} is not valid Unicode") from error
