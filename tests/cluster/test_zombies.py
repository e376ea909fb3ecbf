"""A broker that is paused before its commit, and loses its partitions meanwhile: the commit is refused."""

import asyncio

import pytest
from tests.cluster.failpoints import HOLD_SECONDS_MAX, Paused
from tests.cluster.over_postgres import cluster, owned, shared_topic, until
from tests.cluster.workload import Sender, send_all

from millpond import Record
from millpond.catalog import topology, writers
from millpond.model.errors import Fenced, MillpondError, NotOwner
from millpond.records import build_batch


def batch(value):
    return build_batch([Record(value)], now_ms=1)


def contents(broker):
    """Every object's bytes."""
    return {key: broker.store.read(key, 0, broker.store.size(key)) for key in broker.store.list("")}


async def test_one_partition_taken_while_a_commit_was_on_its_way_refuses_only_its_share(databases, s3_store):
    """The zombie still lives, but one of the two partitions in its flush was given away."""
    point = Paused()
    url = databases.new_url()
    parts = [{"wrap_database": point.wrap}, {}]
    async with cluster([url, url], s3_store, parts=parts, lease=60_000) as brokers:
        broker, other = brokers
        await shared_topic(brokers, partitions=4)
        taken, kept = owned(broker)
        point.armed = True
        appends = [
            asyncio.create_task(broker.log.append(topic_partition, batch(b"x")))
            for topic_partition in (taken, kept)
        ]
        await asyncio.to_thread(point.reached.wait, HOLD_SECONDS_MAX)

        def take(tx):
            topology.bump_version(tx)
            epoch = topology.owners(tx)[taken].epoch
            assert topology.hand_over(tx, broker.session, {taken: (epoch, other.session)}) == 1

        await other.log.write(take, own_commit=True)
        await other.log.refresh()
        point.armed = False
        point.released.set()
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert isinstance(results[0], NotOwner)
        assert results[1].base_offset == 0
        sender = Sender(taken.partition)
        await send_all([sender], brokers, taken.topic_id, 1)  # whoever has it by now: they share it out again
        assert sender.acknowledged == {0: 0}


async def test_one_declared_dead_can_commit_nothing_at_all(databases, s3_store):
    url = databases.new_url()
    async with cluster([url, url], s3_store, lease=60_000) as (dead, heir):
        await shared_topic([dead, heir], partitions=2)
        topic_partition = owned(dead)[0]

        await heir.log.write(lambda tx: declare_dead(tx, dead.session), own_commit=True)
        for attempt in (
            dead.log.append(topic_partition, batch(b"x")),
            dead.log.create_topic("u", 1),
            dead.log.write(lambda tx: tx.rows("UPDATE counters SET next = next + 1 WHERE name = 'x'")),
        ):
            with pytest.raises(Fenced):
                await attempt
        await heir.log.refresh()
        assert topic_partition in owned(heir)
        assert await heir.read("t", partition=topic_partition.partition) == []


def declare_dead(tx, session):
    writers.mark_dead(tx, session, 1)
    topology.bump_version(tx)
    topology.adopt(tx)


@pytest.mark.parametrize("inline_bytes_max", [16 * 1024, 0], ids=["inline", "stored"])
async def test_a_commit_of_a_broker_declared_dead_meanwhile_is_refused(databases, s3_store, inline_bytes_max):
    """It is paused between its bytes and its commit; its heir appends at the same offsets."""
    point = Paused()
    url = databases.new_url()
    parts = [{"wrap_database": point.wrap}, {}]
    async with cluster([url, url], s3_store, parts=parts, inline_bytes_max=inline_bytes_max) as brokers:
        zombie, heir = brokers
        await shared_topic(brokers, partitions=2)
        topic_partition = owned(zombie)[0]
        assert (await zombie.log.append(topic_partition, batch(b"before"))).base_offset == 0
        point.armed = True
        late = [
            asyncio.create_task(zombie.log.append(topic_partition, batch(b"late %d" % n))) for n in range(3)
        ]
        await asyncio.to_thread(point.reached.wait, HOLD_SECONDS_MAX)
        await heir.log.write(lambda tx: declare_dead(tx, zombie.session), own_commit=True)
        await heir.log.refresh()
        await until(lambda: topic_partition in owned(heir))
        placed = [
            (await heir.log.append(topic_partition, batch(b"after %d" % n))).base_offset for n in range(3)
        ]
        assert placed == [1, 2, 3]
        stored_before = contents(heir)
        point.released.set()
        results = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(result, Fenced) for result in results), results
        with pytest.raises(MillpondError):
            await zombie.log.append(topic_partition, batch(b"again"))
        assert stored_before.items() <= contents(heir).items(), "the zombie has overwritten an object"
        values = [record.value for record in await heir.read("t", partition=topic_partition.partition)]
        assert values == [b"before", b"after 0", b"after 1", b"after 2"]
        assert (await zombie.failed()).facts["session"] == zombie.session
