"""Treats Ctrl-C as a request to finish: it is handled between two messages, so that none is half done or
miscounted.

It interrupts immediately only while a command waits for input, which may never come. A second Ctrl-C
interrupts anywhere.
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
        """Use it around a read that may block forever. Raises KeyboardInterrupt when Ctrl-C is pressed or was
        pressed before."""
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
