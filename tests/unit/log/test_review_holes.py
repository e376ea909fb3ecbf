"""One test for each hole that a review of the design found. Each name says the hole."""

import asyncio
import random
import subprocess
import sys

import pytest

from millpond.catalog import appends, transactions, writers
from millpond.catalog.commits import Committer
from millpond.model.errors import (
    FlushFailed,
    InvalidTransactionState,
    OutOfOrderSequence,
    StoreUnavailable,
    Unavailable,
    WriterDead,
)
from millpond.model.ids import new_session
from millpond.objects.open import open_store
from millpond.records import iter_records
from millpond.segments.frame import pack_frame
from millpond.testing import Hold, SimulatedClock
from millpond.testing.faults import Fault

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
DIRECT = {"inline_bytes_max": 0, "flush_bytes": 1}
"""Every append is a flush of its own, through the store."""


async def reached(hold):
    await asyncio.to_thread(hold.wait_reached, 20)


def hold_and_fail(faults):
    hold = Hold()
    faults._add("append", Fault(hold_before=hold, before=StoreUnavailable(reason="torn")), 1)
    return hold


async def send_in_order(engine, values):
    """A client with five requests in flight, as librdkafka and Java do it: what fails retriably is sent again,
    in order, with its own sequence; nothing newer before it."""
    done = 0
    while done < len(values):
        window = []
        for number in range(done, min(done + 5, len(values))):
            try:
                window.append(await engine.submit(values[number], producer=(7, 0, number)))
            except (Unavailable, OutOfOrderSequence):
                break
        answers = await asyncio.gather(*window, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Exception):
                assert isinstance(answer, Unavailable), answer
                break
            assert answer.base_offset == done
            done += 1
        else:
            continue
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
async def test_a_failed_flush_with_later_ones_of_its_producer_in_flight_keeps_order_and_duplicates_nothing(
    start, uploads
):
    engine = await start(uploads=uploads, **DIRECT)
    failing = hold_and_fail(engine.faults)
    answers = [await engine.submit(b"0", producer=(7, 0, 0))]
    await reached(failing)
    answers += [await engine.submit(b"%d" % n, producer=(7, 0, n)) for n in (1, 2)]
    failing.release()
    found = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnavailable, FlushFailed, FlushFailed]
    assert all(each.retriable for each in found)
    await asyncio.sleep(0.25)
    with pytest.raises(OutOfOrderSequence):
        await engine.submit(
            b"1", producer=(7, 0, 1)
        )  # it was in the client's pipe when the failure became known
    for number in range(3):
        assert (await engine.append(b"%d" % number, producer=(7, 0, number))).base_offset == number
    assert (await engine.append(b"1", producer=(7, 0, 1))).base_offset == 1
    assert await engine.values() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
async def test_a_store_that_fails_at_random_neither_reorders_nor_duplicates(start, uploads):
    engine = await start(uploads=uploads, **DIRECT)
    engine.faults.error_rate = 0.1
    engine.faults._random = random.Random(3)
    values = [b"%d" % number for number in range(60)]
    async with asyncio.timeout(30):
        await send_in_order(engine, values)
    engine.faults.error_rate = 0.0
    assert await engine.values() == values


async def test_a_duplicate_of_a_batch_that_is_still_buffered_gets_the_originals_offset(start):
    engine = await start(inline_bytes_max=0)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"under way")
    await reached(hold)
    buffered = await engine.submit(b"original", producer=(7, 0, 0))
    repeat = await engine.submit(b"original", producer=(7, 0, 0))
    hold.release()
    assert [(await each).base_offset for each in (first, buffered, repeat)] == [0, 1, 1]
    assert await engine.values() == [b"under way", b"original"]


FOREIGN_PROCESS = """
import sys
from pathlib import Path
from millpond.catalog import appends
from millpond.catalog.sqlite import SqliteDatabase
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import Record, build_batch

database = SqliteDatabase(Path(sys.argv[1]))
where = TopicPartition(TopicId(bytes.fromhex(sys.argv[2])), 0)
for number in range(int(sys.argv[3])):
    data = build_batch([Record(b"foreign %d" % number)], now_ms=number)
    share = appends.Share(where, appends.FOREIGN, 0, len(data), 1, number, number, inline=data)
    with database.write() as tx:
        [placed] = appends.append(tx, [share], None, now_ms=number)
    print(placed.base_offset, flush=True)
"""


async def test_an_append_by_another_process_is_read_and_never_skipped_by_a_reader_at_the_tail(
    start, tmp_path
):
    engine = await start(tmp_path)
    many = 30
    catalog = str(tmp_path / "catalog.db")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FOREIGN_PROCESS, catalog, engine.topic_id.hex(), str(many)),
        stdout=subprocess.PIPE,
    )

    async def follow():
        offset, found = 0, []
        while len(found) < 2 * many:
            result = await engine.fetch(offset, wait_ms=5_000)
            records = [r for d in result.batches for r in iter_records(d, decompressed_bytes_max=0)]
            assert [record.offset for record in records] == list(range(offset, result.next_offset))
            found += [record.value for record in records]
            offset = result.next_offset
        return found

    following = asyncio.ensure_future(follow())
    for number in range(many):
        await engine.append(b"own %d" % number)
        await asyncio.sleep(0.005)
    await process.wait()
    found = await asyncio.wait_for(following, 10)
    assert [v for v in found if v.startswith(b"foreign")] == [b"foreign %d" % n for n in range(many)]
    assert [v for v in found if v.startswith(b"own")] == [b"own %d" % n for n in range(many)]


async def test_a_batch_of_a_transaction_that_ended_while_it_was_uploading_is_refused_and_its_neighbours_are_not(
    start,
):
    engine = await start(uploads=True, inline_bytes_max=0, flush_delay=20, partitions=2)
    now = engine.clock.now_ms()

    def begin(tx):
        producer = transactions.begin_producer(tx, "pay", 60_000, now_ms=now).producer
        transactions.add_partitions(tx, producer, [engine.where(0), engine.where(1)], now_ms=now)
        return [producer.producer_id, producer.epoch]

    producer_id, epoch = await engine.log.write(begin)
    slow = engine.faults.hold("append")
    late = await engine.submit(b"late", producer=(producer_id, epoch, 0), transactional=True)
    beside = await engine.submit(b"beside", partition=1)
    await reached(slow)
    producer = transactions.Producer("pay", producer_id, epoch)

    def end(tx):
        transactions.end(tx, producer, commit=False, bump_epoch=False, now_ms=now)

    await engine.log.write(end)
    slow.release()
    with pytest.raises(InvalidTransactionState):
        await late
    assert (await beside).base_offset == 1  # behind the marker
    await engine.log.refresh()
    assert engine.partition(0).end_offset == 1  # the marker alone
    result = await engine.fetch(0, read_committed=True)
    assert (result.last_stable_offset, result.aborted) == (1, [])


async def test_plain_batches_of_the_same_partition_beside_a_late_transactional_one_may_simply_be_sent_again(
    start,
):
    engine = await start(inline_bytes_max=0)
    now = engine.clock.now_ms()
    with engine.broker.database.write() as tx:
        producer = transactions.begin_producer(tx, "pay", 60_000, now_ms=now).producer
        transactions.add_partitions(tx, producer, [engine.where()], now_ms=now)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"first")
    await reached(hold)
    late = await engine.submit(b"late", producer=(*producer.identity, 0), transactional=True)
    plain = await engine.submit(b"plain")
    with engine.broker.database.write() as tx:  # as another coordinator would: nobody here hears of it
        transactions.end(tx, producer, commit=True, bump_epoch=False, now_ms=now)
    hold.release()
    found = await asyncio.gather(first, late, plain, return_exceptions=True)
    assert found[0].base_offset == 1  # behind the marker
    assert isinstance(found[1], InvalidTransactionState)
    assert isinstance(found[2], FlushFailed)
    assert found[2].retriable
    assert (await engine.append(b"plain")).base_offset == 2


async def test_the_collector_takes_nothing_of_a_live_but_very_slow_writer_and_a_dead_writers_commit_is_refused(
    start, tmp_path
):
    engine = await start(tmp_path, garbage_grace=0)
    garbage = engine.broker.maintenance.garbage
    slow = new_session()
    await engine.log.write(
        lambda tx: writers.register(tx, slow, kind="spark", address="", lease_ms=3_600_000)
    )
    store = open_store(engine.broker.settings.store_url(), slow)
    data = b"".join([pack_frame(engine.where(), 1, 1, 5), b"bytes"])
    location = store.append([data])
    engine.clock.advance(30 * DAY_MS)
    assert await garbage.run_once() == 0
    assert store.read(location.key, 0, len(data)) == data

    await engine.log.write(lambda tx: writers.bury(tx, slow, engine.clock.now_ms()))
    with pytest.raises(WriterDead):
        Committer(engine.broker.database, slow).commit([lambda tx: 1])
    assert await garbage.run_once() == 1
    assert list(store.list(f"journal/{slow}/")) == []
    store.close()


async def test_an_object_merged_away_under_a_slow_reader_is_found_again(start, tmp_path):
    engine = await start(tmp_path, inline_bytes_max=0, tail_bytes_max=0, garbage_grace=0)
    for number in range(12):
        await engine.append(b"%d" % number)
    await engine.broker.stop()  # its journal is sealed by its death
    engine_again = await start(tmp_path, topic=False, inline_bytes_max=0, tail_bytes_max=0, garbage_grace=0)
    engine_again.topic_id = engine.topic_id
    hold = engine_again.faults.hold("read")
    reading = asyncio.ensure_future(engine_again.values())
    await reached(hold)
    upkeep = engine_again.broker.maintenance
    assert await upkeep.merging.run_once() == 12
    assert await upkeep.garbage.run_once() == 1
    assert [key.split("/")[0] for key in engine_again.broker.store.list("")] == ["segments"]
    hold.release()
    assert await reading == [b"%d" % number for number in range(12)]


async def test_a_clock_jump_of_a_year_deletes_nothing_and_says_so_and_going_back_resumes(start, caplog):
    clock = SimulatedClock()
    engine = await start(clock=clock)
    await engine.append(b"precious", producer=(7, 0, 0))
    upkeep = engine.broker.maintenance
    assert await upkeep.retention.run_once() == 0
    clock.jump(YEAR_MS)
    for _ in range(3):
        assert await upkeep.retention.run_once() == 0
        assert await upkeep.expire_once() == 0
        clock.advance(3_600_000)
    assert await engine.values() == [b"precious"]
    assert caplog.text.count("the wall clock jumped by 31536000 s") == 1
    clock.jump(-YEAR_MS)
    assert await upkeep.retention.run_once() == 0
    assert "the wall clock is back" in caplog.text
    assert await engine.values() == [b"precious"]
    clock.advance(8 * DAY_MS)
    assert await upkeep.retention.run_once() == 1
    assert engine.partition().log_start == 1


async def test_the_tail_never_serves_stale_or_skipped_data_when_foreign_appends_interleave(start, tmp_path):
    engine = await start(tmp_path)
    choice, model = random.Random(5), []
    for number in range(120):
        what = choice.choice(["own", "own", "foreign", "refresh", "read"])
        if what == "own":
            assert (await engine.append(b"own %d" % number)).base_offset == len(model)
            model.append(b"own %d" % number)
        elif what == "foreign":
            assert engine.append_elsewhere(b"foreign %d" % number).base_offset == len(model)
            model.append(b"foreign %d" % number)
        elif what == "refresh":
            await engine.log.refresh()
            assert await engine.values() == model
        end = engine.partition().end_offset
        offset = choice.randint(max(0, end - 4), end)
        found = await engine.values(offset)
        assert found == model[offset : offset + len(found)]
        assert len(found) >= end - offset
    await engine.log.refresh()
    assert await engine.values() == model


async def test_a_foreign_append_that_commits_between_two_of_ours_leaves_a_hole_and_not_a_skip(
    start, tmp_path
):
    """Ours at 0 and 2, the other's at 1, of which we have not heard: a reader at 1 is not given 2."""
    engine = await start(tmp_path, tail_bytes_max=1 << 20)
    await engine.append(b"0")
    engine.append_elsewhere(b"1")
    await engine.append(b"2")
    assert engine.partition().tail.start == 2
    assert await engine.values(1) == [b"1", b"2"]
    assert await engine.values(0) == [b"0", b"1", b"2"]


async def test_a_stale_view_of_a_producer_is_refused_at_commit_and_reloaded(start, tmp_path):
    """Somebody else committed a batch of this producer: the owner's view says 0 is next, the catalog says 1."""
    from millpond.model.producers import SequencedBatch

    engine = await start(tmp_path)
    await engine.append(b"other", producer=(8, 0, 0))  # the view is loaded
    batch = SequencedBatch(7, 0, 0, 0, 0, False, 0)
    share = appends.Share(engine.where(), appends.FOREIGN, 0, 1, 1, 0, 0, inline=b"?", sequences=(batch,))
    with engine.broker.database.write() as tx:
        appends.append(tx, [share], None, now_ms=0)
    with pytest.raises(FlushFailed, match="stale"):
        await engine.append(b"0", producer=(7, 0, 0))
    assert (await engine.append(b"0", producer=(7, 0, 0))).base_offset == 1
    assert (await engine.append(b"1", producer=(7, 0, 1))).base_offset == 2
