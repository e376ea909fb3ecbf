"""Decides when buffers are sealed and flushed, commits each partition's flushes in order, and fails the appends
behind a failed flush.

A flush holds batches of many partitions; those of one partition are its share of the flush.

Local stores: no timer. While one flush is in flight the next buffer fills (group commit), so an idle broker
responds immediately and a busy one writes megabytes per fsync. Object stores: a buffer is sealed when it is
full or has waited long enough, and several uploads run concurrently. A partition's share is committed only
after its shares of all earlier flushes, so a slow upload delays only the partitions in it. With either kind
of store, a small buffer is stored inline in the catalog as long as the byte budget lasts and merging keeps
up.

If a partition's share of a flush fails, its later appends fail, too, with a retriable error: those in later
flushes in flight (`Flight.predecessors`) and those still buffered. Until the last of these has failed, the
partition accepts no append, so a failure ends instead of spreading from flush to flush. State changes only
between awaits, except `Flight.refused`, which the writer thread sets and later jobs of the same thread read.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor

from millpond.catalog.appends import (
    FOREIGN,
    AppendedShare,
    AppendShare,
    ShareResult,
    append,
    decode_results,
    encode_results,
)
from millpond.catalog.commits import CommitOperation, Json, OperationResult
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.objects import NewObject, seal, seal_earlier
from millpond.log.budget import ByteBudget
from millpond.log.buffer import FlushBuffer, Layout, Pending, lay_out, lay_out_inline
from millpond.log.inline import InlineBytes
from millpond.log.limits import LogLimits
from millpond.log.writer import WriteJob, Writer
from millpond.model.clock import Clock
from millpond.model.errors import FlushFailed, MillpondError, Overloaded, Stopping, Unavailable
from millpond.model.extents import Location
from millpond.model.ids import Session, TopicPartition
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import LogMetrics
from millpond.segments.frame import FRAME_BYTES

OnCommitted = Callable[[list[Pending], AppendedShare, int], None]
OnFailed = Callable[[TopicPartition, list[Pending], MillpondError], None]
EpochOf = Callable[[TopicPartition], int]
EndOf = Callable[[TopicPartition], int]

NOT_OWNED = 0
"""The epoch of a partition that this broker does not own. A partition that has an owner has a higher one."""
FAILURE_SHOWN_S = 10.0
"""How long after a failed flush the broker reports that it is not ready, unless a later flush succeeds."""
LOCAL_FLIGHTS_MAX = 2
"""One flush being written and, if another buffer is already full, one queued right behind it."""


class Flight:
    """A flush in flight: a sealed buffer on its way to the store and the catalog."""

    __slots__ = (
        *(
            "joint_operation",
            "results",
            "buffer",
            "expected_refusals",
            "ends",
            "is_partial",
            "location",
            "layout",
            "predecessors",
        ),
        *("refused", "sealed_at", "shares", "submitted", "uploaded"),
    )

    def __init__(
        self, buffer: FlushBuffer, shares: list[AppendShare], layout: Layout | None, sealed_at: float
    ) -> None:
        self.buffer = buffer
        self.sealed_at = sealed_at
        self.shares = shares
        self.layout = layout
        """None if the flush is stored inline."""
        self.location: Location | None = None
        self.predecessors: list[Flight] = []
        """Earlier flights that share a partition with this one."""
        self.refused: set[TopicPartition] = set()
        """Partitions whose share was not committed."""
        self.expected_refusals: set[TopicPartition] = set()
        """Partitions whose share will be refused, because the event loop knows that an earlier share failed."""
        self.uploaded = False
        self.submitted = False
        self.ends: dict[TopicPartition, int] = {}
        """The end offsets of its partitions, as known here when the flight was submitted."""
        self.results: tuple[Json, list[ShareResult]] | None = None
        """The results of its shares, encoded and decoded. If the response to COMMIT was lost, the committed result is
        another object, and is decoded."""
        self.joint_operation: CommitOperation | None = None
        """An operation in the same commit: the flight and the operation are committed together, or neither is."""
        self.is_partial = False
        """Whether other partitions of the same object are still to be committed."""

    def split(self, topic_partitions: set[TopicPartition]) -> "Flight":
        """Move some partitions into a new flight, to be committed ahead of the rest."""
        shares = [share for share in self.shares if share.topic_partition in topic_partitions]
        part = Flight(self.buffer.split(topic_partitions), shares, self.layout, self.sealed_at)
        self.shares = [share for share in self.shares if share.topic_partition not in topic_partitions]
        part.location, part.uploaded, part.is_partial = self.location, self.uploaded, True
        part.predecessors, part.expected_refusals = (
            list(self.predecessors),
            self.expected_refusals & topic_partitions,
        )
        return part

    @property
    def inline(self) -> bool:
        return self.layout is None

    def refuse_all(self) -> None:
        self.refused = set(self.buffer.appends)

    def failed_earlier(self) -> set[TopicPartition]:
        """Its partitions whose share of an earlier flight has failed."""
        return {
            topic_partition for earlier in self.predecessors for topic_partition in earlier.refused
        } & set(self.buffer.appends)


class Flusher:
    def __init__(
        self,
        store: ObjectStore,
        writer: Writer,
        *,
        session: Session,
        clock: Clock,
        limits: LogLimits,
        metrics: LogMetrics,
        epoch_of: EpochOf,
        joint_epoch_of: EpochOf,
        end_of: EndOf,
        inline: InlineBytes,
        on_committed: OnCommitted,
        on_failed: OnFailed,
        check_disk_space: Callable[[], None],
    ) -> None:
        """`check_disk_space` raises an error while appends are refused because the disk is full. It is called on
        the writer thread and on the event loop."""
        self._store = store
        self._writer = writer
        self._session = session
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._epoch_of = epoch_of
        self._joint_epoch_of = joint_epoch_of
        self._end_of = end_of
        self._inline = inline
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._check_disk_space = check_disk_space
        self._loop = asyncio.get_running_loop()
        self._budget = ByteBudget(limits.inline_bytes_per_second)
        self._uploads = self._upload_pool()
        self._full: deque[FlushBuffer] = deque()
        self._open: FlushBuffer | None = None
        self._flights: list[Flight] = []
        self._timer: asyncio.TimerHandle | None = None
        self._held_bytes = 0
        self._room_lock = asyncio.Lock()
        self._room_freed: asyncio.Future[None] | None = None
        self._refusal: Unavailable | None = None
        self._refuse_until = 0.0
        self._failure: Unavailable | None = None
        self._failed_at = 0.0
        self._drained: asyncio.Event | None = None
        self._flush_now = False
        """Whether the open buffer is flushed without waiting for more appends, because a caller of `finish` waits."""
        self._finishing: asyncio.Future[None] | None = None
        self._journal_key: str | None = None
        self.flushes = 0
        self.appended_bytes = 0
        metrics.held_bytes.set_function(lambda: self._held_bytes)

    # -- accepting --------------------------------------------------------------------------------------------

    def check_available(self, topic_partition: TopicPartition) -> None:
        """Raises if the append must be refused before it is buffered: the broker drains, a recent flush failed,
        or flushes of this partition are still failing because of an earlier one."""
        if self._drained is not None:
            raise Stopping
        if any(topic_partition in flight.expected_refusals for flight in self._flights):
            raise FlushFailed
        if self._refusal is not None:
            if self._loop.time() < self._refuse_until:
                raise self._refusal.copy()
            self._refusal = None

    def check_disk_space(self) -> None:
        """Raises `StoreFull` while the disk is so full that the broker has released its reserve."""
        self._check_disk_space()

    async def wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes fit into the buffers' memory limit; first come, first served."""
        if self._fits(size) and not self._room_lock.locked():
            return
        try:
            async with asyncio.timeout(self._limits.buffer_wait_ms / 1000), self._room_lock:
                while not self._fits(size):
                    self._room_freed = self._loop.create_future()
                    await self._room_freed
        except TimeoutError:
            raise Overloaded(waiting=self._held_bytes, limit=self._limits.buffer_bytes_max) from None

    def add(self, pending: Pending) -> None:
        if self._open is None:
            self._open = FlushBuffer(self._loop.time())
        self._open.add(pending)
        self._held_bytes += pending.size
        if self._open.bytes >= self._limits.flush_bytes:
            self._full.append(self._open)
            self._open = None
        self._launch_ready()

    def add_jointly(self, pendings: Sequence[Pending], joint_operation: CommitOperation) -> None:
        """Launch a separate flush with an operation in the same commit: if any share or the operation is refused,
        nothing is committed. The flush waits for no buffer, and no buffer waits for it: otherwise frequent joint
        appends would starve the others."""
        buffer = FlushBuffer(self._loop.time())
        for pending in pendings:
            buffer.add(pending)
        self._held_bytes += buffer.bytes
        self._launch(buffer, joint_operation)

    def launch_buffered(self, topic_partitions: AbstractSet[TopicPartition]) -> None:
        """Launch the buffered appends of these partitions, because a joint flush would overtake them."""
        for buffer in [*self._full, *([self._open] if self._open is not None else [])]:
            self._launch(buffer.split(topic_partitions))

    async def finish(self, topic_partitions: set[TopicPartition]) -> None:
        """Returns when no append to these partitions is buffered or in flight under this broker's epoch. The
        caller accepts no more appends for them. Joint appends with the epoch `FOREIGN` are not waited for:
        they may never end."""
        while self._holds(topic_partitions):
            self._flush_now = True
            self._launch_ready()
            if self._finishing is None:
                self._finishing = self._loop.create_future()
            await asyncio.shield(self._finishing)

    def _holds(self, topic_partitions: set[TopicPartition]) -> bool:
        open_buffers = [self._open] if self._open is not None else []
        if any(not topic_partitions.isdisjoint(buffer.appends) for buffer in [*self._full, *open_buffers]):
            return True
        shares = (share for flight in self._flights for share in flight.shares)
        return any(share.topic_partition in topic_partitions and share.epoch != FOREIGN for share in shares)

    async def drain(self) -> None:
        """Refuse new appends, flush what is buffered, and wait until every append has its result."""
        self._drained = asyncio.Event()
        self._launch_ready()
        self._check_drained()
        await self._drained.wait()
        if self._uploads is not None:
            self._uploads.shutdown(wait=False)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def failure(self) -> Unavailable | None:
        """Why the last flush failed; None if it succeeded, or failed more than `FAILURE_SHOWN_S` ago. Without
        producers it is unknown whether the next flush would fail, too."""
        if self._failure is not None and self._loop.time() - self._failed_at > FAILURE_SHOWN_S:
            self._failure = None
        return self._failure

    # -- launching --------------------------------------------------------------------------------------------

    def _launch_ready(self) -> None:
        while (buffer := self._next_buffer()) is not None:
            self._launch(buffer)

    def _next_buffer(self) -> FlushBuffer | None:
        if self._store.appends_are_uploads:
            return self._next_for_upload()
        in_flight = sum(1 for flight in self._flights if flight.joint_operation is None)
        if self._full and in_flight < LOCAL_FLIGHTS_MAX:
            return self._full.popleft()
        return self._take_open() if not in_flight and not self._full else None

    def _next_for_upload(self) -> FlushBuffer | None:
        if self._full:
            return self._full.popleft() if self._uploading() < self._limits.uploads_max else None
        if self._open is None:
            return None
        if (small := self._take_small(self._open)) is not None:
            return small
        waited = self._loop.time() - self._open.opened_at
        if self._flush_now or self._drained is not None or waited * 1000 >= self._limits.flush_delay_ms:
            return self._take_open() if self._uploading() < self._limits.uploads_max else None
        self._wake_up_in(self._limits.flush_delay_ms / 1000 - waited)
        return None

    def _take_small(self, buffer: FlushBuffer) -> FlushBuffer | None:
        """Take from a small buffer the partitions that can be committed inline immediately, because they have no
        flush that still waits for an upload. While another inline flush is in flight, the buffer waits for more
        appends instead."""
        if not self._may_store_inline(buffer.bytes) or not self._budget.has(buffer.bytes, self._loop.time()):
            return None
        if any(
            flight.inline and flight.submitted and flight.joint_operation is None for flight in self._flights
        ):
            return None
        held_up = {
            topic_partition
            for flight in self._flights
            if not flight.submitted
            for topic_partition in flight.buffer.appends
        }
        free = buffer.appends.keys() - held_up
        if len(free) == len(buffer.appends):
            return self._take_open()
        return buffer.split(free) if free else None

    def _may_store_inline(self, size: int) -> bool:
        return size <= self._limits.inline_bytes_max and self._inline.has_room_for(size)

    def _take_open(self) -> FlushBuffer | None:
        buffer, self._open = self._open, None
        return buffer

    def _uploading(self) -> int:
        return sum(
            1
            for flight in self._flights
            if not flight.inline and not flight.uploaded and flight.joint_operation is None
        )

    def _wake_up_in(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(delay_s, 0.001), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._launch_ready()

    def _launch(self, buffer: FlushBuffer, joint_operation: CommitOperation | None = None) -> None:
        if not buffer.appends:
            return
        flight = self._lay_out(buffer, self._epoch_of if joint_operation is None else self._joint_epoch_of)
        flight.joint_operation = joint_operation
        partitions = set(buffer.appends)
        flight.predecessors = [
            each for each in self._flights if not partitions.isdisjoint(each.buffer.appends)
        ]
        self._flights.append(flight)
        self.flushes += 1
        if self._uploads is not None and flight.layout is not None:
            upload = self._loop.run_in_executor(self._uploads, self._store.append, flight.layout.parts)
            upload.add_done_callback(lambda done: self._on_uploaded(flight, done))
        else:
            flight.uploaded = True
            self._submit_ready()

    def _lay_out(self, buffer: FlushBuffer, epoch_of: EpochOf) -> Flight:
        epochs = {topic_partition: epoch_of(topic_partition) for topic_partition in buffer.appends}
        if self._may_store_inline(buffer.bytes) and self._budget.take(buffer.bytes, self._loop.time()):
            return Flight(buffer, lay_out_inline(buffer, epochs), None, self._loop.time())
        layout = lay_out(buffer, epochs)
        return Flight(buffer, layout.shares, layout, self._loop.time())

    def _on_uploaded(self, flight: Flight, upload: "asyncio.Future[Location]") -> None:
        error = upload.exception()
        if error is None:
            flight.uploaded = True
            flight.location = upload.result()
            self._submit_ready()
            self._launch_ready()
        else:
            if flight.joint_operation is None:
                flight.refuse_all()
            refusal = (
                error if isinstance(error, MillpondError) else FlushFailed(f"The upload failed: {error!r}")
            )
            self._on_done(flight, OperationResult(error=refusal))

    def _submit_ready(self) -> None:
        """Submit uploaded flights to the writer. Flights that share partitions are submitted in the order in which
        they were sealed. If an earlier upload delays only some partitions of a flight, the others are split off
        and submitted now."""
        held_up: set[TopicPartition] = set()
        for flight in list(self._flights):
            if flight.submitted:
                continue
            free = flight.buffer.appends.keys() - held_up if flight.uploaded else set()
            if len(free) == len(flight.buffer.appends):
                self._submit(flight)
                continue
            held_up.update(flight.buffer.appends)
            if free and flight.joint_operation is None:
                self._submit(self._split(flight, free))

    def _split(self, flight: Flight, topic_partitions: set[TopicPartition]) -> Flight:
        part = flight.split(topic_partitions)
        self._flights.insert(self._flights.index(flight), part)
        for later in self._flights:
            if flight in later.predecessors:
                later.predecessors.append(part)
        return part

    def _submit(self, flight: Flight) -> None:
        flight.submitted = True
        flight.ends = {
            topic_partition: self._end_of(topic_partition) for topic_partition in flight.buffer.appends
        }
        self._writer.submit(
            WriteJob(
                operation=lambda tx: self._append(tx, flight),
                done=lambda outcome: self._on_done(flight, outcome),
                prepare=lambda: self._make_durable(flight),
                on_outcome=lambda outcome: self._on_outcome(flight, outcome),
                starts_commit=True,
            )
        )

    # -- on the writer thread ---------------------------------------------------------------------------------

    def _make_durable(self, flight: Flight) -> None:
        self._check_disk_space()
        if (
            flight.layout is not None
            and flight.location is None
            and flight.failed_earlier() != set(flight.buffer.appends)
        ):
            flight.location = self._store.append(flight.layout.parts)

    def _append(self, tx: CatalogTransaction, flight: Flight) -> Json:
        failed_earlier = flight.failed_earlier()
        shares = [
            _at_location(share, flight.location)
            for share in flight.shares
            if share.topic_partition not in failed_earlier
        ]
        appended = iter(append(tx, shares, self._new_object(tx, flight), now_ms=self._clock.now_ms()))
        results: list[ShareResult] = [
            FlushFailed() if share.topic_partition in failed_earlier else next(appended)
            for share in flight.shares
        ]
        if (
            not flight.is_partial
            and flight.location is not None
            and not any(isinstance(r, AppendedShare) for r in results)
        ):
            seal(tx, flight.location.key)  # an earlier part of the flight may have left the object open
        if flight.joint_operation is not None:
            _check_all(results)
            flight.joint_operation(tx)
        flight.results = encode_results(results), results
        return flight.results[0]

    def _new_object(self, tx: CatalogTransaction, flight: Flight) -> NewObject | None:
        location = flight.location
        if location is None:
            return None
        is_open = self._store.is_open(location.key)
        if is_open and location.key != self._journal_key:
            seal_earlier(tx, self._session, location.key)
        size = sum(FRAME_BYTES + share.length for share in flight.shares)
        # While another part of the flight is still to be committed, the object must not be collected as garbage,
        # even if this part fails.
        sealed = not is_open and not flight.is_partial
        return NewObject(location.key, "journal", self._session, size, sealed=sealed)

    def _on_outcome(self, flight: Flight, outcome: OperationResult) -> None:
        """Record what later jobs of the writer thread need to know."""
        results = zip(flight.shares, _results(flight, outcome), strict=True)
        # A joint flight has no sequences, so no later flight depends on it.
        if flight.joint_operation is None:
            flight.refused = {
                share.topic_partition for share, result in results if not isinstance(result, AppendedShare)
            }
        if outcome.error is None and flight.location is not None:
            self._journal_key = flight.location.key

    # -- completing -------------------------------------------------------------------------------------------

    def _on_done(self, flight: Flight, outcome: OperationResult) -> None:
        self._flights.remove(flight)
        results = _results(flight, outcome)
        for share, result in zip(flight.shares, results, strict=True):
            pendings = flight.buffer.appends[share.topic_partition]
            if isinstance(result, AppendedShare):
                self._on_committed(pendings, result, flight.ends.get(share.topic_partition, 0))
                self._metrics.appends.inc(len(pendings))
                self._metrics.append_bytes.inc(share.length)
                self.appended_bytes += share.length
                if flight.inline and share.epoch != FOREIGN:
                    self._inline.add(share.topic_partition, share.length)
            elif flight.joint_operation is not None:
                self._on_failed(share.topic_partition, pendings, result)
            else:
                self._fail(flight, share.topic_partition, pendings, result)
        self._count(flight, outcome)
        flight.predecessors = []  # otherwise each flight would keep all earlier flights in memory
        self._release(flight.buffer.bytes)
        if isinstance(outcome.error, Unavailable) and not _is_isolated_failure(flight, outcome.error):
            self._refusal = self._failure = outcome.error
            self._failed_at = self._loop.time()
            self._refuse_until = self._failed_at + self._limits.refuse_ms / 1000
        elif outcome.error is None:
            self._failure = None
        self._submit_ready()
        self._launch_ready()
        self._check_drained()
        self._notify_finish_waiters()

    def _notify_finish_waiters(self) -> None:
        finishing, self._finishing, self._flush_now = self._finishing, None, False
        if finishing is not None and not finishing.done():
            finishing.set_result(None)

    def _fail(
        self, failed: Flight, topic_partition: TopicPartition, pendings: list[Pending], error: MillpondError
    ) -> None:
        """Fail a partition's share and its buffered appends. Its shares of later flights are refused when they
        commit."""
        self._on_failed(topic_partition, pendings, error)
        self._metrics.refusals.inc(len(pendings))
        for flight in self._flights:
            if failed in flight.predecessors and topic_partition in flight.buffer.appends:
                flight.expected_refusals.add(topic_partition)
        buffers = [*self._full, *([self._open] if self._open is not None else [])]
        buffered = [pending for buffer in buffers for pending in buffer.take_partition(topic_partition)]
        if buffered:
            self._on_failed(topic_partition, buffered, FlushFailed())
            self._metrics.refusals.inc(len(buffered))
            self._release(sum(pending.size for pending in buffered))

    def _count(self, flight: Flight, outcome: OperationResult) -> None:
        if outcome.error is None:
            (self._metrics.inline_flushes if flight.inline else self._metrics.stored_flushes).inc()
            self._metrics.flush_seconds.observe(self._loop.time() - flight.sealed_at)

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        if self._room_freed is not None and not self._room_freed.done():
            self._room_freed.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + size <= self._limits.buffer_bytes_max

    def _check_drained(self) -> None:
        if self._drained is not None and not self._flights and not self._full and self._open is None:
            self._drained.set()

    def _upload_pool(self) -> ThreadPoolExecutor | None:
        if not self._store.appends_are_uploads:
            return None
        return ThreadPoolExecutor(self._limits.uploads_max, thread_name_prefix="millpond-upload")


def _at_location(share: AppendShare, location: Location | None) -> AppendShare:
    if location is None or location.position == 0:
        return share
    return dataclasses.replace(share, position=location.position + share.position)


def _is_isolated_failure(flight: Flight, error: MillpondError) -> bool:
    """Whether the failure concerns this flight only: its joint operation failed, or an earlier flush of its
    partitions did."""
    return flight.joint_operation is not None and isinstance(error, FlushFailed)


def _check_all(results: list[ShareResult]) -> None:
    for result in results:
        if not isinstance(result, AppendedShare):
            raise result


def _results(flight: Flight, outcome: OperationResult) -> list[ShareResult]:
    if outcome.error is not None:
        return [outcome.error] * len(flight.shares)
    if flight.results is not None and flight.results[0] is outcome.value:
        return flight.results[1]
    return decode_results(outcome.value)
