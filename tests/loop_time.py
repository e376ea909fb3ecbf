"""The event loop's time, moved by a test: timers that are due fire at the next turn of the loop, without waiting."""

import asyncio

from millpond.model.clock import SystemClock


class LoopTime:
    """Replaces `loop.time`: real time plus what the test has added. Timers and timeouts on this loop follow it. Advance
    it outside of `asyncio.timeout`, whose limit it would reach."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real_s = loop.time
        self._ahead_s = 0.0
        loop.time = self  # type: ignore[method-assign]

    def __call__(self) -> float:
        return self._real_s() + self._ahead_s

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


class LoopClock:
    """A clock for a broker that follows the loop's time, so that deadlines and timers move together."""

    def __init__(self, time_s: LoopTime) -> None:
        self._time_s = time_s
        self._began_ms = SystemClock().now_ms() - int(time_s() * 1000)

    def now_ms(self) -> int:
        return self._began_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._time_s() * 1000)
