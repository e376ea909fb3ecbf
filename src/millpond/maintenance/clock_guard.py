"""Watches the wall clock: after it has jumped, nothing may be deleted by age.

The difference between wall clock and monotonic clock changes only when the wall clock is set. Small steps are
normal time keeping. A large step is a fault, which lasts until the clock is back. A restart of the broker
does not end it (`millpond.maintenance.retention_pause`).
"""

import logging
from typing import Final

from millpond.model.clock import Clock

JUMP_MS: Final = 5 * 60 * 1000
HINT: Final = "if the clock is right now, start the broker once with --trust-clock"

logger = logging.getLogger(__name__)


class ClockGuard:
    def __init__(self, clock: Clock, *, jumped_ms: int = 0, trusts_never: bool = False) -> None:
        """`jumped_ms` is how far the clock is already off. `trusts_never` means that there is nothing to
        compare the clock with, so it may be off."""
        self._clock = clock
        self._difference = self._measure() - jumped_ms
        self._trusts_never = trusts_never
        self.jumped_ms = 0

    def trusts_clock(self) -> bool:
        """Whether the wall clock has kept pace with the monotonic one since the last call that returned True."""
        if self._trusts_never:
            return False
        difference = self._measure()
        jumped_ms = difference - self._difference
        if abs(jumped_ms) > JUMP_MS:
            if not self.jumped_ms:
                logger.error(
                    "wall clock jumped; retention paused",
                    extra={"jump_s": jumped_ms // 1000, "hint": HINT},
                )
            self.jumped_ms = jumped_ms
            return False
        if self.jumped_ms:
            logger.warning("wall clock is back; retention resumed")
        self.jumped_ms = 0
        self._difference = difference
        return True

    def _measure(self) -> int:
        return self._clock.now_ms() - self._clock.monotonic_ms()
