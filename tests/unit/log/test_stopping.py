"""A log that stops does not read on for readers that are gone."""

import threading
import time

import pytest

from millpond.broker import Broker
from millpond.model.errors import ObjectMissing, StoreUnavailable
from millpond.settings import Settings

READS = 200
READS_ON = 20_000


async def test_reads_that_wait_for_their_turn_are_dropped(tmp_path):
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
    async with Broker(settings, maintain=False) as broker:
        for _ in range(READS):
            broker.log._threads._pool.submit(read)
        threading.Thread(target=let_go, daemon=True).start()
    assert len(begun) == settings.log_limits().read_threads


async def test_one_that_reads_on_and_on_is_not_waited_for(tmp_path):
    """A merge of thousands of objects may take minutes; a broker that stops has seconds."""

    def read_on() -> None:
        for _ in range(READS_ON):
            with pytest.raises(ObjectMissing):
                broker.store.size("journal/nothing/1")
            time.sleep(0.001)

    async with Broker(Settings(data_dir=tmp_path), maintain=False) as broker:
        reading = broker.log._threads._pool.submit(read_on)
    assert isinstance(reading.exception(), StoreUnavailable)
