"""A batch read as Spark calls it, without Spark: ranges, isolation, losses, damage."""

import logging

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType
from tests.spark.source.reads import batch_offsets, batch_reader, batch_rows, options, read_all
from tests.spark.topics import abort, append, append_in_transaction, commit, fill, merge, serving

from millpond.catalog import groups
from millpond.catalog.groups import GroupOffset
from millpond.model.clock import SystemClock
from millpond.model.errors import (
    CorruptBatch,
    CorruptObject,
    InvalidSettings,
    OffsetOutOfRange,
    Unavailable,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from millpond.records import Codec, Record
from millpond.spark import place, source
from millpond.spark.source.options import parse_options
from millpond.spark.source.splits import Split

IN_FILES = {"inline_bytes_max": 0}


@pytest.fixture
async def broker(tmp_path):
    async with serving(tmp_path) as running:
        yield running


async def test_every_record_of_every_partition_once(broker, tmp_path):
    await fill(broker, "orders", 3, 250)
    rows = batch_rows(tmp_path, subscribe="orders")
    assert len(rows) == 750
    for partition in range(3):
        mine = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(250))
        assert [row["value"] for row in mine] == [b"v%d-%d" % (partition, n) for n in range(250)]
        assert [row["key"] for row in mine] == [b"k%d" % n for n in range(250)]
        assert {row["topic"] for row in mine} == {"orders"}
        assert [row["timestamp"].timestamp() for row in mine[:2]] == [1.0, 1.001]


async def test_reading_needs_no_broker(tmp_path):
    async with serving(tmp_path) as running:
        await fill(running, "orders", 1, 10)
    assert batch_offsets(tmp_path, subscribe="orders") == {0: list(range(10))}


async def test_topics_by_name_by_pattern_and_partitions_by_number(broker, tmp_path):
    for topic in ("orders", "orders-old", "returns"):
        await fill(broker, topic, 2, 3)
    assert {r["topic"] for r in batch_rows(tmp_path, subscribe="returns, orders")} == {"orders", "returns"}
    assert {r["topic"] for r in batch_rows(tmp_path, subscribePattern="orders.*")} == {"orders", "orders-old"}
    assert {r["topic"] for r in batch_rows(tmp_path, subscribePattern="order")} == set()
    assigned = batch_rows(tmp_path, assign='{"orders":[1],"returns":[0]}')
    assert {(r["topic"], r["partition"]) for r in assigned} == {("orders", 1), ("returns", 0)}


async def test_a_topic_or_partition_that_is_not_there_is_named(broker, tmp_path):
    await fill(broker, "orders", 1, 3)
    with pytest.raises(UnknownTopic, match="'payments'"):
        batch_reader(tmp_path, subscribe="orders,payments").partitions()
    with pytest.raises(UnknownPartition, match="'orders' has no partition 7"):
        batch_reader(tmp_path, assign='{"orders":[0,7]}').partitions()


async def test_a_place_without_a_catalog_is_named(tmp_path):
    with pytest.raises(InvalidSettings, match="has a broker run there"):
        batch_reader(tmp_path / "nothing", subscribe="orders").partitions()


async def test_no_partition_at_all_is_no_row(broker, tmp_path):
    reader = batch_reader(tmp_path, subscribePattern="nothing.*")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


# -- where to start and end ---------------------------------------------------------------------------------------


async def test_offsets_say_where_to_start_and_end(broker, tmp_path):
    await fill(broker, "orders", 2, 50)
    given = {"startingOffsets": '{"orders":{"0":10,"1":-2}}', "endingOffsets": '{"orders":{"0":12,"1":-1}}'}
    assert batch_offsets(tmp_path, subscribe="orders", **given) == {0: [10, 11], 1: list(range(50))}


async def test_every_partition_must_be_named(broker, tmp_path):
    await fill(broker, "orders", 2, 5)
    with pytest.raises(InvalidSettings, match="Missing: orders-1; not read or not there: returns-0"):
        batch_reader(
            tmp_path, subscribe="orders", startingOffsets='{"orders":{"0":1},"returns":{"0":1}}'
        ).partitions()


async def test_times_say_where_to_start_and_end(broker, tmp_path):
    await fill(broker, "orders", 2, 50)  # timestamps from 1000 on
    got = batch_offsets(tmp_path, subscribe="orders", startingTimestamp=1_010, endingTimestamp=1_013)
    assert got == {0: [10, 11, 12], 1: [10, 11, 12]}
    given = {
        "startingOffsetsByTimestamp": '{"orders":{"0":1040,"1":1049}}',
        "endingOffsetsByTimestamp": '{"orders":{"0":1042,"1":99999}}',
    }
    assert batch_offsets(tmp_path, subscribe="orders", **given) == {0: [40, 41], 1: [49]}


async def test_a_start_past_the_last_record_is_an_error_or_the_latest(broker, tmp_path):
    await fill(broker, "orders", 1, 5)
    with pytest.raises(InvalidSettings, match="topic 'orders', partition 0 has no record at or after"):
        batch_reader(tmp_path, subscribe="orders", startingTimestamp=9_999).partitions()
    given = {"startingTimestamp": 9_999, "startingOffsetsByTimestampStrategy": "latest"}
    assert batch_offsets(tmp_path, subscribe="orders", **given) == {}


async def test_a_time_ago(broker, tmp_path):
    await broker.log.create_topic("orders", 1, {})
    now_ms = broker.clock.now_ms()
    for minutes in (60, 20, 5, 0):
        await append(broker, "orders", 0, [Record(b"v", timestamp=now_ms - minutes * 60_000)])
    assert batch_offsets(tmp_path, subscribe="orders", startingTimestamp="-10m") == {0: [2, 3]}
    assert batch_offsets(tmp_path, subscribe="orders", endingTimestamp="-10m") == {0: [0, 1]}


async def test_a_consumer_groups_offsets_are_a_start(broker, tmp_path):
    await fill(broker, "orders", 2, 10)
    topic_partition = broker.log.topics.partition("orders", 1)
    with place.database(parse_options(options(tmp_path, subscribe="x")).place).write() as tx:
        groups.commit_offsets(tx, "billing", [GroupOffset(topic_partition, 7)], now_ms=1)
    got = batch_offsets(tmp_path, subscribe="orders", startingOffsets="group:billing")
    assert got == {0: list(range(10)), 1: [7, 8, 9]}
    with pytest.raises(UnknownGroup, match="'nobody'"):
        batch_reader(tmp_path, subscribe="orders", startingOffsets="group:nobody").partitions()


async def test_an_end_below_its_start_is_refused(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    with pytest.raises(InvalidSettings, match="below its start"):
        batch_reader(
            tmp_path, subscribe="orders", startingTimestamp=1_008, endingTimestamp=1_002
        ).partitions()


# -- losses -------------------------------------------------------------------------------------------------------


async def test_an_offset_below_the_log_start_is_lost(broker, tmp_path, caplog):
    await fill(broker, "orders", 1, 100, per_batch=10)
    await broker.log.delete_records(broker.log.topics.partition("orders", 0), 35)
    below = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":20}}'}
    with pytest.raises(OffsetOutOfRange, match=r"Offset 20 of topic 'orders', partition 0 .* starts at 35"):
        batch_reader(tmp_path, **below).partitions()
    with caplog.at_level(logging.WARNING):
        assert batch_offsets(tmp_path, failOnDataLoss="false", **below) == {0: list(range(35, 100))}
    assert "records were lost" in caplog.text


async def test_what_expires_between_the_plan_and_the_task_is_lost(broker, tmp_path):
    await fill(broker, "orders", 1, 100, per_batch=10)
    strict = batch_reader(tmp_path, subscribe="orders")
    lenient = batch_reader(tmp_path, subscribe="orders", failOnDataLoss="false")
    splits = strict.partitions()
    await broker.log.delete_records(broker.log.topics.partition("orders", 0), 35)
    with pytest.raises(OffsetOutOfRange, match="Offset 0 of topic 'orders', partition 0"):
        read_all(strict, splits)
    assert [row["offset"] for row in read_all(lenient, splits)] == list(range(35, 100))


async def test_reading_never_leaves_the_planned_range(broker, tmp_path):
    """Also where the log start has passed the end of what was planned."""
    await fill(broker, "orders", 1, 100, per_batch=10)
    given = {"startingOffsets": '{"orders":{"0":10}}', "endingOffsets": '{"orders":{"0":20}}'}
    lenient = batch_reader(tmp_path, subscribe="orders", failOnDataLoss="false", **given)
    splits = lenient.partitions()
    await broker.log.delete_records(broker.log.topics.partition("orders", 0), 35)
    assert read_all(lenient, splits) == []


async def test_an_offset_past_the_end_does_not_exist(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    past = {"subscribe": "orders", "endingOffsets": '{"orders":{"0":99}}'}
    with pytest.raises(OffsetOutOfRange, match=r"Offset 99 of topic 'orders', partition 0 .* ends at 10"):
        batch_reader(tmp_path, **past).partitions()
    assert batch_offsets(tmp_path, failOnDataLoss="false", **past) == {0: list(range(10))}
    with pytest.raises(OffsetOutOfRange, match="Offset 11"):
        batch_reader(tmp_path, subscribe="orders", startingOffsets='{"orders":{"0":11}}').partitions()


async def test_a_topic_that_is_deleted_after_the_plan_is_lost(broker, tmp_path):
    await fill(broker, "orders", 1, 10)
    strict = batch_reader(tmp_path, subscribe="orders")
    lenient = batch_reader(tmp_path, subscribe="orders", failOnDataLoss="false")
    splits = strict.partitions()
    await broker.log.delete_topic("orders")
    await fill(broker, "orders", 1, 10)  # another one: its records are not those that were planned
    with pytest.raises(UnknownPartition, match="'orders', partition 0 was read before and is gone"):
        read_all(strict, splits)
    assert read_all(lenient, splits) == []


# -- isolation ----------------------------------------------------------------------------------------------------


async def test_aborted_and_undecided_records_are_hidden_from_who_asks_for_committed_ones(broker, tmp_path):
    await broker.log.create_topic("orders", 1, {})
    await append(broker, "orders", 0, [Record(b"plain")])
    await abort(broker, await append_in_transaction(broker, "a", "orders", 0, [b"aborted"] * 2))
    await commit(broker, await append_in_transaction(broker, "b", "orders", 0, [b"committed"]))
    await append_in_transaction(broker, "c", "orders", 0, [b"open"])
    await append(broker, "orders", 0, [Record(b"behind")])
    committed = batch_rows(tmp_path, subscribe="orders", kafka__isolation__level="read_committed")
    assert [(r["offset"], r["value"]) for r in committed] == [(0, b"plain"), (4, b"committed")]
    every = batch_rows(tmp_path, subscribe="orders")
    assert [(r["offset"], r["value"]) for r in every] == [
        (0, b"plain"),
        (1, b"aborted"),
        (2, b"aborted"),
        (4, b"committed"),
        (6, b"open"),
        (7, b"behind"),
    ]


async def test_a_task_that_starts_inside_an_aborted_transaction_hides_it_too(broker, tmp_path):
    await broker.log.create_topic("orders", 1, {})
    await abort(broker, await append_in_transaction(broker, "a", "orders", 0, [b"aborted"] * 4))
    await append(broker, "orders", 0, [Record(b"plain")])
    given = {"subscribe": "orders", "kafka__isolation__level": "read_committed"}
    got = batch_rows(tmp_path, startingOffsets='{"orders":{"0":2}}', **given)
    assert [row["value"] for row in got] == [b"plain"]
    split = batch_rows(tmp_path, maxRecordsPerPartition=1, **given)
    assert [row["value"] for row in split] == [b"plain"]


async def test_an_end_past_an_open_transaction_is_refused_until_it_ends(broker, tmp_path):
    await broker.log.create_topic("orders", 1, {})
    await append(broker, "orders", 0, [Record(b"before")] * 3)
    producer = await append_in_transaction(broker, "a", "orders", 0, [b"open"] * 3)
    await append(broker, "orders", 0, [Record(b"behind")] * 3)
    given = {"subscribe": "orders", "kafka__isolation__level": "read_committed"}
    beyond = {"endingOffsets": '{"orders":{"0":50}}', "failOnDataLoss": "false"}
    for end in ({"endingOffsets": '{"orders":{"0":9}}'}, {"endingOffsets": '{"orders":{"0":4}}'}, beyond):
        with pytest.raises(Unavailable, match=r"'orders', partition 0: a transaction at offset 3") as refused:
            batch_reader(tmp_path, **given, **end).partitions()
        assert refused.value.facts == {"topic": "orders", "partition": 0, "offset": 3}
    assert batch_offsets(tmp_path, **given, endingOffsets='{"orders":{"0":3}}') == {0: [0, 1, 2]}
    for latest in ("latest", '{"orders":{"0":-1}}'):
        assert batch_offsets(tmp_path, **given, endingOffsets=latest) == {0: [0, 1, 2]}
    assert batch_offsets(tmp_path, subscribe="orders", endingOffsets='{"orders":{"0":9}}') == {
        0: list(range(9))
    }
    await commit(broker, producer)
    assert batch_offsets(tmp_path, **given, endingOffsets='{"orders":{"0":9}}') == {0: list(range(9))}


async def test_a_time_that_only_undecided_records_reach_is_not_reached_by_committed_ones(broker, tmp_path):
    await fill(broker, "orders", 1, 5)
    await append_in_transaction(broker, "a", "orders", 0, [b"open"])
    given = {"subscribe": "orders", "startingTimestamp": 5_000}
    assert batch_offsets(tmp_path, **given) == {0: [5]}
    with pytest.raises(InvalidSettings, match="has no record at or after"):
        batch_reader(tmp_path, kafka__isolation__level="read_committed", **given).partitions()


# -- what is stored -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec(broker, tmp_path, codec):
    await broker.log.create_topic("orders", 1, {})
    for n in range(20):
        await append(
            broker, "orders", 0, [Record(b"value %d" % n * 20, b"k", (("h", b"1"),))], compression=codec
        )
    rows = batch_rows(tmp_path, subscribe="orders", includeHeaders="true")
    assert [row["value"] for row in rows] == [b"value %d" % n * 20 for n in range(20)]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]


async def test_nulls_headers_and_empty_values(broker, tmp_path):
    await broker.log.create_topic("orders", 1, {})
    headers = (("a", b""), ("b", None), ("a", b"2"))
    await append(broker, "orders", 0, [Record(None, None), Record(b"", b"", headers)])
    first, second = batch_rows(tmp_path, subscribe="orders", includeHeaders="true")
    assert (first["key"], first["value"], first["headers"]) == (None, None, None)
    assert (second["key"], second["value"]) == (b"", b"")
    assert [(each["key"], each["value"]) for each in second["headers"]] == list(headers)


async def test_the_brokers_time(broker, tmp_path):
    await broker.log.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})
    await append(broker, "orders", 0, [Record(b"v", timestamp=5)])
    (row,) = batch_rows(tmp_path, subscribe="orders")
    assert row["timestampType"] == 1
    assert abs(row["timestamp"].timestamp() - broker.clock.now_ms() / 1000) < 60


async def test_inline_extents_objects_and_merged_segments_read_alike(tmp_path):
    async with serving(tmp_path) as running:
        await fill(running, "orders", 2, 300, per_batch=5)  # small: these ride in the catalog
        await append(running, "orders", 0, [Record(b"x" * 40_000) for _ in range(20)])  # this does not
        before = batch_rows(tmp_path, subscribe="orders")
        assert await merge(running) > 0
        await append(running, "orders", 1, [Record(b"tail")])
        after = batch_rows(tmp_path, subscribe="orders")
    assert len(before) == 620
    assert sorted(map(str, after)) == sorted(
        [*map(str, before), *(str(r) for r in after if r["value"] == b"tail")]
    )
    assert len(after) == 621


async def test_objects_merged_away_after_the_plan_are_looked_up_again(tmp_path):
    async with serving(tmp_path, **IN_FILES) as running:
        await fill(running, "orders", 1, 300, per_batch=5)
        reader = batch_reader(tmp_path, subscribe="orders", maxRecordsPerPartition=100)
        splits = reader.partitions()
        assert len(splits) == 3
        assert await merge(running) > 0
        for path in list((tmp_path / "objects" / "journal").rglob("*")):
            if path.is_file():
                path.unlink()
        assert [row["offset"] for row in read_all(reader, splits)] == list(range(300))


async def test_a_partition_larger_than_a_read_is_cut_and_read_whole(tmp_path):
    async with serving(tmp_path) as running:
        await running.log.create_topic("orders", 1, {})
        for n in range(24):
            records = [Record(b"%06d" % (n * 500 + k) + b"x" * 1_000) for k in range(500)]
            await append(running, "orders", 0, records)
    reader = batch_reader(tmp_path, subscribe="orders")
    splits = reader.partitions()
    assert len(splits) > 4
    assert sum(each.bytes for split in splits for each in split.ranges) >= 12_000_000
    assert [int(row["value"][:6]) for row in read_all(reader, splits)] == list(range(12_000))


async def test_min_partitions_and_records_per_partition_divide_the_work(broker, tmp_path):
    await fill(broker, "orders", 2, 50)
    assert len(batch_reader(tmp_path, subscribe="orders").partitions()) == 1
    more = batch_reader(tmp_path, subscribe="orders", minPartitions=7)
    assert len(more.partitions()) == 7
    assert len(read_all(more, more.partitions())) == 100
    small = batch_reader(tmp_path, subscribe="orders", maxRecordsPerPartition=20)
    assert [sum(each.offsets for each in split.ranges) for split in small.partitions()] == [16, 17, 17] * 2
    assert len(read_all(small, small.partitions())) == 100


# -- columns ------------------------------------------------------------------------------------------------------


async def test_a_schema_of_fewer_columns_reads_fewer(broker, tmp_path):
    await fill(broker, "orders", 1, 3)
    schema = StructType(
        [StructField("offset", LongType()), StructField("value", BinaryType(), nullable=False)]
    )
    reader = batch_reader(tmp_path, schema=schema, subscribe="orders")
    assert read_all(reader, reader.partitions(), schema)[1] == {"offset": 1, "value": b"v0-1"}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("ofset", LongType()), "the columns are key, value, topic"),
        (StructField("offset", IntegerType()), "its type is bigint"),
        (StructField("value", StringType()), "its type is binary"),
    ],
)
def test_a_column_that_is_not_there_is_refused(tmp_path, field, message):
    with pytest.raises(InvalidSettings, match=message):
        source.reader(options(tmp_path, subscribe="orders"), StructType([field]))


# -- damage -------------------------------------------------------------------------------------------------------


async def one_object(path) -> Split:
    async with serving(path, **IN_FILES) as running:
        await fill(running, "orders", 1, 30, per_batch=10)
    return batch_reader(path, subscribe="orders")


async def test_a_damaged_object_is_named_with_topic_partition_and_offset(tmp_path):
    reader = await one_object(tmp_path)
    (stored,) = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    data = bytearray(stored.read_bytes())
    data[-20] ^= 1
    stored.write_bytes(data)
    with pytest.raises(CorruptObject, match=r"Topic 'orders', partition 0, offset 20: .*CRC32C") as refused:
        read_all(reader, reader.partitions())
    assert (refused.value.facts["topic"], refused.value.facts["partition"]) == ("orders", 0)


@pytest.mark.parametrize("flipped", [5, 0, 7])
async def test_a_flipped_bit_in_the_offset_of_a_merged_batch_loses_no_row_in_silence(tmp_path, flipped):
    """A batch's own offset lies outside of its checksum."""
    async with serving(tmp_path) as running:
        await fill(running, "orders", 1, 1_000, per_batch=100)
        assert await merge(running)
    (stored,) = [path for path in (tmp_path / "objects" / "segments").rglob("*") if path.is_file()]
    data = bytearray(stored.read_bytes())
    at = data.index((500).to_bytes(8, "big"))
    data[at + flipped] ^= 1
    stored.write_bytes(data)
    for start in (0, 400, 999):
        reader = batch_reader(tmp_path, subscribe="orders", startingOffsets=f'{{"orders":{{"0":{start}}}}}')
        with pytest.raises(
            CorruptObject, match=r"Topic 'orders', partition 0, offset .* a batch holds offsets"
        ):
            read_all(reader, reader.partitions())


async def test_a_missing_object_is_named_with_topic_partition_and_offset(tmp_path):
    reader = await one_object(tmp_path)
    for stored in (tmp_path / "objects").rglob("*"):
        if stored.is_file():
            stored.unlink()
    with pytest.raises(CorruptObject, match=r"Topic 'orders', partition 0, offset 0: .*it is gone"):
        read_all(reader, reader.partitions())


async def test_a_missing_row_is_no_silent_gap(tmp_path):
    """At the end of what was planned; before it, a gap may be compaction's."""
    reader = await one_object(tmp_path)
    splits = reader.partitions()
    with place.database(parse_options(options(tmp_path, subscribe="orders")).place).write() as tx:
        tx.rows("DELETE FROM extents WHERE base_offset = 20")
    with pytest.raises(CorruptObject, match=r"Topic 'orders', partition 0, offset 20: .*no extent"):
        read_all(reader, splits)


async def test_a_batch_that_cannot_be_decoded_is_named(broker, tmp_path):
    """Its CRC is right: a client wrote it so."""
    await broker.log.create_topic("orders", 1, {})
    await append(broker, "orders", 0, [Record(b"good")])
    from millpond.records import HEADER_SIZE, build_batch, crc32c

    now_ms = SystemClock().now_ms()  # the log looks into what is old
    data = bytearray(build_batch([Record(b"value", timestamp=now_ms)]))
    data[HEADER_SIZE] = 126  # the record claims more bytes than there are
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    await broker.log.append(broker.log.topics.partition("orders", 0), bytes(data))
    reader = batch_reader(tmp_path, subscribe="orders")
    with pytest.raises(CorruptBatch, match="Topic 'orders', partition 0, offset 1: "):
        read_all(reader, reader.partitions())


async def test_a_forward_gap_is_no_loss(broker, tmp_path):
    """As compaction leaves them: offsets 0, 5 and 9 of a batch that goes up to 19."""
    await broker.log.create_topic("orders", 1, {})
    topic_partition = broker.log.topics.partition("orders", 0)
    await append(broker, "orders", 0, [Record(b"v") for _ in range(20)])
    from millpond.records import build_batch

    kept = [Record(b"v", offset=offset, timestamp=1) for offset in (0, 5, 9)]
    gaps = build_batch(kept, base_offset=0, last_offset=19)
    with place.database(parse_options(options(tmp_path, subscribe="x")).place).write() as tx:
        statement = "UPDATE extents SET inline = ?, length = ?, stamped = 1 WHERE topic_id = ?"
        tx.rows(statement, (gaps, len(gaps), topic_partition.topic_id))
    assert batch_offsets(tmp_path, subscribe="orders") == {0: [0, 5, 9]}
    assert batch_offsets(tmp_path, subscribe="orders", maxRecordsPerPartition=5) == {0: [0, 5, 9]}
