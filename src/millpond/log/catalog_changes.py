"""Changes to topics and log starts: each is committed to the catalog, then applied to this broker's state.

A change that has started is completed even if the caller is gone: a committed change must also be applied here.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from millpond.catalog import extents, partitions, topics, topology, transactions
from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction
from millpond.log.catalog_view import CatalogView
from millpond.log.partition import LogPartition
from millpond.log.writer import Writer
from millpond.model.clock import Clock
from millpond.model.errors import ExtentsChanged, OffsetOutOfRange, TopicExists
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.topology import Peers, TopicRegistry

EVERYTHING = -1
REMOVED_PER_STEP = 1_000
"""Maximum number of extents that one transaction removes; the next transaction continues."""

T = TypeVar("T")


class CatalogChanges:
    def __init__(
        self,
        writer: Writer,
        view: CatalogView,
        topics: TopicRegistry,
        peers: Peers,
        *,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._view = view
        self._topics = topics
        self._clock = clock
        self._peers = peers
        self._in_flight: set[asyncio.Task[Any]] = set()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def finish(self) -> None:
        """Wait for the changes in flight."""
        if self._in_flight:
            await asyncio.wait(self._in_flight)

    # -- topics -----------------------------------------------------------------------------------------------

    async def create_topic(self, name: str, count: int, overrides: Mapping[str, str]) -> Topic:
        def create(tx: CatalogTransaction) -> None:
            topics.create(tx, name, count, overrides, now_ms=self._clock.now_ms())

        try:
            return await self._to_the_end(self._change_one(name, create))
        except TopicExists:
            if not self._topics.knows(name):
                await self._view.refresh()
            raise

    async def add_partitions(self, name: str, total: int) -> Topic:
        return await self._to_the_end(
            self._change_one(name, lambda tx: topics.add_partitions(tx, name, total))
        )

    async def alter_config(self, name: str, changes: Mapping[str, str | None]) -> Topic:
        return await self._to_the_end(
            self._change_one(name, lambda tx: topics.alter_config(tx, name, changes))
        )

    async def delete_topic(self, name: str) -> None:
        def delete(tx: CatalogTransaction) -> None:
            topics.delete(tx, name, now_ms=self._clock.now_ms())

        await self._to_the_end(self._change_all(delete))

    async def _change_one(self, name: str, operation: CommitOperation) -> Topic:
        """Write, then reload only this topic, because a broker may have thousands."""

        def write(tx: CatalogTransaction) -> int:
            operation(tx)
            return topology.version(tx)

        version: int = await self._writer.run(write, own_commit=True)
        known = await self._view.reload_topic(name, version)
        await self._peers.notify_all_and_wait()
        return known

    async def _change_all(self, operation: CommitOperation) -> None:
        await self._writer.run(operation, own_commit=True)
        await self._view.refresh()
        await self._peers.notify_all_and_wait()

    # -- records ----------------------------------------------------------------------------------------------

    async def delete_records(self, partition: LogPartition, offset: int, bytes_seen: int) -> int:
        """See `Log.delete_records`."""
        wanted = partition.end_offset if offset == EVERYTHING else offset
        if wanted < 0:
            raise OffsetOutOfRange(
                offset=offset, log_start=partition.log_start, end_offset=partition.end_offset
            )
        return await self._to_the_end(self._delete_below(partition, wanted, bytes_seen))

    async def _delete_below(self, partition: LogPartition, offset: int, bytes_seen: int) -> int:
        topic_partition = partition.topic_partition
        log_start: int = await self._writer.run(lambda tx: _advance(tx, topic_partition, offset, bytes_seen))
        partition.log_start = max(partition.log_start, log_start)

        def remove(tx: CatalogTransaction) -> int:
            return _remove_below(tx, topic_partition, log_start, now_ms=self._clock.now_ms())

        while await self._writer.run(remove, own_commit=True) == REMOVED_PER_STEP:
            pass
        return log_start

    # -- inside -----------------------------------------------------------------------------------------------

    async def _to_the_end(self, change: Coroutine[Any, Any, T]) -> T:
        """Run the change to completion, even if the caller is cancelled."""
        task = asyncio.create_task(change)
        self._in_flight.add(task)
        task.add_done_callback(self._on_done)
        return await asyncio.shield(task)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: asyncio logs no warning if the caller is gone


def _advance(tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, bytes_seen: int) -> int:
    """Advancing the log start locks the partition's row, so the size that is read afterwards stays valid."""
    log_start = partitions.advance_log_start(tx, topic_partition, offset)
    if bytes_seen and partitions.read(tx, topic_partition).bytes < bytes_seen:
        raise ExtentsChanged
    return log_start


def _remove_below(
    tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, *, now_ms: int
) -> int:
    """The log start in memory has already moved, so no reader below it can still ask for aborted transactions."""
    removed = extents.remove_below(tx, topic_partition, offset, limit=REMOVED_PER_STEP, now_ms=now_ms)
    transactions.forget_aborted(tx, topic_partition, offset)
    return removed
