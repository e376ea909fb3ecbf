"""Decodes records from batches, for the edges that need their contents. Nothing inside a batch is trusted.

Every length is compared with the available bytes before anything is read or allocated, so a hostile batch
costs at most its own size, or `decompressed_bytes_max` if it is compressed.
"""

from collections.abc import Iterator

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptBatch
from millpond.records.batch import HEADER_SIZE, BatchHeader, read_header, walk
from millpond.records.compression import Codec, decompress
from millpond.records.markers import ControlMarker, marker_from_record
from millpond.records.record import Header, Record
from millpond.records.varint import NULL_LENGTH, read_varint, read_varlong

INT64_MAX = (1 << 63) - 1
HEADER_BYTES_MIN = 2


def iter_records(buffer: Buffer, *, decompressed_bytes_max: int) -> Iterator[Record]:
    """The records of one or more consecutive batches, with absolute offsets and timestamps.

    Control batches are skipped: their records belong to the broker and are not messages. The limit applies to
    each batch. CRCs are not checked: `validate` or `check_crc` does that where bytes come from outside.
    """
    for position, header in walk(buffer):
        if not header.is_control:
            yield from _batch_records(buffer, position, header, decompressed_bytes_max)


def read_marker(buffer: Buffer, position: int = 0) -> ControlMarker:
    """The transaction marker in the control batch at `position`."""
    header = read_header(buffer, position)
    if not header.is_control or header.codec is not Codec.NONE:
        raise CorruptBatch(reason="it is not a control batch")
    records = list(_batch_records(buffer, position, header, 0))
    if len(records) != 1:
        raise CorruptBatch(reason=f"a control batch of {len(records)} records")
    return marker_from_record(records[0])


def _batch_records(  # noqa: C901  # written out on purpose
    buffer: Buffer, position: int, header: BatchHeader, limit: int
) -> Iterator[Record]:
    """Not split into functions, because it runs for every message that is read. The common cases are handled
    here: numbers of one byte, lengths and offsets of two bytes, and no headers. The functions below handle
    all other cases, and report what is wrong."""
    if header.record_count < 0 or header.last_offset > INT64_MAX:
        raise CorruptBatch(reason=f"{header.record_count} records up to offset {header.last_offset}")
    data = plain_records(buffer, position, header, limit)
    base_offset, base_timestamp, last = header.base_offset, header.base_timestamp, header.last_offset_delta
    append_time = header.max_timestamp if header.has_append_time else None
    size, at, before = len(data), 0, -1
    for _ in range(header.record_count):
        if at + 1 < size and (raw := data[at]) >= 0x80 and data[at + 1] < 0x80:
            raw = raw & 0x7F | data[at + 1] << 7
            length, at = raw >> 1 ^ -(raw & 1), at + 2
        else:
            length, at = read_varint(data, at, size)
        if not 0 <= length <= size - at:
            raise CorruptBatch(reason=f"a record of {length} bytes where {size - at} are left")
        end = at + length
        at += 1  # the first byte holds the attributes, of which none are defined
        if at < end and (raw := data[at]) < 0x80:
            timestamp, at = base_timestamp + (raw >> 1 ^ -(raw & 1)), at + 1
        else:
            timestamp, at = read_varlong(data, at, end)
            timestamp += base_timestamp
        if at < end and (raw := data[at]) < 0x80:
            delta, at = raw >> 1 ^ -(raw & 1), at + 1
        elif at + 1 < end and (high := data[at + 1]) < 0x80:
            raw = raw & 0x7F | high << 7
            delta, at = raw >> 1 ^ -(raw & 1), at + 2
        else:
            delta, at = read_varint(data, at, end)
        if at < end and (raw := data[at]) < 0x80 and not raw & 1 and raw >> 1 < end - at:
            start, at = at + 1, at + 1 + (raw >> 1)
            key: bytes | None = data[start:at]
        else:
            key, at = _read_bytes(data, at, end)
        value, at = _read_bytes(data, at, end)
        headers: tuple[Header, ...] = ()
        if at + 1 == end and data[at] == 0:
            at = end
        else:
            headers, at = _read_headers(data, at, end)
        if at != end:
            raise CorruptBatch(reason=f"{end - at} bytes left over in a record")
        if append_time is not None:
            timestamp = append_time
        elif not -INT64_MAX <= timestamp <= INT64_MAX:
            raise CorruptBatch(reason=f"timestamp {timestamp} does not fit 64 bits")
        if not before < delta <= last:
            raise CorruptBatch(reason=f"offset delta {delta} after {before}, up to {last}")
        before = delta
        yield Record(value, key, headers, timestamp, base_offset + delta)
    if at != size:
        raise CorruptBatch(reason=f"{size - at} bytes after the last record")


def plain_records(buffer: Buffer, position: int, header: BatchHeader, limit: int) -> bytes:
    """The bytes of a batch's records, decompressed: at most `limit` of them if they were compressed."""
    view = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    codec = header.codec
    return bytes(view) if codec is Codec.NONE else decompress(codec, view, limit)


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    if at + 1 < end and (low := data[at]) >= 0x80 and (high := data[at + 1]) < 0x80:
        raw = low & 0x7F | high << 7
        length, at = raw >> 1 ^ -(raw & 1), at + 2
    else:
        length, at = read_varint(data, at, end)
    if length == NULL_LENGTH:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptBatch(reason=f"a field of {length} bytes where {end - at} are left")
    return data[at : at + length], at + length


def _read_headers(data: bytes, at: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, at = read_varint(data, at, end)
    if count == 0:
        return (), at
    if not 0 < count * HEADER_BYTES_MIN <= end - at:
        raise CorruptBatch(reason=f"{count} headers where {end - at} bytes are left")
    headers: list[Header] = []
    for _ in range(count):
        name, at = _read_bytes(data, at, end)
        value, at = _read_bytes(data, at, end)
        headers.append((_header_name(name), value))
    return tuple(headers), at


def _header_name(name: bytes | None) -> str:
    if name is None:
        raise CorruptBatch(reason="a header without a name")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise CorruptBatch(reason="a header name is not UTF-8") from error
