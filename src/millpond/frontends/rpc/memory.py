"""Accounts for the memory of requests and responses of the gRPC interface, and enforces its limits.

A request beyond the limit is refused, and its client retries. A response is never refused: the more responses
are in memory, the smaller the next ones get. Clients that do not read their responses only slow down the others.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.frontends.rpc.context import Context
from millpond.model.errors import Overloaded

SHARE = 16
"""One response gets at most this fraction of the remaining memory."""


class RequestAdmission:
    """Counts the calls in progress and the size of their requests. Changes only between awaits."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call as in progress while the context is open."""
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def until_idle(self) -> None:
        """Wait until no call is in progress."""
        await self._idle.wait()

    @contextmanager
    def admitted(self, size: int) -> Iterator[None]:
        """Admit a request or raise Overloaded. A single request is always admitted, whatever its size."""
        if self.held_bytes and self.held_bytes + size > self._bytes_max:
            raise Overloaded(waiting=self.held_bytes, limit=self._bytes_max)
        self.held_bytes += size
        try:
            yield
        finally:
            self.held_bytes -= size


class ResponseMemory:
    """Counts the bytes of responses being built or sent. Changes only between awaits."""

    def __init__(self, bytes_max: int, bytes_min: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_min = bytes_min
        self.held_bytes = 0

    def room(self, asked: int) -> int:
        """Maximum size of the next response; a single larger message is still returned."""
        left = (self._bytes_max - self.held_bytes) // SHARE
        return min(asked, max(left, self._bytes_min))

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        self.held_bytes += size
        try:
            yield
        finally:
            self.held_bytes -= size

    def hold(self, size: int) -> None:
        self.held_bytes += size

    def hold_until_sent(self, size: int, context: Context) -> None:
        """For the response of a unary call: gRPC reports when the call is done."""
        self.hold(size)
        context.add_done_callback(lambda: self.hold(-size))
