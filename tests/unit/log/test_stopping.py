"""A log that stops does not read on for readers that are gone."""

import threading
import time

from millpond.broker import Broker
from millpond.settings import Settings

READS = 200
SETTLED_S = 0.5
"""After it has begun to stop: by then reads that have not begun are dropped."""


async def test_reads_that_wait_for_their_turn_are_dropped(tmp_path):
    begun, may_end = [], threading.Event()

    def read() -> None:
        begun.append(True)
        may_end.wait()

    def let_go() -> None:
        while not broker.log.waiters.closed:
            time.sleep(0.01)
        time.sleep(SETTLED_S)
        may_end.set()

    settings = Settings(data_dir=tmp_path)
    async with Broker(settings, maintain=False) as broker:
        for _ in range(READS):
            broker.log._pool.submit(read)
        threading.Thread(target=let_go, daemon=True).start()
    assert len(begun) == settings.log_limits().read_threads
