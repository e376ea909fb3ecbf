"""Two brokers on one catalog and store: clients that talk to the wrong one are sent to the owner."""

import asyncio
import uuid

import psycopg
import pytest
from tests.ledger import Ledger

from millpond import AsyncAdmin, AsyncConsumer, AsyncProducer
from millpond.security import OPEN_ACCESS
from millpond.testing import running_broker

COUNT = 1_000


@pytest.fixture
def cluster(postgres_url, tmp_path):
    """Makes a broker that joins the others."""
    name = f"redirects_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    catalog = postgres_url.replace("/postgres?", f"/{name}?")

    def join():
        return running_broker(grpc=True, catalog=catalog, storage=f"file://{tmp_path / 'store'}")

    return join


async def move_all(first, second, count):
    """Everything to the second broker."""
    await first.cluster.drain(first.node_id, access=OPEN_ACCESS)
    async with asyncio.timeout(30):
        while len(second.log.partitions()) < count:
            await asyncio.sleep(0.01)


async def submit_all(producer, name, ledger, moved, **named):
    """A part of it before the partitions move."""
    noting = []
    for number in range(COUNT):
        if number == COUNT // 2:
            await moved.wait()
        value = b"%s:%d" % (name, number)
        future = await producer.submit(value, **named)
        noting.append(asyncio.ensure_future(ledger.note_async(value, future)))
    await asyncio.gather(*noting)


async def read_until(consumer, count):
    found = []
    while len(found) < count:
        found += (await consumer.poll(wait=10.0)).messages
    return found


async def test_a_producer_and_a_consumer_follow_their_partitions(cluster, figures):
    ledger, moved = Ledger(), asyncio.Event()
    async with cluster() as first:
        address = first.listeners["grpc"]
        await first.log.create_topic("t", 3)
        async with (
            AsyncProducer("t", address=address, timeout=60.0, batch_bytes=2_000) as producer,
            AsyncConsumer("t", address=address, timeout=60.0) as consumer,
        ):
            work = [
                asyncio.ensure_future(submit_all(producer, b"p%d" % n, ledger, moved, partition=n))
                for n in range(3)
            ]
            reading = asyncio.ensure_future(read_until(consumer, 3 * COUNT))
            async with cluster() as second:
                await move_all(first, second, 3)
                moved.set()
                await asyncio.gather(*work)
                found = await asyncio.wait_for(reading, 60)
                assert set(consumer._readers[0]._owners.values()) == {second.listeners["grpc"]}
                assert {lane.address for lane in producer.in_topic("t")._lanes} == {second.listeners["grpc"]}
    lost, misplaced, duplicates, wrong_order = ledger.check(found)
    figures.append(
        f"client library: partitions moved, acknowledged {len(ledger.placed):,}, lost {lost}, duplicates {duplicates}"
    )
    assert len(ledger.placed) == 3 * COUNT, ledger.refused
    assert (lost, misplaced, duplicates, wrong_order) == (0, 0, 0, 0)


async def test_clients_that_only_know_the_wrong_broker(cluster):
    async with cluster() as first:
        await first.produce("t", b"before")
        async with cluster() as second:
            await move_all(first, second, 1)
            wrong = first.listeners["grpc"]
            async with (
                AsyncProducer("t", address=wrong) as producer,
                AsyncConsumer("t", address=wrong) as consumer,
            ):
                assert (await producer.send(b"x")).number == 2
                assert [m.value for m in await read_until(consumer, 2)] == [b"before", b"x"]
            async with AsyncAdmin(address=wrong) as admin:
                description = await admin.describe_topic("t")
                assert description.partitions[0].owner == second.listeners["grpc"]


async def test_a_topic_whose_partitions_have_two_owners(cluster):
    async with cluster() as first:
        await first.log.create_topic("t", 2)
        async with cluster() as second:
            async with AsyncAdmin(address=first.listeners["grpc"]) as admin:
                await admin.alter_topic("t", partitions=4)
                addresses = {first.listeners["grpc"], second.listeners["grpc"]}
                async with asyncio.timeout(30):  # the first broker may hear of the second one later
                    while {each.owner for each in (await admin.describe_topic("t")).partitions} != addresses:
                        await asyncio.sleep(0.01)
            for address in addresses:
                async with AsyncProducer("t", address=address) as producer:
                    for partition in range(4):
                        await producer.send(b"%d" % partition, partition=partition)
                async with AsyncConsumer("t", address=address) as consumer:
                    found = await asyncio.wait_for(read_until(consumer, 4), 30)
                    assert {m.partition for m in found} == {0, 1, 2, 3}
                    rest = (await consumer.poll()).messages
                    assert await consumer.poll(wait=0.1) == ([], consumer.read_from)
                    assert len({(m.partition, m.number) for m in (*found, *rest)}) == len(found) + len(rest)
                    waiting = asyncio.ensure_future(consumer.poll(wait=30.0))
                    for partition in (0, 3):
                        async with AsyncProducer("t", address=address) as producer:
                            await producer.send(b"new", partition=partition)
                        assert [m.partition for m in (await waiting).messages] == [partition]
                        waiting = asyncio.ensure_future(consumer.poll(wait=30.0))
                    waiting.cancel()


async def test_no_partition_starves_behind_a_faster_broker(cluster):
    async with cluster() as first:
        await first.log.create_topic("t", 1)
        async with cluster() as second:
            async with AsyncAdmin(address=first.listeners["grpc"]) as admin:
                await admin.alter_topic("t", partitions=2)
            async with AsyncProducer("t", address=second.listeners["grpc"]) as producer:
                for partition in (0, 1):
                    await producer.send_many([b"x" * 100] * 500, partition=partition)
            async with AsyncConsumer("t", address=first.listeners["grpc"]) as consumer:
                polled = await consumer.poll(messages_max=10_000, bytes_max=1_000_000)
                assert {m.partition for m in polled.messages} == {0, 1}


async def test_positions_in_a_group_that_another_broker_keeps(cluster):
    async with cluster() as first:
        await first.produce("t", b"a", b"b")
        async with cluster():
            wrong = first.listeners["grpc"]
            async with AsyncConsumer("t", group="g", address=wrong, timeout=5.0) as consumer:
                await consumer.poll(messages_max=1)
            async with AsyncConsumer("t", group="g", address=wrong, timeout=5.0) as consumer:
                assert [m.value for m in (await consumer.poll()).messages] == [b"b"]


async def test_an_owner_that_goes_away_for_good(cluster):
    """Whoever it was found by knows who has its partitions now."""
    async with cluster() as first:
        address = first.listeners["grpc"]
        await first.produce("t", b"a")
        async with (
            AsyncProducer("t", address=address, timeout=30.0) as producer,
            AsyncConsumer("t", address=address, timeout=30.0) as consumer,
        ):
            async with cluster() as second:
                await move_all(first, second, 1)
                assert (await producer.send(b"b")).number == 2
                assert len(await read_until(consumer, 2)) == 2
                assert producer.in_topic("t")._lanes[0].address == second.listeners["grpc"]
                reading = asyncio.ensure_future(read_until(consumer, 1))
            async with cluster():
                assert (await producer.send(b"c")).number == 3
                assert [m.value for m in await reading] == [b"c"]


async def test_a_broker_that_goes_away_for_good(cluster):
    """The others serve its partitions; a client that was only told of the first has heard of them from it."""
    async with cluster() as first:
        address = first.listeners["grpc"]
        await first.produce("t", b"a")
        async with cluster():
            async with asyncio.timeout(30):
                while len(first.topology.current.members) < 2:
                    await asyncio.sleep(0.01)
            consumer = AsyncConsumer("t", address=address, timeout=30.0)
            async with AsyncProducer("t", address=address, timeout=30.0) as producer:
                assert (await producer.send(b"b")).number == 2
                assert len(await read_until(consumer, 2)) == 2
                await first.stop()
                assert (await producer.send(b"c")).number == 3
                assert [m.value for m in await read_until(consumer, 1)] == [b"c"]
            await consumer.close()
