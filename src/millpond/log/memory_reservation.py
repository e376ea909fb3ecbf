"""Reserves memory for fetches, up to a limit: callers wait until enough bytes are free, first come, first served.

State changes only between awaits.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class MemoryReservation:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = asyncio.Lock()
        self._freed: asyncio.Future[None] | None = None
        self.used = 0

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Reserve `size` bytes for the duration of the block, at most all there are."""
        size = min(size, self._bytes_max)
        async with self._lock:
            while self.used + size > self._bytes_max:
                self._freed = asyncio.get_running_loop().create_future()
                await self._freed
            self.used += size
        try:
            yield
        finally:
            self.used -= size
            if self._freed is not None and not self._freed.done():
                self._freed.set_result(None)
