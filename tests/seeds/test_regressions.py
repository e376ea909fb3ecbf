"""Bugs that were reproduced in the seed projects (M1 to M5, L1, L2, L4, L5): each must not be ours."""

import asyncio
import os
import shutil
from pathlib import Path

import apsw
import pytest

from millpond import Record
from millpond.catalog import appends, extents
from millpond.model.errors import (
    CatalogUnavailable,
    InvalidTopicName,
    OffsetOutOfRange,
    RecordTooLarge,
    StoreUnavailable,
    UnknownTopic,
)
from millpond.records import build_batch
from millpond.testing import Faults, SimulatedClock, running_broker

LARGE = 20_000
"""More than rides in the catalog: a flush of it goes to the journal file."""


async def read_all(broker, topic, partition=0):
    topic_partition = broker.log.topics.partition(topic, partition)
    offset, records = broker.log.partition(topic_partition).log_start, []
    while more := await broker.read(topic, offset, partition=partition):
        records += more
        offset = more[-1].offset + 1
    assert offset == broker.log.partition(topic_partition).end_offset
    return records


def values(records):
    return [(record.offset, record.value) for record in records]


def everything_below(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


async def test_m1_expiring_across_many_objects_leaves_every_later_message_readable(tmp_path, figures):
    """Twelve objects of four kinds of size; after each expiry a poll, and after each a restart and a poll."""
    clock = SimulatedClock()
    objects = 12
    sizes = [10, LARGE, 100, 1_200_000]
    expected = []
    for number in range(objects):
        async with running_broker(
            tmp_path, clock=clock, retention=60_000, max_message_bytes=2_000_000
        ) as broker:
            value = bytes([number]) * sizes[number % 4]
            offset = (await broker.produce("topic", value)).base_offset
            expected.append((offset, value))
            if number == 5:
                await broker.maintenance.merging.run_once()
        clock.advance(1_000)
    clock.advance(60_000 - objects * 1_000)
    for gone in range(1, objects + 1):
        clock.advance(1_000)
        async with running_broker(tmp_path, clock=clock, retention=60_000, garbage_grace=0) as broker:
            await broker.maintenance.retention.run_once()
            await broker.maintenance.garbage.run_once()
            assert values(await read_all(broker, "topic")) == expected[gone:]
        async with running_broker(tmp_path, clock=clock, retention=600_000) as broker:
            assert values(await read_all(broker, "topic")) == expected[gone:]
            if gone < objects:
                with pytest.raises(OffsetOutOfRange):
                    await broker.read("topic", gone - 1)
    async with running_broker(tmp_path, clock=clock, retention=60_000, garbage_grace=0) as broker:
        assert (await broker.produce("topic", b"next")).base_offset == objects
        clock.advance(2)
        await broker.maintenance.garbage.run_once()
        assert list(broker.store.list("")) == []
    figures.append(f"M1: {objects} objects expired one by one, a poll and a restart after each, lost 0")


@pytest.mark.parametrize("name", ["a/b", "/a", "a/", "a\\b", "~", "a:b", "a*", "con\x00", " ", "a\tb"])
async def test_m2_a_name_that_cannot_be_stored_is_refused_and_nothing_seems_to_succeed(tmp_path, name):
    async with running_broker(tmp_path) as broker:
        with pytest.raises(InvalidTopicName, match="is not valid"):
            await broker.produce(name, b"x")
        with pytest.raises(UnknownTopic):
            await broker.read(name)


@pytest.mark.parametrize(
    "name", ["index", "journal", "segments", "catalog.db", "broker.lock", "objects", "meta"]
)
async def test_m2_names_that_files_bear_are_names_like_any_other(tmp_path, name):
    async with running_broker(tmp_path) as broker:
        await broker.produce(name, b"small")
        await broker.produce(name, bytes(LARGE))
    async with running_broker(tmp_path) as broker:
        assert values(await read_all(broker, name)) == [(0, b"small"), (1, bytes(LARGE))]


@pytest.mark.parametrize("name", ["../x", "..", "../../x", "/tmp/x", "a/../../x", "..\\x", "%2e%2e%2fx"])
async def test_m3_a_topic_name_never_leaves_the_data_directory(tmp_path, name):
    data = tmp_path / "inner" / "data"
    async with running_broker(data) as broker:
        with pytest.raises(InvalidTopicName):
            await broker.produce(name, bytes(LARGE))
        await broker.produce("legal", bytes(LARGE))
    assert all(data in path.parents for path in everything_below(tmp_path))


async def test_m3_names_never_reach_a_path(tmp_path):
    async with running_broker(tmp_path) as broker:
        for name in ("my.topic", "...", "..x"):
            await broker.produce(name, bytes(LARGE))
            for number in range(9):
                await broker.produce(name, b"%d" % number)
        await broker.maintenance.merging.run_once()
    names = " ".join(str(path.relative_to(tmp_path)) for path in everything_below(tmp_path))
    assert "topic" not in names
    assert "..x" not in names


async def test_m4_cutting_the_journals_unreferenced_tail_at_every_byte_loses_nothing(tmp_path, figures):
    """What a crash leaves behind the last acknowledged byte: any prefix of the next flush, garbage, holes."""
    source = tmp_path / "source"
    async with running_broker(source, inline_bytes_max=0) as broker:
        for number in range(3):
            await broker.produce("topic", b"acknowledged %d" % number)
        shutil.copytree(source, tmp_path / "before")
        await broker.produce("topic", b"the flush that the crash interrupts")
        [journal] = (source / "objects" / "journal").rglob("00000000*")
        tail = journal.read_bytes()
        name = journal.relative_to(source)
    acknowledged = (tmp_path / "before" / name).stat().st_size
    tails = [tail[:cut] for cut in range(acknowledged, len(tail) + 1)]
    tails += [tail[:acknowledged] + noise for noise in (os.urandom(1), os.urandom(5_000), bytes(5_000))]
    for number, content in enumerate(tails):
        await check_survivor(tmp_path / "before", tmp_path / f"cut-{number}", {name: content}, 3)
    figures.append(f"M4: journal tail cut at {len(tails)} places, acknowledged 3 each time, lost 0")


@pytest.mark.parametrize("keep_shared_memory", [True, False], ids=["killed", "power lost"])
async def test_m4_cutting_the_catalogs_write_ahead_log_behind_its_last_commit_loses_nothing(
    tmp_path, figures, keep_shared_memory
):
    """A commit that was not answered may be there or not; those before it must be."""
    source = tmp_path / "source"
    async with running_broker(source) as broker:
        for number in range(3):
            await broker.produce("topic", b"acknowledged %d" % number)
        shutil.copytree(source, tmp_path / "before")
        await broker.produce("topic", b"the commit that the crash interrupts")
        wal = (source / "catalog.db-wal").read_bytes()
    acknowledged = (tmp_path / "before" / "catalog.db-wal").stat().st_size
    assert len(wal) > acknowledged
    if not keep_shared_memory:
        (tmp_path / "before" / "catalog.db-shm").unlink()
    cuts = sorted(
        {*range(acknowledged, len(wal), 397), *range(acknowledged, len(wal), 4_096), len(wal) - 1, len(wal)}
    )
    tails = [wal[:cut] for cut in cuts]
    tails += [wal[:acknowledged] + noise for noise in (os.urandom(10_000), bytes(10_000))]
    tails += [wal[:acknowledged] + b"\0" * 4_120 + wal[acknowledged + 4_120 :]]
    found = [
        await check_survivor(tmp_path / "before", tmp_path / f"cut-{n}", {Path("catalog.db-wal"): content}, 3)
        for n, content in enumerate(tails)
    ]
    assert set(found) == {3, 4}
    kind = "kept" if keep_shared_memory else "lost"
    figures.append(f"M4: WAL cut at {len(tails)} places (index {kind}), acknowledged 3 each time, lost 0")


async def check_survivor(before, copy, contents, acknowledged):
    """Start on the state a crash left: everything acknowledged is there, and the numbers go on after it."""
    shutil.copytree(before, copy)
    for name, content in contents.items():
        (copy / name).write_bytes(content)
    async with running_broker(copy) as broker:
        records = await read_all(broker, "topic")
        expected = [(n, b"acknowledged %d" % n) for n in range(acknowledged)]
        assert values(records)[:acknowledged] == expected
        assert all(b"crash interrupts" in record.value for record in records[acknowledged:])
        assert (await broker.produce("topic", b"next")).base_offset == len(records)
        assert len(await read_all(broker, "topic")) == len(records) + 1
    shutil.rmtree(copy)
    return len(records)


class Work:
    """What the catalog's writer does: statements, the steps of SQLite's virtual machine, rows scanned."""

    def __init__(self, broker):
        self.statements = self.steps = self.scans = 0
        self._broker = broker

    async def __aenter__(self):
        await self._trace(apsw.SQLITE_TRACE_PROFILE, self._profile)
        return self

    async def __aexit__(self, *_):
        await self._trace(0, None)

    async def _trace(self, mask, callback):
        """From the thread that writes: another one might find the connection busy."""
        connection = self._broker.database._writer
        await self._broker.log.write(lambda tx: connection.trace_v2(mask, callback))

    def _profile(self, event):
        if event["sql"].lower().startswith("pragma"):
            return  # the look for other processes' commits goes by the clock, not by appends
        status = event["stmt_status"]
        self.statements += 1
        self.steps += status["SQLITE_STMTSTATUS_VM_STEP"]
        self.scans += status["SQLITE_STMTSTATUS_FULLSCAN_STEP"]


WINDOWS, APPENDS = 8, 5


@pytest.mark.parametrize("size", [100, LARGE], ids=["inline", "file"])
async def test_m5_an_append_costs_the_same_at_message_fifty_thousand_as_at_one_thousand(
    tmp_path, figures, size
):
    """Counted, not timed. Each message is an extent of its own, which is as many rows as there can be. Of several
    counts the least: now and then a broker also looks after itself."""
    measured = {}
    async with running_broker(tmp_path) as broker:
        await broker.log.create_topic("topic", 1)
        topic_partition = broker.log.topics.partition("topic", 0)
        for messages in (1_000, 50_000):
            await fill(broker, topic_partition, messages)
            await broker.produce("topic", bytes(size))  # the first of a session opens its journal
            measured[messages] = min([await work_of(broker, size) for _ in range(WINDOWS)], key=cost)
    few, many = measured[1_000], measured[50_000]
    assert (many.statements, many.scans) == (few.statements, few.scans)
    assert many.steps <= few.steps * 1.02
    figures.append(
        f"M5: {'inline' if size == 100 else 'file'} append at 1k / 50k messages: "
        f"{few.statements / APPENDS:.1f} / {many.statements / APPENDS:.1f} statements, "
        f"{few.steps / APPENDS:.0f} / {many.steps / APPENDS:.0f} steps"
    )


async def work_of(broker, size):
    async with Work(broker) as work:
        for _ in range(APPENDS):
            await broker.produce("topic", bytes(size))
    return work


def cost(work):
    return work.statements, work.steps


async def fill(broker, topic_partition, messages):
    """Bring the partition to this many messages, an extent each, in few transactions."""
    batch = build_batch([Record(b"x")], now_ms=broker.clock.now_ms())
    share = appends.AppendShare(topic_partition, appends.FOREIGN, 0, len(batch), 1, 0, 0, inline=batch)
    missing = messages - broker.log.partition(topic_partition).end_offset
    for start in range(0, missing, 5_000):
        count = min(5_000, missing - start)

        def add(tx, count=count):
            for _ in range(count):
                appends.append(tx, [share], None, now_ms=0)

        await broker.log.write(add)
    await broker.log.refresh()


async def test_l1_a_restart_never_gives_an_offset_twice(tmp_path):
    clock = SimulatedClock()
    following = 0
    for life in range(8):
        async with running_broker(tmp_path, clock=clock, retention=1_000, garbage_grace=0) as broker:
            for size in (1, LARGE):
                assert (await broker.produce("topic", bytes(size))).base_offset == following
                following += 1
            topic_partition = broker.log.topics.partition("topic", 0)
            if life == 2:
                await broker.log.delete_records(topic_partition, -1)
            if life in (4, 5):
                clock.advance(100_000)
                await broker.maintenance.retention.run_once()
            if life >= 4:
                clock.advance(10)
                await broker.maintenance.garbage.run_once()
            expected = following - broker.log.partition(topic_partition).log_start
            assert len(await read_all(broker, "topic")) == expected
        if life in (2, 5):
            async with running_broker(tmp_path, clock=clock) as broker:
                assert await read_all(broker, "topic") == []


async def test_l1_a_topic_made_again_under_its_name_is_another_topic(tmp_path):
    async with running_broker(tmp_path) as broker:
        await broker.produce("topic", b"old", bytes(LARGE))
        await broker.log.delete_topic("topic")
        with pytest.raises(UnknownTopic):
            await broker.read("topic")
    async with running_broker(tmp_path) as broker:
        assert (await broker.produce("topic", b"new")).base_offset == 0
        await broker.maintenance.garbage.run_once()
        assert values(await read_all(broker, "topic")) == [(0, b"new")]


async def test_l2_an_oversized_record_fails_only_its_sender(tmp_path):
    """All in one flush: the first append keeps the writer busy while the others gather."""
    async with running_broker(tmp_path, max_message_bytes=50_000) as broker:
        await broker.log.create_topic("topic", 2)
        flushes = broker.log._flusher.flushes
        first = asyncio.create_task(broker.produce("topic", b"first"))
        await asyncio.sleep(0)
        results = await asyncio.gather(
            *(broker.produce("topic", b"before %d" % n, partition=n % 2) for n in range(10)),
            broker.produce("topic", bytes(50_000)),
            *(broker.produce("topic", b"after %d" % n, partition=n % 2) for n in range(10)),
            return_exceptions=True,
        )
        await first
        assert broker.log._flusher.flushes == flushes + 2
        refused = [result for result in results if isinstance(result, Exception)]
        assert [type(error) for error in refused] == [RecordTooLarge]
        assert "limit of 50000" in str(refused[0])
        assert [len(await read_all(broker, "topic", n)) for n in (0, 1)] == [11, 10]


async def test_l4_a_torn_tail_is_ignored_by_every_fetch_and_goes_with_its_file(tmp_path):
    clock = SimulatedClock()
    async with running_broker(tmp_path, clock=clock, inline_bytes_max=0) as broker:
        await broker.produce("topic", b"whole")
    [journal] = (tmp_path / "objects" / "journal").rglob("00000000*")
    with journal.open("ab") as file:
        file.write(b"torn" * 3_000)
    orphan = journal.with_name("0000000000000077")
    orphan.write_bytes(b"a flush without a row")
    for _ in range(2):
        async with running_broker(tmp_path, clock=clock, retention=1_000, garbage_grace=0) as broker:
            assert values(await read_all(broker, "topic")) == [(0, b"whole")]
            await broker.maintenance.garbage.run_once()
            assert not orphan.exists()
            assert journal.exists()
    async with running_broker(tmp_path, clock=clock, retention=1_000, garbage_grace=0) as broker:
        clock.advance(10_000)
        await broker.maintenance.retention.run_once()
        clock.advance(1)
        await broker.maintenance.garbage.run_once()
        assert not journal.exists()


async def test_l4_the_journal_of_a_living_writer_is_never_taken(tmp_path):
    clock = SimulatedClock()
    async with running_broker(tmp_path, clock=clock, inline_bytes_max=0, garbage_grace=0) as broker:
        await broker.produce("topic", b"one")
        await broker.log.delete_records(broker.log.topics.partition("topic", 0), -1)
        clock.advance(10**9)
        await broker.maintenance.garbage.run_once()
        assert (await broker.produce("topic", b"two")).base_offset == 1
        assert values(await read_all(broker, "topic")) == [(1, b"two")]
    async with running_broker(tmp_path, clock=clock) as broker:
        assert values(await read_all(broker, "topic")) == [(1, b"two")]


@pytest.mark.parametrize("size", [10, LARGE], ids=["inline", "file"])
async def test_l5_a_failed_commit_is_a_failed_produce_and_nothing_is_visible(tmp_path, monkeypatch, size):
    async with running_broker(tmp_path) as broker:
        await broker.produce("topic", b"before")
        waiting = asyncio.create_task(broker.read("topic", 1, wait_ms=300))
        real = broker.log.writer._committer._attempt

        def fail(operations, token):
            real_insert = extents.insert

            def refuse(tx, rows):
                real_insert(tx, rows)
                raise CatalogUnavailable(reason="the commit fails at its very end")

            monkeypatch.setattr(extents, "insert", refuse)
            try:
                return real(operations, token)
            finally:
                monkeypatch.setattr(extents, "insert", real_insert)

        monkeypatch.setattr(broker.log.writer._committer, "_attempt", fail)
        with pytest.raises(CatalogUnavailable, match="at its very end"):
            await broker.produce("topic", bytes(size))
        monkeypatch.undo()
        assert await waiting == []
        await asyncio.sleep(0.25)
        assert (await broker.produce("topic", b"after")).base_offset == 1
        assert values(await read_all(broker, "topic")) == [(0, b"before"), (1, b"after")]
    async with running_broker(tmp_path) as broker:
        assert values(await read_all(broker, "topic")) == [(0, b"before"), (1, b"after")]


async def test_l5_a_store_that_refuses_is_a_failed_produce_and_nothing_is_visible():
    faults = Faults()
    async with running_broker(faults=faults, inline_bytes_max=0) as broker:
        await broker.produce("topic", b"before")
        for fail in (faults.fail_before, faults.fail_after):
            fail("append")
            with pytest.raises(StoreUnavailable) as refused:
                await broker.produce("topic", b"never")
            assert refused.value.retriable
            await asyncio.sleep(0.25)
        assert (await broker.produce("topic", b"after")).base_offset == 1
        assert values(await read_all(broker, "topic")) == [(0, b"before"), (1, b"after")]
