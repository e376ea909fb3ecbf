"""A stream read as Spark calls it, without Spark: first positions, ends, limits, replays, losses, group commits."""

import asyncio
import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from tests.spark.source.reads import EVERYTHING, options, stream_offsets, stream_reader, stream_rows
from tests.spark.topics import append, append_in_transaction, commit, fill, serving

from millpond.catalog import groups
from millpond.model.errors import (
    GroupNotEmpty,
    InvalidSettings,
    OffsetOutOfRange,
    TopicReplaced,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from millpond.records import Record
from millpond.spark import place
from millpond.spark.source.options import parse_options
from millpond.spark.source.stream import StreamReader
from millpond.testing import SimulatedClock


@pytest.fixture
async def broker(tmp_path):
    async with serving(tmp_path) as running:
        yield running


def at(*offsets: int) -> dict[str, dict[str, int]]:
    """The offset of topic `orders` with these offsets of its partitions."""
    return {"orders": {str(number): offset for number, offset in enumerate(offsets)}}


# -- where a stream starts ----------------------------------------------------------------------------------------


async def test_a_stream_from_the_earliest_offset(broker, tmp_path):
    await fill(broker, "orders", 2, 10)
    await broker.log.delete_records(broker.log.topics.partition("orders", 1), 4)
    reader = stream_reader(tmp_path, subscribe="orders", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    assert (start, end) == (at(0, 4), at(10, 10))
    assert stream_offsets(reader, start, end) == [(0, n) for n in range(10)] + [(1, n) for n in range(4, 10)]
    assert reader.latestOffset(end, EVERYTHING) == end


async def test_a_stream_starts_at_the_latest_offset_and_misses_nothing_after_a_crash(broker, tmp_path):
    """Spark asks for the first position again if the first micro-batch was planned and not done."""
    await fill(broker, "orders", 1, 10)
    reader = stream_reader(tmp_path, subscribe="orders")
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    assert end == at(10)
    await append(broker, "orders", 0, [Record(b"after")])
    again = stream_reader(tmp_path, subscribe="orders")
    assert again.initialOffset() == start
    assert stream_offsets(again, start, end) == []
    following = again.latestOffset(end, EVERYTHING)
    assert stream_offsets(again, end, following) == [(0, 10)]


async def test_a_stream_starts_at_given_offsets_and_times(broker, tmp_path):
    await fill(broker, "orders", 2, 10)
    given = stream_reader(tmp_path, subscribe="orders", startingOffsets='{"orders":{"0":-1,"1":4}}')
    assert given.initialOffset() == at(-1, 4)
    assert stream_reader(tmp_path, subscribe="orders", startingTimestamp=1_007).initialOffset() == at(7, 7)
    late = {"startingTimestamp": 5_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert stream_reader(tmp_path, subscribe="orders", **late).initialOffset() == at(-1, -1)


async def test_a_first_micro_batch_replayed_after_its_start_in_time_has_moved_on(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    now_ms = broker.clock.now_ms()
    await append(broker, "orders", 0, [Record(b"recent", timestamp=now_ms)])
    reader = stream_reader(tmp_path, subscribe="orders", startingTimestamp="-10m")
    assert reader.initialOffset() == at(10)
    assert stream_offsets(reader, at(10), at(5)) == []


async def test_a_topic_that_is_not_there_cannot_be_started_with(broker, tmp_path):
    with pytest.raises(UnknownTopic, match="'orders'"):
        stream_reader(tmp_path, subscribe="orders").initialOffset()


# -- how far a micro-batch goes -----------------------------------------------------------------------------------


async def test_offsets_per_trigger_are_limited_in_proportion(broker, tmp_path):
    await fill(broker, "orders", 1, 90)
    await broker.log.add_partitions("orders", 2)
    await append(broker, "orders", 1, [Record(b"v")] * 10)
    reader = stream_reader(tmp_path, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=20)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    seen, position = [], reader.initialOffset()
    while (end := reader.latestOffset(position, limit)) != position:
        seen += stream_offsets(reader, position, end)
        position = end
    assert reader.latestOffset(at(0, 0), limit) == at(18, 2)
    assert sorted(seen) == [(0, n) for n in range(90)] + [(1, n) for n in range(10)]
    assert reader.latestOffset(at(0, 0), ReadAllAvailable()) == at(90, 10)  # as Trigger.Once asks


async def test_bytes_per_trigger_are_limited(broker, tmp_path):
    await broker.log.create_topic("orders", 1, {})
    for _ in range(20):
        await append(broker, "orders", 0, [Record(b"x" * 1_000)] * 5)
    reader = stream_reader(
        tmp_path, subscribe="orders", startingOffsets="earliest", maxBytesPerTrigger="20KiB"
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(20 * 1024)
    ends, position = [], reader.initialOffset()
    while (end := reader.latestOffset(position, limit)) != position:
        assert stream_offsets(reader, position, end) == [
            (0, n) for n in range(position["orders"]["0"], end["orders"]["0"])
        ]
        position = end
        ends.append(end["orders"]["0"])
    assert ends[-1] == 100
    assert max(after - before for before, after in zip([0, *ends], ends, strict=False)) <= 22
    assert len(ends) <= 7


async def test_a_trigger_waits_for_enough_offsets_but_not_for_ever(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    clock = SimulatedClock()
    given = options(
        tmp_path,
        subscribe="orders",
        startingOffsets="earliest",
        minOffsetsPerTrigger=5,
        maxTriggerDelay="10s",
    )
    reader = StreamReader(parse_options(given), None, clock=clock)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    assert reader.latestOffset(at(0), limit) == at(10)
    await append(broker, "orders", 0, [Record(b"v")] * 3)
    assert reader.latestOffset(at(10), limit) == at(10)
    clock.advance(9_999)
    assert reader.latestOffset(at(10), limit) == at(10)
    clock.advance(1)
    assert reader.latestOffset(at(10), limit) == at(13)
    await append(broker, "orders", 0, [Record(b"v")] * 5)
    assert reader.latestOffset(at(13), limit) == at(18)


async def test_available_now_stops_where_the_log_ended_when_it_began(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    reader = stream_reader(
        tmp_path,
        subscribe="orders",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=6,
        minOffsetsPerTrigger=6,
    )
    reader.prepareForTriggerAvailableNow()
    await append(broker, "orders", 0, [Record(b"late")] * 5)
    await broker.log.add_partitions("orders", 2)
    await append(broker, "orders", 1, [Record(b"late")])
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(at(0), limit) == at(6, 0)
    assert reader.latestOffset(at(6, 0), limit) == at(10, 0)
    assert reader.latestOffset(at(10, 0), limit) == at(10, 0)
    assert reader.reportLatestOffset() == at(15, 1)


async def test_a_journaled_end_beyond_the_target_is_accepted(broker, tmp_path):
    """A run that read everything wrote an end down; this one only reads what is committed, which ends before it."""
    await fill(broker, "orders", 1, 10)
    producer = await append_in_transaction(broker, "t", "orders", 0, [b"open"] * 3)
    reader = stream_reader(tmp_path, subscribe="orders", kafka__isolation__level="read_committed")
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(at(5), EVERYTHING) == at(10)
    assert reader.latestOffset(at(12), EVERYTHING) == at(12)
    with pytest.raises(Unavailable, match="a transaction below offset 13 is open"):
        reader.partitions(at(5), at(13))
    await commit(broker, producer)
    assert stream_offsets(reader, at(9), at(13)) == [(0, 9), (0, 10), (0, 11), (0, 12)]


# -- partitions that come and go ----------------------------------------------------------------------------------


async def test_new_partitions_and_topics_are_read_from_their_start(broker, tmp_path):
    await fill(broker, "orders", 1, 3)
    reader = stream_reader(tmp_path, subscribePattern="orders.*")
    start = reader.initialOffset()
    first = reader.latestOffset(start, EVERYTHING)
    await broker.log.add_partitions("orders", 2)
    await append(broker, "orders", 1, [Record(b"v")] * 2)
    await fill(broker, "orders-new", 1, 2)
    second = reader.latestOffset(first, EVERYTHING)
    assert second == {"orders": {"0": 3, "1": 2}, "orders-new": {"0": 2}}
    rows = stream_rows(reader, first, second)
    assert sorted((r["topic"], r["partition"], r["offset"]) for r in rows) == [
        ("orders", 1, 0),
        ("orders", 1, 1),
        ("orders-new", 0, 0),
        ("orders-new", 0, 1),
    ]


async def test_a_new_partition_whose_first_records_are_gone_is_a_loss(broker, tmp_path):
    await fill(broker, "orders", 2, 10)
    await broker.log.delete_records(broker.log.topics.partition("orders", 1), 4)
    strict = stream_reader(tmp_path, subscribe="orders")
    with pytest.raises(OffsetOutOfRange, match="Offset 0 of topic 'orders', partition 1"):
        strict.partitions(at(10), at(10, 10))
    lenient = stream_reader(tmp_path, subscribe="orders", failOnDataLoss="false")
    assert stream_offsets(lenient, at(10), at(10, 10)) == [(1, n) for n in range(4, 10)]


async def test_a_deleted_topic_is_a_loss_or_left_out(broker, tmp_path, caplog):
    await fill(broker, "orders", 1, 10)
    await fill(broker, "returns", 1, 2)
    both = {"orders": {"0": 5}, "returns": {"0": 0}}
    await broker.log.delete_topic("orders")
    strict = stream_reader(tmp_path, subscribe="orders,returns")
    with pytest.raises(UnknownPartition, match="'orders', partition 0 was read before and is gone"):
        strict.latestOffset(both, EVERYTHING)
    with pytest.raises(UnknownPartition, match="'orders', partition 0 was read before and is gone"):
        strict.partitions(both, {"orders": {"0": 10}, "returns": {"0": 2}})
    with pytest.raises(UnknownPartition, match="'orders', partition 0 was read before and is gone"):
        strict.partitions(both, {"returns": {"0": 2}})
    lenient = stream_reader(tmp_path, subscribe="orders,returns", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert lenient.latestOffset(both, EVERYTHING) == {"returns": {"0": 2}}
    assert "records were lost" in caplog.text
    assert len(stream_rows(lenient, both, {"orders": {"0": 10}, "returns": {"0": 2}})) == 2


async def test_a_topic_made_anew_is_noticed_while_the_query_runs(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    strict = stream_reader(tmp_path, subscribe="orders")
    lenient = stream_reader(tmp_path, subscribe="orders", failOnDataLoss="false")
    for reader in (strict, lenient):
        assert reader.latestOffset(at(4), EVERYTHING) == at(10)
    await broker.log.delete_topic("orders")
    await fill(broker, "orders", 1, 30)
    with pytest.raises(TopicReplaced, match="'orders' was deleted and created again"):
        strict.latestOffset(at(10), EVERYTHING)
    assert lenient.latestOffset(at(10), EVERYTHING) == at(30)
    assert stream_offsets(lenient, at(10), at(30)) == [(0, n) for n in range(30)]


async def test_a_topic_made_anew_while_the_query_was_down_is_noticed_by_its_end(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    strict = stream_reader(tmp_path, subscribe="orders")
    with pytest.raises(OffsetOutOfRange, match=r"Offset 50 of topic 'orders', partition 0 .* ends at 10"):
        strict.latestOffset(at(50), EVERYTHING)
    with pytest.raises(OffsetOutOfRange, match="Offset 60"):
        strict.partitions(at(5), at(60))
    lenient = stream_reader(tmp_path, subscribe="orders", failOnDataLoss="false")
    assert lenient.latestOffset(at(50), EVERYTHING) == at(10)
    assert stream_offsets(lenient, at(50), at(10)) == [(0, n) for n in range(10)]
    assert stream_offsets(lenient, at(5), at(60)) == [(0, n) for n in range(5, 10)]


async def test_expired_records_are_a_loss_or_skipped(broker, tmp_path):
    await fill(broker, "orders", 1, 100, per_batch=10)
    await broker.log.delete_records(broker.log.topics.partition("orders", 0), 35)
    strict = stream_reader(tmp_path, subscribe="orders")
    with pytest.raises(OffsetOutOfRange, match=r"Offset 20 of topic 'orders', partition 0 .* starts at 35"):
        strict.partitions(at(20), at(50))
    lenient = stream_reader(tmp_path, subscribe="orders", failOnDataLoss="false")
    assert stream_offsets(lenient, at(20), at(50)) == [(0, n) for n in range(35, 50)]
    assert stream_offsets(lenient, at(20), at(30)) == []


def test_an_offset_of_another_source_is_refused(tmp_path):
    reader = stream_reader(tmp_path, subscribe="orders")
    for wrong in ({"index": 5}, [1], {"orders": {"0": "5"}}, {"orders": {"0": -2}}):
        with pytest.raises(InvalidSettings, match="is not one of this source or of Kafka's"):
            reader.latestOffset(wrong, EVERYTHING)


# -- groups -------------------------------------------------------------------------------------------------------


async def test_progress_is_committed_to_a_group(tmp_path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 2, 10)
        reader = stream_reader(tmp_path, subscribe="orders", commitOffsetsToGroup="spark-orders")
        reader.commit(at(4, 9))
        reader.commit(at(10, -1))
        committed = (await broker.groups.committed_offsets("spark-orders")).offsets
        topics = broker.log.topics
        assert {topic_partition.partition: each.offset for topic_partition, each in committed.items()} == {
            0: 10,
            1: 9,
        }
        assert set(committed) == {topics.partition("orders", 0), topics.partition("orders", 1)}
        stream_reader(tmp_path, subscribe="orders").commit(at(1, 1))
        assert (await broker.groups.committed_offsets("spark-orders")).offsets == committed


def is_empty(database, group):
    with database.read() as tx:
        return groups.find(tx, group).state == "Empty"


async def test_a_group_with_members_is_left_alone(tmp_path):
    from confluent_kafka import Consumer

    async with serving(tmp_path, kafka=True) as broker:
        await fill(broker, "orders", 1, 10)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.listeners["kafka"],
                "group.id": "billing",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        message = await asyncio.to_thread(consumer.poll, 10)
        assert message is not None
        assert message.error() is None
        reader = stream_reader(tmp_path, subscribe="orders", commitOffsetsToGroup="billing")
        with pytest.raises(GroupNotEmpty, match="'billing' has members"):
            reader.commit(at(9))
        with pytest.raises(GroupNotEmpty, match="'billing' has members"):
            reader.latestOffset(at(0), EVERYTHING)
        with pytest.raises(GroupNotEmpty, match="'billing' has members"):
            reader.initialOffset()
        await asyncio.to_thread(consumer.close)
        database = place.database(parse_options(options(tmp_path, subscribe="x")).place)
        async with asyncio.timeout(10):  # the client does not wait for the answer to its leaving
            while not is_empty(database, "billing"):
                await asyncio.sleep(0.01)
        with database.read() as tx:
            assert 9 not in [each.offset for each in groups.committed_offsets(tx, "billing")]
        reader.commit(at(9))
