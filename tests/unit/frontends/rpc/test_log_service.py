"""The `Log` service: produce and its stream, poll, consume, and what readers of committed messages see."""

import asyncio

import grpc
import pytest
from tests.unit.frontends.rpc.wire import details_of, serving, values

from millpond.catalog import topics
from millpond.model.clock import SystemClock
from millpond.model.errors import CorruptBatch
from millpond.records import Record, build_batch, iter_records
from millpond.records.batch import HEADER_SIZE, seal
from millpond.security import OPEN_ACCESS
from millpond.stubs import admin_pb2, log_pb2

WAIT_SECONDS_MAX = 30
FAR_AHEAD_MS = 10**15
BATCH = build_batch([Record(b"a"), Record(b"b")], now_ms=1)


def one(topic, value, **fields):
    return log_pb2.ProduceRequest(topic=topic, messages=[log_pb2.NewMessage(value=value)], **fields)


async def results_of(stream, count):
    found = []
    while len(found) < count:
        answer = await stream.read()
        assert answer is not grpc.aio.EOF
        found += answer.results
    return found


def outcomes(results):
    return [
        list(result.produced.numbers) if result.WhichOneof("outcome") == "produced" else result.error.reason
        for result in results
    ]


# -- in ------------------------------------------------------------------------------------------------------------


async def test_everything_about_a_message_comes_back():
    sent = log_pb2.NewMessage(key=b"\0k", value=b"", timestamp_ms=12)
    sent.headers.add(name="given", value=b"\xff")
    sent.headers.add(name="given")
    async with serving() as (_, wire):
        request = log_pb2.ProduceRequest(topic="topic", messages=[sent, log_pb2.NewMessage()])
        assert (await wire("Log.Produce", request)).numbers == [1, 2]
        first, second = (await wire.poll("topic")).messages
    assert (first.number, first.key, first.value, first.timestamp_ms) == (1, b"\0k", b"", 12)
    assert [(each.name, each.value, each.HasField("value")) for each in first.headers] == [
        ("given", b"\xff", True),
        ("given", b"", False),
    ]
    assert (second.HasField("value"), second.HasField("key")) == (False, False)
    assert second.timestamp_ms > 12


LATE = log_pb2.NewMessage(value=b"x", timestamp_ms=2**50)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (one("new", bytes(2_000_000)), "RECORD_TOO_LARGE"),
        (one("new", b"x", partition=7), "UNKNOWN_PARTITION"),
        (log_pb2.ProduceRequest(topic="new", messages=[LATE]), "INVALID_TIMESTAMP"),
        (log_pb2.ProduceRequest(topic="new", partition=7, batch=BATCH), "UNKNOWN_PARTITION"),
        (log_pb2.ProduceRequest(topic="new", partition=0, batch=BATCH[:-1] + b"\1"), "CORRUPT_BATCH"),
        (
            log_pb2.ProduceRequest(
                topic="new", partition=0, batch=build_batch([Record(b"x", timestamp=2**50)], now_ms=1)
            ),
            "INVALID_TIMESTAMP",
        ),
    ],
)
async def test_a_refused_request_creates_no_topic(request_, reason):
    async with serving() as (broker, wire):
        stream = wire("Log.ProduceStream")
        await stream.write(request_)
        assert outcomes(await results_of(stream, 1)) == [reason]
        assert broker.log.topics.all() == []
        await stream.done_writing()


async def test_a_topic_that_would_be_created_is_described_and_not_created():
    async with serving(default_partitions=3) as (broker, wire):
        request = admin_pb2.DescribeTopicRequest(name="new", plan=True)
        planned = await wire("Admin.DescribeTopic", request)
        assert (planned.topic.name, planned.topic.id, planned.topic.partitions) == ("new", "", 3)
        assert [(each.partition, each.owner) for each in planned.partitions] == [(0, ""), (1, ""), (2, "")]
        assert {each.name for each in planned.configs} >= {"max.message.bytes", "retention.ms"}
        assert broker.log.topics.all() == []
        await broker.produce("new", b"x")
        found = await wire("Admin.DescribeTopic", request)
        assert found.topic.id
        assert [each.next for each in found.partitions] == [2, 1, 1]


@pytest.mark.parametrize(
    ("name", "creates", "reason"), [("no/good", True, "INVALID_TOPIC_NAME"), ("new", False, "UNKNOWN_TOPIC")]
)
async def test_a_topic_that_would_not_be_created_is_not_described(name, creates, reason):
    async with serving(auto_create_topics=creates) as (_, wire):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire("Admin.DescribeTopic", admin_pb2.DescribeTopicRequest(name=name, plan=True))
        assert details_of(refused.value)[1].reason == reason


async def test_a_refused_request_does_not_end_its_stream():
    async with serving() as (_, wire):
        stream = wire("Log.ProduceStream")
        for request in (
            one("topic", b"1"),
            one("no/good", b"x"),
            one("topic", b"x", partition=7),
            log_pb2.ProduceRequest(topic="topic"),
            log_pb2.ProduceRequest(topic="topic", partition=0, batch=b"no batch"),
            log_pb2.ProduceRequest(topic="topic", batch=BATCH),
            log_pb2.ProduceRequest(topic="topic", partition=0, batch=BATCH),
            one("topic", b"4"),
        ):
            await stream.write(request)
        await stream.done_writing()
        results = await results_of(stream, 8)
        assert await stream.read() is grpc.aio.EOF
        assert (await stream.code()) is grpc.StatusCode.OK
    assert outcomes(results) == [
        *([1], "INVALID_TOPIC_NAME", "UNKNOWN_PARTITION", "INVALID_REQUEST", "CORRUPT_BATCH"),
        *("INVALID_REQUEST", [2], [4]),
    ]


async def test_a_stream_is_stored_in_its_order_and_answered_in_it():
    async with serving() as (_, wire):
        stream = wire("Log.ProduceStream")

        async def write():
            for number in range(1_000):
                await stream.write(one("topic", b"%d" % number))
            await stream.done_writing()

        writing = asyncio.create_task(write())
        results = await results_of(stream, 1_000)
        await writing
        assert outcomes(results) == [[number] for number in range(1, 1_001)]
        assert values(await wire.poll("topic", messages_max=1_000)) == [b"%d" % n for n in range(1_000)]


async def test_a_repeated_batch_of_a_known_producer_is_stored_once():
    async with serving() as (_, wire):
        identity = await wire("Log.InitProducer", log_pb2.InitProducerRequest())
        batch = build_batch(
            [Record(b"a")], producer_id=identity.producer_id, producer_epoch=0, base_sequence=0, now_ms=1
        )
        request = log_pb2.ProduceRequest(topic="topic", partition=0, batch=batch)
        assert [list((await wire("Log.Produce", request)).numbers) for _ in range(3)] == [[1]] * 3
        assert values(await wire.poll("topic")) == [b"a"]


async def test_messages_with_a_key_go_where_the_key_says_and_each_is_told_where():
    async with serving() as (_, wire):
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="topic", partitions=8))
        keys = [b"%d" % (number % 20) for number in range(200)]
        request = log_pb2.ProduceRequest(
            topic="topic", messages=[log_pb2.NewMessage(key=key, value=key) for key in keys]
        )
        answer = await wire("Log.Produce", request)
        placed = dict(zip(keys, answer.partitions, strict=True))
        assert [placed[key] for key in keys] == list(answer.partitions)
        read = (await wire("Log.Poll", log_pb2.PollRequest(topic="topic"))).messages
    assert len(set(answer.partitions)) > 1
    assert {(each.partition, each.number) for each in read} == set(
        zip(answer.partitions, answer.numbers, strict=True)
    )


@pytest.mark.parametrize(
    "message",
    [
        log_pb2.NewMessage(headers=[log_pb2.Header(name="h")] * 1_000),
        log_pb2.NewMessage(key=bytes(500_000)),
        log_pb2.NewMessage(value=bytes(500_000)),
    ],
    ids=["headers", "key", "value"],
)
async def test_what_is_large_in_any_way_is_encoded_beside_the_loop(monkeypatch, message):
    async with serving() as (broker, wire):
        worked, run = [], broker.messages._workers.run

        async def run_and_tell(work):
            worked.append(answer := await run(work))
            return answer

        monkeypatch.setattr(broker.messages._workers, "run", run_and_tell)
        await wire("Log.Produce", log_pb2.ProduceRequest(topic="topic", messages=[message]))
        assert len(worked) == 1
        await wire.produce("topic", b"small")
        assert len(worked) == 1


@pytest.mark.parametrize("timestamp", [-1, -(2**63)])
async def test_a_negative_time_is_refused(timestamp):
    message = log_pb2.NewMessage(value=b"x", timestamp_ms=timestamp)
    async with serving() as (_, wire):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire("Log.Produce", log_pb2.ProduceRequest(topic="topic", messages=[message]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_batch_is_checked_before_it_is_stored():
    async with serving() as (_, wire):
        broken = BATCH[:-1] + bytes([BATCH[-1] ^ 1])
        for batch in (broken, BATCH[:30], BATCH + b"x", bytes(100)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await wire("Log.Produce", log_pb2.ProduceRequest(topic="t", partition=0, batch=batch))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, CorruptBatch


# -- out -----------------------------------------------------------------------------------------------------------


async def test_a_poll_waits_for_the_first_message():
    async with serving() as (broker, wire):
        await wire.produce("topic", b"1")
        waiting = asyncio.ensure_future(wire.poll("topic", 2, wait_ms=WAIT_SECONDS_MAX * 1_000))
        while not broker.poller._waiting:
            await asyncio.sleep(0.005)
        await wire.produce("topic", b"2")
        assert values(await waiting) == [b"2"]


async def test_a_poll_of_many_partitions_says_where_it_stands_in_each():
    async with serving() as (_, wire):
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="topic", partitions=3))
        await wire.produce("topic", b"1", b"2", partition=1)
        answer = await wire("Log.Poll", log_pb2.PollRequest(topic="topic"))
    assert [(each.partition, each.read_from, each.oldest, each.next) for each in answer.standings] == [
        *((0, 1, 1, 1), (1, 3, 1, 3), (2, 1, 1, 1)),
    ]


async def test_consume_follows_the_tail():
    async with serving() as (_, wire):
        await wire.produce("topic", b"1", b"2")
        following = wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic"))
        assert values(await following.read()) == [b"1", b"2"]
        for number in range(3, 23):
            await wire.produce("topic", b"%d" % number)
            assert values(await following.read()) == [b"%d" % number]
        following.cancel()


async def test_consume_answers_at_once_where_there_is_nothing():
    async with serving() as (_, wire):
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="topic"))
        following = wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic"))
        first = await following.read()
        assert (values(first), first.standings[0].read_from) == ([], 1)
        following.cancel()


@pytest.mark.parametrize("as_batches", [False, True])
async def test_consume_until_the_end_is_all_there_was_and_ends(as_batches):
    async with serving() as (_, wire):
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="topic", partitions=3))
        for number in range(30):
            await wire.produce("topic", b"%d" % number, partition=number % 3)
        request = log_pb2.ConsumeRequest(
            topic="topic", until_end=True, messages_max=4, bytes_max=1, as_batches=as_batches
        )
        found = []
        async for answer in wire("Log.Consume", request):
            batches = [iter_records(each.data, decompressed_bytes_max=1_000) for each in answer.batches]
            found += values(answer) + [record.value for batch in batches for record in batch]
    assert sorted(found) == sorted(b"%d" % number for number in range(30))


async def test_consume_until_the_end_of_nothing_ends():
    async with serving() as (_, wire):
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="topic", partitions=2))
        answers = [
            each async for each in wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic", until_end=True))
        ]
    assert [values(each) for each in answers] == [[]]


# -- transactions --------------------------------------------------------------------------------------------------


class Transaction:
    """A transactional producer, as a Kafka client would be one."""

    def __init__(self, broker, topic):
        self._broker, self._topic, self._sequence = broker, topic, 0

    async def begin(self):
        self._where = self._broker.log.topics.partition(self._topic, 0)
        self._producer = await self._broker.transactions.begin_producer("pay", 60_000, None)
        return self

    async def send(self, value):
        await self._broker.transactions.add_partitions(self._producer, [self._where])
        identity = self._producer.identity
        batch = build_batch(
            [Record(value)],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=self._sequence,
            transactional=True,
            now_ms=1,
        )
        self._sequence += 1
        await self._broker.log.append(self._where, batch)

    async def end(self, *, commit):
        await self._broker.transactions.end(self._producer, commit=commit, bump_epoch=False)


@pytest.mark.parametrize("as_batches", [False, True])
async def test_open_and_aborted_transactions_are_invisible_unless_asked_for(as_batches):
    async with serving() as (broker, wire):
        await wire.produce("topic", b"plain")
        transaction = await Transaction(broker, "topic").begin()
        for value, commit in ((b"dropped", False), (b"kept", True)):
            await transaction.send(value)
            await transaction.end(commit=commit)
        await transaction.send(b"open")
        await wire.produce("topic", b"behind the open one")

        async def read(**options):
            answer = await wire.poll("topic", as_batches=as_batches, **options)
            records = [
                record
                for batch in answer.batches
                for record in iter_records(batch.data, decompressed_bytes_max=1_000)
            ]
            return values(answer) + [record.value for record in records], answer.standings[0]

        assert (await read())[0] == [b"plain", b"kept"]
        everything = [b"plain", b"dropped", b"kept", b"open", b"behind the open one"]
        assert (await read(uncommitted=True))[0] == everything
        standing = (await read())[1]
        assert (await read())[1].read_from == standing.next
        await transaction.end(commit=True)
        assert (await read())[0] == [b"plain", b"kept", b"open", b"behind the open one"]


async def test_consume_passes_over_an_aborted_transaction_and_goes_on():
    async with serving() as (broker, wire):
        await wire.produce("topic", b"first")
        following = wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic"))
        assert values(await following.read()) == [b"first"]
        transaction = await Transaction(broker, "topic").begin()
        await transaction.send(b"dropped")
        await transaction.end(commit=False)
        await wire.produce("topic", b"next")
        assert values(await following.read()) == [b"next"]
        following.cancel()


async def test_a_transactional_batch_is_not_taken_here():
    batch = build_batch(
        [Record(b"a")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, now_ms=1
    )
    async with serving() as (_, wire):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire("Log.Produce", log_pb2.ProduceRequest(topic="t", partition=0, batch=batch))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# -- requests that are refused -------------------------------------------------------------------------------------


async def stored(broker, topic):
    found = await broker.administration.describe_topic(topic)
    return [each.end_offset for each in found.partitions]


async def test_a_request_that_is_refused_has_stored_nothing_in_any_batch_or_partition():
    async with serving() as (broker, wire):
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="t", partitions=4))
        messages = [log_pb2.NewMessage(key=b"%d" % i, value=b"x" * 200_000) for i in range(9)]
        messages[8].timestamp_ms = FAR_AHEAD_MS
        for partition in (None, 0):
            request = log_pb2.ProduceRequest(topic="t", messages=messages)
            if partition is not None:
                request.partition = partition
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await wire("Log.Produce", request)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await stored(broker, "t") == [0, 0, 0, 0]


async def test_a_keyless_message_to_a_compacted_topic_refuses_its_whole_request():
    async with serving() as (broker, wire):
        configs = {"cleanup.policy": "compact"}
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="t", configs=configs))
        messages = [log_pb2.NewMessage(key=b"k", value=b"x" * 600_000) for _ in range(3)]
        for keyless in (0, 2):
            messages[keyless].ClearField("key")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire("Log.Produce", log_pb2.ProduceRequest(topic="t", messages=messages))
        assert details_of(refused.value)[1].metadata["records"] == "0, 2"
        assert await stored(broker, "t") == [0]


async def test_positions_of_a_topic_are_refused_by_another_one_of_its_name():
    async with serving() as (_, wire):
        await wire.produce("t", b"one", b"two")
        first = await wire.poll("t")
        await wire("Admin.DeleteTopic", admin_pb2.DeleteTopicRequest(name="t"))
        await wire.produce("t", b"new")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wire.poll("t", read_from=3, topic_id=first.topic_id)
        assert details_of(caught.value)[1].reason == "TOPIC_REPLACED"
        again = await wire.poll("t")
        assert values(again) == [b"new"]
        assert again.topic_id != first.topic_id
        with pytest.raises(grpc.aio.AioRpcError, match="is no topic id"):
            await wire.poll("t", topic_id="nonsense")


async def test_a_waiting_poll_names_the_topic_that_was_deleted():
    async with serving() as (broker, wire):
        await wire.produce("t", b"one")
        waiting = asyncio.ensure_future(wire.poll("t", read_from=2, wait_ms=20_000))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not broker.poller._waiting:
                await asyncio.sleep(0.01)
        await broker.administration.delete_topic("t", access=OPEN_ACCESS)
        with pytest.raises(grpc.aio.AioRpcError, match="There is no topic 't'"):
            await waiting


async def test_a_poll_names_a_topic_that_only_the_catalog_knows_to_be_deleted():
    """Its first read of committed messages asks the catalog for open transactions, and there is no partition."""
    async with serving() as (broker, wire):
        await wire.produce("t", b"one")
        with broker.database.write() as tx:
            topics.delete(tx, "t", now_ms=broker.clock.now_ms())
        with pytest.raises(grpc.aio.AioRpcError, match="There is no topic 't'"):
            await wire.poll("t")


async def test_a_stream_of_a_whole_topic_reads_partitions_that_are_added(monkeypatch):
    monkeypatch.setattr("millpond.frontends.rpc.log.FOLLOW_WAIT_MS", 50)
    async with serving() as (_, wire):
        await wire.produce("t", b"one")
        following = wire("Log.Consume", log_pb2.ConsumeRequest(topic="t"))
        assert values(await following.read()) == [b"one"]
        await wire("Admin.AlterTopic", admin_pb2.AlterTopicRequest(name="t", partitions=2))
        await wire.produce("t", b"two", partition=1)
        assert values(await following.read()) == [b"two"]
        following.cancel()


async def test_reading_to_the_end_ends_on_an_emptied_topic():
    async with serving() as (_, wire):
        await wire.produce("t", b"one", b"two")
        await wire("Admin.DeleteMessages", admin_pb2.DeleteMessagesRequest(topic="t"))
        positions = [log_pb2.Position(partition=0, read_from=1)]
        reading = wire("Log.Consume", log_pb2.ConsumeRequest(topic="t", positions=positions, until_end=True))
        assert [values(each) async for each in reading] == [[]]


# -- batches that cannot be decoded ----------------------------------------------------------------------------------


def garbage(count=3):
    """A batch with a valid header and checksum whose records cannot be decoded."""
    data = bytearray(build_batch([Record(b"x" * 20) for _ in range(count)], now_ms=SystemClock().now_ms()))
    data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)
    seal(data, 0, len(data))
    return bytes(data)


async def test_a_batch_that_cannot_be_decoded_hides_nothing_before_it_and_can_be_skipped():
    async with serving() as (broker, wire):
        await wire.produce("t", b"one", b"two")
        topic_partition = broker.log.topics.partition("t", 0)
        await broker.log.append(topic_partition, garbage())
        await wire.produce("t", b"after")
        first = await wire.poll("t")
        assert values(first) == [b"one", b"two"]
        [standing] = first.standings
        assert standing.read_from == 3
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wire.poll("t", read_from=standing.read_from)
        _, info, _ = details_of(caught.value)
        assert caught.value.code() is grpc.StatusCode.DATA_LOSS
        assert (info.reason, info.metadata["offset"], info.metadata["next_offset"]) == (
            "UNREADABLE_BATCH",
            "2",
            "5",
        )
        assert values(await wire.poll("t", read_from=6)) == [b"after"]


async def test_one_partition_that_cannot_be_decoded_does_not_hide_the_others():
    async with serving() as (broker, wire):
        await wire("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="t", partitions=2))
        await broker.log.append(broker.log.topics.partition("t", 0), garbage())
        await wire.produce("t", b"good", partition=1)
        for _ in range(4):
            assert values(await wire("Log.Poll", log_pb2.PollRequest(topic="t"))) == [b"good"]
