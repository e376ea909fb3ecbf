"""Administration: what Connect, Streams, consoles and Kafka's own tools check before they go on."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from tests.quirks.client import EARLIEST, Client, batch_of
from tests.quirks.wire import HANG_S, until

from millpond.catalog import partitions
from millpond.catalog.topics import all_topics, find
from millpond.protocol import ErrorCode
from millpond.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from millpond.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from millpond.testing import running_broker

TOPIC, BROKER, NOTHING_SUCH = 2, 4, 99
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN, DEFAULT = 1, 5
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
KAFKAS_TOPIC_CONFIGS = {
    "cleanup.policy": ("delete", LIST),
    "compression.gzip.level": ("-1", INT),
    "compression.lz4.level": ("9", INT),
    "compression.type": ("producer", STRING),
    "compression.zstd.level": ("3", INT),
    "delete.retention.ms": ("86400000", LONG),
    "file.delete.delay.ms": ("60000", LONG),
    "flush.messages": ("9223372036854775807", LONG),
    "flush.ms": ("9223372036854775807", LONG),
    "follower.replication.throttled.replicas": ("", LIST),
    "index.interval.bytes": ("4096", INT),
    "leader.replication.throttled.replicas": ("", LIST),
    "local.retention.bytes": ("-2", LONG),
    "local.retention.ms": ("-2", LONG),
    "max.compaction.lag.ms": ("9223372036854775807", LONG),
    "max.message.bytes": ("1048588", INT),
    "message.timestamp.after.max.ms": ("3600000", LONG),
    "message.timestamp.before.max.ms": ("9223372036854775807", LONG),
    "message.timestamp.type": ("CreateTime", STRING),
    "min.cleanable.dirty.ratio": ("0.5", DOUBLE),
    "min.compaction.lag.ms": ("0", LONG),
    "min.insync.replicas": ("1", INT),
    "preallocate": ("false", BOOLEAN),
    "remote.log.copy.disable": ("false", BOOLEAN),
    "remote.log.delete.on.disable": ("false", BOOLEAN),
    "remote.storage.enable": ("false", BOOLEAN),
    "retention.bytes": ("-1", LONG),
    "retention.ms": ("604800000", LONG),
    "segment.bytes": ("1073741824", INT),
    "segment.index.bytes": ("10485760", INT),
    "segment.jitter.ms": ("0", LONG),
    "segment.ms": ("604800000", LONG),
    "unclean.leader.election.enable": ("false", BOOLEAN),
}


async def described(client, name="orders", kind=TOPIC, keys=None, version=4, **rest):
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return (await client.ask(DescribeConfigsRequest(resources=[wanted], **rest), version)).results[0]


async def config(client, name):
    """Value and source of one config of the topic."""
    (row,) = (await described(client, keys=[name])).configs
    return row.value, row.config_source


async def alter(client, *changes, topic="orders", validate_only=False):
    rows = [
        IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    wanted = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
    return ErrorCode((await client.ask(request, 1)).responses[0].error_code)


# -- configs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, []])
async def test_all_topic_configs_are_described_with_value_source_and_type(client, keys):
    """Connect does not start unless it reads `cleanup.policy=compact` of its own topics, Streams checks others, and
    consoles show them all: a broker that returns only what was set breaks each of them in its own way."""
    await client.topic(retention_ms="5000")
    told = {row.name: row for row in (await described(client, keys=keys)).configs}
    expected = {name: each for name, each in KAFKAS_TOPIC_CONFIGS.items() if name != "retention.ms"}
    defaults = {name: row for name, row in told.items() if row.config_source == DEFAULT}
    assert {name: (defaults[name].value, defaults[name].config_type) for name in expected} == expected
    mine = told["retention.ms"]
    assert (mine.value, mine.config_source, mine.config_type) == ("5000", OWN, LONG)
    assert not any(row.read_only or row.is_sensitive for row in told.values())


async def test_only_the_configs_that_are_asked_for_are_described(client):
    """One that does not exist is left out, without an error."""
    await client.topic()
    result = await described(client, keys=["retention.ms", "no.such.thing"])
    assert (result.error_code, [row.name for row in result.configs]) == (ErrorCode.NONE, ["retention.ms"])


async def test_synonyms_and_documentation_come_when_asked_for(client):
    """The first synonym is what holds; tools print them to explain where a value comes from."""
    await client.topic(retention_ms="5000")
    (plain,) = (await described(client, keys=["retention.ms"])).configs
    assert (plain.synonyms, plain.documentation) == ([], None)
    result = await described(client, keys=["retention.ms"], include_synonyms=True, include_documentation=True)
    (full,) = result.configs
    first = full.synonyms[0]
    assert (first.name, first.value, first.source) == ("retention.ms", "5000", OWN)
    assert full.documentation


async def test_the_broker_is_described_under_its_id(client):
    """kafbat and Kafka's tools read `num.partitions`, `auto.create.topics.enable` and others of the broker. Without
    an id, `kafka-configs --entity-default` expects only what is set for every broker."""
    rows = {row.name: row for row in (await described(client, "1", BROKER)).configs}
    assert (await described(client, "", BROKER)).configs == []
    assert rows["num.partitions"].value == "1"
    assert rows["auto.create.topics.enable"].value == "true"
    assert rows["message.max.bytes"].value == "1048588"
    assert all(row.config_source != -1 for row in rows.values())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "4711", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (NOTHING_SUCH, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_described_has_its_own_row_and_code(client, kind, name, code):
    """The other resources of the request are described."""
    await client.topic()
    wanted = [
        DescribeConfigsResource(resource_type=each[0], resource_name=each[1])
        for each in ((kind, name), (TOPIC, "orders"))
    ]
    bad, good = (await client.ask(DescribeConfigsRequest(resources=wanted), 4)).results
    assert (bad.error_code, bad.resource_type, bad.resource_name, bad.configs) == (code, kind, name, [])
    assert good.error_code == ErrorCode.NONE


async def test_lists_are_appended_to_and_subtracted_from(client):
    """Tansu crashed at both. They start from the value that holds, which may be the default."""
    await client.topic()
    assert await alter(client, ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert await config(client, "cleanup.policy") == ("delete,compact", OWN)
    assert await alter(client, ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert await config(client, "cleanup.policy") == ("delete,compact", OWN)
    assert await alter(client, ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.NONE
    assert await config(client, "cleanup.policy") == ("compact", OWN)
    assert await alter(client, ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.NONE


async def test_a_config_is_set_and_taken_back(client):
    """Deleting goes back to the default, also when nothing was set."""
    await client.topic()
    assert await alter(client, ("retention.ms", SET, "1000")) == ErrorCode.NONE
    assert await config(client, "retention.ms") == ("1000", OWN)
    for _ in range(2):
        assert await alter(client, ("retention.ms", DELETE, None)) == ErrorCode.NONE
        assert await config(client, "retention.ms") == ("604800000", DEFAULT)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("no.such.thing", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "7"), ("no.such", SET, "2")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_change_that_is_refused_changes_nothing(client, changes, code):
    """All of a topic's changes or none of them."""
    await client.topic()
    assert await alter(client, *changes) == code
    assert await config(client, "retention.ms") == ("604800000", DEFAULT)


async def test_only_to_check_means_that_nothing_changes(client):
    """Tools check first, and show what would happen."""
    await client.topic()
    assert await alter(client, ("retention.ms", SET, "1"), validate_only=True) == ErrorCode.NONE
    assert await alter(client, ("retention.ms", SET, "x"), validate_only=True) == ErrorCode.INVALID_CONFIG
    assert await config(client, "retention.ms") == ("604800000", DEFAULT)


async def test_the_older_way_replaces_everything(client):
    """AlterConfigs takes back what is not named. Newer tools avoid it for that; kcat-era ones rely on it."""
    await client.topic(retention_ms="5000")
    rows = [AlterableConfig(name="segment.ms", value="60000")]
    wanted = AlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=rows)
    answer = await client.ask(AlterConfigsRequest(resources=[wanted]), 2)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert await config(client, "segment.ms") == ("60000", OWN)
    assert await config(client, "retention.ms") == ("604800000", DEFAULT)


async def test_a_change_holds_for_what_comes_after_it(client):
    """Without a restart, and without waiting."""
    await client.topic()
    await alter(client, ("max.message.bytes", SET, "200"))
    answer = await client.produce("orders", batch_of(b"a" * 500))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


# -- topics ---------------------------------------------------------------------------------------------------


async def test_a_new_topic_is_told_with_its_configs_and_its_id_by_version(client):
    """Connect and Streams read the configs of v5, and Java keeps the id of v7."""
    for version in range(2, 8):
        topic = CreatableTopic(name=f"t{version}", num_partitions=-1, replication_factor=-1)
        if version < 4:
            topic.num_partitions = topic.replication_factor = 1
        (row,) = (await client.ask(CreateTopicsRequest(topics=[topic]), version)).topics
        assert row.error_code == ErrorCode.NONE
        names = {each.name for each in row.configs}
        assert names >= KAFKAS_TOPIC_CONFIGS.keys() if version >= 5 else names == set()
        assert (row.num_partitions, row.replication_factor) == ((1, 1) if version >= 5 else (-1, -1))
        assert any(row.topic_id) == (version >= 7)


async def test_topics_are_made_each_by_itself(client):
    """One that is refused does not keep the others from being made; named twice, it is made not at all."""
    await client.topic()
    names = ("orders", "fresh", "twice", "twice", "a/b")
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    topics.append(
        CreatableTopic(
            name="odd",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="no.such", value="1")],
        )
    )
    answer = await client.ask(CreateTopicsRequest(topics=topics), 7)
    codes = {row.name: ErrorCode(row.error_code) for row in answer.topics}
    assert codes == {
        "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
        "fresh": ErrorCode.NONE,
        "twice": ErrorCode.INVALID_REQUEST,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "odd": ErrorCode.INVALID_CONFIG,
    }
    assert len(answer.topics) == len(codes)


@pytest.mark.parametrize("version", range(4))
async def test_growing_topics_answers_with_a_row_for_each(client, version):
    """Tansu returned none, and Java's admin client waited for the answer that it had been promised."""
    await client.topic()
    await client.topic("full", partitions=3)
    wanted = [
        CreatePartitionsTopic(name=name, count=count)
        for name, count in (("orders", 3), ("full", 3), ("nowhere", 2))
    ]
    answer = await client.ask(CreatePartitionsRequest(topics=wanted, timeout_ms=1000), version)
    assert [(row.name, row.error_code) for row in answer.results] == [
        ("orders", ErrorCode.NONE),
        ("full", ErrorCode.INVALID_PARTITIONS),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert len((await client.metadata("orders")).topics[0].partitions) == 3


async def test_new_partitions_can_be_written_at_once(client):
    """The producer that learns of them writes to them with its next batch."""
    await client.topic()
    wanted = [CreatePartitionsTopic(name="orders", count=2)]
    await client.ask(CreatePartitionsRequest(topics=wanted, timeout_ms=1000), 3)
    assert (await client.produce("orders", batch_of(b"a"), 1)).error_code == ErrorCode.NONE


async def test_topics_are_deleted_by_name_or_id_but_not_by_both(client):
    """By id it cannot be another topic that meanwhile has the name."""
    for name in ("a", "b", "c"):
        await client.topic(name)
    ids = {name: await client.topic_id(name) for name in ("b", "c")}
    states = [
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=ids["b"]),
        DeleteTopicState(name="c", topic_id=ids["c"]),
        DeleteTopicState(topic_id=bytes(range(1, 17))),
        DeleteTopicState(),
    ]
    rows = (await client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)).responses
    assert [(row.name, ErrorCode(row.error_code)) for row in rows] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("c", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
    ]
    assert [topic.name for topic in client.broker.log.topics.all()] == ["c"]


# -- records --------------------------------------------------------------------------------------------------


async def deleted(client, offset, partition=0, topic="orders", version=2):
    parts = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    topics = [DeleteRecordsTopic(name=topic, partitions=parts)]
    answer = await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    row = answer.topics[0].partitions[0]
    return ErrorCode(row.error_code), row.low_watermark


@pytest.mark.parametrize("version", range(3))
async def test_minus_one_deletes_all_records(client, version):
    """It stands for the end of the log; Streams purges with the same request what it has read. Offsets go on where
    they were."""
    await client.topic()
    await client.append("orders", *(b"%d" % number for number in range(5)))
    assert await deleted(client, -1, version=version) == (ErrorCode.NONE, 5)
    assert (await client.list_offset("orders", EARLIEST)).offset == 5
    assert await client.append("orders", b"next") == 5


async def test_the_answer_to_deleting_records_is_where_the_log_begins(client):
    """What is gone stays gone; past the end, or below -1, is out of range."""
    await client.topic(partitions=2)
    await client.append("orders", *(b"%d" % number for number in range(5)))
    assert await deleted(client, 2) == (ErrorCode.NONE, 2)
    assert await deleted(client, 1) == (ErrorCode.NONE, 2)
    assert await deleted(client, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await deleted(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await deleted(client, -1, 1) == (ErrorCode.NONE, 0)
    assert await deleted(client, 0, 9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await deleted(client, 0, topic="nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_records_of_a_compacted_topic_are_not_deleted(client):
    """Whoever reads it back would miss keys that nobody has deleted."""
    await client.topic(cleanup_policy="compact")
    assert await deleted(client, -1) == (ErrorCode.POLICY_VIOLATION, -1)


# -- clients that disconnect --------------------------------------------------------------------------------------


@asynccontextmanager
async def busy_writer(broker):
    """What is written to the catalog waits until the block ends."""
    begun, may_end = threading.Event(), threading.Event()

    def wait(_):
        begun.set()
        may_end.wait(HANG_S)

    waiting = asyncio.create_task(broker.log.write(wait))
    await asyncio.to_thread(begun.wait, HANG_S)
    try:
        yield
    finally:
        may_end.set()
        await waiting


async def send_and_leave(broker, request, version):
    """A client that disconnects while its change waits to be written; returns when the change has ended."""
    changes = broker.log._changes_in_flight
    async with busy_writer(broker):
        async with Client(broker) as client:
            client.send(request, version)
            await until(lambda: len(changes))
        await until(lambda: not broker.kafka._connections)
    await until(lambda: not len(changes))


def created(name):
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


async def test_a_topic_whose_creator_has_left_is_known(tmp_path):
    async with running_broker(tmp_path, kafka=True) as broker:
        await send_and_leave(broker, created("t"), 5)
        assert [topic.name for topic in await broker.log.read(all_topics)] == ["t"]
        assert [topic.name for topic in broker.log.topics.all()] == ["t"]


async def test_a_topic_whose_deleter_has_left_is_gone(tmp_path):
    async with running_broker(tmp_path, kafka=True) as broker:
        await broker.log.create_topic("t")
        await send_and_leave(broker, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
        assert await broker.log.read(all_topics) == []
        assert list(broker.log.topics.all()) == []


async def test_partitions_and_records_change_for_clients_that_disconnected_too(tmp_path):
    async with running_broker(tmp_path, kafka=True) as broker:
        await broker.log.create_topic("a")
        topic_partition = broker.log.topics.partition("a", 0)
        await broker.log.append(topic_partition, batch_of(b"x"))
        more = CreatePartitionsTopic(name="a", count=3, assignments=None)
        await send_and_leave(broker, CreatePartitionsRequest(topics=[more], timeout_ms=1000), 1)
        part = DeleteRecordsPartition(partition_index=0, offset=1)
        below = DeleteRecordsTopic(name="a", partitions=[part])
        await send_and_leave(broker, DeleteRecordsRequest(topics=[below], timeout_ms=1000), 2)
        topic = await broker.log.read(lambda tx: find(tx, "a"))
        row = await broker.log.read(lambda tx: partitions.read(tx, topic_partition))
        assert broker.log.topics.named("a").partitions == topic.partitions == 3
        assert broker.log.partition(topic_partition).log_start == row.log_start == 1
