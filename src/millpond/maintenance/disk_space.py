"""Checks whether the disk has room for a rewrite: merging and compaction write first, and remove what they
replace later.

Before it starts, each duty states how much it is about to write. If that does not fit, it waits for a later
pass, so that work that should free space does not fill a nearly full disk.
"""

import logging
from collections.abc import Callable

from millpond.observability.metrics import MaintenanceMetrics

FreeBytes = Callable[[], int | None]
"""Number of bytes that may be written to the store before its disk is full; None if it has no such limit."""

logger = logging.getLogger(__name__)


def without_limit() -> int | None:
    """The free space of a store that is not a disk."""
    return None


class SpaceCheck:
    """Checks the free space, and reports which duty waits: once in the log, and in the metric for as long as
    it lasts. A duty stops waiting after a whole pass without a refusal: a small rewrite may fit while a large
    one does not."""

    def __init__(self, free_bytes: FreeBytes, metrics: MaintenanceMetrics) -> None:
        self._free_bytes = free_bytes
        self._waiting_bytes = metrics.waiting_bytes
        self._waiting: set[str] = set()
        self._refused: dict[str, int] = {}
        """The largest rewrite that did not fit in the current pass, by duty."""

    def has_room(self, duty: str, needed: int) -> bool:
        """Whether `duty` may write `needed` bytes now."""
        free = self._free_bytes()
        if free is None or needed <= free:
            return True
        self._refused[duty] = max(needed, self._refused.get(duty, 0))
        self._waiting_bytes.labels(duty).set(self._refused[duty])
        if duty not in self._waiting:
            self._waiting.add(duty)
            logger.warning(
                "not enough room on the disk; maintenance waits",
                extra={"duty": duty, "needed_bytes": needed, "free_bytes": max(free, 0)},
            )
        return False

    def end_pass(self, duty: str) -> None:
        """Call it when everything due has been checked."""
        if self._refused.pop(duty, 0) or duty not in self._waiting:
            return
        self._waiting.discard(duty)
        self._waiting_bytes.labels(duty).set(0)
        logger.info("room on the disk again; maintenance goes on", extra={"duty": duty})
