"""Examining extents: their times are those of their records, whatever their batch headers say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.extents import Extent
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import (
    Codec,
    MarkerKind,
    Record,
    build_batch,
    build_control_batch,
    check_crc,
    iter_records,
    validate,
    walk,
)
from millpond.records.batch import HEADER, seal, with_append_time
from millpond.rewriting import examination
from millpond.rewriting.examination import must_be_stored_again

PLENTY = 1 << 20
OLD, NEW = 1_600_000_000_000, 1_700_000_000_000


def batch(*times, newest=None, codec=Codec.NONE):
    """A batch of records with these times, whose header says `newest` of them."""
    data = bytearray(build_batch([Record(b"v", timestamp=time) for time in times], compression=codec))
    if newest is not None:
        [(_, header)] = walk(data)
        HEADER.pack_into(data, 0, *header._replace(max_timestamp=newest))
        seal(data, 0, len(data))
    return data


NOW = NEW + 1_000


def examine(data, pause=lambda _: None):
    return examination.examine(data, NOW, pause)


def newest_of(data):
    return [header.newest_timestamp for _, header in walk(data)]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_header_that_is_too_low_is_corrected_and_the_records_stay(codec):
    data = batch(OLD, NEW, OLD + 5, newest=OLD, codec=codec)
    before = list(iter_records(data, decompressed_bytes_max=PLENTY))
    found = examine(data)
    assert (found.oldest, found.newest, found.corrected) == (OLD, NEW, 1)
    assert newest_of(found.data) == [NEW]
    validate(found.data, max_batch_bytes=PLENTY)
    assert list(iter_records(found.data, decompressed_bytes_max=PLENTY)) == before


def test_a_header_that_is_right_stays():
    data = batch(OLD, NEW) + batch(OLD)
    found = examine(bytearray(data))
    assert (found.oldest, found.newest, found.corrected) == (OLD, NEW, 0)
    assert found.data == data


@pytest.mark.parametrize("said", [NEW, NEW + 10**12, 0, -1])
def test_a_header_that_is_too_high_or_says_nothing_is_corrected(said):
    found = examine(batch(OLD, OLD + 1, newest=said))
    assert (found.oldest, found.newest, found.corrected) == (OLD, OLD + 1, 1)
    assert newest_of(found.data) == [OLD + 1]


@pytest.mark.parametrize(("times", "said"), [((-1,), -1), ((-1, -1), 0), ((OLD, -1), OLD)])
def test_records_without_a_timestamp_are_as_old_as_the_examination(times, said):
    found = examine(batch(*times, newest=said))
    assert (found.oldest, found.newest, found.corrected) == (-1, NOW, 1)
    assert newest_of(found.data) == [NOW]


def test_an_extent_is_stored_again_if_its_bytes_say_something_else():
    topic_partition = TopicPartition(TopicId(b"t" * 16), 0)
    found = examine(batch(OLD, OLD - 5))
    journal = Extent(topic_partition, 0, 2, 1, 0, 99, 2, OLD, OLD, False, "k", None)
    assert not must_be_stored_again(journal, found)
    segment = replace(journal, stamped=True)
    assert must_be_stored_again(segment, found)
    assert not must_be_stored_again(replace(segment, min_timestamp=OLD - 5), found)
    assert must_be_stored_again(journal, examine(batch(OLD, newest=NEW)))


def test_under_append_time_only_the_newest_timestamp_counts():
    data = bytearray(with_append_time(batch(OLD, OLD), NEW))
    found = examine(data)
    assert (found.oldest, found.newest, found.corrected) == (NEW, NEW, 0)


def test_markers_and_what_cannot_be_decoded_have_the_times_of_their_headers():
    marker = build_control_batch(MarkerKind.COMMIT, 7, 0, NEW)
    found = examine(bytearray(marker))
    assert (found.oldest, found.newest, found.corrected) == (NEW, NEW, 0)
    damaged = batch(OLD, OLD)
    damaged[61] = 0x7F  # the length of the first record
    found = examine(damaged)
    assert (found.oldest, found.newest, found.corrected) == (OLD, OLD, 0)


def test_it_pauses_after_every_batch():
    pauses = []
    examine(batch(OLD) + batch(NEW, NEW), pauses.append)
    assert pauses == [len(batch(OLD)), len(batch(NEW, NEW))]


TIMES = st.lists(st.integers(-1, 2**40), min_size=1, max_size=6)


@given(st.lists(st.tuples(TIMES, st.integers(0, 2**40) | st.none()), min_size=1, max_size=5))
def test_the_times_against_a_naive_reading_of_every_record(shapes):
    data = b"".join(batch(*times, newest=newest) for times, newest in shapes)
    found = examine(bytearray(data))
    times = [record.timestamp for record in iter_records(data, decompressed_bytes_max=PLENTY)]
    assert (found.oldest, found.newest) == (min(times), newest(times))
    for (position, header), (own, _) in zip(walk(found.data), shapes, strict=True):
        assert header.max_timestamp == newest(own)
        check_crc(found.data, position, header)


def newest(times):
    return max([NOW if time < 0 else time for time in times])
