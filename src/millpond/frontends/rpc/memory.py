"""How much of the broker's memory requests and answers of this face take, and what is done about it.

A request past the limit is refused, and its client tries again. An answer is never refused: the more there are, the
smaller the next ones get, so that those who do not read theirs take nothing from the others but speed.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc

from millpond.model.errors import Overloaded

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
SHARE = 16
"""One answer gets at most this part of what is left."""


class Intake:
    """Calls, and bytes of requests, that are being dealt with. Changes only between awaits."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def call(self) -> Iterator[None]:
        """As long as a call is being answered."""
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def until_idle(self) -> None:
        """Until no call is being answered."""
        await self._idle.wait()

    @contextmanager
    def admitted(self, size: int) -> Iterator[None]:
        """A single one is always let in, whatever its size."""
        if self.held_bytes and self.held_bytes + size > self._bytes_max:
            raise Overloaded(waiting=self.held_bytes, limit=self._bytes_max)
        self.held_bytes += size
        try:
            yield
        finally:
            self.held_bytes -= size


class Answers:
    """Bytes of answers that are being made or sent. Changes only between awaits."""

    def __init__(self, bytes_max: int, bytes_min: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_min = bytes_min
        self.held_bytes = 0

    def room(self, asked: int) -> int:
        """How large the next answer may be; a single larger message still goes out."""
        left = (self._bytes_max - self.held_bytes) // SHARE
        return min(asked, max(left, self._bytes_min))

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        self.hold(size)
        try:
            yield
        finally:
            self.hold(-size)

    def hold(self, size: int) -> None:
        self.held_bytes += size

    def hold_until_sent(self, size: int, context: Context) -> None:
        """For the answer of a call that has only one: gRPC says when it is through with it."""
        self.hold(size)
        context.add_done_callback(lambda _: self.hold(-size))  # type: ignore[arg-type]  # a function will do
