"""Appends of idempotent producers through the whole log: order, repeats and retries while flushes fail."""

import asyncio
import random
import threading

import pytest
from tests.unit.log.conftest import hold_and_fail, reached

from millpond.catalog import appends
from millpond.log import appender
from millpond.log.limits import LogLimits
from millpond.model.errors import FlushFailed, OutOfOrderSequence, StoreUnavailable, Unavailable
from millpond.model.producers import SequencedBatch
from millpond.records import Codec, Record

DIRECT = {"inline_bytes_max": 0, "flush_bytes": 1}
"""Every append is a flush of its own, through the store."""
REFUSED_S = LogLimits().refuse_ms / 1000
ROUNDS_MAX = 100_000


async def send_in_order(engine, values, loop_time):
    """A client with five requests in flight, as librdkafka and Java have them: batches that fail retriably are sent
    again, in order, each with its own sequence, before any newer one."""
    done = 0
    for _ in range(ROUNDS_MAX):
        if done == len(values):
            return
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
        loop_time.advance(REFUSED_S)
        await asyncio.sleep(0)
    raise AssertionError(f"only {done} of {len(values)} batches were appended")


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
async def test_a_failed_flush_with_later_ones_of_its_producer_in_flight_keeps_order_and_duplicates_nothing(
    start, uploads, loop_time
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
    loop_time.advance(REFUSED_S)
    with pytest.raises(OutOfOrderSequence):  # the client sent it before it knew of the failure
        await engine.submit(b"1", producer=(7, 0, 1))
    for number in range(3):
        assert (await engine.append(b"%d" % number, producer=(7, 0, number))).base_offset == number
    assert (await engine.append(b"1", producer=(7, 0, 1))).base_offset == 1
    assert await engine.values() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("uploads", [False, True], ids=["local", "uploads"])
async def test_a_store_that_fails_at_random_neither_reorders_nor_duplicates(start, uploads, loop_time):
    engine = await start(uploads=uploads, **DIRECT)
    engine.faults.error_rate = 0.1
    engine.faults._random = random.Random(3)
    values = [b"%d" % number for number in range(60)]
    await send_in_order(engine, values, loop_time)
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


async def test_a_stale_view_of_a_producer_is_refused_at_commit_and_reloaded(start, tmp_path):
    """Another writer committed a batch of this producer: the owner's view expects 0, the catalog expects 1."""
    engine = await start(tmp_path)
    await engine.append(b"other", producer=(8, 0, 0))  # the view is loaded
    batch = SequencedBatch(7, 0, 0, 0, 0, False, 0)
    share = appends.AppendShare(
        engine.topic_partition(), appends.FOREIGN, 0, 1, 1, 0, 0, inline=b"?", sequences=(batch,)
    )
    with engine.broker.database.write() as tx:
        appends.append(tx, [share], None, now_ms=0)
    with pytest.raises(FlushFailed, match="stale"):
        await engine.append(b"0", producer=(7, 0, 0))
    assert (await engine.append(b"0", producer=(7, 0, 0))).base_offset == 1
    assert (await engine.append(b"1", producer=(7, 0, 1))).base_offset == 2


async def test_a_repeat_never_gets_the_answer_of_another_epochs_batch(start):
    """Epoch 0 and epoch 1 both have a sequence 0 in flight; only the first is stored."""
    engine = await start(inline_bytes_max=0)
    hold = engine.faults.hold("append")
    old = await engine.submit(b"old", producer=(7, 0, 0))
    await reached(hold)
    engine.faults.fail_before("append")
    new, again = [await engine.submit(b"new", producer=(7, 1, 0)) for _ in range(2)]
    hold.release()
    assert (await old).base_offset == 0
    for refused in (new, again):
        with pytest.raises(StoreUnavailable):
            await refused
    assert await engine.values() == [b"old"]


async def test_many_records_are_searched_for_keys_on_a_thread_and_not_on_the_loop(start, monkeypatch):
    inspect_records, threads = appender.inspect_records, []

    def noted(*given, **named):
        threads.append(threading.current_thread())
        return inspect_records(*given, **named)

    monkeypatch.setattr(appender, "inspect_records", noted)
    engine = await start(topic=False)
    await engine.topic(**{"cleanup.policy": "compact"})
    for count in (1, appender.INSPECTED_ON_LOOP_RECORDS + 1):
        records = [Record(value=b"", key=b"k")] * count
        await engine.append(*records, compression=Codec.ZSTD)
    [on_loop, elsewhere] = threads
    assert on_loop is threading.current_thread()
    assert elsewhere is not threading.current_thread()
