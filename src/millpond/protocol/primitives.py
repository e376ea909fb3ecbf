"""Functions that generated codecs call, and the limits they enforce.

Decoding trusts no input: every length is compared with the remaining bytes before memory is allocated for it.
"""

from typing import NoReturn

from millpond.model.buffers import Buffer
from millpond.model.errors import MalformedMessage

UVARINT_BYTES_MAX = 5
TEXT_BYTES_MAX = 0x7FFF
"""Kafka rejects longer strings in every encoding; the older encoding has only two bytes for the length."""
UUID_BYTES = 16
ELEMENTS_MAX = 100_000
"""Limit for all array elements and tags of one message together. A two-byte element can become a hundred
bytes of objects and a microsecond of work, so the frame size alone is a poor bound on memory and time."""
TAGS_MAX = 1_000
"""Limit for the tagged fields of one struct or header; Kafka's own structs have at most a handful."""

_ONE_BYTE = tuple(bytes([value]) for value in range(128))


def uvarint(value: int) -> bytes:
    """Encodes seven bits per byte, low bits first; a set high bit means that more bytes follow."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} does not fit an unsigned varint")
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:  # the size of most runs of batches
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Returns the value at `position` and the position after it. Raises IndexError if the data ends within
    the value."""
    value = 0
    for index in range(UVARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            if value >> 32:
                break
            return value, position + index + 1
    raise MalformedMessage(reason="an unsigned varint does not fit 32 bits")


def skip_tags(data: Buffer, position: int) -> tuple[int, int]:
    """Skip the tagged fields at `position`, all of them unknown, as KIP-482 requires. Returns the position
    after them and their count."""
    end = len(data)
    count, position = read_uvarint(data, position)
    if count > TAGS_MAX or count * 2 > end - position:
        refuse_count("tagged fields", count, end - position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if size > end - position:
            refuse_length("a tagged field", size, end - position)
        position += size
    return position, count


def uuid_bytes(value: bytes) -> bytes:
    """Returns `value` if it has the size of a UUID: `struct` would silently pad or cut anything else."""
    if len(value) != UUID_BYTES:
        raise ValueError(f"a uuid has {UUID_BYTES} bytes, not {len(value)}")
    return value


def text_bytes(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > TEXT_BYTES_MAX:
        raise ValueError(f"a string of {len(encoded)} bytes is longer than {TEXT_BYTES_MAX}")
    return encoded


def refuse_length(field: str, length: int, left: int) -> NoReturn:
    if length == -1:
        raise MalformedMessage(reason=f"{field} must not be null")
    raise MalformedMessage(reason=f"{field} cannot have length {length} with {left} bytes left")


def refuse_count(field: str, count: int, left: int) -> NoReturn:
    if count == -1:
        raise MalformedMessage(reason=f"{field} must not be null")
    raise MalformedMessage(reason=f"{field} cannot have {count} elements with {left} bytes left")


def refuse_tag(field: str) -> NoReturn:
    raise MalformedMessage(reason=f"tagged field {field} is not as long as it says")
