"""Segments: checked from their own bytes alone, and given back to a catalog."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import CorruptObject
from millpond.model.extents import Extent, IndexEntry
from millpond.model.ids import TopicId, TopicPartition
from millpond.records.crc import crc32c
from millpond.segments.frame import FRAME_BYTES, pack_frame, read_frame
from millpond.segments.segment import (
    TRAILER_BYTES,
    SectionKind,
    check_segment,
    footer_length,
    read_footer,
    rebuild_extent,
    write_segment,
)

WHERE = TopicPartition(TopicId(bytes(range(16))), 7)
INDEX = (IndexEntry(0, 0, 50), IndexEntry(9, 65_536, 40), IndexEntry(20, 140_000, 60))
KEY = "segments/s/t/7/x"


def segment(payload: bytes = b"batches", index: tuple[IndexEntry, ...] = INDEX, base: int = 100) -> bytes:
    parts = write_segment(
        WHERE,
        base,
        base + 30,
        [payload[:3], payload[3:]],
        batches=4,
        records=25,
        epoch=6,
        min_timestamp=1,
        max_timestamp=60,
        index=index,
    )
    return b"".join(parts)


@given(
    st.lists(st.binary(max_size=100), min_size=1),
    st.integers(0, 2**62),
    st.integers(1, 2**31),
    st.integers(-1, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([(), INDEX]),
)
def test_the_extent_comes_back(
    payload: list[bytes],
    base: int,
    span: int,
    epoch: int,
    oldest: int,
    newest: int,
    index: tuple[IndexEntry, ...],
) -> None:
    parts = write_segment(
        WHERE,
        base,
        base + span,
        payload,
        batches=3,
        records=9,
        epoch=epoch,
        min_timestamp=oldest,
        max_timestamp=newest,
        index=index,
    )
    data, content = b"".join(parts), b"".join(payload)
    extent = check_segment(data, KEY)
    assert extent == Extent(
        WHERE, base, base + span, epoch, FRAME_BYTES, len(content), 9, oldest, newest, True, KEY, None, index
    )
    assert data[extent.position : extent.position + extent.length] == content


def test_payload_buffers_are_passed_on() -> None:
    payload = [bytearray(b"one"), memoryview(b"two")]
    parts = write_segment(
        WHERE, 0, 1, payload, batches=1, records=1, epoch=0, min_timestamp=0, max_timestamp=0
    )
    assert parts[1] is payload[0]
    assert parts[2] is payload[1]


def test_only_its_ends_need_be_read() -> None:
    data = segment(bytes(5000))
    length = footer_length(data[-TRAILER_BYTES:], len(data), KEY)
    extent = rebuild_extent(
        KEY, len(data), read_frame(data[:FRAME_BYTES], 0), read_footer(data[-length:], KEY)
    )
    assert extent == check_segment(data, KEY)


def test_every_bit_flip_is_found() -> None:
    data = segment()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptObject):
            check_segment(damaged, KEY)


def test_every_truncation_is_found() -> None:
    data = segment()
    for length in range(len(data)):
        with pytest.raises(CorruptObject):
            check_segment(data[:length], KEY)
        with pytest.raises(CorruptObject):
            check_segment(data[length + 1 :], KEY)


def test_surplus_bytes_are_found() -> None:
    data = segment()
    for damaged in (data + b"\0", b"\0" + data, data[:FRAME_BYTES] + b"\0" + data[FRAME_BYTES:], data + data):
        with pytest.raises(CorruptObject):
            check_segment(damaged, KEY)


def test_a_journal_is_no_segment() -> None:
    with pytest.raises(CorruptObject, match="does not end as a segment"):
        check_segment(pack_frame(WHERE, 1, 1, 200) + bytes(200), KEY)
    with pytest.raises(CorruptObject, match="too short"):
        check_segment(b"", KEY)


def test_a_frame_without_offsets_is_not_registered() -> None:
    data = segment()
    frame = pack_frame(WHERE, 4, 25, len(b"batches"))
    with pytest.raises(CorruptObject, match="no offsets"):
        check_segment(frame + data[FRAME_BYTES:], KEY)


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_frame_of_another_length_is_not_registered(wrong: int) -> None:
    data = segment()
    frame = pack_frame(WHERE, 4, 25, len(b"batches") + wrong, base_offset=100, end_offset=130, stamped=True)
    with pytest.raises(CorruptObject, match="do not fill"):
        check_segment(frame + data[FRAME_BYTES:], KEY)


def refooted(front: bytes, sections: int, version: int = 1) -> bytes:
    """A footer with a right checksum whatever it says."""
    body = struct.pack(
        ">BBHiqqII", version, 0, sections, 6, 1, 60, crc32c(b"batches"), len(front) + TRAILER_BYTES
    )
    return front + body + struct.pack(">I4s", crc32c(front + body), b"MPSG")


class TestSections:
    def test_unknown_and_reserved_kinds_are_skipped(self) -> None:
        index = segment()[FRAME_BYTES + 7 : FRAME_BYTES + 7 + 61]
        table = struct.pack(">HHQI", SectionKind.KEY_HASHES, 0, 61, 8)
        table += struct.pack(">HHQI", 999, 0, 69, 3)
        table += struct.pack(">HHQI", SectionKind.SPARSE_INDEX, 0, 0, 61)
        assert read_footer(refooted(index + bytes(8) + b"new" + table, 3)).index == INDEX

    def test_none(self) -> None:
        assert read_footer(refooted(b"", 0)).index == ()

    def test_outside_the_footer(self) -> None:
        table = struct.pack(">HHQI", SectionKind.SPARSE_INDEX, 0, 1, 4)
        with pytest.raises(CorruptObject, match="outside"):
            read_footer(refooted(b"1234" + table, 1))

    def test_more_than_fit(self) -> None:
        with pytest.raises(CorruptObject, match="does not fit"):
            read_footer(refooted(b"", 1))

    def test_another_version(self) -> None:
        with pytest.raises(CorruptObject, match="version 2"):
            read_footer(refooted(b"", 0, version=2))


def test_a_footer_longer_than_the_object_is_refused() -> None:
    data = segment()
    with pytest.raises(CorruptObject, match="cannot be"):
        footer_length(data[-TRAILER_BYTES:], FRAME_BYTES + TRAILER_BYTES, KEY)
