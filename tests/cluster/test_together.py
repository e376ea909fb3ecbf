"""Upkeep by several brokers at once, and writing to partitions that others own."""

import asyncio

from tests.cluster.over_postgres import cluster, owned, shared_topic, until
from tests.cluster.workload import Running, Sender, check, read_all

from millpond import Record
from millpond.catalog import extents, topology, writers
from millpond.model.errors import MillpondError
from millpond.records import build_batch

PARTITIONS = 4
QUIET = {"lease": 30_000, "garbage_grace": 0}


def batch(value):
    return build_batch([Record(value)])


async def upkeep(broker):
    """Everything at once that a broker does beside serving; how much was done."""
    duties = broker.maintenance
    await broker.log.refresh()
    done = await asyncio.gather(
        duties.merging.run_once(),
        duties.garbage.run_once(),
        duties.retention.run_once(),
        duties.payloads.run_once(),
        duties.expire_once(),
        return_exceptions=True,
    )
    for each in done:
        assert not isinstance(each, BaseException) or (isinstance(each, MillpondError) and each.retriable), (
            each
        )
    return sum(each for each in done if isinstance(each, int))


async def test_two_brokers_may_clean_up_at_once_under_load(databases, s3_store, figures):
    """Even where both work on the same partitions, because one of them has just given some away."""
    url = databases.new_url()
    async with cluster([url, url], s3_store, inline_bytes_max=2_000, **QUIET) as brokers:
        topic = await shared_topic(brokers, partitions=PARTITIONS)
        senders = [Sender(number % PARTITIONS, pace_s=0.002, size=500) for number in range(8)]
        load = Running(senders, brokers, topic.id)
        done = 0
        for _ in range(6):
            await load.acknowledged(5)
            done += sum(await asyncio.gather(*(upkeep(each) for each in brokers)))
            await hand_all_over(brokers)
        await load.stop()
        acknowledged, unanswered, doubled = await check(brokers, "t", senders)
        assert (unanswered, doubled) == (0, 0)
        assert done > 0
        rows = (await brokers[0].log.read(extents.totals)).extents
        known = {row[0] for row in await brokers[0].log.read(lambda tx: tx.rows("SELECT key FROM objects"))}
        living = (
            "SELECT count(*) FROM extents e LEFT JOIN objects o ON o.id = e.object_id WHERE e.inline IS NULL"
        )
        lost = await brokers[0].log.read(lambda tx: tx.rows(f"{living} AND o.id IS NULL"))
        assert lost == [(0,)]
        assert known <= set(brokers[0].store.list("")), "an object that is needed was deleted"
    figures.append(
        f"upkeep by two brokers at once: {done} things done, acknowledged {acknowledged}, lost 0, {rows} extents left"
    )


async def hand_all_over(brokers):
    """Each gives what it has to the other, while it may still be merging it."""

    def swap(tx):
        topology.bump_version(tx)
        owners = topology.owners(tx)
        to = {brokers[0].session: brokers[1].session, brokers[1].session: brokers[0].session}
        for session in to:
            handovers = {w: (o.epoch, to[session]) for w, o in owners.items() if o.session == session}
            topology.hand_over(tx, session, handovers)

    await brokers[0].log.write(swap, own_commit=True)
    await asyncio.gather(*(each.log.refresh() for each in brokers))


async def test_what_a_dead_broker_left_unmerged_is_merged_by_its_heir(databases, s3_store):
    """Else each failover would leave a few flushes in the catalog for ever."""
    url = databases.new_url()
    async with cluster([url, url], s3_store, **QUIET) as (dead, heir):
        await shared_topic([dead, heir], partitions=2)
        topic_partition = owned(dead)[0]
        for number in range(40):
            await dead.log.append(topic_partition, batch(b"%d" % number))
        await heir.maintenance.merging.run_once()
        assert (await heir.log.read(extents.totals)).inline == 40, "it is the owner's to merge"

        def mark_dead(tx):
            writers.mark_dead(tx, dead.session, 1)
            topology.bump_version(tx)
            topology.adopt(tx)

        await heir.log.write(mark_dead, own_commit=True)
        await heir.log.refresh()
        await until(lambda: topic_partition in owned(heir))
        await heir.maintenance.merging.run_once()
        assert (await heir.log.read(extents.totals)).inline < 8
        assert heir.log._inline.total < 8 * 200
        values = [record.value for record in await heir.read("t", partition=topic_partition.partition)]
        assert values == [b"%d" % number for number in range(40)]


async def test_only_the_first_broker_collects_garbage_by_itself(databases, s3_store):
    url = databases.new_url()
    async with cluster([url, url], s3_store, **QUIET) as (first, second):
        await shared_topic([first, second], partitions=2)
        topic_partition = owned(first)[0]
        for _ in range(20):
            await first.log.append(topic_partition, batch(b"x" * 20_000))
        assert await first.maintenance.merging.run_once() == 20
        assert await second.maintenance.collect_if_first() == 0
        assert await first.maintenance.collect_if_first() == 20


async def test_a_joint_append_to_partitions_of_others_is_seen_by_their_owners_in_order(databases, s3_store):
    """As dead letters and redriven messages are written: by whoever has them, to whoever owns the target."""
    url = databases.new_url()
    async with cluster([url, url], s3_store, **QUIET) as brokers:
        topic = await shared_topic(brokers, partitions=2)
        writer, owner = brokers
        target, mine = owned(owner)[0], owned(writer)[0]
        senders = [Sender(target.partition, pace_s=0.001)]
        load = Running(senders, brokers, topic.id)
        placed = []
        for number in range(20):
            both = {target: batch(b"joint %d" % number), mine: batch(b"beside %d" % number)}
            results = await writer.log.append_jointly(both, lambda _: None)
            placed.append(results[target].base_offset)
            await load.acknowledged(1)
        await load.stop()
        await check(brokers, "t", senders)
        records = await read_all(brokers, "t", target.partition)
        assert placed == sorted(set(placed))
        assert [records[offset].value for offset in placed] == [b"joint %d" % number for number in range(20)]
        assert len(await read_all(brokers, "t", mine.partition)) == 20
