"""Measures how late the event loop is: how long what is ready has to wait for its turn."""

import asyncio
from typing import Final

from prometheus_client import Histogram

EVERY_S: Final = 0.25


class LoopLag:
    """Uses a timer of the loop and no task. Its time is the loop's, which is real."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + EVERY_S
        self._timer = loop.call_at(self._due, self._measure)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        late_s = asyncio.get_running_loop().time() - self._due
        self._histogram.observe(max(late_s, 0.0))
        self.start()
