"""Threads that encode and decode large numbers of messages, so that they do not block the event loop.

The pool is separate, so that a slow store cannot delay it, and small, because its work holds the interpreter lock.
Very long work has a separate thread, so that it delays only other long work.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 2

T = TypeVar("T")


class Workers:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="millpond-messages")
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="millpond-many-messages")

    async def run(self, work: Callable[[], T], *, slow: bool = False) -> T:
        pool = self._slow if slow else self._pool
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def close(self) -> None:
        for pool in (self._pool, self._slow):
            await asyncio.to_thread(pool.shutdown)
