"""What a second review found, each with the history that showed it."""

import asyncio
import threading
from contextlib import suppress

import apsw
import pytest

from millpond.broker import Broker
from millpond.catalog import partitions, transactions
from millpond.log import FetchRequest
from millpond.log.log import Log
from millpond.model.errors import (
    CatalogUnavailable,
    Defect,
    FlushFailed,
    Stopping,
    StoreUnavailable,
    UnknownTopic,
)
from millpond.model.ids import TopicId, TopicPartition
from millpond.settings import Settings

DIRECT = {"inline_bytes_max": 0}
IN_MEMORY = Settings(catalog="memory://", store="memory://")


def refuse_upload(_):
    raise StoreUnavailable(reason="gone")


def ours():
    return {each for each in threading.enumerate() if each.name.startswith("millpond")}


async def reached(hold):
    await asyncio.to_thread(hold.wait_reached, 20)


async def outcomes(futures):
    results = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 5)
    return [getattr(result, "base_offset", type(result)) for result in results]


async def test_a_repeat_never_gets_the_answer_of_another_epochs_batch(start):
    """Epoch 0 and epoch 1 both have a sequence 0 in flight; only the first is stored."""
    engine = await start(**DIRECT)
    hold = engine.faults.hold("append")
    old = await engine.submit(b"old", producer=(7, 0, 0))
    await reached(hold)
    engine.faults.fail_before("append")
    new, again = [await engine.submit(b"new", producer=(7, 1, 0)) for _ in range(2)]
    hold.release()
    assert await outcomes([old, new, again]) == [0, StoreUnavailable, StoreUnavailable]
    assert await engine.values() == [b"old"]


async def test_an_error_nobody_foresaw_does_not_end_the_writer(start, tmp_path):
    engine = await start(tmp_path)
    asked = threading.Event()

    def fail():
        asked.set()
        raise apsw.ProtocolError("locking protocol")

    engine.broker.database._data_version = fail
    await asyncio.to_thread(asked.wait, 5)
    assert (await asyncio.wait_for(engine.append(b"x"), 5)).base_offset == 0


@pytest.mark.parametrize(
    "operation", [lambda tx: object(), lambda tx: {}["missing"]], ids=["no json", "a bug"]
)
async def test_an_operation_with_a_bug_fails_alone(engine, operation):
    hold = engine.faults.hold("append")
    first = asyncio.ensure_future(engine.append(b"x" * 20_000))
    await reached(hold)
    buggy = asyncio.ensure_future(engine.log.write(operation))
    good = asyncio.ensure_future(engine.log.write(lambda tx: 42))
    behind = asyncio.ensure_future(engine.append(b"y"))
    await asyncio.sleep(0.01)
    hold.release()
    with pytest.raises(Defect):
        await buggy
    assert await good == 42
    assert [(await task).base_offset for task in (first, behind)] == [0, 1]


async def test_a_catalog_value_that_is_no_json_is_a_defect_and_harms_nothing(engine):
    with pytest.raises(Defect):
        await engine.log.write(lambda tx: transactions.begin_producer(tx, "t", 1_000, now_ms=1))
    assert engine.rows("SELECT count(*) FROM transactions") == [(0,)]


async def test_a_free_upload_slot_is_used_while_another_upload_is_slow(start):
    engine = await start(uploads=True, **DIRECT, partitions=2, flush_bytes=1, uploads_max=2)
    slow, quick = engine.faults.hold("append"), engine.faults.hold("append")
    first = await engine.submit(b"first")
    await reached(slow)
    second = await engine.submit(b"second")
    await reached(quick)
    elsewhere = await engine.submit(b"elsewhere", partition=1)
    quick.release()
    assert await outcomes([elsewhere]) == [0]
    slow.release()
    assert await outcomes([first, second]) == [0, 1]


async def test_one_small_append_behind_a_slow_upload_leaves_the_catalog_to_the_others(start):
    engine = await start(uploads=True, partitions=2, flush_delay=20, inline_bytes_max=1_000)
    slow = engine.faults.hold("append")
    large = await engine.submit(b"x" * 2_000)
    await reached(slow)
    behind = await engine.submit(b"small, but held up")
    await asyncio.sleep(0.1)
    engine.faults.fail_before("append")  # a small append elsewhere needs no upload
    assert await outcomes([await engine.submit(b"small", partition=1)]) == [0]
    slow.release()
    assert await outcomes([large, behind]) == [0, 1]


async def test_an_object_whose_rest_fails_is_sealed_all_the_same(start):
    engine = await start(uploads=True, **DIRECT, partitions=2, flush_delay=20)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"first")
    await reached(slow)
    behind, free = await engine.submit(b"behind"), await engine.submit(b"free", partition=1)
    assert await outcomes([free]) == [0]
    store = engine.broker.store._store
    store.append, append = refuse_upload, store.append
    slow.release()
    assert await outcomes([first, behind]) == [StoreUnavailable, FlushFailed]
    store.append = append
    await engine.log.delete_records(engine.where(1), -1)
    rows = engine.rows("SELECT extents, sealed FROM objects WHERE extents = 0")
    assert rows
    assert all(sealed for _, sealed in rows)


async def test_what_cannot_be_merged_leaves_no_segments_behind(engine):
    for number in range(12):
        await engine.append(b"%d" % number)
    committer = engine.log.writer._committer
    tries = committer.tries

    def refuse(_):
        raise CatalogUnavailable(reason="read-only")

    committer.tries = refuse
    for _ in range(3):
        with pytest.raises(CatalogUnavailable):
            await engine.broker.maintenance.merging.run_once()
    committer.tries = tries
    assert list(engine.broker.store.list("segments/")) == []


async def test_retention_by_size_leaves_alone_what_a_deletion_under_way_accounts_for(start):
    """The log start has moved, the bytes have not: they must not be taken from what remains."""
    engine = await start(topic=False)
    await engine.topic(**{"retention.bytes": "10500"})
    for _ in range(20):
        await engine.append(b"x" * 930)
    await engine.log.write(lambda tx: partitions.advance_log_start(tx, engine.where(), 10))
    retention, config = engine.broker.maintenance.retention, engine.log.topics.config(engine.topic_id)
    assert retention._find_line(engine.where(), config, engine.clock.now_ms())[0] == 10


async def test_producers_that_expired_leave_memory_too(engine):
    for number in range(5):
        await engine.append(b"x", producer=(number, 0, 0))
    engine.clock.advance(8 * 86_400_000)
    engine.broker.maintenance.retention._guard._difference = (
        engine.clock.now_ms() - engine.clock.monotonic_ms()
    )
    assert await engine.broker.maintenance.expire_once() == 5
    sequences = engine.partition().sequences
    assert (sequences._committed, sequences._expected) == ({}, {})
    assert (await engine.append(b"y", producer=(1, 0, 1))).base_offset == 5


async def test_errors_that_are_raised_again_keep_no_old_tracebacks(start, limited):
    limited(refuse_ms=60_000)
    engine = await start(**DIRECT, topic=True)
    engine.faults.fail_before("append")
    with suppress(StoreUnavailable):
        await engine.append(b"x")
    raised = []
    for _ in range(3):
        with pytest.raises(StoreUnavailable) as caught:
            await engine.append(b"x")
        raised.append(caught.value)
    assert len({id(error) for error in raised}) == 3


async def test_an_unknown_partition_fails_alone_in_a_fetch(engine):
    await engine.append(b"x")
    unknown = TopicPartition(TopicId(b"?" * 16), 0)
    requests = [FetchRequest(unknown, 0, 1_000), FetchRequest(engine.where(), 0, 1_000)]
    missing, found = await engine.log.fetch(requests, bytes_max=1_000)
    assert isinstance(missing.error, UnknownTopic)
    assert found.size > 0


async def test_a_start_that_fails_leaves_no_thread_running(monkeypatch):
    async def fail(_):
        raise CatalogUnavailable(reason="not today")

    monkeypatch.setattr(Log, "refresh", fail)
    before = ours()
    with pytest.raises(CatalogUnavailable):
        await Broker(IN_MEMORY).start()
    assert ours() <= before


async def test_a_stop_that_was_cancelled_goes_on_and_may_be_awaited_again(start, tmp_path):
    engine = await start(tmp_path, **DIRECT)
    hold = engine.faults.hold("append")
    answer = await engine.submit(b"x")
    await reached(hold)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine.broker.stop(), 0.05)
    assert engine.broker._lock is not None, "the directory is still ours"
    hold.release()
    await engine.broker.stop()
    assert (await answer).base_offset == 0
    assert engine.broker._lock is None


async def test_after_a_stop_reads_are_refused_in_so_many_words(start):
    engine = await start(tail_bytes_max=0)
    await engine.append(b"x")
    await engine.broker.stop()
    assert isinstance((await engine.fetch(0)).error, Stopping)
    with pytest.raises(Stopping):
        await engine.log.read(lambda tx: None)
