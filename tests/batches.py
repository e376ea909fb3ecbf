"""Batches whose headers claim what a test wants about the times of their records."""

from collections.abc import Sequence
from typing import Any

from millpond.records import Codec, Record, build_batch, compress, read_header
from millpond.records.batch import HEADER, HEADER_SIZE, LENGTH_END, seal
from millpond.records.varint import varint, varlong


def batch_with_header(
    records: Sequence[Record],
    *,
    base: int | None = None,
    newest: int | None = None,
    codec: Codec = Codec.NONE,
    **producer: Any,
) -> bytes:
    """One batch of these records, whose header has the given base and newest time: the first record's and the true
    maximum unless given. `producer` is what `build_batch` takes of one."""
    times = [record.timestamp for record in records]
    honest = read_header(build_batch([record._replace(timestamp=0) for record in records], **producer))
    base = times[0] if base is None else base
    payload = compress(codec, encoded(records, base))
    header = honest._replace(
        batch_length=HEADER_SIZE + len(payload) - LENGTH_END,
        attributes=honest.attributes | codec,
        base_timestamp=base,
        max_timestamp=max(times) if newest is None else newest,
    )
    out = bytearray(HEADER.pack(*header))
    out += payload
    seal(out, 0, len(out))
    return bytes(out)


def encoded(records: Sequence[Record], base: int) -> bytes:
    """Records without headers, their times counted from `base`."""
    out = bytearray()
    for delta, record in enumerate(records):
        body = (
            b"\0"
            + varlong(record.timestamp - base)
            + varint(delta)
            + _field(record.key)
            + _field(record.value)
        )
        out += varint(len(body) + 1) + body + varint(0)
    return bytes(out)


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data
