"""When buffers are sealed, what waits for what, and what a failure takes with it. Through the whole log, on a
store that holds and fails as told."""

import asyncio
import gc
import threading
import weakref
from contextlib import suppress

import pytest
from tests.unit.log.conftest import hold_and_fail, reached

import millpond.log.flights
from millpond.log.budget import ByteBudget
from millpond.log.flights import Flight, Phase
from millpond.log.limits import LogLimits
from millpond.model.errors import (
    FlushFailed,
    NotOwner,
    OutOfOrderSequence,
    Overloaded,
    Stopping,
    StoreFull,
    StoreUnavailable,
)

KIB = 1024
HANG_S = 60
DIRECT = {"inline_bytes_max": 0}
"""Every flush goes to the store."""
REFUSED_S = LogLimits().refuse_ms / 1000
"""For this long after a failure appends are refused at once."""


async def outcomes(futures):
    found = await asyncio.gather(*futures, return_exceptions=True)
    return [each if isinstance(each, Exception) else each.base_offset for each in found]


def committed_flushes(engine):
    ways = [
        engine.broker.metrics.registry.get_sample_value("millpond_log_flushes_total", {"way": way})
        for way in ("inline", "stored")
    ]
    return sum(ways)


class TimelessBudget(ByteBudget):
    """However slow the machine, nothing is added to it meanwhile."""

    def has(self, size, now_s):
        return super().has(size, 0.0)


# -- local stores ---------------------------------------------------------------------------------------------


async def test_while_one_flush_is_under_way_the_next_fills(start):
    engine = await start(**DIRECT)
    hold = engine.faults.hold("append")
    flushes = committed_flushes(engine)
    first = await engine.submit(b"first")
    await reached(hold)
    rest = [await engine.submit(b"%d" % n) for n in range(20)]
    assert len(engine.log._flusher._flights) == 1
    hold.release()
    assert await outcomes([first, *rest]) == list(range(21))
    assert committed_flushes(engine) == flushes + 2
    assert engine.rows("SELECT count(*) FROM extents") == [(2,)]


async def test_an_idle_broker_flushes_at_once(start):
    engine = await start(**DIRECT)
    for n in range(3):
        assert (await engine.append(b"x")).base_offset == n
    assert engine.rows("SELECT count(*) FROM extents") == [(3,)]


async def test_a_flush_is_sealed_at_its_size(start):
    engine = await start(**DIRECT, flush_bytes=10 * KIB)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"first")
    await reached(hold)
    rest = [await engine.submit(b"x" * 4 * KIB) for _ in range(9)]
    hold.release()
    assert await outcomes([first, *rest]) == list(range(10))
    lengths = [row[0] for row in engine.rows("SELECT length FROM extents ORDER BY base_offset")]
    assert len(lengths) == 4
    assert max(lengths) < 14 * KIB


async def test_small_flushes_ride_in_the_catalog_within_their_budget(start):
    engine = await start(inline_bytes_max=4 * KIB, inline_bytes_per_second=6 * KIB)
    engine.log._flusher._budget = TimelessBudget(6 * KIB)
    await engine.append(b"x" * 3 * KIB)
    await engine.append(b"x" * 5 * KIB)  # too large
    await engine.append(b"x" * 3 * KIB)  # over the budget
    found = engine.rows("SELECT inline IS NOT NULL FROM extents ORDER BY base_offset")
    assert [bool(row[0]) for row in found] == [True, False, False]


async def test_a_failed_append_is_refused_and_the_next_one_works(start, loop_time):
    engine = await start(**DIRECT)
    engine.faults.fail_before("append")
    with pytest.raises(StoreUnavailable):
        await engine.append(b"lost")
    loop_time.advance(REFUSED_S)
    assert (await engine.append(b"kept")).base_offset == 0
    assert await engine.values() == [b"kept"]


async def test_after_a_failure_appends_are_refused_at_once_for_a_while(start, limited, loop_time):
    limited(refuse_ms=600_000)
    engine = await start(**DIRECT)
    engine.faults.fail_before("append", StoreFull(reason="no room"))
    with pytest.raises(StoreFull):
        await engine.append(b"a")
    with pytest.raises(StoreFull):
        await engine.submit(b"b")  # refused before it is buffered
    loop_time.advance(600)
    await engine.append(b"c")


async def test_one_partitions_failure_is_not_its_neighbours(start):
    """A partition that another owner has taken refuses its share; the rest of the flush is committed."""
    engine = await start(**DIRECT, partitions=2)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"first", partition=1)
    await reached(hold)
    both = [await engine.submit(b"x", partition=n) for n in (0, 1)]
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE partitions SET epoch = epoch + 1 WHERE partition = 0")
    hold.release()
    result = await outcomes([first, *both])
    assert (result[0], result[2]) == (0, 1)
    assert isinstance(result[1], NotOwner)
    assert (await engine.append(b"y", partition=1)).base_offset == 2


async def test_a_failed_flush_takes_along_what_is_still_buffered_behind_it(start):
    """Else sequence 1, which waits in the buffer, would be committed while 0 is being sent again."""
    engine = await start(**DIRECT, partitions=2)
    hold = hold_and_fail(engine.faults)
    lost = await engine.submit(b"0", producer=(7, 0, 0))
    await reached(hold)
    behind = await engine.submit(b"1", producer=(7, 0, 1))
    beside = await engine.submit(b"beside", partition=1)
    hold.release()
    found = await outcomes([lost, behind, beside])
    assert [type(each) for each in found] == [StoreUnavailable, FlushFailed, int]
    assert engine.log.held_bytes == 0
    assert engine.partition().end_offset == 0


async def test_room_is_waited_for_in_turn(start, settle):
    engine = await start(**DIRECT, buffer_bytes_max=10 * KIB)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"x" * 6 * KIB)
    await reached(hold)
    waiting = [asyncio.ensure_future(engine.submit(b"%d" % n + b"x" * 6 * KIB)) for n in range(3)]
    await settle()
    assert not any(each.done() for each in waiting)
    assert engine.log.held_bytes < 10 * KIB
    hold.release()
    answers = [await each for each in waiting]
    assert await outcomes([first, *answers]) == [0, 1, 2, 3]
    assert [value[:1] for value in await engine.values(1)] == [b"0", b"1", b"2"]
    assert engine.log.held_bytes == 0


async def test_who_waits_too_long_for_room_is_refused(start, limited, settle, loop_time):
    limited(buffer_wait_ms=600_000)
    engine = await start(**DIRECT, buffer_bytes_max=10 * KIB)
    hold = engine.faults.hold("append")
    first = await engine.submit(b"x" * 9 * KIB)
    await reached(hold)
    waiting = asyncio.ensure_future(engine.submit(b"x" * 9 * KIB))
    await settle()
    loop_time.advance(300)
    await settle()
    assert not waiting.done()
    loop_time.advance(300)
    with pytest.raises(Overloaded) as raised:
        await asyncio.wait_for(waiting, HANG_S)
    assert raised.value.retriable
    hold.release()
    assert await outcomes([first]) == [0]
    assert (await engine.append(b"x")).base_offset == 1


async def test_one_append_larger_than_the_buffer_still_gets_through(start):
    engine = await start(**DIRECT, buffer_bytes_max=1 * KIB)
    assert (await engine.append(b"x" * 9 * KIB)).base_offset == 0


async def test_draining_answers_everything_and_takes_no_more(start, eventually):
    engine = await start(**DIRECT, flush_bytes=4 * KIB)
    hold = engine.faults.hold("append")
    answers = [await engine.submit(b"x" * 2 * KIB) for _ in range(7)]
    stopping = asyncio.ensure_future(engine.broker.stop())
    await eventually(lambda: engine.log._flusher._drained is not None)
    with pytest.raises(Stopping):
        await engine.submit(b"late")
    hold.release()
    await stopping
    assert await outcomes(answers) == list(range(7))


async def test_draining_with_nothing_to_do_ends_at_once(start):
    engine = await start()
    async with asyncio.timeout(HANG_S):
        await engine.broker.stop()


# -- uploads --------------------------------------------------------------------------------------------------


async def test_a_small_upload_waits_for_company(start, settle, loop_time):
    engine = await start(uploads=True, **DIRECT, flush_delay=600_000, flush_bytes=8 * KIB)
    first = await engine.submit(b"a")
    loop_time.advance(300)
    await settle()
    assert not engine.log._flusher._flights
    second = await engine.submit(b"b")
    loop_time.advance(300)
    assert await outcomes([first, second]) == [0, 1]
    assert engine.rows("SELECT count(*) FROM extents") == [(1,)]


async def test_a_full_upload_does_not_wait(start):
    engine = await start(uploads=True, **DIRECT, flush_delay=600_000, flush_bytes=8 * KIB)
    async with asyncio.timeout(HANG_S):
        await engine.append(b"x" * 9 * KIB)
    assert engine.rows("SELECT count(*) FROM extents") == [(1,)]


async def test_so_many_uploads_at_the_same_time(start, settle):
    engine = await start(uploads=True, **DIRECT, flush_bytes=1, uploads_max=2, partitions=4)
    holds = [engine.faults.hold("append") for _ in range(3)]
    answers = [await engine.submit(b"x", partition=n) for n in range(4)]
    await reached(holds[0])
    await reached(holds[1])
    await settle()
    assert len(engine.log._flusher._flights) == 2
    assert len(engine.log._flusher._full) == 2
    for hold in holds:
        hold.release()
    assert await outcomes(answers) == [0, 0, 0, 0]


async def test_a_slow_upload_delays_its_own_partition_and_nobody_else(start, settle):
    engine = await start(uploads=True, **DIRECT, flush_bytes=1, partitions=2)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"slow", partition=0)
    await reached(slow)
    behind = await engine.submit(b"behind", partition=0)
    assert (await engine.append(b"other", partition=1)).base_offset == 0
    await settle()
    assert not first.done()
    assert not behind.done()
    slow.release()
    assert await outcomes([first, behind]) == [0, 1]
    assert await engine.values() == [b"slow", b"behind"]


async def test_a_small_buffer_rides_inline_at_once_also_on_an_object_store(start):
    engine = await start(uploads=True, flush_delay=600_000)
    async with asyncio.timeout(HANG_S):
        assert (await engine.append(b"quick")).base_offset == 0
    assert engine.rows("SELECT inline IS NOT NULL FROM extents") == [(1,)]


async def test_small_buffers_wait_for_company_while_one_like_them_is_under_way(start):
    engine = await start(uploads=True, flush_delay=600_000)
    begun, gate = threading.Event(), threading.Event()
    busy = asyncio.ensure_future(engine.log.write(lambda _: begun.set() or (gate.wait(HANG_S) and None)))
    await asyncio.to_thread(begun.wait, HANG_S)
    flushes = committed_flushes(engine)
    answers = [await engine.submit(b"%d" % n) for n in range(6)]
    gate.set()
    assert await outcomes(answers) == list(range(6))
    await busy
    assert committed_flushes(engine) == flushes + 2


async def test_an_inline_flush_does_not_overtake_an_upload_of_its_partition(start, settle):
    engine = await start(uploads=True, inline_bytes_max=1 * KIB, flush_bytes=2 * KIB)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"x" * 3 * KIB)
    await reached(slow)
    small = await engine.submit(b"small")
    await settle()
    assert not small.done()
    slow.release()
    assert await outcomes([first, small]) == [0, 1]


async def test_draining_does_not_wait_for_the_delay(start):
    engine = await start(uploads=True, **DIRECT, flush_delay=600_000)
    answer = await engine.submit(b"a")
    async with asyncio.timeout(HANG_S):
        await engine.broker.stop()
    assert await outcomes([answer]) == [0]


async def test_a_failed_upload_takes_along_what_follows_it_on_its_partitions_only(start, loop_time):
    engine = await start(uploads=True, **DIRECT, flush_bytes=1, partitions=2)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"first", partition=0)
    await reached(slow)
    engine.faults.fail_before("append")
    failing = await engine.submit(b"failing", partition=0)
    await asyncio.wait([failing], timeout=HANG_S)
    slow.release()
    assert await outcomes([first]) == [0]
    assert isinstance(failing.exception(), StoreUnavailable)
    loop_time.advance(REFUSED_S)
    assert (await engine.append(b"next")).base_offset == 1
    assert await engine.values() == [b"first", b"next"]


async def test_a_failure_does_not_hand_itself_on_from_flush_to_flush(start, loop_time):
    """Uploads overlap all the time: what is sent after the failure became known must not fail because of it."""
    engine = await start(uploads=True, **DIRECT, flush_bytes=1)
    failing, behind = hold_and_fail(engine.faults), engine.faults.hold("append")
    lost = await engine.submit(b"0", producer=(7, 0, 0))
    await reached(failing)
    doomed = await engine.submit(b"1", producer=(7, 0, 1))
    await reached(behind)
    failing.release()
    assert isinstance((await outcomes([lost]))[0], StoreUnavailable)
    loop_time.advance(REFUSED_S)
    with pytest.raises(FlushFailed):
        await engine.submit(b"0", producer=(7, 0, 0))  # the one behind has not failed yet
    behind.release()
    assert isinstance((await outcomes([doomed]))[0], FlushFailed)
    again = [await engine.submit(b"%d" % n, producer=(7, 0, n)) for n in (0, 1)]
    assert await outcomes(again) == [0, 1]
    assert await engine.values() == [b"0", b"1"]


async def test_a_partition_accepts_appends_when_its_last_share_has_failed_whatever_else_was_in_that_flush(
    start, loop_time, eventually
):
    engine = await start(uploads=True, **DIRECT, flush_delay=600_000, partitions=2)
    failing = hold_and_fail(engine.faults)
    lost = await engine.submit(b"lost")
    loop_time.advance(600)
    await reached(failing)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"first", partition=1)
    loop_time.advance(600)
    await reached(slow)
    doomed, behind = await engine.submit(b"doomed"), await engine.submit(b"behind", partition=1)
    loop_time.advance(600)
    await eventually(lambda: [*engine.log._flusher._flights][-1].phase is Phase.WAITING)
    failing.release()
    assert [type(each) for each in await outcomes([lost, doomed])] == [StoreUnavailable, FlushFailed]
    loop_time.advance(REFUSED_S)
    again = await engine.submit(b"again")  # while the rest of the flush still waits for the slow upload
    slow.release()
    loop_time.advance(600)
    assert await outcomes([first, behind, again]) == [0, 1, 0]


async def test_a_later_upload_that_fails_first_leaves_the_earlier_ones_sequences_alone(start, loop_time):
    """The second of three uploads fails while the first is still under way; then all are sent again."""
    engine = await start(uploads=True, **DIRECT, flush_bytes=1)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"0", producer=(7, 0, 0))
    await reached(slow)
    failing = hold_and_fail(engine.faults)
    second = await engine.submit(b"1", producer=(7, 0, 1))
    await reached(failing)
    third = await engine.submit(b"2", producer=(7, 0, 2))
    failing.release()
    await asyncio.wait([second], timeout=HANG_S)
    assert isinstance(second.exception(), StoreUnavailable)
    loop_time.advance(REFUSED_S)
    with pytest.raises(FlushFailed):
        await engine.submit(b"1", producer=(7, 0, 1))  # the third has yet to fail
    slow.release()
    assert await outcomes([first]) == [0]
    assert isinstance((await outcomes([third]))[0], FlushFailed)
    assert (await engine.append(b"0", producer=(7, 0, 0))).base_offset == 0
    with pytest.raises(OutOfOrderSequence):
        await engine.submit(b"2", producer=(7, 0, 2))
    again = [await engine.submit(b"%d" % n, producer=(7, 0, n)) for n in (1, 2)]
    assert await outcomes(again) == [1, 2]
    assert await engine.values() == [b"0", b"1", b"2"]


async def test_a_retry_goes_behind_the_earlier_upload_that_is_still_under_way(start, loop_time):
    engine = await start(uploads=True, **DIRECT, flush_bytes=1)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"0", producer=(7, 0, 0))
    await reached(slow)
    engine.faults.fail_before("append")
    second = await engine.submit(b"1", producer=(7, 0, 1))
    await asyncio.wait([second], timeout=HANG_S)
    loop_time.advance(REFUSED_S)
    repeat = await engine.submit(b"0", producer=(7, 0, 0))
    again = await engine.submit(b"1", producer=(7, 0, 1))
    assert not repeat.done()
    slow.release()
    assert await outcomes([first, repeat, again]) == [0, 0, 1]
    assert (await engine.append(b"2", producer=(7, 0, 2))).base_offset == 2
    assert await engine.values() == [b"0", b"1", b"2"]


async def test_flushes_that_are_done_are_given_back_to_memory(start):
    """Each flight knows the ones before it: a chain that never ends would keep every byte ever written."""
    engine = await start(uploads=True, **DIRECT, flush_bytes=1)
    seen = weakref.WeakSet()
    make = Flight.__init__

    class Traced(Flight):
        __slots__ = ("__weakref__",)

        def __init__(self, *arguments, **named):
            make(self, *arguments, **named)
            seen.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(millpond.log.flights, "Flight", Traced)
        hold = engine.faults.hold("append")
        answers = [await engine.submit(b"x")]
        await reached(hold)
        for _ in range(30):
            following = engine.faults.hold("append")
            answers.append(await engine.submit(b"x"))
            await reached(following)
            hold.release()
            await answers[-2]
            hold = following
        gc.collect()
        alive = len(seen)  # while the last one is still under way
        hold.release()
        await outcomes(answers)
    assert alive < 5


async def test_one_who_stops_waiting_does_not_cancel_a_repeat_of_the_same_batch(start):
    engine = await start(uploads=True, **DIRECT, flush_bytes=1)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"0", producer=(7, 0, 0))
    await reached(slow)
    repeat = await engine.submit(b"0", producer=(7, 0, 0))
    first.cancel()
    slow.release()
    assert await outcomes([repeat]) == [0]


async def test_an_object_committed_in_parts_is_sealed_only_by_its_last(start, loop_time):
    """Between its parts nothing may collect it, even if all of the first part has expired meanwhile."""
    engine = await start(uploads=True, **DIRECT, flush_bytes=10**9, flush_delay=600_000, partitions=2)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"first")
    loop_time.advance(600)
    await reached(slow)
    behind = await engine.submit(b"behind")
    free = await engine.submit(b"free", partition=1)
    loop_time.advance(600)
    assert await outcomes([free]) == [0]
    assert not behind.done()
    sealed = "SELECT sealed FROM objects"
    assert await engine.log.read(lambda tx: tx.rows(sealed)) == [(0,)]
    slow.release()
    assert await outcomes([first, behind]) == [0, 1]
    assert await engine.log.read(lambda tx: tx.rows(sealed)) == [(1,), (1,)]


def refuse_upload(_):
    raise StoreUnavailable(reason="gone")


# -- shared uploads ---------------------------------------------------------------------------------------------


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


async def test_one_small_append_behind_a_slow_upload_leaves_the_catalog_to_other_partitions(
    start, settle, loop_time
):
    engine = await start(
        uploads=True, partitions=2, flush_delay=600_000, inline_bytes_max=1_000, flush_bytes=2_000
    )
    slow = engine.faults.hold("append")
    large = await engine.submit(b"x" * 2_000)
    await reached(slow)
    behind = await engine.submit(b"small, but held up")
    loop_time.advance(600)
    await settle()
    assert len(engine.log._flusher._flights) == 2
    engine.faults.fail_before("append")  # a small append to another partition needs no upload
    assert await outcomes([await engine.submit(b"small", partition=1)]) == [0]
    slow.release()
    assert await outcomes([large, behind]) == [0, 1]


async def test_an_object_whose_rest_fails_is_sealed_all_the_same(start, loop_time):
    engine = await start(uploads=True, **DIRECT, partitions=2, flush_delay=600_000)
    slow = engine.faults.hold("append")
    first = await engine.submit(b"first")
    loop_time.advance(600)
    await reached(slow)
    behind, free = await engine.submit(b"behind"), await engine.submit(b"free", partition=1)
    loop_time.advance(600)
    assert await outcomes([free]) == [0]
    store = engine.broker.store._store
    store.append, append = refuse_upload, store.append
    slow.release()
    found = await outcomes([first, behind])
    assert [type(each) for each in found] == [StoreUnavailable, FlushFailed]
    store.append = append
    await engine.log.delete_records(engine.topic_partition(1), -1)
    rows = engine.rows("SELECT extents, sealed FROM objects WHERE extents = 0")
    assert rows
    assert all(sealed for _, sealed in rows)


async def test_errors_that_are_raised_again_keep_no_old_tracebacks(start, limited):
    limited(refuse_ms=600_000)
    engine = await start(**DIRECT)
    engine.faults.fail_before("append")
    with suppress(StoreUnavailable):
        await engine.append(b"x")
    raised = []
    for _ in range(3):
        with pytest.raises(StoreUnavailable) as caught:
            await engine.append(b"x")
        raised.append(caught.value)
    assert len({id(error) for error in raised}) == 3
