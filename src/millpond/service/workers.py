"""Threads on which many messages are encoded and decoded, so that nobody on the event loop waits for it.

Their own, and few: what they do holds the interpreter, and a slow store must not hold it up.
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

    async def run(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)
