"""A watch over the wall clock: when it jumps, nothing may be deleted by age.

Wall clock minus monotonic clock moves only when somebody sets the clock. Small steps are time keeping; a big
one is an accident, and it lasts until the clock is back or the broker is started anew.
"""

import logging
from typing import Final

from millpond.model.clock import Clock

JUMP_MS: Final = 5 * 60 * 1000

logger = logging.getLogger(__name__)


class ClockGuard:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference = self._measure()
        self.jumped_ms = 0

    def trusts_clock(self) -> bool:
        """Whether the wall clock still goes as it did at the last call it was trusted."""
        difference = self._measure()
        jumped_ms = difference - self._difference
        if abs(jumped_ms) > JUMP_MS:
            if not self.jumped_ms:
                logger.error(
                    "the wall clock jumped by %d s: retention is paused until it is back or the broker restarts",
                    jumped_ms // 1000,
                )
            self.jumped_ms = jumped_ms
            return False
        if self.jumped_ms:
            logger.warning("the wall clock is back: retention goes on")
        self.jumped_ms = 0
        self._difference = difference
        return True

    def _measure(self) -> int:
        return self._clock.now_ms() - self._clock.monotonic_ms()
