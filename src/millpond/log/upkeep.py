"""The log as maintenance uses it: this broker's partitions, their stored bytes and rows, and what is cached of them.

Maintenance reads the store and the catalog on the threads of `in_pool`, which lagging readers share. `catalog_read`,
`read_runs`, `read_extent` and `read_from` block, and are for functions that run there; the others are for the event
loop.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction, Database
from millpond.log.fetcher import Fetcher
from millpond.log.flusher import Flusher
from millpond.log.inline import InlineBytes
from millpond.log.owned_partitions import OwnedPartitions
from millpond.log.partition import LogPartition
from millpond.log.record_deletion import RecordDeletion
from millpond.log.threads import Threads
from millpond.log.waiters import Waiters
from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.reading.reader import StoreReader
from millpond.reading.runs import Run
from millpond.topology import TopicRegistry, WriteCatalog

T = TypeVar("T")


class Upkeep:
    def __init__(
        self,
        database: Database,
        reader: StoreReader,
        threads: Threads,
        write: WriteCatalog,
        *,
        topics: TopicRegistry,
        owned: OwnedPartitions,
        record_deletion: RecordDeletion,
        inline: InlineBytes,
        waiters: Waiters,
        flusher: Flusher,
        fetcher: Fetcher,
    ) -> None:
        self.topics = topics
        self._database = database
        self._reader = reader
        self._threads = threads
        self._write = write
        self._owned = owned
        self._record_deletion = record_deletion
        self._inline = inline
        self._waiters = waiters
        self._flusher = flusher
        self._fetcher = fetcher

    # -- the event loop ---------------------------------------------------------------------------------------

    async def read(self, function: Callable[[CatalogTransaction], T]) -> T:
        """Run a catalog read on the catalog threads."""
        return await self._threads.read(function)

    async def write(self, operation: CommitOperation, *, own_commit: bool = False) -> Any:
        """Run a catalog operation through the commit queue. One that rewrites or removes extents must set
        `own_commit`."""
        return await self._write(operation, own_commit=own_commit)

    async def in_pool(self, function: Callable[[], T]) -> T:
        """Run a function that reads the store or takes long, on the threads for lagging readers."""
        return await self._threads.in_pool(function)

    async def delete_records(
        self, topic_partition: TopicPartition, offset: int, *, bytes_seen: int = 0
    ) -> int:
        """See `Log.delete_records`."""
        return await self._record_deletion.delete_below(self.partition(topic_partition), offset, bytes_seen)

    def partition(self, topic_partition: TopicPartition) -> LogPartition:
        """This broker's state of a partition that it serves."""
        return self._owned.served(topic_partition)

    def partitions(self) -> list[LogPartition]:
        return self._owned.all()

    def take_grown(self) -> dict[TopicPartition, int]:
        """Partitions that have grown since the last call, each with the offset it grew from."""
        return self._owned.take_grown()

    def forget_cached(self, topic_partition: TopicPartition) -> None:
        """Drop the cached records of a partition that was compacted: readers must not receive them any more."""
        self._owned.forget_cached(topic_partition)

    @property
    def moved_bytes(self) -> int:
        """Bytes made durable or returned to readers since the start."""
        return self._flusher.appended_bytes + self._fetcher.fetched_bytes

    @property
    def needs_merging(self) -> bool:
        """Whether inline bytes fill the catalog. See `InlineBytes`."""
        return self._inline.needs_merging

    def found_inline(self, topic_partition: TopicPartition, size: int) -> None:
        """The catalog has this many inline bytes of a partition."""
        self._inline.found(topic_partition, size)

    # -- the threads of `in_pool` -----------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether the log stops. A long task must then end."""
        return self._waiters.closed

    def catalog_read(self) -> AbstractContextManager[CatalogTransaction]:
        """A catalog transaction that only reads."""
        return self._database.read()

    def read_runs(self, topic_partition: TopicPartition, offset: int, bytes_wanted: int) -> list[Run]:
        """See `StoreReader.read_runs`."""
        return self._reader.read_runs(topic_partition, offset, bytes_wanted)

    def read_extent(self, extent: Extent) -> Run:
        """See `StoreReader.read_extent`."""
        return self._reader.read_extent(extent)

    def read_from(self, extent: Extent, offset: int, bytes_wanted: int) -> Run:
        """See `StoreReader.read_from`."""
        return self._reader.read_from(extent, offset, bytes_wanted)
