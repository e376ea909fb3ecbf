"""The `Log` service: produce and its stream, poll, consume, and what readers of committed messages see."""

import asyncio

import grpc
import pytest
from tests.unit.frontends.rpc.wire import serving, values

from millpond.model.errors import CorruptBatch
from millpond.records import Record, build_batch, iter_records
from millpond.stubs import admin_pb2, log_pb2

WAIT_SECONDS_MAX = 30
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
