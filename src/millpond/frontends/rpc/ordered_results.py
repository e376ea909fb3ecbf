"""Returns the results of a stream in request order, several in one response if several are ready."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Pipeline(Generic[T]):
    """One task calls `put`, another calls `take`. Changes only between awaits."""

    def __init__(self, room: int) -> None:
        self._room = asyncio.Semaphore(room)
        self._waiting: deque[asyncio.Future[T]] = deque()
        self._changed = asyncio.Event()
        self._ended = False

    async def put(self, result: "asyncio.Future[T]") -> None:
        """Waits while the pipeline is full."""
        await self._room.acquire()
        self._waiting.append(result)
        self._changed.set()

    def end(self) -> None:
        """Declare that no more results will be put."""
        self._ended = True
        self._changed.set()

    async def take(self, most: int) -> list[T]:
        """Returns the next results, or an empty list when all have been taken and the pipeline has ended."""
        while not self._waiting:
            if self._ended:
                return []
            self._changed.clear()
            await self._changed.wait()
        await asyncio.wait([self._waiting[0]])
        taken: list[T] = []
        while self._waiting and self._waiting[0].done() and len(taken) < most:
            taken.append(self._waiting.popleft().result())
            self._room.release()
        return taken
