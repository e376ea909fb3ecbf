"""What a batch must be before it joins a buffer."""

import dataclasses

import pytest
from tests.batches import batch_with_header

from millpond.log.admission import TRUSTED_AGE_MS, admit, inspect_records, needs_inspection
from millpond.model.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge
from millpond.model.ids import new_topic_id
from millpond.model.topics import Topic
from millpond.records import Codec, Record, check_crc, iter_records, read_header, validate
from millpond.records.batch import seal

NOW = 1_000_000
CONFIG = Topic(new_topic_id(), "orders", 1, 0).config()


def admitted(data, now_ms=NOW, **config):
    chosen = dataclasses.replace(CONFIG, **config)
    looked_into = inspect_records(
        admit(data, chosen, now_ms=now_ms), chosen, decompressed_bytes_max=1_000_000
    )
    return looked_into.data, looked_into.headers, looked_into.timestamp


def test_a_good_batch_passes_as_it_is(make_batch):
    data = make_batch(b"a", at=NOW)
    assert admitted(data)[0] is data
    assert admitted(data)[2] == -1


def test_append_time_replaces_the_producers_times(make_batch):
    data, headers, timestamp = admitted(make_batch(b"a", b"b", at=5), append_time=True)
    assert timestamp == NOW
    assert {record.timestamp for record in iter_records(data, decompressed_bytes_max=0)} == {NOW}
    assert headers[0][1].max_timestamp == NOW
    assert headers[0][1].has_append_time


def test_append_time_leaves_a_batch_whose_crc_is_right(make_batch):
    data, [(_, header)], _ = admitted(make_batch(b"a", at=5), append_time=True)
    check_crc(data, 0, header)


def test_a_time_too_far_ahead_is_refused_unless_the_broker_sets_times(make_batch):
    limit = CONFIG.timestamp_after_max_ms
    admitted(make_batch(b"a", at=NOW + limit))
    with pytest.raises(InvalidTimestamp) as raised:
        admitted(make_batch(b"a", at=NOW + limit + 1))
    assert raised.value.facts["apart_ms"] == limit + 1
    assert "ms ahead of the broker's time" in str(raised.value)
    admitted(make_batch(b"a", at=NOW + limit + 1), append_time=True)


def test_a_time_too_far_behind_is_refused_unless_there_is_none_or_the_broker_sets_times(make_batch):
    admitted(make_batch(b"a", at=0))
    admitted(make_batch(b"a", at=NOW - 10), timestamp_before_max_ms=10)
    with pytest.raises(InvalidTimestamp, match=f"{NOW - 11} lies 11 ms behind the broker's time; 10 ms"):
        admitted(make_batch(b"a", at=NOW - 11), timestamp_before_max_ms=10)
    admitted(make_batch(b"a", at=NOW - 11), timestamp_before_max_ms=10, append_time=True)
    admitted(make_batch(b"a", at=-1), timestamp_before_max_ms=10)


def test_any_record_of_any_batch_may_be_too_far_ahead(make_batch):
    late = Record(b"late", timestamp=NOW + 10**9)
    with pytest.raises(InvalidTimestamp) as refused:
        admitted(make_batch(b"fine", at=NOW) + make_batch(b"fine", late, late, at=NOW))
    assert refused.value.facts["records"].indexes == (2, 3)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_compacted_topic_takes_no_record_without_a_key(make_batch, codec):
    keyed = Record(b"v", key=b"k")
    admitted(make_batch(keyed, keyed, compression=codec), compacted=True)
    admitted(make_batch(Record(None, key=b"k")), compacted=True)
    with pytest.raises(InvalidRecord, match="without a key") as refused:
        admitted(make_batch(keyed, Record(b"v"), keyed, Record(b"v"), compression=codec), compacted=True)
    facts = refused.value.facts
    assert (facts["record"], facts["records"].indexes, str(facts["records"])) == (1, (1, 3), "1, 3")
    admitted(make_batch(Record(b"v")))


def test_an_empty_key_is_a_key(make_batch):
    admitted(make_batch(Record(b"v", key=b"")), compacted=True)


def test_an_idempotent_producer_sends_one_batch_at_a_time(make_batch):
    one, other = make_batch(b"a", producer=(7, 0, 0)), make_batch(b"b", producer=(7, 0, 1))
    admitted(one)
    with pytest.raises(InvalidRecord, match="one batch"):
        admitted(one + other)
    with pytest.raises(InvalidRecord, match="one batch"):
        admitted(make_batch(b"plain") + other)
    admitted(make_batch(b"a") + make_batch(b"b"))


def test_too_large_torn_and_empty_are_refused(make_batch):
    data = make_batch(b"x" * 500)
    with pytest.raises(RecordTooLarge):
        admitted(data, max_message_bytes=len(data) - 1)
    admitted(data, max_message_bytes=len(data))
    with pytest.raises(CorruptBatch):
        admitted(data[:-1])
    with pytest.raises(CorruptBatch):
        admitted(data[:-1] + b"?")
    with pytest.raises(InvalidRecord):
        admitted(b"")


def test_what_is_admitted_is_valid(make_batch):
    data, _, _ = admitted(make_batch(b"a", at=NOW))
    assert validate(data, max_batch_bytes=10_000)


# -- times --------------------------------------------------------------------------------------------------------


def dated(*times):
    return [Record(b"v", timestamp=time) for time in times]


def is_inspected(data, **config):
    chosen = dataclasses.replace(CONFIG, **config)
    return needs_inspection(admit(data, chosen, now_ms=NOW), chosen)


def newest_and_oldest(data, **config):
    """As the header says afterwards, which has a right CRC, and as the extent will say."""
    chosen = dataclasses.replace(CONFIG, **config)
    looked_into = inspect_records(admit(data, chosen, now_ms=NOW), chosen, decompressed_bytes_max=1_000_000)
    for position, header in looked_into.headers:
        check_crc(looked_into.data, position, header)
        assert header == read_header(looked_into.data, position)
    return [header.newest_timestamp for _, header in looked_into.headers], looked_into.oldest


@pytest.mark.parametrize("newest", [NOW - TRUSTED_AGE_MS, NOW, NOW + TRUSTED_AGE_MS])
def test_a_header_within_a_minute_of_now_is_believed(newest):
    assert TRUSTED_AGE_MS == 60_000
    data = batch_with_header(dated(5, 7), base=newest, newest=newest)
    assert not is_inspected(data)
    assert not is_inspected(batch_with_header(dated(5, 7), base=-1, newest=newest))
    assert is_inspected(batch_with_header(dated(5, 7)) + data)


@pytest.mark.parametrize(
    ("base", "newest"),
    [
        (NOW - TRUSTED_AGE_MS - 1, NOW - TRUSTED_AGE_MS - 1),
        (NOW + TRUSTED_AGE_MS + 1, NOW + TRUSTED_AGE_MS + 1),
        (NOW + 1, NOW),
        (NOW, -1),
        (-1, 0),
        (-1, -1),
        (0, 0),
    ],
)
def test_a_header_that_is_old_ahead_unset_or_below_its_base_is_not(base, newest):
    assert is_inspected(batch_with_header(dated(NOW), base=base, newest=newest))
    assert not is_inspected(batch_with_header(dated(NOW), base=base, newest=newest), append_time=True)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("times", "base", "newest"),
    [
        ((5, NOW, NOW - 3), 5, 5),  # kafkajs: the newest of those that were given a time
        ((NOW, NOW + 4), NOW, -1),  # sarama: unset
        ((NOW, 3), NOW, 3),  # below its base
        ((NOW - 1, NOW), 2**60, 2**60),  # the base says nothing
        ((7, 5, 6), 7, 7),  # honest and old
    ],
)
def test_the_newest_and_the_oldest_time_are_read_out_of_the_records(codec, times, base, newest):
    data = batch_with_header(dated(*times), base=base, newest=newest, codec=codec)
    assert newest_and_oldest(data) == ([max(times)], min(times))


def test_an_honest_old_batch_passes_as_it_is():
    data = batch_with_header(dated(7, 5, 9))
    assert admitted(data)[0] is data


def test_what_the_log_may_write_to_is_put_right_in_place_and_all_else_is_copied():
    data = batch_with_header(dated(NOW), newest=5)
    writable = bytearray(data)
    assert admitted(writable)[0] is writable
    view = memoryview(bytearray(data))
    assert admitted(view)[0] is view
    assert bytes(view) == bytes(writable) == bytes(admitted(memoryview(data))[0]) != data


def test_each_of_several_batches_is_put_right_by_itself():
    data = (
        batch_with_header(dated(NOW, 3), newest=3)
        + batch_with_header(dated(9))
        + batch_with_header(dated(NOW - 1), newest=0)
    )
    assert newest_and_oldest(data) == ([NOW, 9, NOW - 1], 3)
    assert newest_and_oldest(batch_with_header(dated(9)) + data) == ([9, NOW, 9, NOW - 1], 3)


def test_a_record_without_a_time_has_that_of_its_append():
    """librdkafka sends base -1 and newest 0."""
    assert newest_and_oldest(batch_with_header(dated(-1, -1), base=-1, newest=0)) == ([NOW], -1)
    assert newest_and_oldest(batch_with_header(dated(5, -1), base=5, newest=5)) == ([NOW], -1)
    assert newest_and_oldest(batch_with_header(dated(-1, NOW + 9), base=-1, newest=0)) == ([NOW + 9], -1)
    assert newest_and_oldest(batch_with_header(dated(3, 7), base=-1, newest=0)) == ([7], 3)


def test_the_limits_hold_for_every_record_of_a_batch_that_is_looked_into():
    """Not for what a header claims of them."""
    admitted(batch_with_header(dated(NOW), newest=NOW + 10**9))
    admitted(batch_with_header(dated(NOW), base=10**12, newest=10**12))
    with pytest.raises(InvalidTimestamp):
        admitted(batch_with_header(dated(5, NOW + 10**9), newest=5))
    with pytest.raises(InvalidTimestamp):
        admitted(batch_with_header(dated(NOW - 10, NOW - 11, NOW - 10)), timestamp_before_max_ms=9)
    admitted(batch_with_header(dated(NOW - 5, -1), base=5, newest=5), timestamp_before_max_ms=9)


@pytest.mark.parametrize("limit", [0, 1_000])
def test_a_limit_below_a_minute_is_no_reason_to_look_into_a_header_within_it(limit):
    assert not is_inspected(batch_with_header(dated(NOW + limit)), timestamp_after_max_ms=limit)
    with pytest.raises(InvalidTimestamp):
        admitted(batch_with_header(dated(NOW + limit + 1)), timestamp_after_max_ms=limit)


def test_records_that_cannot_be_read_are_refused_for_good():
    """The CRC is right: a producer that sent them again would send the same."""
    data = bytearray(batch_with_header(dated(5)))
    data[61] = 1
    seal(data, 0, len(data))
    with pytest.raises(InvalidRecord):
        admitted(data)


def test_a_topics_own_codec_keeps_the_times():
    data = batch_with_header(dated(5, NOW), newest=5, codec=Codec.GZIP)
    assert newest_and_oldest(data, compression="zstd") == ([NOW], 5)
