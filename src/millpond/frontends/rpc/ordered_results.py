"""Collects the results of a stream of requests and returns them in request order, all that are ready at once."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderedResults(Generic[T]):
    """One task calls `put`, another calls `take`. Changes only between awaits."""

    def __init__(self, room: int) -> None:
        self._room = asyncio.Semaphore(room)
        self._waiting: deque[asyncio.Future[T]] = deque()
        self._changed = asyncio.Event()
        self._ended = False

    async def put(self, result: "asyncio.Future[T]") -> None:
        """Add the result of the next request. Waits while too many results are unread."""
        await self._room.acquire()
        self._waiting.append(result)
        self._changed.set()

    def end(self) -> None:
        """Declare that no more results will be put."""
        self._ended = True
        self._changed.set()

    async def take(self, most: int) -> list[T]:
        """Returns the next results, at most `most`; waits for the first. An empty list means that all have been
        taken and no more will be put."""
        while not self._waiting:
            if self._ended:
                return []
            self._changed.clear()
            await self._changed.wait()
        await asyncio.wait([self._waiting[0]])
        ready: list[T] = []
        while self._waiting and self._waiting[0].done() and len(ready) < most:
            ready.append(self._waiting.popleft().result())
            self._room.release()
        return ready
