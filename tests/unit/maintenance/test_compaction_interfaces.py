"""A compacted topic, made over any interface, is compacted by the running broker and read over all of them."""

import asyncio

import httpx
import pytest

from millpond import AsyncConsumer, AsyncProducer
from millpond.client import AsyncAdmin
from millpond.records import Record, walk
from millpond.service.polling import PollRequest
from millpond.testing import SimulatedClock, running_broker

POLICY = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "1"}
COLD = {"tail_bytes_max": 0, "cache_bytes_max": 0}
TOPIC = "prices"
PATIENCE_S = 60


@pytest.fixture
async def broker(tmp_path):
    settings = {"compaction_every": 20, "garbage_grace": 10, "inline_bytes_max": 200, **COLD}
    async with running_broker(tmp_path, maintain=True, grpc=True, http=True, **settings) as running:
        yield running


@pytest.fixture
async def http(broker):
    async with httpx.AsyncClient(base_url=f"http://{broker.listeners['http']}", timeout=60) as client:
        yield client


async def create_over_grpc(broker, http):
    async with AsyncAdmin(address=broker.listeners["grpc"]) as admin:
        await admin.create_topic(TOPIC, partitions=1, configs=POLICY)


async def create_over_http(broker, http):
    made = await http.post("/topics", json={"name": TOPIC, "partitions": 1, "configs": POLICY})
    assert made.status_code == 200


async def over_grpc(broker, http, offset):
    """[(offset, value)] from an offset on; polls until it stands at the end."""
    found = []
    address = broker.listeners["grpc"]
    async with AsyncConsumer(TOPIC, address=address, read_from=offset + 1) as consumer:
        while (await consumer.positions())[0] <= end_of(broker):
            messages, _ = await consumer.poll(wait=0.05)
            found += [(message.number - 1, message.value) for message in messages]
    return found


async def over_http(broker, http, offset):
    found = []
    while offset < end_of(broker):
        answer = await http.get(f"/topics/{TOPIC}/fetch/0", params={"offset": offset, "max_bytes": 100})
        body = answer.raise_for_status().json()
        found += [(each["offset"], each["value"].encode()) for each in body["messages"]]
        assert body["next_offset"] > offset
        offset = body["next_offset"]
    return found


def end_of(broker):
    return broker.log.partition(broker.log.topics.partition(TOPIC, 0)).end_offset


def records_of(broker):
    with broker.database.read() as tx:
        return tx.rows("SELECT sum(records) FROM extents")[0][0]


@pytest.mark.parametrize("create", [create_over_grpc, create_over_http])
async def test_it_is_read_from_every_offset_while_it_is_compacted_and_after(broker, http, create):
    await create(broker, http)
    last, stop = {}, asyncio.Event()

    async def produce():
        async with AsyncProducer(TOPIC, address=broker.listeners["grpc"]) as producer:
            for number in range(40):
                key = b"k%d" % (number * 7 % 5)
                await producer.send(b"%d" % number, key=key)
                last[key] = (number, b"%d" % number)
        stop.set()

    async def read(over):
        while not stop.is_set():
            if end_of(broker):
                found = await over(broker, http, 0)
                assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
                assert all(int(value) == offset for offset, value in found)
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(produce())
        for over in (over_grpc, over_http):
            tasks.create_task(read(over))
    expected = sorted(last.values())
    async with asyncio.timeout(PATIENCE_S):
        while records_of(broker) > len(expected):
            await asyncio.sleep(0.02)
        for offset in range(40):
            wanted = [each for each in expected if each[0] >= offset]
            for over in (over_grpc, over_http):
                assert await over(broker, http, offset) == wanted
    [gone, there] = [await http.get(f"/topics/{TOPIC}/fetch/0/{offset}") for offset in (0, expected[0][0])]
    assert (gone.status_code, there.status_code, there.content) == (404, 200, expected[0][1])


async def test_a_reader_that_does_not_wait_is_not_told_of_an_end_before_the_end(tmp_path):
    """An emptied batch lies between it and the next message."""
    clock = SimulatedClock()
    async with running_broker(tmp_path, clock=clock, **COLD) as broker:
        await broker.log.create_topic(TOPIC, 1, POLICY)
        for key in (b"a", b"b", b"c"):
            await broker.produce(TOPIC, Record(None, key))
        for _ in range(2):
            await broker.maintenance.compaction.run_once()
            clock.advance(10)
        assert records_of(broker) == 0
        await broker.produce(TOPIC, Record(b"here", b"d"))
        for offset in range(4):
            request = PollRequest(TOPIC, {0: offset}, messages_max=1, bytes_max=1)
            polled = await broker.poller.poll(request)
            assert [record.value for _, record in polled.records] == [b"here"]
            whole = await broker.poller.poll_batches(request)
            assert [header.record_count for _, data in whole.batches for _, header in walk(data)] == [1]
