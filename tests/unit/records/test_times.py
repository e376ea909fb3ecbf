"""The times of a batch's records, read without decoding them: against a reading of every record."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batches import batch_with_header, encoded

from millpond.model.errors import CorruptBatch, InvalidInput, RecordTooLarge
from millpond.records import (
    Codec,
    Record,
    RecordTimes,
    iter_records,
    read_header,
    read_times,
    times,
    with_append_time,
)
from millpond.records.batch import HEADER_SIZE
from millpond.records.times import BISECTED_MIN, COLUMN_MIN, COLUMNS_MAX
from millpond.records.varint import varint, varlong

LIMIT = 1 << 20
NOW = 1_700_000_000_000

times_of_records = st.one_of(
    st.just(-1),
    st.integers(-5, 5),
    st.integers(NOW - 200, NOW + 200),
    st.integers(NOW - 20_000, NOW + 20_000),
    st.integers(0, 2**62),
)
sizes = st.sampled_from([0, 1, 50, 51, 52, 53, 54, 55, 56, 57, 58, 100, 8_150, 8_200])


def read(batch, limit=LIMIT):
    return read_times(batch, 0, read_header(batch), decompressed_bytes_max=limit)


def naive(batch):
    stamps = [record.timestamp for record in iter_records(batch, decompressed_bytes_max=LIMIT)]
    given = [stamp for stamp in stamps if stamp != -1]
    return RecordTimes(min(stamps), max(stamps), min(stamps) < 0, min(given, default=-1))


@given(
    st.lists(st.tuples(times_of_records, sizes), min_size=1, max_size=60),
    st.one_of(st.none(), times_of_records),
    st.sampled_from(Codec),
)
def test_the_times_are_those_of_the_records_whatever_the_header_claims(shapes, base, codec):
    records = [Record(b"v" * size, timestamp=timestamp) for timestamp, size in shapes]
    batch = batch_with_header(records, base=base, newest=7, codec=codec)
    assert read(batch) == naive(batch)


run = st.tuples(
    st.integers(1, 3 * COLUMN_MIN),
    sizes,
    times_of_records,
    st.sampled_from([0, 1, -1, 40, -40, 1_000, 10**6, -(10**9), 10**12]),
    st.integers(0, 3),
)
"""Records of one size, the time of the first, how far apart in time they are, and the spread around that."""


@settings(deadline=None)
@given(st.lists(run, min_size=1, max_size=3), st.one_of(st.none(), times_of_records), st.randoms())
def test_records_of_equal_length_in_a_row_are_read_as_any_others(runs, base, choice):
    """By columns: as long as lengths, and the bytes of time deltas, stay the same."""
    records = []
    for count, size, first, apart, spread in runs:
        times = (first + number * apart + choice.randint(-spread, spread) for number in range(count))
        records += [Record(b"v" * min(size, 200), timestamp=min(max(time, -1), 2**62)) for time in times]
    batch = batch_with_header(records, base=base)
    assert read(batch) == naive(batch)


@settings(deadline=None)
@given(
    st.lists(st.tuples(times_of_records, st.integers(1, 2 * COLUMN_MIN)), min_size=1, max_size=4),
    times_of_records,
)
def test_records_of_equal_length_whose_times_take_different_numbers_of_bytes(repeated, base):
    """Their values make up for it, so that only the times themselves tell where a column ends."""
    stamps = [stamp for stamp, count in repeated for _ in range(count)]
    records = [
        Record(b"v" * (60 - len(varlong(stamp - base)) - len(varint(number))), timestamp=stamp)
        for number, stamp in enumerate(stamps)
    ]
    batch = batch_with_header(records, base=base)
    assert read(batch) == naive(batch)


@given(
    st.integers(1, COLUMNS_MAX).flatmap(
        lambda width: st.lists(st.binary(min_size=width, max_size=width), min_size=1)
    ),
    st.integers(1, BISECTED_MIN),
)
def test_the_highest_and_the_lowest_row_are_found_without_decoding_any(rows, repeated):
    """A row is a number, its last byte the highest; `repeated` makes columns long enough for bisection."""
    columns = [bytes(column) for column in zip(*rows * repeated, strict=True)]
    assert times._highest(columns) == max(rows, key=lambda row: row[::-1])
    assert times._lowest(columns) == min(rows, key=lambda row: row[::-1])


def test_lengths_that_change_after_every_few_records_cost_no_more_than_a_look_at_each():
    """By the bytes that are sliced, not by the clock: a try looks at a few records, unless the last one paid."""
    data = encoded([Record(b"v" * (40 + n // COLUMN_MIN % 2), timestamp=0) for n in range(64_000)], 0)
    sliced = SlicedBytes(data)
    assert times._delta_range(sliced, 64_000) == (0, 0)
    assert sliced.taken < 20 * 64_000


class SlicedBytes(bytes):
    taken = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        if isinstance(place, slice):
            self.taken += len(found)
        return found


def test_under_append_time_the_header_says_it_all():
    batch = with_append_time(batch_with_header([Record(b"a", timestamp=5), Record(b"b", timestamp=9)]), NOW)
    assert read(batch) == RecordTimes(NOW, NOW, untimed=False, earliest=NOW)


def test_any_negative_time_is_none_and_the_earliest_that_was_set_is_reported():
    assert read(batch_with_header([Record(b"a")])) == RecordTimes(-1, -1, untimed=True, earliest=-1)
    mixed = batch_with_header([Record(b"a"), Record(b"b", timestamp=7), Record(b"c", timestamp=9)])
    assert read(mixed) == RecordTimes(-1, 9, untimed=True, earliest=7)
    before_1970 = batch_with_header([Record(b"a", timestamp=3), Record(b"b", timestamp=-9)])
    assert read(before_1970) == RecordTimes(-9, 3, untimed=True, earliest=-9)


@given(st.data(), st.lists(st.tuples(times_of_records, sizes), min_size=1, max_size=5))
def test_damage_inside_is_reported_or_read_as_any_reader_would(data, shapes):
    """Under a right CRC anything may lie. Nothing but `CorruptBatch` comes of it, and what a reader can decode has the
    times that it decodes."""
    batch = bytearray(
        batch_with_header([Record(b"v" * min(size, 100), timestamp=stamp) for stamp, size in shapes])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = naive(batch)
    except InvalidInput:
        expected = None
    try:
        found = read(batch)
    except CorruptBatch:
        assert expected is None
    else:
        assert expected in (None, found)


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_records_that_are_cut_short_or_go_on_are_corrupt(cut):
    batch = batch_with_header([Record(b"v" * 50, timestamp=NOW)] * 3)
    header = read_header(batch)
    short, long = batch[:-cut], batch + b"\0" * cut
    for data in (short, long):
        lying = header._replace(batch_length=header.batch_length + len(data) - len(batch))
        with pytest.raises(CorruptBatch):
            read_times(data, 0, lying, decompressed_bytes_max=LIMIT)


def test_no_records_and_times_beyond_64_bits_are_corrupt():
    batch = batch_with_header([Record(b"v", timestamp=2**62)], base=0)
    header = read_header(batch)
    with pytest.raises(CorruptBatch, match="64 bits"):
        read_times(batch, 0, header._replace(base_timestamp=2**62 + 2**61), decompressed_bytes_max=LIMIT)
    with pytest.raises(CorruptBatch, match="0 records"):
        read_times(batch, 0, header._replace(record_count=0), decompressed_bytes_max=LIMIT)


@pytest.mark.parametrize("count", [1, 100])
def test_a_delta_without_an_end_is_corrupt_and_soon_found_out(count):
    """Shifted on and on it would be a number of a million bits."""
    body = b"\0" + b"\xff" * 200_000 + b"\0" * 9
    data = (varint(len(body)) + body) * count
    with pytest.raises(CorruptBatch, match="10 bytes"):
        times._delta_range(data, count)


def test_decompression_has_its_limit():
    batch = batch_with_header([Record(b"v" * 5_000, timestamp=NOW)], codec=Codec.LZ4)
    with pytest.raises(RecordTooLarge):
        read(batch, limit=4_000)
