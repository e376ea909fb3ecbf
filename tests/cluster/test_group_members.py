"""Members of groups in a cluster: their coordinator moves, or dies, while they read."""

import asyncio
import itertools

import pytest
from tests.cluster.near import SECONDS_MAX, near_brokers

from millpond.catalog import topology, writers
from millpond.client import AsyncAdmin, AsyncConsumer, AsyncProducer, group_membership

PARTITIONS = 4
COUNT = 40


@pytest.fixture(autouse=True)
def frequent_heartbeats(monkeypatch):
    monkeypatch.setattr(group_membership, "HEARTBEAT_S", 0.02)


@pytest.fixture
async def near(tmp_path):
    async with near_brokers(tmp_path, 2) as near:
        await near.brokers[0].log.create_topic("orders", PARTITIONS)
        await near.settled()
        yield near


def group_of(broker):
    """The name of a group that this broker coordinates."""
    names = (f"readers-{number}" for number in itertools.count())
    return next(each for each in names if broker.owners.coordinator(each).node_id == broker.node_id)


async def fill(near, start):
    async with AsyncProducer("orders", address=near.addresses("grpc")[0]) as producer:
        for number in range(start, start + COUNT):
            await producer.send(b"%d" % number, partition=number % PARTITIONS)


async def read(consumers, count):
    """The numbers of messages, and what each poll of these consumers brings meanwhile."""
    found = []
    async with asyncio.timeout(SECONDS_MAX):
        while len(found) < count or not all(each.assignment["orders"] for each in consumers):
            for polled in await asyncio.gather(*(each.poll(wait=0.05) for each in consumers)):
                found += [int(message.value) for message in polled.messages]
    return sorted(found)


async def members(near, group):
    async with AsyncAdmin(address=near.addresses("grpc")[0]) as admin:
        return {each.id: each.assigned for each in (await admin.describe_group(group)).members}


async def leave(near, dying):
    await near.remove(dying)


async def die(near, dying):
    """Its server is gone, and then another broker finds that its lease has expired."""
    await dying.rpc.stop()
    [heir] = [each for each in near.brokers if each is not dying]

    def declare_dead(tx):
        writers.mark_dead(tx, dying.session, 1)
        topology.bump_version(tx)
        topology.adopt(tx)

    await heir.log.write(declare_dead, own_commit=True)
    await heir.log.refresh()


@pytest.mark.parametrize("end", [leave, die])
async def test_members_keep_their_partitions_when_their_coordinator_ends(near, end):
    staying, ending = near.brokers
    group = group_of(ending)
    first = AsyncConsumer("orders", group=group, address=near.addresses("grpc")[0], timeout=SECONDS_MAX)
    second = AsyncConsumer("orders", group=group, address=near.addresses("grpc")[0], timeout=SECONDS_MAX)
    async with first, second:
        await fill(near, 0)
        assert await read([first, second], COUNT) == list(range(COUNT))
        before = await members(near, group)
        assert len(before) == 2
        await end(near, ending)
        await fill(near, COUNT)
        assert await read([first, second], COUNT) == list(range(COUNT, 2 * COUNT))
        assert await members(near, group) == before, "nobody had to join again"
    assert staying.owners.coordinator(group).node_id == staying.node_id
