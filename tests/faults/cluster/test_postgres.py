"""PostgreSQL that restarts, is killed, hangs, or is lost at COMMIT, under two brokers (reliability test 11)."""

import asyncio
import time

import psycopg
import pytest
from tests.cluster.over_postgres import owned, shared_topic, until
from tests.cluster.workload import Running, Sender, check, send_all
from tests.faults.cluster.conftest import LEASE_MS, cluster

from millpond import Record
from millpond.model.errors import Fenced, MillpondError, UnsafeDatabase
from millpond.records import build_batch
from millpond.settings import Settings

PARTITIONS = 4
AROUND = 10
"""Answers that each sender must get before and after what happens."""


def senders():
    return [Sender(number % PARTITIONS, idempotent=number < PARTITIONS) for number in range(2 * PARTITIONS)]


async def suffer(postgres, s3_store, happen, **settings):
    """Two brokers under load while something happens to their catalog. Returns (figures, brokers' sessions kept)."""
    url = postgres.url(postgres.new_database())
    async with cluster([url, url], s3_store, **settings) as brokers:
        topic = await shared_topic(brokers, partitions=PARTITIONS)
        all_of_them = senders()
        load = Running(all_of_them, brokers, topic.id)
        await load.acknowledged(AROUND)
        await asyncio.to_thread(happen)
        await load.acknowledged(AROUND)
        await load.stop()
        acknowledged, unanswered, doubled = await check(brokers, "t", all_of_them)
        living = [each for each in brokers if not each._failure.done()]
        members = await brokers[0].cluster.status()
        assert living == brokers, "a broker that lives was declared dead"
        assert {each.session for each in members.brokers} == {each.session for each in brokers}
        refused = {name for each in all_of_them for name in each.refusals}
        window = max(each.longest_gap_s for each in all_of_them)
    return (
        f"acknowledged {acknowledged}, lost 0, idempotent duplicates 0, unanswered but stored {unanswered}, "
        f"other duplicates {doubled}, longest time without an answer {window:.2f} s, "
        f"refused with {', '.join(sorted(refused)) or 'nothing'}"
    )


async def test_a_restart_of_postgres_is_survived_by_all_brokers(postgres, s3_store, figures):
    figures.append(f"PostgreSQL restarted: {await suffer(postgres, s3_store, postgres.restart)}")


async def test_a_killed_postgres_loses_nothing(postgres, s3_store, figures):
    def kill():
        postgres.kill()
        postgres.start()

    figures.append(f"PostgreSQL killed: {await suffer(postgres, s3_store, kill)}")


@pytest.mark.parametrize("leases", [0.7, 1.5])
async def test_nobody_buries_the_other_after_a_pause_of_postgres(postgres, s3_store, figures, leases):
    """A pause that is nearly a lease is as bad as one that is longer: one lease may have run out, and not the other."""

    def pause():
        postgres.pause()
        time.sleep(leases * LEASE_MS / 1000)
        postgres.resume()

    figures.append(f"PostgreSQL paused for {leases} leases: {await suffer(postgres, s3_store, pause)}")


@pytest.mark.parametrize("away_s", [1.0, 5.0])
async def test_after_an_outage_the_brokers_find_back_by_themselves(postgres, s3_store, figures, away_s):
    def stop():
        postgres.stop("immediate")
        time.sleep(away_s)
        postgres.start()

    figures.append(f"PostgreSQL away for {away_s:.0f} s: {await suffer(postgres, s3_store, stop)}")


async def test_while_postgres_is_away_appends_are_refused_and_after_the_lease_before_they_are_buffered(
    postgres, s3_store, figures
):
    url = postgres.url(postgres.new_database())
    batch = build_batch([Record(b"x")], now_ms=1)
    async with cluster([url, url], s3_store) as brokers:
        await shared_topic(brokers, partitions=PARTITIONS)
        broker, topic_partition = brokers[0], owned(brokers[0])[0]
        assert (await broker.log.append(topic_partition, batch)).base_offset == 0
        postgres.stop("immediate")
        try:
            started = time.perf_counter()
            with pytest.raises(MillpondError) as refused:
                await broker.log.append(topic_partition, batch)
            refused_s = time.perf_counter() - started
            assert refused.value.retriable
            await until(lambda: not broker.lease.held)
            flushes = broker.log._flusher.flushes
            with pytest.raises(Fenced) as fenced:
                await broker.log.append(topic_partition, batch)
            assert fenced.value.retriable
            assert broker.log._flusher.flushes == flushes
            assert broker.log.held_bytes == 0
        finally:
            postgres.start()
        started = time.perf_counter()
        sender = Sender(topic_partition.partition, idempotent=False)
        await send_all([sender], brokers, topic_partition.topic_id, 1)
        back_s = time.perf_counter() - started
        assert sender.acknowledged == {0: 1}, "what was refused has got an offset"
    figures.append(
        f"PostgreSQL away: an append was refused after {refused_s:.2f} s, at once when the lease was over, "
        f"and taken {back_s:.2f} s after it was back"
    )


@pytest.mark.parametrize("kind", ["unsent", "unanswered", "raced"])
async def test_a_connection_cut_at_commit_gives_no_offset_twice(postgres, proxies, s3_store, figures, kind):
    database = postgres.new_database()
    mine, others = proxies(), proxies()
    async with cluster([mine.url(database), others.url(database)], s3_store) as brokers:
        topic = await shared_topic(brokers, partitions=PARTITIONS)
        all_of_them = senders()
        load = Running(all_of_them, brokers, topic.id)
        for _ in range(10):
            mine.cut_next(kind)
            others.cut_next(kind)
            await load.acknowledged(3)
        await load.stop()
        acknowledged, unanswered, doubled = await check(brokers, "t", all_of_them)
        assert not any(each._failure.done() for each in brokers)
        cuts = mine.cuts + others.cuts
        assert cuts >= 10
        refused = sum(len(each.refusals) for each in all_of_them)
    figures.append(
        f"cut at COMMIT ({kind}): {cuts} cuts, acknowledged {acknowledged}, lost 0, idempotent duplicates 0, "
        f"unanswered but stored {unanswered}, other duplicates {doubled}, {refused} refusals"
    )


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_postgres_that_may_lose_commits_is_refused(postgres, s3_store, setting):
    database = postgres.new_database()
    postgres.rows("postgres", f"ALTER SYSTEM SET {setting} = off")
    postgres.rows("postgres", "SELECT pg_reload_conf()")
    try:
        await until(lambda: postgres.rows("postgres", f"SHOW {setting}") == [("off",)])
        await refused(postgres.url(database), s3_store, setting)
    finally:
        postgres.rows("postgres", f"ALTER SYSTEM RESET {setting}")
        postgres.rows("postgres", "SELECT pg_reload_conf()")
        await until(lambda: postgres.rows("postgres", f"SHOW {setting}") == [("on",)])


async def refused(url, store, setting):
    with pytest.raises(UnsafeDatabase) as error:
        async with cluster([url], store):
            pass
    assert error.value.facts == {"setting": setting, "value": "off"}
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('partitions')").fetchone() == (None,), (
            "it wrote a schema"
        )
    assert Settings(catalog=url).catalog == url
