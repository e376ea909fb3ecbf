"""The thread pools of the log. Reading the catalog and reading the records of incoming batches have separate
pools: a slow store must not delay groups and producers."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millpond.catalog.database import CatalogTransaction, Database
from millpond.model.errors import Stopping

T = TypeVar("T")


class Threads:
    """After `stop`, every call raises `Stopping`."""

    def __init__(self, database: Database, *, for_store: int, for_catalog: int, for_batches: int) -> None:
        self._database = database
        self._pool = ThreadPoolExecutor(for_store, thread_name_prefix="millpond-read")
        self._catalog_pool = ThreadPoolExecutor(for_catalog, thread_name_prefix="millpond-catalog")
        self._batch_pool = ThreadPoolExecutor(for_batches, thread_name_prefix="millpond-batch")
        self._stopped = False

    async def read(self, function: Callable[[CatalogTransaction], T]) -> T:
        """Run a catalog read."""

        def run() -> T:
            with self._database.read() as tx:
                return function(tx)

        return await self._in(self._catalog_pool, run)

    async def in_pool(self, function: Callable[[], T]) -> T:
        """Run a function that reads the store or takes long."""
        return await self._in(self._pool, function)

    async def run_on_batch_threads(self, function: Callable[[], T]) -> T:
        """Run a function that reads the records of an incoming batch."""
        return await self._in(self._batch_pool, function)

    async def stop(self) -> None:
        self._stopped = True
        for pool in (self._pool, self._catalog_pool, self._batch_pool):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)  # no caller is left

    async def _in(self, pool: ThreadPoolExecutor, function: Callable[[], T]) -> T:
        if self._stopped:
            raise Stopping
        return await asyncio.get_running_loop().run_in_executor(pool, function)
