"""The view over bytes: header fields, walking, checksums, stamping, append time."""

import struct

import pytest

from millpond.model.errors import CorruptBatch, UnsupportedCompression
from millpond.records import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    Record,
    build_batch,
    check_crc,
    crc32c,
    iter_records,
    read_header,
    stamp,
    stamp_run,
    validate,
    walk,
    with_append_time,
)

BATCH = build_batch([Record(b"one"), Record(b"two"), Record(b"three")], now_ms=1000)


def header_with(**changes: int) -> BatchHeader:
    return read_header(BATCH)._replace(**changes)


def test_the_header_is_61_bytes_in_wire_order() -> None:
    fields = (1, 49, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    wire = struct.pack(">qiibIhiqqqhii", *fields)
    assert len(wire) == HEADER_SIZE == 61
    assert read_header(wire) == fields


@pytest.mark.parametrize(
    ("bit", "name"), [(0x08, "has_append_time"), (0x10, "is_transactional"), (0x20, "is_control")]
)
def test_each_attribute_has_its_bit(bit: int, name: str) -> None:
    names = {"has_append_time", "is_transactional", "is_control"}
    assert {other for other in names if getattr(header_with(attributes=bit), other)} == {name}


def test_the_codec_is_the_lowest_three_bits() -> None:
    assert [header_with(attributes=0xF8 | number).codec for number in range(5)] == list(Codec)
    with pytest.raises(UnsupportedCompression):
        _ = header_with(attributes=5).codec


def test_offsets_follow_from_base_and_delta() -> None:
    header = header_with(base_offset=100, last_offset_delta=4)
    assert (header.last_offset, header.next_offset) == (104, 105)


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 4, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (-1, 4, -1)],
)
def test_sequences_go_on_at_zero_after_the_largest(base: int, delta: int, last: int) -> None:
    assert header_with(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_a_producer_with_an_id_is_idempotent() -> None:
    assert header_with(producer_id=0).is_idempotent
    assert not header_with(producer_id=-1).is_idempotent


def test_the_newest_timestamp_is_the_base_when_the_maximum_is_unset() -> None:
    assert header_with(base_timestamp=5, max_timestamp=9).newest_timestamp == 9
    assert header_with(base_timestamp=5, max_timestamp=-1).newest_timestamp == 5


def test_a_base_beyond_the_maximum_says_nothing_of_the_newest_time_nor_of_the_oldest() -> None:
    ahead = header_with(base_timestamp=99, max_timestamp=9)
    assert (ahead.newest_timestamp, ahead.oldest_timestamp) == (9, 9)
    assert header_with(base_timestamp=5, max_timestamp=9).oldest_timestamp == 5


def test_under_append_time_only_the_maximum_counts() -> None:
    for base in (5, 99):
        header = header_with(attributes=0x08, base_timestamp=base, max_timestamp=9)
        assert (header.newest_timestamp, header.oldest_timestamp) == (9, 9)


def test_a_header_cut_at_any_byte_is_corrupt() -> None:
    for end in range(len(BATCH)):
        with pytest.raises(CorruptBatch):
            read_header(BATCH[:end])
        with pytest.raises(CorruptBatch):
            read_header(BATCH, end=end)


@pytest.mark.parametrize("position", [-1, -len(BATCH), len(BATCH), 10_000])
def test_a_position_outside_is_corrupt_and_never_counts_from_the_end(position: int) -> None:
    with pytest.raises(CorruptBatch, match="too few"):
        read_header(BATCH, position)


def test_an_end_past_the_buffer_adds_nothing() -> None:
    assert read_header(BATCH, end=10_000) == read_header(BATCH)
    assert len(list(walk(BATCH, end=10_000))) == 1


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, len(BATCH) - 11, (1 << 31) - 1])
def test_a_length_that_does_not_fit_is_corrupt(length: int) -> None:
    batch = bytearray(BATCH)
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch, match="length"):
        read_header(batch)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_any_other_magic_is_corrupt(magic: int) -> None:
    batch = bytearray(BATCH)
    struct.pack_into(">b", batch, 16, magic)
    with pytest.raises(CorruptBatch, match="magic"):
        read_header(batch)


def test_walking_gives_each_batch_and_its_position() -> None:
    run = BATCH + build_batch([Record(None)]) + BATCH
    places = [(position, header.record_count) for position, header in walk(run)]
    assert places == [(0, 3), (len(BATCH), 1), (len(run) - len(BATCH), 3)]


def test_walking_a_part_stays_inside_it() -> None:
    run, size = BATCH * 3, len(BATCH)
    assert [position for position, _ in walk(run, size, 2 * size)] == [size]
    with pytest.raises(CorruptBatch):
        list(walk(run, size, 3 * size - 1))


def test_walking_nothing_gives_nothing() -> None:
    assert list(walk(b"")) == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type) -> None:
    buffer = kind(BATCH)
    assert read_header(buffer) == read_header(BATCH)
    assert validate(buffer, max_batch_bytes=1000) == [(0, read_header(BATCH))]
    assert len(list(iter_records(buffer, decompressed_bytes_max=0))) == 3
    assert crc32c(buffer) == crc32c(BATCH)


def test_the_checksum_is_castagnolis_and_can_be_continued() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


def test_every_bit_from_the_attributes_on_is_under_the_checksum() -> None:
    for index in range(21 * 8, len(BATCH) * 8):
        batch = bytearray(BATCH)
        batch[index // 8] ^= 1 << index % 8
        with pytest.raises(CorruptBatch, match="CRC32C"):
            check_crc(batch, 0, read_header(batch))


def test_stamping_changes_base_offset_and_epoch_and_nothing_else() -> None:
    batch = bytearray(b"before" + BATCH)
    stamp(batch, 6, base_offset=1 << 40, leader_epoch=9)
    header = read_header(batch, 6)
    assert header == header_with(base_offset=1 << 40, leader_epoch=9)
    check_crc(batch, 6, header)
    assert batch[:6] == b"before"
    assert batch[6 + 16 :] == BATCH[16:]


def test_a_run_is_stamped_with_consecutive_offsets() -> None:
    run = bytearray(BATCH + build_batch([Record(b"four")]) + BATCH)
    assert stamp_run(memoryview(run), base_offset=50, leader_epoch=2) == 57
    assert [(header.base_offset, header.leader_epoch) for _, header in walk(run)] == [
        (50, 2),
        (53, 2),
        (54, 2),
    ]


def test_a_gap_at_the_end_of_a_batch_is_counted_when_stamping() -> None:
    run = bytearray(build_batch([Record(b"a", offset=0)], last_offset=9) + BATCH)
    assert stamp_run(run, base_offset=0, leader_epoch=0) == 13


def test_append_time_sets_bit_and_maximum_and_renews_the_checksum() -> None:
    stamped = with_append_time(BATCH * 2, now_ms=5_000)
    for position, header in walk(stamped):
        check_crc(stamped, position, header)
        expected = header_with(attributes=0x08, max_timestamp=5_000, crc=header.crc)
        assert header == expected
    assert stamped[HEADER_SIZE : len(BATCH)] == BATCH[HEADER_SIZE:]
