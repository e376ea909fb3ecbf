"""Threads for requests to identity providers: one that does not respond must not hold the threads of other work."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 8
"""More than there are requests at a time: exchanges of codes (`EXCHANGES_MAX`), the description, two sets of keys."""

T = TypeVar("T")


class ProviderThreads:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="millpond-identity")

    async def run(self, work: Callable[[], T], /) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Requests end by themselves at their deadline; nothing waits for them."""
        self._pool.shutdown(wait=False, cancel_futures=True)
