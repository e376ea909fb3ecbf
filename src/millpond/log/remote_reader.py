"""Reads partitions regardless of their owner, from the catalog and the store, which hold everything committed.

Results are as correct as the owner's but slower: nothing is cached, and appends do not wake up waiting
readers. Used to read several partitions with different owners, and where all partitions of a topic must be
visible.
"""

from collections.abc import Awaitable, Callable

from millpond.catalog import partitions, transactions
from millpond.catalog.database import CatalogTransaction
from millpond.log.fetcher import UNKNOWN_OFFSET, FetchRequest, FetchResult, failed
from millpond.model.errors import MillpondError, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.reading.reader import StoreReader
from millpond.reading.runs import Run, take
from millpond.topology import ReadCatalog


class RemoteReader:
    def __init__(
        self,
        reader: StoreReader,
        read_catalog: ReadCatalog,
        in_pool: Callable[[Callable[[], list[Run]]], Awaitable[list[Run]]],
    ) -> None:
        self._reader = reader
        self._read_catalog = read_catalog
        self._in_pool = in_pool

    async def fetch(self, request: FetchRequest, *, read_committed: bool) -> FetchResult:
        """Like `Log.fetch` for one partition, without waiting. An error is returned in the result."""
        log_start = end = UNKNOWN_OFFSET
        try:
            log_start, end, stable = await self._read_catalog(lambda tx: _bounds(tx, request.topic_partition))
            _check(request.offset, log_start, end)
            limit = stable if read_committed else end
            return await self._read(request, log_start, end, limit, read_committed)
        except MillpondError as error:
            return failed(request, error, log_start, end)

    async def _read(
        self, request: FetchRequest, log_start: int, end: int, limit: int, read_committed: bool
    ) -> FetchResult:
        topic_partition, offset = request.topic_partition, request.offset
        if offset >= limit:
            return FetchResult(topic_partition, (), offset, log_start, end, limit)
        runs = await self._in_pool(lambda: self._reader.read_runs(topic_partition, offset, request.bytes_max))
        batches, following = take(runs, offset, request.bytes_max, limit) if runs else ([], limit)
        aborted = []
        if read_committed and batches:
            aborted = await self._read_catalog(
                lambda tx: transactions.aborted(tx, topic_partition, offset, following)
            )
        now = await self._read_catalog(lambda tx: partitions.read(tx, topic_partition))
        # Check the offset again: the list of aborted transactions expires together with its records.
        _check(offset, now.log_start, now.end_offset)
        return FetchResult(topic_partition, batches, following, log_start, end, limit, aborted)


def _bounds(tx: CatalogTransaction, topic_partition: TopicPartition) -> tuple[int, int, int]:
    """The log start, the end offset, and the last stable offset: where records with open transactions begin."""
    log_start = partitions.read(tx, topic_partition).log_start
    found = transactions.of_partition(tx, topic_partition, aborted_max=1)
    open_from = [first for _, first in found.open.values() if first is not None]
    stable = min([found.end_offset, *open_from])
    return log_start, found.end_offset, max(stable, log_start)


def _check(offset: int, log_start: int, end: int) -> None:
    if not log_start <= offset <= end:
        raise OffsetOutOfRange(offset=offset, log_start=log_start, end_offset=end)
