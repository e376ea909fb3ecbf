"""The log: append, fetch, find offsets, manage topics. Every interface uses the log through this class.

Reading order for a newcomer: `appender`, `backpressure`, `buffer`, `flusher`, `flights`, `flush`, `writer`,
`commit_results` (the write path); `fetcher`, and `plan` and `reader` of `reading/` (the read path);
`owned_partitions`, and `catalog_view` and `topic_changes` of `topology/` (which partitions this broker serves, how it
learns of changes, and how it changes topics). Lives on one event loop; its state changes only between awaits.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from millpond.catalog.commits import CommitOperation, Committer
from millpond.catalog.database import CatalogTransaction, Database
from millpond.catalog.dynamic_configs import Alteration
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.transactions import Markers, TransactionalProducer
from millpond.log.appender import Appender
from millpond.log.buffer import AppendResult
from millpond.log.commit_results import CommitResults
from millpond.log.fetcher import Fetcher, FetchRequest, FetchResult
from millpond.log.flusher import Flusher
from millpond.log.inline import InlineBytes
from millpond.log.limits import LogLimits
from millpond.log.owned_partitions import OwnedPartitions
from millpond.log.partition import LogPartition
from millpond.log.record_deletion import RecordDeletion
from millpond.log.refused_sequences import RefusedSequences
from millpond.log.remote_reader import RemoteReader
from millpond.log.tail import TailCache
from millpond.log.threads import Threads
from millpond.log.topic_quotas import FullTopics
from millpond.log.upkeep import Upkeep
from millpond.log.waiters import Waiters
from millpond.log.writer import Writer
from millpond.model.clock import Clock
from millpond.model.config_changes import ConfigChanges, ConfigPlan, setting
from millpond.model.dynamic_configs import ConfigResource
from millpond.model.errors import MillpondError, Unavailable
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import Topic
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import LogMetrics
from millpond.reading.offsets import OffsetFinder, TimedOffset
from millpond.reading.reader import StoreReader
from millpond.records import Buffer
from millpond.topology import (
    CatalogView,
    ChangesInFlight,
    DynamicConfigChanges,
    DynamicConfigView,
    Lease,
    Peers,
    TopicChanges,
    TopicRegistry,
    TopologyView,
)

T = TypeVar("T")


class Log:
    """Call `start` inside the running event loop; close with `stop`. It has one method for each thing that other
    packages do with the log, so there are more than 20; `roles` names the parts of them that a package needs."""

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
        view: TopologyView,
        configs: DynamicConfigView,
        lease: Lease,
        peers: Peers,
        make_writer: Callable[..., Writer] = Writer,
        random: Random | None = None,
        check_disk_space: Callable[[], None] = lambda: None,
        full_topics: FullTopics | None = None,
    ) -> None:
        """The log serves its partitions while `lease` is held: until then no other broker owns them.
        `check_disk_space` raises the error with which appends are refused while the disk is full; `full_topics` raises
        the errors of topics that accept none."""
        self.topics = TopicRegistry(broker_defaults)
        self.waiters = Waiters()
        self._reader = StoreReader(database, store, extents_per_read=limits.extents_per_read)
        self._inline = InlineBytes(limits.inline_bytes_kept_max)
        metrics.inline_bytes.set_function(lambda: self._inline.total)
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
            self._inline,
            lease,
            metrics,
            drop_cached_reads=lambda topic_partition: self._fetcher.forget(topic_partition),
        )
        self.catalog_view = CatalogView(
            self._threads.read,
            session,
            view,
            self.topics,
            self._owned,
            configs,
            shares_catalog=peers.may_exist,
        )
        self._fetcher = Fetcher(
            self._reader,
            self.waiters,
            self._threads.in_pool,
            self._threads.read,
            limits,
            metrics,
            self._owned.served,
        )
        self._remote_reader = RemoteReader(self._reader, self._threads.read, self._threads.in_pool)
        self._finder = OffsetFinder(
            database, self._reader, decompressed_bytes_max=limits.decompressed_bytes_max
        )
        self.writer = make_writer(
            database,
            Committer(database, session, random=random),
            foreign_check_ms=limits.foreign_check_ms,
            on_change=self.catalog_view.on_foreign_change,
            on_failure=on_failure,
        )
        refused = RefusedSequences()
        self._commit_results = CommitResults(
            self._owned,
            self._tails,
            metrics,
            peers,
            refused,
            clock,
            on_not_owner=self.catalog_view.on_foreign_change,
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
            inline=self._inline,
            on_committed=self._commit_results.committed,
            on_failed=self._commit_results.failed,
            check_disk_space=check_disk_space,
        )
        self._appender = Appender(
            self._flusher,
            self._owned,
            self.topics,
            self._threads,
            refused,
            clock=clock,
            decompressed_bytes_max=limits.decompressed_bytes_max,
            full_topics=full_topics or FullTopics(),
        )
        self._changes_in_flight = ChangesInFlight()
        self._record_deletion = RecordDeletion(self.writer.run, self._changes_in_flight, clock)
        self._topic_changes = TopicChanges(
            self.writer.run, self.catalog_view, self.topics, peers, self._changes_in_flight, clock=clock
        )
        self._dynamic_config_changes = DynamicConfigChanges(
            self.writer.run, self.catalog_view, peers, self._changes_in_flight
        )
        self.upkeep = Upkeep(
            database,
            self._reader,
            self._threads,
            self.writer.run,
            topics=self.topics,
            owned=self._owned,
            record_deletion=self._record_deletion,
            inline=self._inline,
            waiters=self.waiters,
            flusher=self._flusher,
            fetcher=self._fetcher,
        )

    async def start(self) -> None:
        """Load the partitions that the session owns. The session is already registered in the catalog."""
        self.writer.start()
        await self.refresh()

    async def drain(self) -> None:
        """Accept no more writes, and complete the accepted ones. Afterwards no write needs the store."""
        await self._flusher.drain()
        await self._changes_in_flight.finish()
        await self.writer.stop()

    async def stop(self) -> None:
        """Drain, then stop the threads. Each thread finishes its current task."""
        await self.drain()
        await self.catalog_view.stop()
        self.waiters.close()
        await self._threads.stop()
        await asyncio.to_thread(self._reader.close)

    # -- writing ----------------------------------------------------------------------------------------------

    async def append(self, topic_partition: TopicPartition, data: Buffer) -> AppendResult:
        """Durably append whole record batches; returns when they have offsets. See `submit`."""
        return await (await self._appender.submit(topic_partition, data))

    def submit(
        self, topic_partition: TopicPartition, data: Buffer
    ) -> "Coroutine[Any, Any, asyncio.Future[AppendResult]]":
        """Accept record batches; the future receives their result. Batches are appended in the order in which
        their submits returned. The log takes ownership of a writable buffer and stamps it in place."""
        return self._appender.submit(topic_partition, data)

    def remember_refusal(self, topic_partition: TopicPartition, data: Buffer, error: MillpondError) -> None:
        """The caller has refused these batches before `submit`: a later batch of the same producer is accepted only
        after them. See `RefusedSequences`."""
        self._appender.remember_refusal(topic_partition, data, error)

    def check(self, topic_partition: TopicPartition, data: Buffer) -> None:
        """Raise the error with which `submit` would immediately refuse these batches. For callers that submit
        several times and need either all of the batches accepted or none."""
        self._appender.check(topic_partition, data)

    async def check_planned(self, topic: Topic, data: Buffer) -> None:
        """Raise the error with which `submit` would refuse these batches in this topic, which does not exist
        yet."""
        await self._appender.check_planned(topic, data)

    async def append_jointly(
        self, appends: Mapping[TopicPartition, Buffer], joint_operation: CommitOperation
    ) -> dict[TopicPartition, AppendResult]:
        """Append batches to several partitions, regardless of their owners, and run a catalog operation in
        the same commit: either everything happens or nothing. The batches must not carry producer
        sequences."""
        return await self._appender.append_jointly(appends, joint_operation)

    async def submit_jointly(
        self, appends: Mapping[TopicPartition, Buffer], joint_operation: CommitOperation
    ) -> "asyncio.Future[dict[TopicPartition, AppendResult]]":
        """Like `append_jointly`, but in the order of submits: batches submitted earlier are appended earlier."""
        return await self._appender.submit_jointly(appends, joint_operation)

    def check_joint(self, topic_partition: TopicPartition, data: Buffer) -> None:
        """Raise the error with which `append_jointly` would immediately refuse these batches."""
        self._appender.check_joint(topic_partition, data)

    async def delete_records(
        self, topic_partition: TopicPartition, offset: int, *, bytes_seen: int = 0
    ) -> int:
        """Delete all records below `offset` (-1: all records); returns the new log start. A caller that
        deletes because the partition has `bytes_seen` bytes receives `ExtentsChanged` if the partition has
        become smaller."""
        return await self._record_deletion.delete_below(self.partition(topic_partition), offset, bytes_seen)

    async def write(
        self,
        operation: CommitOperation,
        then: Callable[[Any], Any] | None = None,
        *,
        own_commit: bool = False,
        bypass_limit: bool = False,
    ) -> Any:
        """Run a catalog operation through the commit queue. See `Writer.run` for `then` and `bypass_limit`, and
        `WriteJob` for `own_commit`, which an operation that rewrites or removes extents must set."""
        return await self.writer.run(operation, then, own_commit=own_commit, bypass_limit=bypass_limit)

    def apply_added_partitions(
        self, producer: TransactionalProducer, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        """These partitions were added to the producer's open transaction."""
        self._commit_results.apply_added_partitions(producer, topic_partitions)

    def apply_markers(self, markers: Markers) -> None:
        """Markers were committed. Must be called in commit order, as `write` calls its `then`."""
        self._commit_results.apply_markers(markers)

    @property
    def held_bytes(self) -> int:
        """Bytes accepted and not yet acknowledged."""
        return self._flusher.backpressure.held_bytes

    @property
    def failure(self) -> Unavailable | None:
        """Why appends are refused, according to the last flush; None if it succeeded. See `Backpressure.failure`."""
        return self._flusher.backpressure.failure

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
        """Fetch from one partition, regardless of its owner. See `RemoteReader`."""
        return await self._remote_reader.fetch(request, read_committed=read_committed)

    async def last_stable_offset(self, topic_partition: TopicPartition) -> int:
        """The first offset whose transaction is still open; the end offset if there is none."""
        partition = self.partition(topic_partition)
        if partition.open_transactions.stale:
            await partition.refresh_transactions(self._threads.read)
        return partition.open_transactions.last_stable(partition.log_start, partition.end_offset)

    async def offset_at(self, topic_partition: TopicPartition, timestamp: int) -> TimedOffset | None:
        """The first record at or after a timestamp."""
        log_start = self.partition(topic_partition).log_start
        return await self.in_pool(lambda: self._finder.at_or_after(topic_partition, timestamp, log_start))

    async def offset_stored_at(self, row: PartitionRow, timestamp: int) -> int:
        """The first record at or after a timestamp, regardless of the owner; the end offset if all are older."""
        found = await self.in_pool(
            lambda: self._finder.at_or_after(row.topic_partition, timestamp, row.log_start)
        )
        return row.end_offset if found is None else found.offset

    async def newest_offset(self, topic_partition: TopicPartition) -> TimedOffset | None:
        """The record with the newest timestamp."""
        log_start = self.partition(topic_partition).log_start
        return await self.in_pool(lambda: self._finder.newest(topic_partition, log_start))

    async def read(self, function: Callable[[CatalogTransaction], T]) -> T:
        """Run a catalog read on the catalog threads."""
        return await self._threads.read(function)

    async def in_pool(self, function: Callable[[], T]) -> T:
        """Run a function that reads the store or takes long, on the threads for lagging readers."""
        return await self._threads.in_pool(function)

    # -- partitions -------------------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> LogPartition:
        """This broker's state of a partition that it serves: log start, end offset, epoch."""
        return self._owned.served(topic_partition)

    def owns(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker serves the partition now."""
        partition = self._owned.get(topic_partition)
        return partition is not None and self._owned.serves(partition)

    def partitions(self) -> list[LogPartition]:
        return self._owned.all()

    async def prepare_handover(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Stop accepting appends for these partitions as their owner, and return when all accepted ones have
        their response. Joint appends continue, as they would to another broker's partition. This broker owns
        the partitions until the catalog says otherwise; `end_handover` undoes this call."""
        self._owned.prepare_handover(topic_partitions)
        await self._flusher.finish(set(topic_partitions))

    def end_handover(self, topic_partitions: Sequence[TopicPartition]) -> None:
        self._owned.end_handover(topic_partitions)

    # -- topics -----------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int = 1, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        return await self._topic_changes.create(name, partitions, overrides or {})

    async def add_partitions(self, name: str, total: int) -> Topic:
        return await self._topic_changes.add_partitions(name, total)

    async def alter_config(self, name: str, changes: ConfigChanges) -> Topic:
        return await self._topic_changes.alter_config(name, setting(changes))

    async def plan_config(self, name: str, plan: ConfigPlan) -> Topic:
        """Change a topic's configs as `plan` says, given those that it has then."""
        return await self._topic_changes.alter_config(name, plan)

    async def alter_dynamic_configs(self, resource: ConfigResource, alteration: Alteration) -> None:
        """Change the configs of a group or broker. See `DynamicConfigChanges.alter`."""
        await self._dynamic_config_changes.alter(resource, alteration)

    async def delete_topic(self, name: str) -> None:
        await self._topic_changes.delete(name)

    async def topic(self, name: str) -> Topic:
        """Reads the catalog if the topic is not known here: another broker may have created it a moment ago."""
        if not self.topics.knows(name):
            await self.catch_up()
        return self.topics.named(name)

    async def find_partition(self, name: str, number: int) -> TopicPartition:
        """Return a partition by the name of its topic. See `topic`."""
        known = await self.topic(name)
        if number >= known.partitions:
            await self.catch_up()
        return self.topics.partition(name, number)

    # -- catalog changes --------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Apply the current state of the catalog: topics, partitions, and appends by other processes."""
        await self.catalog_view.refresh()

    async def catch_up(self) -> None:
        """Apply what other brokers changed before this call. See `CatalogView.catch_up`."""
        await self.catalog_view.catch_up()
