"""A log that stops does not read on for readers that are gone."""

import asyncio
import threading
import time

import pytest
from tests.unit.log.conftest import reached

from millpond.broker import Broker
from millpond.model.errors import ObjectMissing, Stopping, StoreUnavailable
from millpond.settings import Settings

READS = 200
HANG_S = 60


async def test_reads_that_wait_for_their_turn_are_dropped(tmp_path, eventually):
    begun, may_end = [], threading.Event()

    def read() -> None:
        begun.append(True)
        may_end.wait()

    def let_go() -> None:
        pool = broker.log._threads._pool
        while not pool._shutdown:
            time.sleep(0.01)
        with pool._shutdown_lock:  # under which those that have not begun are dropped
            may_end.set()

    settings = Settings(data_dir=tmp_path)
    threads = settings.log_limits().read_threads
    async with Broker(settings, maintain=False) as broker:
        for _ in range(READS):
            broker.log._threads._pool.submit(read)
        await eventually(lambda: len(begun) == threads)
        threading.Thread(target=let_go, daemon=True).start()
    assert len(begun) == threads


async def test_one_that_reads_on_and_on_is_not_waited_for(tmp_path):
    """A merge of thousands of objects may take minutes; a broker that stops has seconds."""

    begun = threading.Event()

    def read_on() -> None:
        hangs_at = time.monotonic() + HANG_S
        while time.monotonic() < hangs_at:
            with pytest.raises(ObjectMissing):
                broker.store.size("journal/nothing/1")
            begun.set()

    async with Broker(Settings(data_dir=tmp_path), maintain=False) as broker:
        reading = broker.log._threads._pool.submit(read_on)
        await asyncio.to_thread(begun.wait)
    assert isinstance(reading.exception(), StoreUnavailable)


async def test_a_stop_that_was_cancelled_goes_on_and_may_be_awaited_again(start, tmp_path, settle):
    engine = await start(tmp_path, inline_bytes_max=0)
    hold = engine.faults.hold("append")
    answer = await engine.submit(b"x")
    await reached(hold)
    stopping = asyncio.create_task(engine.broker.stop())
    await settle()
    stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled()
    assert engine.broker._directory is not None, "the directory is still ours"
    hold.release()
    await engine.broker.stop()
    assert (await answer).base_offset == 0
    assert engine.broker._directory is None


async def test_after_a_stop_reads_are_refused_with_stopping(start):
    engine = await start(tail_bytes_max=0)
    await engine.append(b"x")
    await engine.broker.stop()
    assert isinstance((await engine.fetch(0)).error, Stopping)
    with pytest.raises(Stopping):
        await engine.log.read(lambda tx: None)
