"""Frames: what goes in comes out, and no damaged one is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import CorruptObject
from millpond.model.ids import TopicId, TopicPartition
from millpond.records.crc import crc32c
from millpond.segments.frame import (
    FRAME_BYTES,
    NO_OFFSET,
    Frame,
    pack_frame,
    read_frame,
    walk_journal,
)

WHERE = TopicPartition(TopicId(bytes(range(16))), 7)
places = st.builds(
    TopicPartition, st.binary(min_size=16, max_size=16).map(TopicId), st.integers(0, 2**31 - 1)
)
counts = st.integers(0, 2**32 - 1)
offsets = st.integers(-1, 2**63 - 1)
frames = st.builds(Frame, places, offsets, offsets, counts, counts, st.integers(0, 2**64 - 1), st.booleans())


def pack(frame: Frame) -> bytes:
    return pack_frame(
        frame.topic_partition,
        frame.batches,
        frame.records,
        frame.length,
        base_offset=frame.base_offset,
        end_offset=frame.end_offset,
        stamped=frame.stamped,
    )


@given(frames, st.binary(max_size=20), st.sampled_from([bytes, bytearray, memoryview]))
def test_round_trip(frame: Frame, before: bytes, kind: type) -> None:
    buffer = before + pack(frame) + b"after"
    assert read_frame(kind(buffer), len(before)) == frame


def test_layout() -> None:
    """As `docs/formats/objects.md` says; a change here is a new version."""
    packed = pack_frame(WHERE, 2, 300, 4096, base_offset=10, end_offset=310, stamped=True)
    head = bytes.fromhex(
        "4d504558" "01" "01" "0000" "000102030405060708090a0b0c0d0e0f" "00000007"
        "000000000000000a" "0000000000000136" "00000002" "0000012c" "0000000000001000"
    )  # fmt: skip
    assert packed == head + crc32c(head).to_bytes(4, "big")
    assert len(packed) == FRAME_BYTES == 64


def test_a_journal_frame_has_no_offsets() -> None:
    frame = read_frame(pack_frame(WHERE, 1, 2, 3), 0)
    assert (frame.base_offset, frame.end_offset, frame.stamped) == (NO_OFFSET, NO_OFFSET, False)


def test_every_bit_flip_is_found() -> None:
    packed = pack_frame(WHERE, 2, 300, 4096, base_offset=10, end_offset=310)
    for bit in range(len(packed) * 8):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptObject):
            read_frame(damaged, 0)


@pytest.mark.parametrize("length", [0, 1, 59, 63])
def test_too_short(length: int) -> None:
    with pytest.raises(CorruptObject, match="ends inside a frame"):
        read_frame(pack_frame(WHERE, 1, 1, 1)[:length], 0)


@pytest.mark.parametrize("position", [-1, 1, 64, 1000])
def test_wrong_position(position: int) -> None:
    with pytest.raises(CorruptObject):
        read_frame(pack_frame(WHERE, 1, 1, 1), position)


def test_zeros_are_no_frame() -> None:
    with pytest.raises(CorruptObject, match="no frame"):
        read_frame(bytes(64), 0)


def test_another_version_is_not_read() -> None:
    head = bytearray(pack_frame(WHERE, 1, 1, 1)[:-4])
    head[4] = 2
    with pytest.raises(CorruptObject, match="version 2"):
        read_frame(bytes(head) + crc32c(bytes(head)).to_bytes(4, "big"), 0)


def test_other_flags_do_not_count_as_stamped() -> None:
    head = bytearray(pack_frame(WHERE, 1, 1, 1)[:-4])
    head[5] = 0x02
    assert not read_frame(bytes(head) + crc32c(bytes(head)).to_bytes(4, "big"), 0).stamped


def test_the_error_names_the_place() -> None:
    with pytest.raises(CorruptObject) as caught:
        read_frame(bytes(100), 8, "journal/s/1")
    assert caught.value.facts["key"] == "journal/s/1"
    assert caught.value.facts["position"] == 8


class TestJournal:
    PAYLOADS = (b"first", b"", b"third one")

    def journal(self) -> bytes:
        return b"".join(pack_frame(WHERE, 1, 1, len(body)) + body for body in self.PAYLOADS)

    def test_walk(self) -> None:
        journal = self.journal()
        found = [journal[position : position + frame.length] for position, frame in walk_journal(journal)]
        assert tuple(found) == self.PAYLOADS
        assert list(walk_journal(b"")) == []

    def test_a_torn_tail_ends_the_walk_with_an_error(self) -> None:
        journal = self.journal()
        whole = {0, 69, 133, 206}
        assert len(journal) == 206
        for length in set(range(len(journal))) - whole:
            with pytest.raises(CorruptObject):
                list(walk_journal(journal[:length]))
        for length in whole:
            list(walk_journal(journal[:length]))
