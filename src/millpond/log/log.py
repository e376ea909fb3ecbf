"""The log: append, fetch, find offsets, manage topics. The one door through which every face comes.

Reading order for a newcomer: `appender`, `buffer`, `flusher`, `writer`, `landing` (the way in); `fetcher`, and `plan`
and `reader` of `reading/` (the way out); `owned` and `view` (what this broker serves, and how it hears of it);
`changes` (topics). Lives on one event loop; its state changes only between awaits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from millpond.catalog.commits import Committer, Operation
from millpond.catalog.database import Database, Transaction
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.topology import Topology
from millpond.catalog.transactions import Markers, Producer
from millpond.log.appender import Appender
from millpond.log.buffer import AppendResult
from millpond.log.changes import Changes
from millpond.log.elsewhere import Elsewhere
from millpond.log.fetcher import Fetcher, FetchRequest, FetchResult
from millpond.log.flusher import Flusher
from millpond.log.inline import InlineBytes
from millpond.log.landing import Landing
from millpond.log.limits import LogLimits
from millpond.log.owned import OwnedPartitions
from millpond.log.partition import Partition
from millpond.log.tail import TailCache
from millpond.log.threads import Threads
from millpond.log.topics import TopicRegistry
from millpond.log.view import CatalogView
from millpond.log.waiters import Waiters
from millpond.log.writer import Writer
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError, Unavailable
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import Topic
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import LogMetrics
from millpond.reading.offsets import OffsetFinder, TimedOffset
from millpond.reading.reader import StoreReader
from millpond.records import Buffer

Answer = TypeVar("Answer")


async def _nobody_else() -> None:
    """For a log that shares its catalog with no other broker."""


class Log:
    """Open it inside the running loop with `start`, leave it with `stop`."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        session: Session,
        *,
        clock: Clock,
        limits: LogLimits,
        broker_defaults: Mapping[str, str],
        metrics: LogMetrics,
        on_failure: Callable[[MillpondError], None],
        has_lease: Callable[[], bool] = lambda: True,
        on_topology: Callable[[Topology], None] = lambda _: None,
        tell_others: Callable[[], Awaitable[None]] = _nobody_else,
        tell_owner: Callable[[TopicPartition], None] = lambda _: None,
        shares_catalog: bool = False,
        make_writer: Callable[..., Writer] = Writer,
        random: Random | None = None,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`has_lease` says whether nobody else can own this broker's partitions by now. With `shares_catalog` other
        brokers may make topics, too. `check_room` raises what appends are refused with while the disk is full."""
        self.database = database
        self.topics = TopicRegistry(broker_defaults)
        self.waiters = Waiters()
        self.reader = StoreReader(database, store, extents_per_read=limits.extents_per_read)
        self.inline = InlineBytes(limits.inline_bytes_kept_max)
        metrics.inline_bytes.set_function(lambda: self.inline.total)
        self._tails = TailCache(limits.tail_bytes_max)
        self._threads = Threads(
            database,
            for_store=limits.read_threads,
            for_catalog=limits.catalog_threads,
            for_batches=limits.batch_threads,
        )
        self._owned = OwnedPartitions(
            session,
            self.topics,
            self.waiters,
            self._tails,
            self.inline,
            metrics,
            has_lease=has_lease,
            forget_read=lambda where: self._fetcher.forget(where),
        )
        self._view = CatalogView(
            self._threads,
            session,
            self.topics,
            self._owned,
            on_topology=on_topology,
            shares_catalog=shares_catalog,
        )
        self._fetcher = Fetcher(
            self.reader,
            self.waiters,
            self._threads.in_pool,
            self._threads.read,
            limits,
            metrics,
            self._owned.served,
        )
        self._elsewhere = Elsewhere(self.reader, self._threads.read, self._threads.in_pool)
        self._finder = OffsetFinder(
            database, self.reader, decompressed_bytes_max=limits.decompressed_bytes_max
        )
        self.writer = make_writer(
            database,
            Committer(database, session, random=random),
            foreign_check_ms=limits.foreign_check_ms,
            on_change=self._view.on_foreign_change,
            on_failure=on_failure,
        )
        self._landing = Landing(
            self._owned,
            self._tails,
            metrics,
            tell_owner=tell_owner,
            on_not_owner=self._view.on_foreign_change,
        )
        self._flusher = Flusher(
            store,
            self.writer,
            session=session,
            clock=clock,
            limits=limits,
            metrics=metrics,
            epoch_of=self._owned.epoch_of,
            joint_epoch_of=self._owned.joint_epoch_of,
            end_of=self._owned.end_of,
            inline=self.inline,
            committed=self._landing.committed,
            failed=self._landing.failed,
            check_room=check_room,
        )
        self._appender = Appender(
            self._flusher,
            self._owned,
            self.topics,
            self._threads,
            clock=clock,
            decompressed_bytes_max=limits.decompressed_bytes_max,
        )
        self._changes = Changes(self.writer, self._view, self.topics, clock=clock, tell_others=tell_others)

    async def start(self) -> None:
        """The session is registered and owns its partitions already; load what it owns."""
        self.writer.start()
        await self.refresh()

    async def drain(self) -> None:
        """Take nothing more, and answer what was taken. Nothing that counts needs the store afterwards."""
        await self._flusher.drain()
        await self._changes.finish()
        await self.writer.stop()

    async def stop(self) -> None:
        """Drain, and end the threads: each finishes what it is at."""
        await self.drain()
        await self._view.stop()
        self.waiters.close()
        await self._threads.stop()
        await asyncio.to_thread(self.reader.close)

    # -- writing ----------------------------------------------------------------------------------------------

    async def append(self, where: TopicPartition, data: Buffer) -> AppendResult:
        """Durably append whole record batches; returns when they have offsets. See `submit`."""
        return await (await self._appender.submit(where, data))

    def submit(
        self, where: TopicPartition, data: Buffer
    ) -> "Coroutine[Any, Any, asyncio.Future[AppendResult]]":
        """Accept record batches; the future is their answer. Batches are appended in the order in which their
        submits returned. A writable buffer becomes the log's own: it is stamped in place."""
        return self._appender.submit(where, data)

    def check(self, where: TopicPartition, data: Buffer) -> None:
        """Raise what `submit` would refuse these batches with at once. For those who submit several, and want either
        all of them accepted or none."""
        self._appender.check(where, data)

    async def check_planned(self, topic: Topic, data: Buffer) -> None:
        """Raise what `submit` would refuse these batches with in a topic like this one, which does not exist yet."""
        await self._appender.check_planned(topic, data)

    async def append_jointly(
        self, appends: Mapping[TopicPartition, Buffer], also: Operation
    ) -> dict[TopicPartition, AppendResult]:
        """Append batches to several partitions, whoever owns them, and run an operation of the catalog, all in one
        commit: either everything of it happens or nothing. The batches may not have producers' sequences."""
        return await self._appender.append_jointly(appends, also)

    async def submit_jointly(
        self, appends: Mapping[TopicPartition, Buffer], also: Operation
    ) -> "asyncio.Future[dict[TopicPartition, AppendResult]]":
        """What `append_jointly` does, in the order of submits: what was submitted before comes before it."""
        return await self._appender.submit_jointly(appends, also)

    def check_joint(self, where: TopicPartition, data: Buffer) -> None:
        """Raise what `append_jointly` would refuse these batches with at once."""
        self._appender.check_joint(where, data)

    async def delete_records(self, where: TopicPartition, offset: int, *, bytes_seen: int = 0) -> int:
        """Forget everything below `offset` (-1: everything); returns the new log start. Whoever deletes because the
        partition has `bytes_seen` is refused with `ExtentsChanged` if it has become smaller."""
        return await self._changes.delete_records(self.partition(where), offset, bytes_seen)

    async def write(
        self,
        operation: Operation,
        then: Callable[[Any], Any] | None = None,
        *,
        alone: bool = False,
        always: bool = False,
    ) -> Any:
        """Run an operation of the catalog through the commit queue. See `Writer.run` for `then` and `always`, and `Job`
        for `alone`: what rewrites or removes extents is."""
        return await self.writer.run(operation, then, alone=alone, always=always)

    def take_in_added(self, producer: Producer, wheres: Sequence[TopicPartition]) -> None:
        """These partitions were added to the producer's open transaction."""
        self._landing.take_in_added(producer, wheres)

    def take_in_markers(self, markers: Markers) -> None:
        """Markers were committed. To be called in the order of commits, as `write` calls its `then`."""
        self._landing.take_in_markers(markers)

    @property
    def moved_bytes(self) -> int:
        """Bytes made durable or given to readers since the start."""
        return self._flusher.appended_bytes + self._fetcher.fetched_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes accepted and not yet answered."""
        return self._flusher.held_bytes

    @property
    def failure(self) -> Unavailable | None:
        """Why appends are refused, as far as the last flush tells; None if it succeeded. See `Flusher.failure`."""
        return self._flusher.failure

    # -- reading ----------------------------------------------------------------------------------------------

    async def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        bytes_max: int,
        bytes_min: int = 1,
        wait_ms: int = 0,
        read_committed: bool = False,
    ) -> list[FetchResult]:
        """See `Fetcher.fetch`. Results are in the order of the requests."""
        return await self._fetcher.fetch(
            requests, bytes_max=bytes_max, bytes_min=bytes_min, wait_ms=wait_ms, read_committed=read_committed
        )

    async def fetch_stored(self, request: FetchRequest, *, read_committed: bool = False) -> FetchResult:
        """One partition, whoever owns it. See `Elsewhere`."""
        return await self._elsewhere.fetch(request, read_committed=read_committed)

    async def last_stable_offset(self, where: TopicPartition) -> int:
        """Where the records begin whose transactions are not decided yet; the end if there are none."""
        partition = self.partition(where)
        if partition.ongoing.stale:
            await partition.refresh_transactions(self._threads.read)
        return partition.ongoing.last_stable(partition.log_start, partition.end_offset)

    async def offset_at(self, where: TopicPartition, timestamp: int) -> TimedOffset | None:
        """The first record at or after a time."""
        log_start = self.partition(where).log_start
        return await self.in_pool(lambda: self._finder.at_or_after(where, timestamp, log_start))

    async def offset_stored_at(self, row: PartitionRow, timestamp: int) -> int:
        """The first record at or after a time, whoever owns the partition; its end if all are older."""
        found = await self.in_pool(lambda: self._finder.at_or_after(row.where, timestamp, row.log_start))
        return row.end_offset if found is None else found.offset

    async def newest_offset(self, where: TopicPartition) -> TimedOffset | None:
        """The record with the newest timestamp."""
        log_start = self.partition(where).log_start
        return await self.in_pool(lambda: self._finder.newest(where, log_start))

    async def read(self, function: Callable[[Transaction], Answer]) -> Answer:
        """Run a read of the catalog on the readers' threads."""
        return await self._threads.read(function)

    async def in_pool(self, function: Callable[[], Answer]) -> Answer:
        """Run what reads the store, or takes long, on the threads of lagging readers."""
        return await self._threads.in_pool(function)

    # -- partitions -------------------------------------------------------------------------------------------

    def partition(self, where: TopicPartition) -> Partition:
        """What the owner knows of a partition: log start, end, epoch."""
        return self._owned.served(where)

    def owns(self, where: TopicPartition) -> bool:
        """Whether this broker serves it now."""
        partition = self._owned.get(where)
        return partition is not None and self._owned.serves(partition)

    def partitions(self) -> list[Partition]:
        return self._owned.all()

    def take_grown(self) -> dict[TopicPartition, int]:
        """Partitions that have grown since the last call, each with the offset it grew from."""
        return self._owned.take_grown()

    def forget_cached(self, where: TopicPartition) -> None:
        """The partition has been compacted: nobody may be given what was read before."""
        self._owned.forget_cached(where)

    async def let_go(self, wheres: Sequence[TopicPartition]) -> None:
        """Take nothing more for these partitions as their owner, and return when everything so taken is answered; what
        is appended jointly goes on, as another's would. They stay this broker's until the catalog says otherwise;
        `keep` takes it back."""
        self._owned.let_go(wheres)
        await self._flusher.finish(set(wheres))

    def keep(self, wheres: Sequence[TopicPartition]) -> None:
        self._owned.keep(wheres)

    # -- topics -----------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int = 1, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        return await self._changes.create_topic(name, partitions, overrides or {})

    async def add_partitions(self, name: str, total: int) -> Topic:
        return await self._changes.add_partitions(name, total)

    async def alter_config(self, name: str, changes: Mapping[str, str | None]) -> Topic:
        return await self._changes.alter_config(name, changes)

    async def delete_topic(self, name: str) -> None:
        await self._changes.delete_topic(name)

    async def topic(self, name: str) -> Topic:
        """One that is not known here may have been made elsewhere a moment ago: the catalog is asked first."""
        if not self.topics.knows(name):
            await self.catch_up()
        return self.topics.named(name)

    async def place(self, name: str, number: int) -> TopicPartition:
        """A partition by its topic's name. See `topic`."""
        known = await self.topic(name)
        if number >= known.partitions:
            await self.catch_up()
        return self.topics.partition(name, number)

    # -- the catalog's news -----------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        """Who owned what when the catalog was last looked at."""
        return self._view.topology

    async def refresh(self) -> None:
        """Take in what the catalog says now: topics, partitions, and appends by others."""
        await self._view.refresh()

    async def catch_up(self) -> None:
        """Take in what other brokers have changed before this was called. See `CatalogView.catch_up`."""
        await self._view.catch_up()
