"""A broker that is paused between looking at its lease and committing (reliability test 4)."""

import asyncio
import time

import psycopg
import pytest
from tests.cluster.failpoints import HOLD_SECONDS_MAX, Paused, StoppingDatabase
from tests.cluster.over_postgres import owned, shared_topic, until
from tests.faults.cluster.conftest import cluster

from millpond import Record
from millpond.catalog import topology
from millpond.model.errors import Fenced, MillpondError, NotOwner, Unavailable
from millpond.records import build_batch

LONGER_MS = 6_000
"""A lease that is not lost because this process was not run for a second or two."""


def batch(value):
    return build_batch([Record(value)], now_ms=1)


@pytest.mark.parametrize("inline_bytes_max", [16 * 1024, 0], ids=["inline", "stored"])
async def test_a_commit_after_a_pause_longer_than_the_lease_is_refused(
    databases, s3_store, figures, inline_bytes_max
):
    point = Paused()
    url = databases.new_url()
    parts = [{"wrap_database": point.wrap}, {}]
    async with cluster([url, url], s3_store, parts=parts, inline_bytes_max=inline_bytes_max) as brokers:
        zombie, heir = brokers
        topic = await shared_topic(brokers, partitions=2)
        topic_partition = owned(zombie)[0]
        assert (await zombie.log.append(topic_partition, batch(b"before"))).base_offset == 0
        point.armed = True
        late = [
            asyncio.create_task(zombie.log.append(topic_partition, batch(b"late %d" % n))) for n in range(3)
        ]
        await asyncio.to_thread(point.reached.wait, HOLD_SECONDS_MAX)
        await until(lambda: topic_partition in owned(heir))
        placed = [
            (await heir.log.append(topic_partition, batch(b"after %d" % n))).base_offset for n in range(3)
        ]
        assert placed == [1, 2, 3]
        stored_before = contents(heir)
        point.released.set()
        results = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(result, Fenced) for result in results), results
        with pytest.raises(NotOwner):
            await zombie.log.append(topic_partition, batch(b"again"))
        assert stored_before.items() <= contents(heir).items(), "the zombie has overwritten an object"
        values = [record.value for record in await heir.read("t", partition=topic_partition.partition)]
        assert values == [b"before", b"after 0", b"after 1", b"after 2"]
        assert (await zombie.failed()).facts["session"] == zombie.session
        assert len(await heir.log.read(lambda tx: topology.read(tx).partitions)) == topic.partitions
    way = "inline" if inline_bytes_max else "stored"
    figures.append(
        f"pause before the commit ({way}): {len(late)} zombie appends, refused {len(late)}, lost 0"
    )


def contents(broker):
    """Every object's bytes."""
    return {key: broker.store.read(key, 0, broker.store.size(key)) for key in broker.store.list("")}


async def test_one_stopped_in_the_middle_of_a_commit_does_not_keep_what_it_has_locked(
    databases, s3_store, figures
):
    point = Paused()
    url = databases.new_url()
    parts = [{"wrap_database": lambda database: StoppingDatabase(database, point)}, {}]
    async with cluster([url, url], s3_store, parts=parts) as (zombie, heir):
        await shared_topic([zombie, heir], partitions=2)
        topic_partition = owned(zombie)[0]
        point.armed = True
        late = asyncio.create_task(zombie.log.append(topic_partition, batch(b"late")))
        await asyncio.to_thread(point.reached.wait, HOLD_SECONDS_MAX)
        started = time.perf_counter()
        await until(lambda: topic_partition in owned(heir))
        taken_s = time.perf_counter() - started
        assert (await heir.log.append(topic_partition, batch(b"mine"))).base_offset == 0
        point.armed = False
        point.released.set()
        with pytest.raises(Fenced):
            await late
        assert [record.value for record in await heir.read("t", partition=topic_partition.partition)] == [
            b"mine"
        ]
    figures.append(f"stopped inside a commit, its rows locked: taken over after {taken_s:.1f} s")


async def test_who_needs_what_a_paused_broker_has_locked_keeps_its_own_lease(databases, s3_store, figures):
    """A commit may hold rows of others' partitions: messages for several owners, the markers of a transaction."""
    url = databases.new_url()
    async with cluster([url, url], s3_store, lease=LONGER_MS) as brokers:
        await shared_topic(brokers, partitions=4)
        locked, free = sorted(owned(brokers[0]))
        answers = {locked: [], free: []}
        async with await psycopg.AsyncConnection.connect(url) as paused:
            await paused.execute(
                "UPDATE partitions SET bytes = bytes WHERE topic_id = %s AND partition = %s", tuple(locked)
            )
            until_ms = time.monotonic() * 1000 + 1.5 * LONGER_MS
            while time.monotonic() * 1000 < until_ms:
                for topic_partition, found in answers.items():
                    found.append(await refusal(brokers[0].log.append(topic_partition, batch(b"x"))))
                    assert brokers[0].lease.held
                    await asyncio.sleep(0.25)  # after a failure everything is refused for a moment
            assert all(isinstance(each, Unavailable) for each in answers[locked]), answers
            assert None in answers[free]
            await paused.rollback()
        assert not any(each._failure.done() for each in brokers), "somebody was declared dead"
        await until_taken(brokers[0], locked)
    figures.append(
        f"rows locked by a broker that is paused: {len(answers[locked])} appends refused, retriably, no lease lost"
    )


async def refusal(appending):
    try:
        await appending
    except MillpondError as error:
        return error


async def until_taken(broker, topic_partition):
    async with asyncio.timeout(20):
        while await refusal(broker.log.append(topic_partition, batch(b"after"))) is not None:
            await asyncio.sleep(0.05)
