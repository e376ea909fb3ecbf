"""Limits the log lines that clients can cause before they have authenticated, so that they cannot fill the disk."""

import time
from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 60.0
LINES_PER_WINDOW_MAX: Final = 600


class LineLimit:
    """The limit of one kind of line. Lives on one event loop."""

    def __init__(
        self, lines_max: int = LINES_PER_WINDOW_MAX, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines_max = lines_max
        self._now_s = now_s
        self._since_s = now_s()
        self._lines = 0
        self._unlogged = 0

    def admits(self) -> bool:
        """Whether to log one more line now."""
        now_s = self._now_s()
        if now_s - self._since_s >= WINDOW_S:
            self._since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines > self._lines_max:
            self._unlogged += 1
            return False
        return True

    def take_unlogged(self) -> int | None:
        """Number of lines that were left out since the last one that was logged: a field of the next one. None if there
        were none."""
        found, self._unlogged = self._unlogged, 0
        return found or None
