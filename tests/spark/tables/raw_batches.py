"""Batches byte by byte: what a client can send and `build_batch` would never write."""

from millpond.records import crc32c
from millpond.records.batch import HEADER

HEADER_BYTES = 61
CRC_AT, CRC_COVERS_FROM = 17, 21


def raw_batch(*records: bytes, first_timestamp: int = 1_000) -> bytes:
    payload = b"".join(records)
    count, header = len(records), bytearray(HEADER_BYTES)
    length = HEADER_BYTES + len(payload) - 12
    times = (first_timestamp, first_timestamp)
    HEADER.pack_into(header, 0, 0, length, -1, 2, 0, 0, count - 1, *times, -1, -1, -1, count)
    checksum = crc32c(payload, crc32c(bytes(header[CRC_COVERS_FROM:])))
    header[CRC_AT:CRC_COVERS_FROM] = checksum.to_bytes(4, "big")
    return bytes(header) + payload


def raw_record(
    number: int, value: bytes, *, timestamp_delta: int = 0, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> bytes:
    """Without a key."""
    body = b"\0" + varint(timestamp_delta) + varint(number) + varint(-1) + varint(len(value)) + value
    body += varint(len(headers))
    for name, content in headers:
        body += varint(len(name)) + name + varint(len(content)) + content
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    rest, out = ((number << 1) ^ (number >> 63)) & (2**64 - 1), b""
    while rest >= 0x80:
        out += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return out + bytes([rest])
