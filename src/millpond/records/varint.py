"""Zigzag varints, the integers inside records: 7 bits a byte, low bits first, sign in the lowest bit.

A varint holds 32 bits in at most 5 bytes, a varlong 64 bits in at most 10. Readers receive an end position
and never read past it.
"""

from millpond.model.errors import CorruptBatch

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
PREPARED_MAX = 1_024
NULL_LENGTH = -1
"""The size of a key, value or header that is absent."""


def varint(value: int) -> bytes:
    """Small values, which are the most common, are looked up in a table."""
    if 0 <= value < PREPARED_MAX:
        return _PREPARED[value]
    assert -(1 << 31) <= value < 1 << 31, "does not fit 32 bits"
    return _encoded(value)


def varlong(value: int) -> bytes:
    if 0 <= value < PREPARED_MAX:
        return _PREPARED[value]
    assert -(1 << 63) <= value < 1 << 63, "does not fit 64 bits"
    return _encoded(value)


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The 32-bit value at `position` and the position after it."""
    if position < end and (raw := data[position]) < 0x80:  # most lengths and deltas are one byte
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_unsigned(data, position, end, VARINT_BYTES_MAX)
    if raw >> 32:
        raise CorruptBatch(reason="a varint does not fit 32 bits")
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The 64-bit value at `position` and the position after it."""
    if position < end and (raw := data[position]) < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_unsigned(data, position, end, VARLONG_BYTES_MAX)
    if raw >> 64:
        raise CorruptBatch(reason="a varlong does not fit 64 bits")
    return (raw >> 1) ^ -(raw & 1), position


def _encoded(value: int) -> bytes:
    raw = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def read_unsigned(data: bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """The value at `position` with its sign still in the lowest bit, and the position after it."""
    raw = 0
    for index in range(bytes_max):
        if position >= end:
            raise CorruptBatch(reason="a varint is cut short")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return raw, position
    raise CorruptBatch(reason=f"a varint is longer than {bytes_max} bytes")


_PREPARED = tuple(map(_encoded, range(PREPARED_MAX)))
