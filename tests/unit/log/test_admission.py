"""What a batch must be before it joins a buffer."""

import dataclasses

import pytest

from millpond.log.admission import admit, look_inside
from millpond.model.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge
from millpond.model.ids import new_topic_id
from millpond.model.topics import Topic
from millpond.records import Codec, Record, iter_records, validate

NOW = 1_000_000
CONFIG = Topic(new_topic_id(), "orders", 1, 0).config()


def admitted(data, now_ms=NOW, **config):
    chosen = dataclasses.replace(CONFIG, **config)
    data, headers, timestamp = admit(data, chosen, now_ms=now_ms)
    data, headers = look_inside(data, headers, chosen, decompressed_bytes_max=1_000_000)
    return data, headers, timestamp


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
    from millpond.records import check_crc

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
    with pytest.raises(InvalidTimestamp):
        admitted(make_batch(b"fine", at=NOW) + make_batch(b"fine", late, at=NOW))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_compacted_topic_takes_no_record_without_a_key(make_batch, codec):
    keyed = Record(b"v", key=b"k")
    admitted(make_batch(keyed, keyed, compression=codec), compacted=True)
    admitted(make_batch(Record(None, key=b"k")), compacted=True)
    with pytest.raises(InvalidRecord, match="without a key"):
        admitted(make_batch(keyed, Record(b"v"), compression=codec), compacted=True)
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
