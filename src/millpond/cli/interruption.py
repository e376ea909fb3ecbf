"""Ctrl-C as a request to finish: noticed between two messages, so that nothing is half done or miscounted.

Only where a command waits for its input, which may never come, does it interrupt; the second Ctrl-C interrupts
anywhere.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self


class Interruption:
    """`with Interruption() as interruption:` in the main thread."""

    def __init__(self) -> None:
        self.requested = False
        self._waits = False

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._notice)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._previous)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Around a read that may take for ever. Raises KeyboardInterrupt when Ctrl-C is pressed or was pressed."""
        self._waits = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._waits = False

    def _notice(self, number: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if self._waits or again:
            raise KeyboardInterrupt
