"""Accounts for the bytes of requests and responses in memory, and limits them per request and in total.

Only received bytes count, so a client that announces a large body and sends nothing reserves nothing. A request that
exceeds the total limit is refused. If more than half of the limit is then held by bodies that are still being
received, the one with the highest product of size and idle time is aborted as well.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive

from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.limits import WebLimits

IDLE_S_MIN = 0.01
"""Added to the idle time. Without it, the product would be 0 for a body that received bytes just now, whatever its
size."""


class ClientGone(Exception):
    """The client has disconnected; no response can be sent."""


class RequestAllocation:
    """The bytes of one request and its response. `receiving` is the task that waits for the rest of the body, if
    any."""

    def __init__(self, memory: "RequestMemory") -> None:
        self._memory = memory
        self.bytes = 0
        self.last_received_at = 0.0
        self.receiving: asyncio.Task[Any] | None = None
        self.is_aborted = False

    def reserve(self, count: int) -> None:
        self._memory.reserve(self, count)

    async def read(self, receive: Receive, announced: int | None, bytes_max: int) -> bytes:
        """Read the whole body."""
        if announced is not None and announced > bytes_max:
            raise _too_large(bytes_max)
        chunks: list[bytes] = []
        more = True
        while more:
            message = await self._next(receive)
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            if self.bytes + len(chunk) > bytes_max:
                raise _too_large(bytes_max)
            self.reserve(len(chunk))
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _next(self, receive: Receive) -> Mapping[str, Any]:
        self.receiving = asyncio.current_task()
        self.last_received_at = asyncio.get_running_loop().time()
        try:
            return await receive()
        except asyncio.CancelledError:
            if self.is_aborted and self.receiving is not None:
                self.receiving.uncancel()
                raise HttpError(
                    408,
                    "BodyTooSlow",
                    "The broker ran out of memory for requests, and this body was too slow.",
                    retriable=True,
                ) from None
            raise
        finally:
            self.receiving = None

    def abort(self) -> None:
        assert self.receiving is not None, "only a body that is being received can be aborted"
        self.is_aborted = True
        self.receiving.cancel()


class RequestMemory:
    """The bytes of all requests and their responses. Changes only between awaits."""

    def __init__(self, limits: WebLimits) -> None:
        self._limits = limits
        self._allocations: set[RequestAllocation] = set()
        self.held_bytes = 0

    @contextmanager
    def allocate(self) -> Iterator[RequestAllocation]:
        allocation = RequestAllocation(self)
        self._allocations.add(allocation)
        try:
            yield allocation
        finally:
            self._allocations.discard(allocation)
            self.held_bytes -= allocation.bytes

    def reserve(self, allocation: RequestAllocation, count: int) -> None:
        if self.held_bytes + count > self._limits.requests_bytes_max:
            self._make_room()
            raise HttpError(
                503,
                "OutOfMemory",
                "The broker has no memory left for more requests.",
                retriable=True,
                details={"limit": self._limits.requests_bytes_max},
            )
        self.held_bytes += count
        allocation.bytes += count

    def _make_room(self) -> None:
        receiving = [each for each in self._allocations if each.receiving is not None and not each.is_aborted]
        if sum(each.bytes for each in receiving) * 2 > self._limits.requests_bytes_max:
            now = asyncio.get_running_loop().time()
            max(receiving, key=lambda each: each.bytes * (now - each.last_received_at + IDLE_S_MIN)).abort()


async def chunks_of(receive: Receive) -> AsyncGenerator[bytes, None]:
    """Yields a body as it arrives, for a handler that does its own memory accounting."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        if chunk := message.get("body", b""):
            yield chunk


def _too_large(bytes_max: int) -> HttpError:
    return HttpError(
        413, "RequestTooLarge", f"The body is larger than {bytes_max} bytes.", details={"limit": bytes_max}
    )
