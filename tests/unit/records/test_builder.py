"""Building batches: defaults, given offsets and gaps, timestamps, markers, records that cannot be written."""

import pytest

from millpond.model.errors import InvalidRecord
from millpond.records import (
    Codec,
    MarkerKind,
    Record,
    build_batch,
    build_control_batch,
    iter_records,
    read_header,
    read_marker,
    validate,
)

LIMIT = 1 << 20


def read(batch: bytes) -> list[Record]:
    return list(iter_records(batch, decompressed_bytes_max=LIMIT))


def test_a_batch_without_options_is_a_plain_producers() -> None:
    header = read_header(build_batch([Record(b"a"), Record(b"b")], now_ms=1000))
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 1, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.leader_epoch, header.attributes) == (-1, 0)


def test_the_bytes_of_a_small_batch_are_the_formats() -> None:
    batch = build_batch([Record(b"v", key=b"k", headers=(("h", None),), timestamp=5)])
    assert batch[61:].hex() == "16" + "00" + "00" + "00" + "026b" + "0276" + "02" + "0268" + "01"
    assert len(batch) == 61 + 12


def test_records_without_a_time_get_now_and_the_others_keep_theirs() -> None:
    batch = build_batch([Record(b"a", timestamp=7), Record(b"b"), Record(b"c", timestamp=0)], now_ms=5)
    assert [record.timestamp for record in read(batch)] == [7, 5, 0]
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (7, 7)


def test_without_a_clock_a_record_stays_without_a_time() -> None:
    batch = build_batch([Record(b"a"), Record(b"b", timestamp=3)])
    assert [record.timestamp for record in read(batch)] == [-1, 3]


def test_given_offsets_keep_their_gaps() -> None:
    batch = build_batch([Record(b"a", offset=10), Record(b"b", offset=14), Record(b"c")])
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 15, 3)
    assert [record.offset for record in read(batch)] == [10, 14, 15]


def test_compaction_keeps_the_range_of_a_batch_whose_ends_went() -> None:
    batch = build_batch([Record(b"b", offset=14)], base_offset=10, last_offset=19)
    header = read_header(batch)
    assert (header.base_offset, header.next_offset, header.record_count) == (10, 20, 1)
    assert [record.offset for record in read(batch)] == [14]


@pytest.mark.parametrize("offsets", [(5, 5), (5, 4), (0, 1 << 31)])
def test_offsets_must_rise_within_32_bits(offsets: tuple[int, int]) -> None:
    with pytest.raises(InvalidRecord, match="does not follow"):
        build_batch([Record(b"", offset=offset) for offset in offsets])


def test_an_offset_before_the_base_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="does not follow"):
        build_batch([Record(b"", offset=3)], base_offset=4)


@pytest.mark.parametrize("last_offset", [2, 3 + (1 << 31)])
def test_a_last_offset_must_be_at_or_after_the_last_record_within_32_bits(last_offset: int) -> None:
    with pytest.raises(InvalidRecord, match="last offset"):
        build_batch([Record(b"", offset=3)], last_offset=last_offset)


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="at least one record"):
        build_batch([])


@pytest.mark.parametrize("timestamp", [-2, (1 << 63) - 1])
def test_an_impossible_time_is_refused(timestamp: int) -> None:
    with pytest.raises(InvalidRecord, match="timestamp"):
        build_batch([Record(b"", timestamp=timestamp)])


def test_the_extremes_of_time_fit_one_batch() -> None:
    records = [Record(b"", timestamp=-1), Record(b"", timestamp=(1 << 63) - 2)]
    assert [record.timestamp for record in read(build_batch(records))] == [-1, (1 << 63) - 2]


def test_a_header_name_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="Unicode"):
        build_batch([Record(b"", headers=(("\ud800", b""),))])


@pytest.mark.parametrize("codec", Codec)
def test_what_we_build_we_accept(codec: Codec) -> None:
    batch = build_batch(
        [Record(b"x" * 100, timestamp=9)] * 50,
        compression=codec,
        producer_id=4,
        producer_epoch=2,
        base_sequence=30,
        transactional=True,
    )
    [(position, header)] = validate(batch, max_batch_bytes=LIMIT)
    assert (position, header.codec, header.is_transactional, header.is_control) == (0, codec, True, False)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 30)
    assert len(read(batch)) == 50


@pytest.mark.parametrize("kind", MarkerKind)
def test_a_marker_is_kafkas_byte_for_byte(kind: MarkerKind) -> None:
    batch = build_control_batch(
        kind, producer_id=7, producer_epoch=1, timestamp=1000, coordinator_epoch=0x1020304
    )
    key, value = f"0000000{kind:d}", "000001020304"
    assert batch[61:].hex() == "20" + "000000" + "08" + key + "0c" + value + "00"
    header = read_header(batch)
    assert (header.attributes, header.base_sequence, header.record_count) == (0x30, -1, 1)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (7, 1, 1000)
    assert read_marker(batch) == (kind, 0x1020304)
