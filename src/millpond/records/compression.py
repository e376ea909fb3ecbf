"""Kafka's four codecs, with a hard limit on the size of decompressed data.

A few kilobytes can claim to hold gigabytes, so no size found in the input is ever trusted: output goes into
buffers that end at the caller's limit. Peak memory is at most twice the limit (the buffer and its final copy)
plus a constant that depends on the codec: about 9 MiB for lz4's largest block, less for the others. Each thread
that decompresses keeps one buffer of `SCRATCH_BYTES`.
"""

import struct
import threading
import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptBatch, RecordTooLarge, UnsupportedCompression

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""The header that snappy-java writes before its blocks: magic, version 1, readable by version 1."""
XERIAL_BLOCK_BYTES = 32 * 1024
GZIP_MEMBERS_MAX = 64
"""Producers write one member. Each further member copies the rest of the input: many would cost quadratic time."""
OUTPUT_BYTES_MIN = 16 * 1024
OUTPUT_GROWTH = 4
SCRATCH_BYTES = 2 * 1024 * 1024
"""A buffer of this size is kept per thread and tried first: clearing a fresh one costs a third of lz4's own work."""
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

_BLOCK_LENGTH = struct.Struct(">i")
_GZIP_WINDOW_BITS = 31  # zlib's way to ask for gzip framing
_THREAD = threading.local()


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


EXPANSION_MAX = (1, 1032, 22, 255, 32768)
"""Maximum expansion of one byte, by codec: deflate's 258 for two bits, snappy's 64 for three bytes, lz4's
length bytes of 255, zstd's 128 KiB for a four-byte block. No valid batch is denser."""


DecompressInto = Callable[[Buffer, memoryview], int]

_KNOWN = {int(codec): codec for codec in Codec}  # a look-up costs a tenth of Codec(number)


def known_codec(number: int) -> Codec:
    try:
        return _KNOWN[number]
    except KeyError:
        raise UnsupportedCompression(codec=number) from None


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress `data` in the framing that Java clients write and read for this codec."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, wbits=_GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, limit: int) -> bytes:
    """The decompressed bytes. Raises RecordTooLarge above `limit`, and CorruptBatch if `data` is malformed."""
    match codec:
        case Codec.NONE:
            _check_size(len(data), limit)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        case Codec.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, limit)


def _compress_lz4(data: Buffer) -> bytes:
    # Kafka's Java reader refuses linked blocks (KIP-57).
    compressor = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it accepts no other kind of buffer
    return bytes(compressor.finish())


def _compress_xerial(data: memoryview) -> bytes:
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> RecordTooLarge:
    message = f"The records of a batch take more than {limit} bytes when decompressed."
    return RecordTooLarge(message, size=limit + 1, limit=limit)


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    rest, out = bytes(data), b""
    for _ in range(GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            # One byte more than allowed distinguishes "full" from "too large"; 0 would mean "no limit" to zlib.
            out += member.decompress(rest, limit - len(out) + 1)
        except zlib.error as error:
            raise CorruptBatch(reason=f"gzip data: {error}") from error
        _check_size(len(out), limit)
        if not member.eof:
            raise CorruptBatch(reason="gzip data is cut short")
        rest = member.unused_data
        if not rest:
            return out
    raise CorruptBatch(reason=f"gzip data has more than {GZIP_MEMBERS_MAX} members")


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    # Raw snappy cannot start with the magic: its third byte would copy from before the beginning.
    if data[: len(XERIAL_MAGIC)] == XERIAL_MAGIC:
        return _decompress_xerial(data, limit)
    return _decompress_snappy_block(data, limit, limit)


def _decompress_xerial(data: memoryview, limit: int) -> bytes:
    out, position = bytearray(), len(XERIAL_HEADER)
    if len(data) < position:
        raise CorruptBatch(reason="snappy data is cut short")
    while position < len(data):
        start = position + _BLOCK_LENGTH.size
        if start > len(data):
            raise CorruptBatch(reason="snappy data is cut short")
        position = start + _BLOCK_LENGTH.unpack_from(data, start - _BLOCK_LENGTH.size)[0]
        if not start < position <= len(data):
            raise CorruptBatch(reason="a snappy block has an impossible length")
        out += _decompress_snappy_block(data[start:position], limit - len(out), limit)
    return bytes(out)


def _decompress_snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > room:
            raise _too_large(limit)
        out = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(reason=f"snappy data: {error}") from error
    if written != size:
        raise CorruptBatch(reason="a snappy block is shorter than it says")
    return bytes(out)


def _decompress_growing(decompress_into: DecompressInto, data: Buffer, limit: int) -> bytes:
    """Try increasingly large buffers up to the limit. All attempts together cost a third more than the last one."""
    capacity = min(limit, max(OUTPUT_BYTES_MIN, len(data) * OUTPUT_GROWTH))
    if capacity <= OUTPUT_GROWTH * SCRATCH_BYTES // 2:
        capacity = min(limit, SCRATCH_BYTES)
    while True:
        out = memoryview(_scratch() if capacity <= SCRATCH_BYTES else bytearray(capacity))[:capacity]
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if not _is_full(error):
                raise CorruptBatch(reason=f"compressed data: {error}") from error
        else:
            return bytes(out[:written])
        if capacity == limit:
            raise _too_large(limit)
        capacity = min(limit, capacity * OUTPUT_GROWTH)


def _scratch() -> bytearray:
    try:
        buffer: bytearray = _THREAD.buffer
    except AttributeError:
        buffer = _THREAD.buffer = bytearray(SCRATCH_BYTES)
    return buffer


def _is_full(error: Exception) -> bool:
    # Rust's message for a write into a full buffer; the library has no error type for it. A test checks it.
    return "failed to write whole buffer" in str(error)
