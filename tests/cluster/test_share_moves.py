"""What members of a share group did survives when their partition moves to another broker, which knows only what was
stored: nothing that was accepted or rejected comes again, and releases count."""

from contextlib import AsyncExitStack

import pytest
from tests.cluster.near import near_brokers
from tests.unit.frontends.kafka.sharing import REJECT, RELEASE, Member, ack, share
from tests.unit.frontends.kafka.wire import Client

from millpond.catalog import topology
from millpond.model.ids import TopicPartition
from millpond.protocol import ErrorCode
from millpond.records import Record, build_batch

MESSAGES = 6
LEASE_MS = 600_000
"""While a lease is not renewed, brokers do not share partitions out again."""


@pytest.fixture
async def near(tmp_path):
    async with near_brokers(tmp_path, 2, lease=LEASE_MS) as near:
        await near.brokers[0].log.create_topic("orders", 1)
        await near.settled()
        yield near


@pytest.fixture
async def join(near):
    """A member on a connection to a broker."""
    async with AsyncExitStack() as stack:

        async def member(broker, name):
            client = await stack.enter_async_context(Client(broker.listeners["kafka"]))
            return Member(client, near.brokers[0].log.topics.named("orders").id, name)

        yield member


async def fill(broker, topic_partition):
    for number in range(MESSAGES):
        await broker.log.append(topic_partition, build_batch([Record(b"%d" % number)]))


async def move(topic_partition, former, heir):
    """The heir takes the partition; the former owner is not asked, and lives on."""

    def take(tx):
        topology.bump_version(tx)
        epoch = topology.owners(tx)[topic_partition].epoch
        assert topology.hand_over(tx, former.session, {topic_partition: (epoch, heir.session)}) == 1

    await heir.log.write(take, own_commit=True)
    for broker in (heir, former):
        await broker.log.refresh()


async def test_acknowledgements_and_counts_survive_a_move(near, join):
    former = near.owner("orders", 0)
    [heir] = [each for each in near.brokers if each is not former]
    topic_partition = TopicPartition(former.log.topics.named("orders").id, 0)
    await share(former.log)
    await fill(former, topic_partition)
    member = await join(former, "m1")
    held = {}
    while len(held) < MESSAGES:
        held |= await member.take()
    accepted, released, rejected = ack(0, 1), ack(2, 3, RELEASE), ack(4, 4, REJECT)
    assert await member.acknowledge([accepted, released, rejected]) == {0: ErrorCode.NONE}

    await move(topic_partition, former, heir)
    assert await member.acknowledge([ack(5)]) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    other = await join(heir, "m2")
    again = {}
    while len(again) < 3:
        again |= await other.take()
    assert again == {2: (b"2", 2), 3: (b"3", 2), 5: (b"5", 1)}
    assert await other.acknowledge([ack(2, 3), ack(5)]) == {0: ErrorCode.NONE}
    await fill(heir, topic_partition)
    assert min(await other.take()) == MESSAGES


async def test_a_member_cannot_acknowledge_what_another_broker_has_delivered(near, join):
    former = near.owner("orders", 0)
    [heir] = [each for each in near.brokers if each is not former]
    topic_partition = TopicPartition(former.log.topics.named("orders").id, 0)
    await share(former.log)
    await fill(former, topic_partition)
    first = await join(former, "m1")
    await first.take()
    await move(topic_partition, former, heir)
    moved = await join(heir, "m1")
    await moved.fetch(max_records=0)
    assert await moved.acknowledge([ack(0)]) in (
        {0: ErrorCode.INVALID_RECORD_STATE},
        {0: ErrorCode.INVALID_REQUEST},
    )
    second = await join(heir, "m2")
    assert (await second.take(max_records=1)) == {0: (b"0", 1)}
