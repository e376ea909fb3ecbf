"""Zigzag varints: the examples of the format, the edges of 32 and 64 bits, and every malformed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch
from millpond.records.varint import read_varint, read_varlong, varint, varlong

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)

KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (1023, "fe0f"),
    (1024, "8010"),
    (8191, "fe7f"),
    (8192, "808001"),
    ((1 << 31) - 1, "feffffff0f"),
    (-(1 << 31), "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "wire"), KNOWN)
def test_known_values_have_their_known_bytes(value: int, wire: str) -> None:
    assert varint(value).hex() == wire
    assert read_varint(bytes.fromhex(wire), 0, len(wire) // 2) == (value, len(wire) // 2)


@given(INT32)
def test_a_varint_comes_back_and_takes_at_most_five_bytes(value: int) -> None:
    out = b"before" + varint(value)
    assert len(out) <= 6 + 5
    assert read_varint(out + b"\xff", 6, len(out)) == (value, len(out))


@given(INT64)
def test_a_varlong_comes_back_and_takes_at_most_ten_bytes(value: int) -> None:
    out = varlong(value)
    assert len(out) <= 10
    assert read_varlong(out, 0, len(out)) == (value, len(out))


@given(INT64)
def test_a_cut_varlong_is_corrupt_and_the_byte_after_its_end_is_not_read(value: int) -> None:
    out = varlong(value)
    for end in range(len(out)):
        with pytest.raises(CorruptBatch, match="cut short"):
            read_varlong(out, 0, end)


@pytest.mark.parametrize("wire", ["808080808001", "ffffffffff01"])
def test_a_varint_of_six_bytes_is_corrupt(wire: str) -> None:
    with pytest.raises(CorruptBatch, match="longer than 5"):
        read_varint(bytes.fromhex(wire), 0, 6)


def test_a_varlong_of_eleven_bytes_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="longer than 10"):
        read_varlong(b"\x80" * 10 + b"\x01", 0, 11)


def test_five_bytes_that_hold_more_than_32_bits_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="32 bits"):
        read_varint(bytes.fromhex("ffffffff1f"), 0, 5)


def test_ten_bytes_that_hold_more_than_64_bits_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="64 bits"):
        read_varlong(b"\xff" * 9 + b"\x03", 0, 10)


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_writing_more_than_32_bits_is_a_mistake_of_ours(value: int) -> None:
    with pytest.raises(AssertionError):
        varint(value)
    with pytest.raises(AssertionError):
        varlong(value << 32)
