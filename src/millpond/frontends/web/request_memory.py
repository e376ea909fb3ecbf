"""Accounts for the bytes of requests and responses in memory, limited per request and in total.

Only received bytes count: a client that announces a large body and sends nothing takes no memory from others.
When memory runs out and most of it belongs to bodies that are still being received, the worst of those
requests is aborted.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive

from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.limits import WebLimits

IDLE_S_MIN = 0.01
"""Added to the idle time. Without it, a body that was active right now would weigh nothing."""


class ClientGone(Exception):
    """The client has disconnected; no response can be sent."""


class Holding:
    """The memory of one request. `receiving` is the task that waits for the rest of its body."""

    def __init__(self, bodies: "RequestMemory") -> None:
        self._bodies = bodies
        self.bytes = 0
        self.last_received_at = 0.0
        self.receiving: asyncio.Task[Any] | None = None
        self.aborted = False

    def add(self, count: int) -> None:
        self._bodies.take(self, count)

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
            self.add(len(chunk))
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _next(self, receive: Receive) -> Mapping[str, Any]:
        self.receiving = asyncio.current_task()
        self.last_received_at = asyncio.get_running_loop().time()
        try:
            return await receive()
        except asyncio.CancelledError:
            if self.aborted and self.receiving is not None:
                self.receiving.uncancel()
                raise HttpError(
                    408, "BodyTooSlow", "Memory was short, and this body did not go on.", retriable=True
                ) from None
            raise
        finally:
            self.receiving = None

    def abort(self) -> None:
        assert self.receiving is not None, "only a body that is waited for can be given up"
        self.aborted = True
        self.receiving.cancel()


class RequestMemory:
    """The memory of all requests. Changes only between awaits."""

    def __init__(self, limits: WebLimits) -> None:
        self._limits = limits
        self._holdings: set[Holding] = set()
        self.held_bytes = 0

    @contextmanager
    def holding(self) -> Iterator[Holding]:
        holding = Holding(self)
        self._holdings.add(holding)
        try:
            yield holding
        finally:
            self._holdings.discard(holding)
            self.held_bytes -= holding.bytes

    def take(self, holding: Holding, count: int) -> None:
        if self.held_bytes + count > self._limits.requests_bytes_max:
            self._make_room()
            raise HttpError(
                503,
                "OutOfMemory",
                "Too many bytes of requests are in memory.",
                retriable=True,
                details={"limit": self._limits.requests_bytes_max},
            )
        self.held_bytes += count
        holding.bytes += count

    def _make_room(self) -> None:
        stuck = [each for each in self._holdings if each.receiving is not None and not each.aborted]
        if sum(each.bytes for each in stuck) * 2 > self._limits.requests_bytes_max:
            now = asyncio.get_running_loop().time()
            max(stuck, key=lambda each: each.bytes * (now - each.last_received_at + IDLE_S_MIN)).abort()


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
