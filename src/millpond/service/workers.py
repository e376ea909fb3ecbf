"""Threads on which many messages are encoded and decoded, so that nobody on the event loop waits for it.

Their own, and few: what they do holds the interpreter, and a slow store must not hold it up. What takes very long has
a thread apart, so that it holds up only its like.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 2

Answer = TypeVar("Answer")


class Workers:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="millpond-messages")
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="millpond-many-messages")

    async def run(self, work: Callable[[], Answer], *, slow: bool = False) -> Answer:
        pool = self._slow if slow else self._pool
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def close(self) -> None:
        for pool in (self._pool, self._slow):
            await asyncio.to_thread(pool.shutdown)
