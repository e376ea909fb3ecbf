"""Decides when buffers are sealed, and moves each sealed buffer through the store and the catalog as a flight.

Local stores: no timer. While one flush is in flight the next buffer fills (group commit), so an idle broker
responds immediately and a busy one writes megabytes per fsync. Object stores: a buffer is sealed when it is
full or has waited long enough, and several uploads run concurrently. With either kind of store, a small buffer
is stored inline in the catalog as long as the byte budget lasts and merging keeps up.

`flights` holds the rules: in which order flights are committed, and which appends fail with a failed one. `flush`
is what the writer thread does with a flight. `backpressure` decides whether more may be accepted.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor

from millpond.catalog.appends import FOREIGN, AppendedShare
from millpond.catalog.commits import CommitOperation, OperationResult
from millpond.log.backpressure import Backpressure
from millpond.log.budget import ByteBudget
from millpond.log.buffer import FlushBuffer, Pending, lay_out, lay_out_inline
from millpond.log.flights import Flight, Flights, Phase
from millpond.log.flush import Flush, FlushCommitter, refused_shares, share_results
from millpond.log.inline import InlineBytes
from millpond.log.limits import LogLimits
from millpond.log.writer import WriteJob, Writer
from millpond.model.clock import Clock
from millpond.model.errors import FlushFailed, MillpondError, Unavailable
from millpond.model.extents import Location
from millpond.model.ids import Session, TopicPartition
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import LogMetrics

OnCommitted = Callable[[list[Pending], AppendedShare, int], None]
OnFailed = Callable[[TopicPartition, list[Pending], MillpondError], None]
EpochOf = Callable[[TopicPartition], int]
EndOf = Callable[[TopicPartition], int]

LOCAL_FLIGHTS_MAX = 2
"""One flush being written and, if another buffer is already full, one queued right behind it."""


class Flusher:
    """Runs on the event loop; its state changes only between awaits. An upload thread reads `Layout.parts` and
    nothing else. The writer thread uses the `FlushCommitter`, and shares these fields with the event loop:

        field                   event loop                              writer thread
        ---------------------   -------------------------------------   -----------------------------------------
        Flight.partitions,      writes them before `_submit`; clears    reads them until the outcome is known
        Flight.predecessors     `predecessors` in `_on_done`
        Flight.refused          writes it if the upload failed; the     writes it when the outcome is known; later
                                writer thread never has that flight     jobs read it as a predecessor's
        Flush.location          writes it after an upload, before       writes it if there was no upload; reads it
                                `_submit`
        Flush.results           reads it in `_on_done`                  writes it in the transaction
        other fields of Flush   writes them before `_submit`            reads them

    Jobs and outcomes pass through queues, so each thread sees what the other wrote before. Only `Flight.refused` may
    still be written while the event loop handles the flight's outcome, and the event loop does not read it.

    It has more than 20 methods: the steps of a flight on the event loop, which share the buffers and the flights.
    """

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
        self._limits = limits
        self._metrics = metrics
        self._epoch_of = epoch_of
        self._joint_epoch_of = joint_epoch_of
        self._end_of = end_of
        self._inline = inline
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._committer = FlushCommitter(store, session, clock, check_disk_space)
        self._loop = asyncio.get_running_loop()
        self._budget = ByteBudget(limits.inline_bytes_per_second)
        self._uploads = (
            ThreadPoolExecutor(limits.uploads_max, thread_name_prefix="millpond-upload")
            if store.appends_are_uploads
            else None
        )
        self._full: deque[FlushBuffer] = deque()
        self._open: FlushBuffer | None = None
        self._flights: Flights[Flush] = Flights()
        self.backpressure = Backpressure(limits, self._flights, check_disk_space)
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None
        self._flush_now = False
        """Whether the open buffer is flushed without waiting for more appends, because a caller of `finish` waits."""
        self._finishing: asyncio.Future[None] | None = None
        self.flushes = 0
        self.appended_bytes = 0
        metrics.held_bytes.set_function(lambda: self.backpressure.held_bytes)

    # -- accepting --------------------------------------------------------------------------------------------

    def add(self, pending: Pending) -> None:
        if self._open is None:
            self._open = FlushBuffer(self._loop.time())
        self._open.add(pending)
        self.backpressure.hold(pending.size)
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
        self.backpressure.hold(buffer.bytes)
        self._launch(buffer, joint_operation)

    def launch_buffered(self, topic_partitions: AbstractSet[TopicPartition]) -> None:
        """Launch the buffered appends of these partitions, because a joint flush would overtake them."""
        for buffer in self._buffers():
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
        if any(not topic_partitions.isdisjoint(buffer.appends) for buffer in self._buffers()):
            return True
        shares = (share for flight in self._flights for share in flight.cargo.shares)
        return any(share.topic_partition in topic_partitions and share.epoch != FOREIGN for share in shares)

    def _buffers(self) -> list[FlushBuffer]:
        return [*self._full, self._open] if self._open is not None else [*self._full]

    async def drain(self) -> None:
        """Refuse new appends, flush what is buffered, and wait until every append has its result."""
        self._drained = asyncio.Event()
        self.backpressure.stop()
        self._launch_ready()
        self._notify_waiters()
        await self._drained.wait()
        if self._uploads is not None:
            self._uploads.shutdown(wait=False)

    # -- launching --------------------------------------------------------------------------------------------

    def _launch_ready(self) -> None:
        while (buffer := self._next_buffer()) is not None:
            self._launch(buffer)

    def _next_buffer(self) -> FlushBuffer | None:
        if self._uploads is not None:
            return self._next_for_upload()
        in_flight = self._flights.ordinary
        if self._full and in_flight < LOCAL_FLIGHTS_MAX:
            return self._full.popleft()
        return self._take_open() if not in_flight and not self._full else None

    def _next_for_upload(self) -> FlushBuffer | None:
        if self._full:
            return self._full.popleft() if self._flights.uploading() < self._limits.uploads_max else None
        if self._open is None:
            return None
        if (small := self._take_small(self._open)) is not None:
            return small
        waited = self._loop.time() - self._open.opened_at
        if self._flush_now or self._drained is not None or waited * 1000 >= self._limits.flush_delay_ms:
            return self._take_open() if self._flights.uploading() < self._limits.uploads_max else None
        self._wake_up_in(self._limits.flush_delay_ms / 1000 - waited)
        return None

    def _take_small(self, buffer: FlushBuffer) -> FlushBuffer | None:
        """Take from a small buffer the partitions that can be committed inline immediately, because they have no
        flush that still waits for an upload. While another inline flush is in flight, the buffer waits for more
        appends instead."""
        if not self._may_store_inline(buffer.bytes) or not self._budget.has(buffer.bytes, self._loop.time()):
            return None
        if any(
            flight.phase is Phase.COMMITTING and flight.cargo.is_inline and not flight.is_joint
            for flight in self._flights
        ):
            return None
        free = buffer.appends.keys() - self._flights.held_up()
        if len(free) == len(buffer.appends):
            return self._take_open()
        return buffer.split(free) if free else None

    def _may_store_inline(self, size: int) -> bool:
        return size <= self._limits.inline_bytes_max and self._inline.has_room_for(size)

    def _take_open(self) -> FlushBuffer | None:
        buffer, self._open = self._open, None
        return buffer

    def _wake_up_in(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(delay_s, 0.001), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._launch_ready()

    def _launch(self, buffer: FlushBuffer, joint_operation: CommitOperation | None = None) -> None:
        if not buffer.appends:
            return
        partitions, is_joint = frozenset(buffer.appends), joint_operation is not None
        epoch_of = self._joint_epoch_of if is_joint else self._epoch_of
        epochs = {topic_partition: epoch_of(topic_partition) for topic_partition in buffer.appends}
        sealed_at = self._loop.time()
        if self._may_store_inline(buffer.bytes) and self._budget.take(buffer.bytes, sealed_at):
            flush = Flush(buffer, lay_out_inline(buffer, epochs), None, sealed_at, joint_operation)
        else:
            layout = lay_out(buffer, epochs)
            flush = Flush(buffer, layout.shares, layout, sealed_at, joint_operation)
        self.flushes += 1
        if self._uploads is not None and flush.layout is not None:
            flight = self._flights.launch(flush, partitions, uploads=True, is_joint=is_joint)
            upload = self._loop.run_in_executor(self._uploads, self._store.append, flush.layout.parts)
            upload.add_done_callback(lambda done: self._on_uploaded(flight, done))
        else:
            self._flights.launch(flush, partitions, uploads=False, is_joint=is_joint)
            self._submit_ready()

    def _on_uploaded(self, flight: Flight[Flush], upload: "asyncio.Future[Location]") -> None:
        error = upload.exception()
        if error is None:
            flight.cargo.location = upload.result()
            self._flights.uploaded(flight)
            self._submit_ready()
            self._launch_ready()
        else:
            refusal = (
                error if isinstance(error, MillpondError) else FlushFailed(f"The upload failed: {error!r}")
            )
            self._on_done(flight, OperationResult(error=refusal))

    def _submit_ready(self) -> None:
        for flight in self._flights.take_ready():
            self._submit(flight)

    def _submit(self, flight: Flight[Flush]) -> None:
        flush, committer = flight.cargo, self._committer
        flush.ends = {
            topic_partition: self._end_of(topic_partition) for topic_partition in flush.buffer.appends
        }
        self._writer.submit(
            WriteJob(
                operation=lambda tx: committer.append(tx, flight),
                done=lambda outcome: self._on_done(flight, outcome),
                prepare=lambda: committer.make_durable(flight),
                on_outcome=lambda outcome: committer.on_outcome(flight, outcome),
                starts_commit=True,
            )
        )

    # -- completing -------------------------------------------------------------------------------------------

    def _on_done(self, flight: Flight[Flush], outcome: OperationResult) -> None:
        flush = flight.cargo
        results = share_results(flush, outcome)
        failing = self._flights.ended(flight, refused_shares(flush, results))
        for share, result in zip(flush.shares, results, strict=True):
            pendings = flush.buffer.appends[share.topic_partition]
            if isinstance(result, AppendedShare):
                self._on_committed(pendings, result, flush.ends.get(share.topic_partition, 0))
                self._metrics.appends.inc(len(pendings))
                self._metrics.append_bytes.inc(share.length)
                self.appended_bytes += share.length
                if flush.is_inline and share.epoch != FOREIGN:
                    self._inline.add(share.topic_partition, share.length)
            else:
                self._on_failed(share.topic_partition, pendings, result)
                if share.topic_partition in failing:
                    self._metrics.refusals.inc(len(pendings))
                    self._fail_buffered(share.topic_partition)
        self.backpressure.release(flush.buffer.bytes)
        if outcome.error is None:
            self.backpressure.flush_succeeded()
            (self._metrics.inline_flushes if flush.is_inline else self._metrics.stored_flushes).inc()
            self._metrics.flush_seconds.observe(self._loop.time() - flush.sealed_at)
        elif isinstance(outcome.error, Unavailable) and not _is_isolated_failure(flight, outcome.error):
            self.backpressure.flush_failed(outcome.error)
        self._submit_ready()
        self._launch_ready()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        """Resume `drain` if nothing is left, and `finish`, which checks that itself."""
        if self._drained is not None and not self._flights and not self._full and self._open is None:
            self._drained.set()
        finishing, self._finishing, self._flush_now = self._finishing, None, False
        if finishing is not None and not finishing.done():
            finishing.set_result(None)

    def _fail_buffered(self, topic_partition: TopicPartition) -> None:
        buffers = self._buffers()
        buffered = [pending for buffer in buffers for pending in buffer.take_partition(topic_partition)]
        if buffered:
            self._on_failed(topic_partition, buffered, FlushFailed())
            self._metrics.refusals.inc(len(buffered))
            self.backpressure.release(sum(pending.size for pending in buffered))


def _is_isolated_failure(flight: Flight[Flush], error: MillpondError) -> bool:
    """Whether the failure concerns this flight only: its joint operation failed, or an earlier flush of its
    partitions did."""
    return flight.is_joint and isinstance(error, FlushFailed)
