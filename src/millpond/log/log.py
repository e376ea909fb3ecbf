"""The log: append, fetch, find offsets, manage topics. The one door through which every face comes.

Reading order for a newcomer: `append` here, `buffer`, `flusher`, `writer` (the way in); `fetcher`, `plan`,
`reader` (the way out). Lives on one event loop; its state changes only between awaits.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from millpond.catalog import compactions, extents, partitions, producers, topics, topology, transactions
from millpond.catalog.appends import Placed
from millpond.catalog.commits import Committer, Operation
from millpond.catalog.database import Database, Transaction
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.topology import Owner, Topology
from millpond.catalog.transactions import Markers, PartitionTransactions, Producer
from millpond.log.admission import AS_PRODUCED, Headers, admit, look_inside
from millpond.log.buffer import AppendResult, Pending, sequence_of
from millpond.log.elsewhere import Elsewhere
from millpond.log.fetcher import Fetcher, FetchRequest, FetchResult
from millpond.log.flusher import NOT_OWNED, Flusher
from millpond.log.inline import InlineBytes
from millpond.log.limits import LogLimits
from millpond.log.ongoing import ABORTED_MAX
from millpond.log.partition import Partition, Seen
from millpond.log.tail import TailCache
from millpond.log.topics import TopicRegistry
from millpond.log.waiters import Waiters
from millpond.log.writer import Writer
from millpond.model.clock import Clock
from millpond.model.errors import (
    ExtentsChanged,
    FlushFailed,
    InvalidRequest,
    InvalidTransactionState,
    MillpondError,
    NotOwner,
    OffsetOutOfRange,
    PartitionHalted,
    RecordTooLarge,
    Stopping,
    TopicExists,
    UnknownPartition,
    WriterDead,
)
from millpond.model.ids import Session, TopicPartition
from millpond.model.producers import CommittedBatch, SequencedBatch
from millpond.model.topics import Topic, TopicConfig
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import LogMetrics
from millpond.reading.offsets import OffsetFinder, TimedOffset
from millpond.reading.reader import StoreReader
from millpond.reading.runs import stamped
from millpond.records import Buffer, walk

EVERYTHING = -1
REMOVED_PER_STEP = 1_000
"""Extents one transaction removes; the rest goes in the next."""
LOOKED_AT_ON_LOOP_BYTES = 64 * 1024
"""Batches the broker must look into: more than this, decompressed, is done on a reader's thread."""
LOOKED_AT_ON_LOOP_RECORDS = 500
REFRESH_AGAIN_S = 1.0
CATCH_UP_EVERY_S = 0.1
"""How often the catalog is asked because of a topic that is not known here, whoever asks for whatever."""

logger = logging.getLogger(__name__)
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
    ) -> None:
        """`has_lease` says whether nobody else can own this broker's partitions by now. With `shares_catalog` other
        brokers may make topics, too."""
        self.database = database
        self.topology = Topology()
        self._has_lease = has_lease
        self._on_topology = on_topology
        self._tell_others = tell_others
        self._tell_owner = tell_owner
        self._shares_catalog = shares_catalog
        self._catching_up: asyncio.Future[None] | None = None
        self._catch_up_at = 0.0
        self._session = session
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._partitions: dict[TopicPartition, Partition] = {}
        self._grown: dict[TopicPartition, int] = {}
        self._compaction_marks: dict[TopicPartition, tuple[int, int]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_wanted = False
        self._ending = False
        self._changes: set[asyncio.Task[Any]] = set()
        self._refresh_turn = asyncio.Lock()
        self.topics = TopicRegistry(broker_defaults)
        self.waiters = Waiters()
        self.reader = StoreReader(database, store, extents_per_read=limits.extents_per_read)
        self._tails = TailCache(limits.tail_bytes_max)
        self._pool = ThreadPoolExecutor(limits.read_threads, thread_name_prefix="millpond-read")
        self._catalog_pool = ThreadPoolExecutor(limits.catalog_threads, thread_name_prefix="millpond-catalog")
        self._fetcher = Fetcher(
            self.reader,
            self.waiters,
            self.in_pool,
            self.read,
            limits,
            metrics,
            self.partition,
            self._refresh_transactions,
        )
        self._elsewhere = Elsewhere(self.reader, self.read, self.in_pool)
        self._finder = OffsetFinder(
            database, self.reader, decompressed_bytes_max=limits.decompressed_bytes_max
        )
        self.writer = make_writer(
            database,
            Committer(database, session),
            foreign_check_ms=limits.foreign_check_ms,
            on_change=self._on_foreign_change,
            on_failure=on_failure,
        )
        self.inline = InlineBytes(limits.inline_bytes_kept_max)
        metrics.inline_bytes.set_function(lambda: self.inline.total)
        self._flusher = Flusher(
            store,
            self.writer,
            session=session,
            clock=clock,
            limits=limits,
            metrics=metrics,
            epoch_of=self._epoch_of,
            end_of=self._end_of,
            inline=self.inline,
            committed=self._on_committed,
            failed=self._on_failed,
        )

    async def start(self) -> None:
        """The session is registered and owns its partitions already; load what it owns."""
        self.writer.start()
        await self.refresh()

    async def stop(self) -> None:
        """Take nothing more, answer what was taken, and end the threads."""
        await self._flusher.drain()
        if self._changes:
            await asyncio.wait(self._changes)
        await self.writer.stop()
        self._ending = True
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        self.waiters.close()
        for pool in (self._pool, self._catalog_pool):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)  # whoever asked is gone

    # -- writing ----------------------------------------------------------------------------------------------

    async def append(self, where: TopicPartition, data: Buffer) -> AppendResult:
        """Durably append whole record batches; returns when they have offsets. See `submit`."""
        return await (await self.submit(where, data))

    async def submit(self, where: TopicPartition, data: Buffer) -> "asyncio.Future[AppendResult]":
        """Accept record batches; the future is their answer. Batches are appended in the order in which their
        submits returned. A writable buffer becomes the log's own: it is stamped in place."""
        partition = self.partition(where)
        config = self.topics.config(where.topic_id)
        data, headers, timestamp = admit(data, config, now_ms=self._clock.now_ms())
        if config.compression == AS_PRODUCED and not config.compacted:
            return await self._accept(partition, data, headers, timestamp)
        async with partition.turn:
            data, headers = await self._look_inside(data, headers, config)
            return await self._accept(partition, data, headers, timestamp)

    async def append_jointly(
        self, appends: Mapping[TopicPartition, Buffer], also: Operation
    ) -> dict[TopicPartition, AppendResult]:
        """Append batches to several partitions, whoever owns them, and run an operation of the catalog, all in one
        commit: either everything of it happens or nothing. The batches may not have producers' sequences."""
        pendings = await self._admit_jointly(appends)
        self._flusher.add_jointly(pendings, also)
        return await _joint_results(pendings)

    async def submit_jointly(
        self, appends: Mapping[TopicPartition, Buffer], also: Operation
    ) -> "asyncio.Future[dict[TopicPartition, AppendResult]]":
        """What `append_jointly` does, in the order of submits: what was submitted before comes before it."""
        pendings = await self._admit_jointly(appends)
        self._flusher.launch_buffered(appends.keys())
        self._flusher.add_jointly(pendings, also)
        return asyncio.ensure_future(_joint_results(pendings))

    async def _admit_jointly(self, appends: Mapping[TopicPartition, Buffer]) -> list[Pending]:
        pendings = [await self._joint(where, data) for where, data in appends.items()]
        await self._flusher.room_for(sum(pending.size for pending in pendings))
        for pending in pendings:
            self._flusher.check_available(pending.where)
        return pendings

    async def _joint(self, where: TopicPartition, data: Buffer) -> Pending:
        config = self.topics.config(where.topic_id)
        data, headers, timestamp = admit(data, config, now_ms=self._clock.now_ms())
        if any(header.producer_id >= 0 for _, header in headers):
            raise InvalidRequest(reason="a joint append takes no batches with sequences")
        if config.compression != AS_PRODUCED or config.compacted:
            data, headers = await self._look_inside(data, headers, config)
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        return Pending(where, data, headers, future, timestamp)

    def check_joint(self, where: TopicPartition, data: Buffer) -> None:
        """Raise what `append_jointly` would refuse these batches with at once."""
        admit(data, self.topics.config(where.topic_id), now_ms=self._clock.now_ms())
        self._flusher.check_available(where)

    def check(self, where: TopicPartition, data: Buffer) -> None:
        """Raise what `submit` would refuse these batches with at once. For those who submit several, and want either
        all of them accepted or none."""
        self.partition(where)
        config = self.topics.config(where.topic_id)
        admit(data, config, now_ms=self._clock.now_ms())
        self._flusher.check_available(where)

    async def _accept(
        self, partition: Partition, data: Buffer, headers: Headers, timestamp: int
    ) -> "asyncio.Future[AppendResult]":
        """Put admitted batches into a buffer, unless they are a repeat of some that were there before."""
        where = partition.where
        self._flusher.check_available(where)
        await self._flusher.room_for(len(data))
        sequence = sequence_of(headers[0][1])
        if sequence is not None and (sequence.transactional or partition.sequences.stale):
            await self._learn_of(partition, sequence)
        self._flusher.check_available(where)
        if partition.fenced or partition.leaving or not self._has_lease():
            raise NotOwner
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if sequence is not None:
            known = partition.sequences.admit(sequence)
            if isinstance(known, CommittedBatch):
                future.set_result(AppendResult(known.offset, partition.log_start, timestamp))
                return future
            if known is None:
                partition.ongoing.check(sequence)
                partition.sequences.expect(sequence, future)
                self._flusher.add(Pending(where, data, headers, future, timestamp))
            return asyncio.shield(known or future)  # a repeat may share it: no one's leaving may cancel it
        self._flusher.add(Pending(where, data, headers, future, timestamp))
        return future

    async def delete_records(self, where: TopicPartition, offset: int, *, bytes_seen: int = 0) -> int:
        """Forget everything below `offset` (-1: everything); returns the new log start. Whoever deletes because the
        partition has `bytes_seen` is refused with `ExtentsChanged` if it has become smaller."""
        partition = self.partition(where)
        wanted = partition.end_offset if offset == EVERYTHING else offset
        if wanted < 0:
            raise OffsetOutOfRange(
                offset=offset, log_start=partition.log_start, end_offset=partition.end_offset
            )
        return await self._to_the_end(self._delete_below(partition, wanted, bytes_seen))

    async def _delete_below(self, partition: Partition, offset: int, bytes_seen: int) -> int:
        where = partition.where
        log_start: int = await self.write(lambda tx: _advance(tx, where, offset, bytes_seen))
        partition.log_start = max(partition.log_start, log_start)

        def remove(tx: Transaction) -> int:
            return self._remove_below(tx, where, log_start)

        while await self.write(remove, alone=True) == REMOVED_PER_STEP:
            pass
        return log_start

    async def write(
        self, operation: Operation, then: Callable[[Any], Any] | None = None, *, alone: bool = False
    ) -> Any:
        """Run an operation of the catalog through the commit queue. See `Writer.run` for `then`, and `Job` for
        `alone`: what rewrites or removes extents is."""
        return await self.writer.run(operation, then, alone=alone)

    def take_in_added(self, producer: Producer, wheres: Sequence[TopicPartition]) -> None:
        """These partitions were added to the producer's open transaction."""
        for where in wheres:
            if (partition := self._partitions.get(where)) is not None:
                partition.ongoing.added(producer.producer_id, producer.epoch)

    def take_in_markers(self, markers: Markers) -> None:
        """Markers were committed. To be called in the order of commits, as `write` calls its `then`."""
        data = markers.data()
        headers = list(walk(data))
        for marker in markers.places:
            partition = self._partitions.get(marker.where)
            if partition is None:
                self._tell_owner(marker.where)
                continue
            run = stamped(data, headers, marker.offset, marker.leader_epoch)
            self._tails.push(partition.tail, run)
            if markers.fence:
                partition.sequences.fence(markers.producer_id, markers.epoch)
            self._grow(partition, marker.offset, run.end_offset)
            partition.ongoing.ended(markers, marker)

    async def read(self, function: Callable[[Transaction], Answer]) -> Answer:
        """Run a read of the catalog on the readers' threads."""

        def run() -> Answer:
            with self.database.read() as tx:
                return function(tx)

        return await self._in(self._catalog_pool, run)

    async def in_pool(self, function: Callable[[], Answer]) -> Answer:
        """Run what reads the store, or takes long, on the threads of lagging readers."""
        return await self._in(self._pool, function)

    async def _in(self, pool: ThreadPoolExecutor, function: Callable[[], Answer]) -> Answer:
        if self.waiters.closed:
            raise Stopping
        return await asyncio.get_running_loop().run_in_executor(pool, function)

    async def _to_the_end(self, change: Coroutine[Any, Any, Answer]) -> Answer:
        """Finish what has begun even if whoever asked is gone: what was committed must also be taken in."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._on_changed)
        return await asyncio.shield(task)

    def _on_changed(self, task: "asyncio.Task[Any]") -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone; that is no warning's business

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

    async def last_stable_offset(self, where: TopicPartition) -> int:
        """Where the records begin whose transactions are not decided yet; the end if there are none."""
        partition = self.partition(where)
        if partition.ongoing.stale:
            await self._refresh_transactions(partition)
        return partition.ongoing.last_stable(partition.log_start, partition.end_offset)

    async def offset_at(self, where: TopicPartition, timestamp: int) -> TimedOffset | None:
        """The first record at or after a time."""
        log_start = self.partition(where).log_start
        return await self.in_pool(lambda: self._finder.at_or_after(where, timestamp, log_start))

    async def fetch_stored(self, request: FetchRequest, *, read_committed: bool = False) -> FetchResult:
        """One partition, whoever owns it. See `Elsewhere`."""
        return await self._elsewhere.fetch(request, read_committed=read_committed)

    async def offset_stored_at(self, row: PartitionRow, timestamp: int) -> int:
        """The first record at or after a time, whoever owns the partition; its end if all are older."""
        found = await self.in_pool(lambda: self._finder.at_or_after(row.where, timestamp, row.log_start))
        return row.end_offset if found is None else found.offset

    async def newest_offset(self, where: TopicPartition) -> TimedOffset | None:
        """The record with the newest timestamp."""
        log_start = self.partition(where).log_start
        return await self.in_pool(lambda: self._finder.newest(where, log_start))

    def partition(self, where: TopicPartition) -> Partition:
        """What the owner knows of a partition: log start, end, epoch."""
        partition = self._partitions.get(where)
        if partition is not None and not partition.fenced and not partition.leaving and self._has_lease():
            return partition
        if partition is not None and partition.halted:
            raise PartitionHalted(partition=where.partition)
        topic = self.topics.with_id(where.topic_id)
        if not 0 <= where.partition < topic.partitions:
            raise UnknownPartition(topic=topic.name, partition=where.partition)
        raise NotOwner

    def owns(self, where: TopicPartition) -> bool:
        """Whether this broker serves it now."""
        partition = self._partitions.get(where)
        if partition is None or partition.fenced or partition.leaving:
            return False
        return self._has_lease()

    def partitions(self) -> list[Partition]:
        return list(self._partitions.values())

    def take_grown(self) -> dict[TopicPartition, int]:
        """Partitions that have grown since the last call, each with the offset it grew from."""
        grown, self._grown = self._grown, {}
        return grown

    @property
    def moved_bytes(self) -> int:
        """Bytes made durable or given to readers since the start."""
        return self._flusher.appended_bytes + self._fetcher.fetched_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes accepted and not yet answered."""
        return self._flusher.held_bytes

    # -- topics -----------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int = 1, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        def create(tx: Transaction) -> None:
            topics.create(tx, name, partitions, overrides or {}, now_ms=self._clock.now_ms())

        try:
            return await self._to_the_end(self._change(name, create))
        except TopicExists:
            if not self.topics.knows(name):
                await self.refresh()
            raise

    async def add_partitions(self, name: str, total: int) -> Topic:
        def add(tx: Transaction) -> None:
            topics.add_partitions(tx, name, total)

        return await self._to_the_end(self._change(name, add))

    async def alter_config(self, name: str, changes: Mapping[str, str | None]) -> Topic:
        def alter(tx: Transaction) -> None:
            topics.alter_config(tx, name, changes)

        return await self._to_the_end(self._change(name, alter))

    async def delete_topic(self, name: str) -> None:
        def delete(tx: Transaction) -> None:
            topics.delete(tx, name, now_ms=self._clock.now_ms())

        await self._to_the_end(self._write_and_refresh(delete))

    async def _write_and_refresh(self, operation: Operation) -> None:
        await self.write(operation, alone=True)
        await self.refresh()
        await self._tell_others()

    async def refresh(self) -> None:
        """Take in what the catalog says now: topics, partitions, and appends by others. In turns: what was read
        first must not be taken in last, or a topic just made would be forgotten again."""
        async with self._refresh_turn:
            seen = {where: each.seen for where, each in self._partitions.items()}
            known = self.topology
            found = await self.read(lambda tx: _read_all(tx, self._session, known))
            if found.news is not None:
                self.topics.replace_all(found.news.topics)
                self._take_in_topology(found.news.topology)
            self._take_in_owned(found.rows, seen)
            self._forget_compacted(found.marks)

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

    async def catch_up(self) -> None:
        """Take in what other brokers have changed before this was called. Those who ask share the next look, and the
        looks are apart: asking for what nobody has made costs the catalog little."""
        if not self._shares_catalog:
            return
        if self._catching_up is None:
            self._catching_up = asyncio.ensure_future(self._look_for_news())
        await asyncio.shield(self._catching_up)

    async def _look_for_news(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._catch_up_at - loop.time())
        self._catch_up_at = loop.time() + CATCH_UP_EVERY_S
        self._catching_up = None
        if await self.read(topology.version) != self.topology.version:
            await self.refresh()

    async def _change(self, name: str, operation: Operation) -> Topic:
        """Write, then take in one topic, for a broker may have thousands."""

        def write(tx: Transaction) -> int:
            operation(tx)
            return topology.version(tx)

        def read(tx: Transaction) -> tuple[Topic, list[PartitionRow]]:
            topic = topics.find(tx, name)
            return topic, partitions.of_topic(tx, topic.id)

        version: int = await self.write(write, alone=True)
        async with self._refresh_turn:
            topic, rows = await self.read(read)
            known = self.topics.put(topic)
            for row in rows:
                if row.owner == self._session:
                    self._take_in(row.where, row)
            if version == self.topology.version + 1:
                self._take_in_topology(_with_rows(self.topology, version, rows))
        await self._tell_others()
        return known

    def _take_in_topology(self, found: Topology) -> None:
        self.topology = found
        self._on_topology(found)

    # -- handing over -----------------------------------------------------------------------------------------

    async def let_go(self, wheres: Sequence[TopicPartition]) -> None:
        """Take nothing more for these partitions, and return when everything taken is answered. They stay this
        broker's until the catalog says otherwise; `keep` takes it back."""
        for where in wheres:
            if (partition := self._partitions.get(where)) is not None:
                partition.leaving = True
                self.waiters.wake(where)
        await self._flusher.finish(set(wheres))

    def keep(self, wheres: Sequence[TopicPartition]) -> None:
        for where in wheres:
            if (partition := self._partitions.get(where)) is not None:
                partition.leaving = False

    # -- inside -----------------------------------------------------------------------------------------------

    def _take_in_owned(self, rows: list[PartitionRow], seen: Mapping[TopicPartition, Seen]) -> None:
        owned = {row.where: row for row in rows}
        for where, partition in list(self._partitions.items()):
            if where not in owned and not partition.halted:
                self._drop(where, partition)
        for where, row in owned.items():
            if where in seen and seen[where].is_ahead_of(row):
                self._halt(where, f"epoch {row.epoch}, end {row.end_offset}; they were {seen[where]}")
            else:
                self._take_in(where, row)

    def _halt(self, where: TopicPartition, reason: str) -> None:
        """The catalog has gone back in time, as after a failover to a replica that was behind. Writing on would give
        offsets a second time."""
        partition = self._partitions.get(where)
        if partition is None or partition.halted:
            return
        partition.fenced = partition.halted = True
        self._metrics.halted.inc()
        logger.critical(
            "partition %s of topic %s is halted: the catalog went back to %s", *reversed(where), reason
        )
        self.waiters.wake(where)

    def _forget_compacted(self, marks: dict[TopicPartition, tuple[int, int]]) -> None:
        for where, mark in marks.items():
            if self._compaction_marks.get(where) != mark:
                self.forget_cached(where)
        self._compaction_marks = marks

    def forget_cached(self, where: TopicPartition) -> None:
        """The partition has been compacted: nobody may be given what was read before. A tombstone goes some day, and
        whoever then still read the record it deletes would take it for living. The tail goes, too, although it holds
        the tombstone as well: a reader may take the old record from there and be on its way when the tail is evicted;
        it goes on in the store, which no longer has the tombstone."""
        self._fetcher.forget(where)
        partition = self._partitions.get(where)
        if partition is not None:
            self._tails.drop(partition.tail)

    def _take_in(self, where: TopicPartition, row: PartitionRow) -> None:
        partition = self._partitions.get(where)
        if partition is not None and partition.halted:
            return
        if partition is None or row.epoch != partition.epoch:
            if partition is not None:
                self._drop(where, partition)
            self._partitions[where] = Partition(row)
            return
        before = partition.end_offset
        if partition.observe(row, self._session):
            self._grown.setdefault(where, before)
            self.waiters.wake(where)

    def _drop(self, where: TopicPartition, partition: Partition) -> None:
        partition.fenced = True
        self._tails.drop(partition.tail)
        self._fetcher.forget(where)
        self.inline.forget(where)
        del self._partitions[where]
        self.waiters.wake(where)

    def _epoch_of(self, where: TopicPartition) -> int:
        partition = self._partitions.get(where)
        return partition.epoch if partition is not None else NOT_OWNED

    def _end_of(self, where: TopicPartition) -> int:
        partition = self._partitions.get(where)
        return partition.end_offset if partition is not None else 0

    def _on_foreign_change(self) -> None:
        """A refresh that is under way may have read the catalog before this change: then another one follows."""
        self._refresh_wanted = True
        if not self._ending and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh_while_wanted())

    async def _refresh_while_wanted(self) -> None:
        while self._refresh_wanted and not self._ending:
            self._refresh_wanted = False
            try:
                await self.refresh()
            except MillpondError as error:
                logger.warning("could not take in another process's changes, and will try again: %s", error)
                self._refresh_wanted = True
                await asyncio.sleep(REFRESH_AGAIN_S)

    async def _look_inside(
        self, data: Buffer, headers: Headers, config: TopicConfig
    ) -> tuple[Buffer, Headers]:
        """What is small once decompressed is done at once; anything else would hold up everybody on the loop."""
        limit = self._limits.decompressed_bytes_max
        records = sum(header.record_count for _, header in headers)
        if len(data) <= LOOKED_AT_ON_LOOP_BYTES and records <= LOOKED_AT_ON_LOOP_RECORDS:
            with contextlib.suppress(RecordTooLarge):
                small = min(limit, LOOKED_AT_ON_LOOP_BYTES)
                return look_inside(data, headers, config, decompressed_bytes_max=small)
        return await self.in_pool(lambda: look_inside(data, headers, config, decompressed_bytes_max=limit))

    async def _load_sequences(self, partition: Partition) -> None:
        """Read the catalog's view of the partition's producers. Nothing of theirs is on its way meanwhile, since
        whoever comes waits for this too; who comes first goes on first."""
        async with partition.loading:
            while partition.sequences.stale:
                states = await self.read(lambda tx: producers.load(tx, partition.where))
                if partition.sequences.stale:
                    partition.sequences.load(states)

    async def _learn_of(self, partition: Partition, sequence: SequencedBatch) -> None:
        """Ask the catalog for what must be known to judge this batch, if it is not known yet."""
        if partition.sequences.stale:
            await self._load_sequences(partition)
        if sequence.transactional and not partition.ongoing.includes(
            sequence.producer_id, sequence.producer_epoch
        ):
            await partition.ongoing.look_again(lambda: self._read_transactions(partition.where))

    async def _refresh_transactions(self, partition: Partition) -> None:
        await partition.ongoing.refresh(lambda: self._read_transactions(partition.where))

    async def _read_transactions(self, where: TopicPartition) -> PartitionTransactions:
        return await self.read(lambda tx: transactions.of_partition(tx, where, aborted_max=ABORTED_MAX))

    def _on_committed(self, pendings: list[Pending], placed: Placed, known_end: int) -> None:
        """`known_end` is where the partition ended, as far as was known here, when this was submitted."""
        partition = self._partitions.get(pendings[0].where)
        if partition is not None and placed.base_offset < known_end:
            self._halt(partition.where, f"end {placed.base_offset}; it was {known_end}")
            for pending in pendings:
                pending.refuse(PartitionHalted(partition=partition.where.partition))
            return
        offset = placed.base_offset
        for pending in pendings:
            end = offset + pending.records
            if partition is not None:
                if pending.sequence is not None:
                    partition.sequences.commit(pending.sequence, offset)
                    if pending.sequence.transactional:
                        partition.ongoing.wrote(pending.sequence, offset)
                run = stamped(pending.data, pending.headers, offset, placed.epoch)
                self._tails.push(partition.tail, run)
            if not pending.future.done():
                pending.future.set_result(AppendResult(offset, placed.log_start, pending.timestamp))
            offset = end
        if partition is not None:
            self._grow(partition, placed.base_offset, offset)
        else:
            self._tell_owner(pendings[0].where)

    def _grow(self, partition: Partition, start: int, end: int) -> None:
        partition.grow(start, end)
        self._grown.setdefault(partition.where, start)
        self.waiters.wake(partition.where)

    def _on_failed(self, where: TopicPartition, pendings: list[Pending], error: MillpondError) -> None:
        partition = self._partitions.get(where)
        if isinstance(error, NotOwner | WriterDead):
            self._metrics.fenced.inc(len(pendings))
        if isinstance(error, NotOwner):
            self._on_foreign_change()
        for pending in pendings:
            if partition is not None and pending.sequence is not None:
                partition.sequences.fail(pending.sequence, pending.future)
            pending.refuse(_error_for(pending, error))

    def _remove_below(self, tx: Transaction, where: TopicPartition, offset: int) -> int:
        """Memory knows the new log start by now, so no reader below it can still ask for what was aborted."""
        now_ms = self._clock.now_ms()
        removed = extents.remove_below(tx, where, offset, limit=REMOVED_PER_STEP, now_ms=now_ms)
        transactions.forget_aborted(tx, where, offset)
        return removed


@dataclass(frozen=True, slots=True)
class _News:
    topics: list[Topic]
    topology: Topology


@dataclass(frozen=True, slots=True)
class _Found:
    """What a refresh has read. Without `news` topics and owners are as they were."""

    rows: list[PartitionRow]
    marks: dict[TopicPartition, tuple[int, int]]
    news: _News | None


def _read_all(tx: Transaction, session: Session, known: Topology) -> _Found:
    """The topology first: partitions that it says are owned here are then read with it, or are gone again."""
    news = None
    if topology.version(tx) != known.version:
        view = topology.read(tx, known)
        news = _News(topics.all_topics(tx), view)
    return _Found(partitions.owned_by(tx, session), compactions.marks(tx, session), news)


def _with_rows(before: Topology, version: int, rows: Sequence[PartitionRow]) -> Topology:
    owners = {**before.partitions, **{row.where: Owner(row.owner, row.epoch) for row in rows}}
    return Topology(version, before.members, owners, before.shards)


def _advance(tx: Transaction, where: TopicPartition, offset: int, bytes_seen: int) -> int:
    """The move takes the partition's lock, so what is read after it stays true."""
    log_start = partitions.advance_log_start(tx, where, offset)
    if bytes_seen and partitions.read(tx, where).bytes < bytes_seen:
        raise ExtentsChanged
    return log_start


async def _joint_results(pendings: Sequence[Pending]) -> dict[TopicPartition, AppendResult]:
    results = await asyncio.gather(*(pending.future for pending in pendings), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return {
        pending.where: result
        for pending, result in zip(pendings, results, strict=True)
        if isinstance(result, AppendResult)
    }


def _error_for(pending: Pending, error: MillpondError) -> MillpondError:
    """A bad transactional batch is its own producer's fault; its neighbours may simply try again."""
    if not isinstance(error, InvalidTransactionState):
        return error
    guilty = pending.sequence is not None and pending.sequence.producer_id == error.facts.get("producer_id")
    return error if guilty else FlushFailed()
