"""The clock, injected. Wall time stamps records and decides retention; monotonic time measures waits."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, milliseconds since the epoch. May jump."""

    def monotonic_ms(self) -> int:
        """Never goes back; says nothing about the date."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000  # continues while the machine sleeps
