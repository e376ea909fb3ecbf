"""What a review found in the gRPC face and the service below it, each held by name."""

import asyncio
import os

import grpc
import pytest
from tests.unit.frontends.rpc.wire import details_of, serving, values

from millpond import Broker, Settings
from millpond.model.addresses import is_loopback
from millpond.model.errors import InvalidSettings, UnknownTopic
from millpond.records import Codec, Record, build_batch
from millpond.records.batch import HEADER_SIZE, seal
from millpond.service import PollRequest
from millpond.stubs import admin_pb2, log_pb2, minikafka_pb2

FAR_AHEAD_MS = 10**15


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
        messages[2].ClearField("key")
        with pytest.raises(grpc.aio.AioRpcError):
            await wire("Log.Produce", log_pb2.ProduceRequest(topic="t", messages=messages))
        assert await stored(broker, "t") == [0]


async def test_deleting_messages_needs_a_number_or_the_wish_for_all():
    async with serving() as (_, wire):
        await wire.produce("t", b"one", b"two", b"three")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wire("Admin.DeleteMessages", admin_pb2.DeleteMessagesRequest(topic="t", before=0))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert values(await wire.poll("t")) == [b"one", b"two", b"three"]
        left = await wire("Admin.DeleteMessages", admin_pb2.DeleteMessagesRequest(topic="t", before=3))
        assert left.oldest == 3
        left = await wire("Admin.DeleteMessages", admin_pb2.DeleteMessagesRequest(topic="t"))
        assert left.oldest == 4


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


async def test_a_waiting_poll_is_told_the_name_of_the_topic_that_went():
    async with serving() as (broker, wire):
        await wire.produce("t", b"one")
        waiting = asyncio.ensure_future(wire.poll("t", read_from=2, wait_ms=20_000))
        async with asyncio.timeout(10):
            while not broker.poller._waiting:
                await asyncio.sleep(0.01)
        await broker.administration.delete_topic("t")
        with pytest.raises(grpc.aio.AioRpcError, match="There is no topic 't'"):
            await waiting


async def test_whoever_follows_a_whole_topic_reads_partitions_that_are_added(monkeypatch):
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


async def test_a_minikafka_reader_gets_past_what_was_aborted():
    async with serving() as (broker, wire):
        await broker.messages.topic("t")
        where = broker.log.topics.partition("t", 0)
        producer = await broker.transactions.begin_producer("x", 60_000)
        await broker.transactions.add_partitions(producer, [where])
        for number in range(8):
            batch = build_batch(
                [Record(b"x" * 900_000)],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=number,
                transactional=True,
                now_ms=broker.clock.now_ms(),
            )
            await broker.log.append(where, batch)
        await broker.transactions.end(producer, commit=False, bump_epoch=False)
        await wire.produce("t", b"seen")
        read_from, found = 1, []
        for _ in range(10):
            request = minikafka_pb2.PollRequest(topic="t", read_from={"msg_number": read_from})
            answer = await wire("MiniKafka.Poll", request)
            found += [each.payload for each in answer.payloads]
            read_from = answer.new_read_from.msg_number
        assert (found, read_from) == ([b"seen"], 11)


# -- what cannot be decoded ----------------------------------------------------------------------------------------


def garbage(count=3):
    """A batch that looks right from outside, and holds nonsense."""
    data = bytearray(build_batch([Record(b"x" * 20) for _ in range(count)], now_ms=1))
    data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)
    seal(data, 0, len(data))
    return bytes(data)


async def test_a_batch_that_cannot_be_decoded_hides_nothing_before_it_and_can_be_stepped_over():
    async with serving() as (broker, wire):
        await wire.produce("t", b"one", b"two")
        where = broker.log.topics.partition("t", 0)
        await broker.log.append(where, garbage())
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


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_many_records_are_not_decoded_on_the_event_loop(codec, monkeypatch):
    on_threads = []
    async with serving() as (broker, _):
        run = broker.poller._workers.run

        async def noted(work, *, slow=False):
            on_threads.append(slow)
            return await run(work, slow=slow)

        monkeypatch.setattr(broker.poller._workers, "run", noted)
        await broker.messages.topic("t")
        where = broker.log.topics.partition("t", 0)
        for count in (2_000, 25_000):
            await broker.log.append(
                where, build_batch([Record(b"")] * count, compression=codec, now_ms=broker.clock.now_ms())
            )
        await broker.poller.poll(PollRequest("t", {0: 0}, bytes_max=100))
        await broker.poller.poll(PollRequest("t", {0: 2_000}, bytes_max=100))
        assert on_threads == [False, True]


# -- starting ------------------------------------------------------------------------------------------------------


async def test_a_start_that_fails_at_its_end_leaves_nothing_and_can_be_tried_again(tmp_path, monkeypatch):
    ports = {f"{face}_listen": "127.0.0.1:0" for face in ("kafka", "grpc", "http")}
    broker = Broker(Settings(data_dir=tmp_path, **ports), listen=True)
    before = asyncio.all_tasks()

    async def fail(*_):
        raise RuntimeError("at the very end")

    with monkeypatch.context() as patched:
        patched.setattr("millpond.frontends.web.WebServer.serve", fail)
        with pytest.raises(RuntimeError, match="at the very end"):
            await broker.start()
    assert asyncio.all_tasks() == before
    await broker.start()
    await broker.produce("t", b"works")
    await broker.stop()


async def test_a_grpc_port_in_use_is_named_with_the_systems_reason(tmp_path):
    async with serving() as (broker, _):
        taken = broker.listeners["grpc"]
        other = Broker(
            Settings(data_dir=tmp_path, kafka_listen="", http_listen="", grpc_listen=taken), listen=True
        )
        with pytest.raises(InvalidSettings, match=os.strerror(98)):
            await other.start()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1")],
        *[(host, False) for host in ("127.example.com", "localhost.example", "::1234", "0.0.0.0", "::", "a")],
    ],
)
def test_loopback_is_what_an_address_is_and_not_how_it_begins(host, expected):
    assert is_loopback(host) is expected


async def test_reading_a_topic_that_is_not_there_names_it():
    async with serving() as (broker, _):
        with pytest.raises(UnknownTopic, match="'nothing'"):
            await broker.poller.poll(PollRequest("nothing"))
