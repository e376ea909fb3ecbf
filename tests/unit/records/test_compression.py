"""Codecs: round trips, foreign framings, garbage, and bombs that must not go off."""

import struct
import subprocess
import sys
import zlib
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch, RecordTooLarge, UnsupportedCompression
from millpond.records import Codec, compress, decompress
from millpond.records.compression import GZIP_MEMBERS_MAX, XERIAL_HEADER, known_codec

MIB = 1 << 20
PACKED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the stream is kept so that it can drive a mill. " * 2000


def gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=31)


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(3 * MIB)], ids=["empty", "byte", "text", "zeros"])
def test_what_is_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), limit=3 * MIB) == data


@pytest.mark.parametrize("codec", Codec)
def test_any_buffer_will_do(codec: Codec) -> None:
    packed = compress(codec, memoryview(bytearray(TEXT)))
    assert decompress(codec, memoryview(bytearray(packed)), limit=MIB) == TEXT


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_itself_is_allowed_and_one_byte_less_is_not(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, limit=len(TEXT)) == TEXT
    with pytest.raises(RecordTooLarge) as raised:
        decompress(codec, packed, limit=len(TEXT) - 1)
    assert raised.value.facts["limit"] == len(TEXT) - 1


@pytest.mark.parametrize("codec", Codec)
def test_a_limit_of_nothing_allows_only_nothing(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b""), limit=0) == b""
    with pytest.raises(RecordTooLarge):
        decompress(codec, compress(codec, b"x"), limit=0)


@pytest.mark.parametrize("codec", PACKED)
def test_cut_anywhere_it_is_corrupt_or_at_most_a_beginning(codec: Codec) -> None:
    packed = compress(codec, b"one two three " * 40)
    for end in range(len(packed)):
        try:
            assert decompress(codec, packed[:end], limit=MIB) == b""  # snappy's bare stream header: no blocks
            assert packed[:end] == XERIAL_HEADER
        except CorruptBatch:
            pass


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_is_corrupt(codec: Codec) -> None:
    for garbage in (b"", b"\xff" * 64, b"not compressed at all, sorry"):
        with pytest.raises((CorruptBatch, RecordTooLarge)):
            decompress(codec, garbage, limit=MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_garbage_after_the_data_is_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, TEXT) + b"tail", limit=MIB)


@pytest.mark.parametrize("codec", PACKED)
@settings(max_examples=150)
@given(data=st.data())
def test_damaged_data_raises_one_of_our_errors_or_stays_within_the_limit(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, b"hello " * 100))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptBatch, RecordTooLarge):
        assert len(decompress(codec, bytes(packed), limit=1000)) <= 1000


def test_gzip_members_are_read_one_after_another() -> None:
    assert decompress(Codec.GZIP, gzip(b"one ") + gzip(b"") + gzip(b"two"), limit=7) == b"one two"


def test_gzip_members_share_the_limit() -> None:
    with pytest.raises(RecordTooLarge):
        decompress(Codec.GZIP, gzip(b"1234") * 3, limit=11)


def test_a_flood_of_gzip_members_is_refused() -> None:
    assert decompress(Codec.GZIP, gzip(b"") * GZIP_MEMBERS_MAX, limit=0) == b""
    with pytest.raises(CorruptBatch, match="members"):
        decompress(Codec.GZIP, gzip(b"") * (GZIP_MEMBERS_MAX + 1), limit=0)


def test_snappy_is_written_as_java_writes_it() -> None:
    packed = compress(Codec.SNAPPY, bytes(40_000))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (first,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == bytes(32 * 1024)


def test_raw_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, snappy(TEXT), limit=len(TEXT)) == TEXT


@pytest.mark.parametrize("length", [-1, 0, 6, (1 << 31) - 1])
def test_an_xerial_block_of_impossible_length_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match="impossible length"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"12345", limit=MIB)


def test_xerial_blocks_share_the_limit() -> None:
    stream = xerial(snappy(b"1234"), snappy(b"5678"))
    assert decompress(Codec.SNAPPY, stream, limit=8) == b"12345678"
    with pytest.raises(RecordTooLarge):
        decompress(Codec.SNAPPY, stream, limit=7)


def test_a_snappy_length_is_checked_before_anything_is_made() -> None:
    four_gigabytes = b"\xff\xff\xff\xff\x0f"
    for stream in (four_gigabytes + b"\x00x", xerial(four_gigabytes + b"\x00x")):
        with pytest.raises(RecordTooLarge):
            decompress(Codec.SNAPPY, stream, limit=MIB)


def test_lz4_blocks_are_independent_as_java_requires() -> None:
    flags = compress(Codec.LZ4, TEXT)[4]
    assert flags & 0x20, "KIP-57: linked blocks are refused"


def test_the_library_still_says_when_a_buffer_is_full() -> None:
    for library in (cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            library.decompress_into(bytes(library.compress(TEXT)), bytearray(10))


@pytest.mark.parametrize("number", [5, 6, 7, -1])
def test_an_unknown_codec_is_unsupported(number: int) -> None:
    with pytest.raises(UnsupportedCompression, match=str(number)):
        known_codec(number)


BOMB = """
import struct, sys, zlib
import cramjam
from millpond.model.errors import RecordTooLarge
from millpond.records import Codec, decompress

MIB = 1 << 20

def gzip():
    deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
    start = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    again = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return start + again * 1023

def lz4():
    largest_blocks = bytes.fromhex("04224d18" "607073")
    block = bytes(cramjam.lz4.compress_block(bytes(4 * MIB), store_size=False))
    return largest_blocks + (struct.pack("<I", len(block)) + block) * 256

def zstd():
    compressor = cramjam.zstd.Compressor()
    for _ in range(1024):
        compressor.compress(bytes(MIB))
    return bytes(compressor.finish())

def zstd_wide_window():
    window_of_128_mib = bytes([(27 - 10) << 3])
    run_of_128_kib = struct.pack("<I", 131072 << 3 | 1 << 1)[:3] + b"\\0"
    return struct.pack("<I", 0xFD2FB528) + b"\\0" + window_of_128_mib + run_of_128_kib * 8192

def snappy():
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return b"\\x82SNAPPY\\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 1024

BOMBS = {
    "gzip": (Codec.GZIP, gzip),
    "snappy": (Codec.SNAPPY, snappy),
    "lz4": (Codec.LZ4, lz4),
    "zstd": (Codec.ZSTD, zstd),
    "zstd with a wide window": (Codec.ZSTD, zstd_wide_window),
}

def peak_kib():  # not ru_maxrss: that one remembers the parent
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

codec, make = BOMBS[sys.argv[1]]
bomb = make()
open("/proc/self/clear_refs", "w").write("5")  # forget the peak of making it
before = peak_kib()
try:
    decompress(codec, bomb, MIB)
except RecordTooLarge:
    print(peak_kib() - before)
"""


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "zstd with a wide window"])
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_a_bomb_of_a_gibibyte_against_a_limit_of_a_mebibyte_takes_a_few(name: str) -> None:
    child = subprocess.run([sys.executable, "-c", BOMB, name], capture_output=True, text=True, check=True)
    assert int(child.stdout) < 12 * 1024, "KiB beyond the bomb itself"
