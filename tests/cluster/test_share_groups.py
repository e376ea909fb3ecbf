"""Share groups in a cluster: their partitions move to other brokers, or their broker dies, and nothing that was
acknowledged is delivered again."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.cluster.near import SECONDS_MAX, near_brokers
from tests.unit.frontends.kafka.sharing import FINAL, RELEASE, Member, ack, share
from tests.unit.frontends.kafka.wire import Client

from millpond.catalog import topology, writers
from millpond.protocol import ErrorCode

GONE = {ErrorCode.NOT_LEADER_OR_FOLLOWER}


@pytest.fixture
async def near(tmp_path):
    async with near_brokers(tmp_path, 2) as near:
        await near.brokers[0].log.create_topic("orders", 2)
        await near.settled()
        await share(near.brokers[0].log)
        yield near


@pytest.fixture
async def member_at(near):
    async with AsyncExitStack() as stack:

        async def connect(broker, member="m1"):
            client = await stack.enter_async_context(Client(broker.listeners["kafka"]))
            return Member(client, broker.log.topics.named("orders").id, member)

        yield connect


async def stop(near, dying):
    await near.remove(dying)


async def die(near, dying):
    """Its lease expires while it has unsaved state in memory; nothing of it is handed over."""
    [heir] = [each for each in near.brokers if each is not dying]

    def declare_dead(tx):
        writers.mark_dead(tx, dying.session, 1)
        topology.bump_version(tx)
        topology.adopt(tx)

    await heir.log.write(declare_dead, own_commit=True)
    await heir.log.refresh()


async def test_a_broker_names_the_owner_of_a_partition(near, member_at):
    owner = near.owner("orders", 0)
    [other] = [each for each in near.brokers if each is not owner]
    member = await member_at(other)
    part = (await member.fetch())[0]
    assert part.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part.part.current_leader.leader_id == owner.node_id
    [endpoint] = member.response.node_endpoints
    assert f"{endpoint.host}:{endpoint.port}" == owner.listeners["kafka"]
    assert await member.acknowledge([ack(0)]) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert [each.node_id for each in member.response.node_endpoints] == [owner.node_id]


@pytest.mark.parametrize("end", [stop, die])
async def test_what_is_acknowledged_stays_so_when_the_owner_ends(near, member_at, end):
    owner = near.owner("orders", 0)
    [heir] = [each for each in near.brokers if each is not owner]
    await owner.produce("orders", b"1", b"2", b"3", partition=0)
    member = await member_at(owner)
    async with asyncio.timeout(SECONDS_MAX):
        assert sorted(await member.take()) == [0, 1, 2]
        assert await member.acknowledge([ack(0), ack(1, 1, RELEASE)]) == {0: ErrorCode.NONE}
        await end(near, owner)
        again = await member_at(heir)
        while (part := await again.until()).error in GONE:
            again.epoch = 0
        assert {offset: count for offset, (_, count) in part.messages.items()} == {1: 2, 2: 1}
        assert await again.acknowledge([ack(1, 2)]) == {0: ErrorCode.NONE}
        assert await again.acknowledge({}, epoch=FINAL) == {}
