"""When buffers are sealed, how flushes overtake nothing, and what a failed one takes with it.

Local stores: no timer. While one flush is under way the next buffer fills (group commit), so an idle broker
answers at once and a busy one writes megabytes per fsync. Object stores: a buffer is sealed when it is full or
has waited long enough, and several upload side by side; a partition's share is committed only after its shares
of every earlier flush, so a slow upload delays the partitions in it and nobody else. On either, a small buffer
rides in the catalog as long as its byte budget lasts and merging keeps up.

A flush that fails takes along, retriably, everything behind it that shares one of its failed partitions:
flushes on their way (`Flight.predecessors`) and appends still buffered. Until the last of these has failed the
partition takes nothing new, so a failure ends instead of handing itself on from flush to flush. Changes only
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
    Placed,
    Share,
    ShareResult,
    append,
    decode_results,
    encode_results,
)
from millpond.catalog.commits import Json, Operation, Outcome
from millpond.catalog.database import Transaction
from millpond.catalog.objects import NewObject, seal, seal_earlier
from millpond.log.budget import ByteBudget
from millpond.log.buffer import FlushBuffer, Layout, Pending, lay_out, lay_out_inline
from millpond.log.inline import InlineBytes
from millpond.log.limits import LogLimits
from millpond.log.writer import Job, Writer
from millpond.model.clock import Clock
from millpond.model.errors import FlushFailed, MillpondError, Overloaded, Stopping, Unavailable
from millpond.model.extents import Location
from millpond.model.ids import Session, TopicPartition
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import LogMetrics
from millpond.segments.frame import FRAME_BYTES

Committed = Callable[[list[Pending], Placed, int], None]
Failed = Callable[[TopicPartition, list[Pending], MillpondError], None]
EpochOf = Callable[[TopicPartition], int]
EndOf = Callable[[TopicPartition], int]

NOT_OWNED = 0
"""No partition that has an owner has this epoch."""
FAILURE_SHOWN_S = 10.0
"""How long a failed flush counts against the broker's readiness if no other flush follows."""
LOCAL_FLIGHTS_MAX = 2
"""One being written and, if it is already full, one waiting right behind it."""


class Flight:
    """A sealed buffer on its way to the store and the catalog."""

    __slots__ = (
        *("also", "answer", "buffer", "condemned", "ends", "has_rest", "location", "parts", "predecessors"),
        *("refused", "sealed_at", "shares", "submitted", "uploaded"),
    )

    def __init__(
        self, buffer: FlushBuffer, shares: list[Share], parts: Layout | None, sealed_at: float
    ) -> None:
        self.buffer = buffer
        self.sealed_at = sealed_at
        self.shares = shares
        self.parts = parts
        self.location: Location | None = None
        self.predecessors: list[Flight] = []
        self.refused: set[TopicPartition] = set()
        self.condemned: set[TopicPartition] = set()
        """Partitions that the loop knows will be refused, because it has heard of an earlier failure."""
        self.uploaded = False
        self.submitted = False
        self.ends: dict[TopicPartition, int] = {}
        """Where its partitions ended, as far as was known when it was submitted."""
        self.answer: tuple[Json, list[ShareResult]] | None = None
        """The results as they were stored and as they are, so that only an answer that was lost is decoded."""
        self.also: Operation | None = None
        """What is committed together with it: then all of it is, or nothing."""
        self.has_rest = False
        """Whether other partitions of the same object are still to be committed."""

    def split(self, wheres: set[TopicPartition]) -> "Flight":
        """Take some partitions out, to be committed ahead of the rest."""
        shares = [share for share in self.shares if share.where in wheres]
        part = Flight(self.buffer.split(wheres), shares, self.parts, self.sealed_at)
        self.shares = [share for share in self.shares if share.where not in wheres]
        part.location, part.uploaded, part.has_rest = self.location, self.uploaded, True
        part.predecessors, part.condemned = list(self.predecessors), self.condemned & wheres
        return part

    @property
    def inline(self) -> bool:
        return self.parts is None

    def refuse_all(self) -> None:
        self.refused = set(self.buffer.appends)

    def doomed(self) -> set[TopicPartition]:
        """Partitions whose earlier flush has failed."""
        return {where for earlier in self.predecessors for where in earlier.refused} & set(
            self.buffer.appends
        )


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
        committed: Committed,
        failed: Failed,
        check_room: Callable[[], None],
    ) -> None:
        """`check_room` raises, on the writer thread, what appends are refused with while the disk is full."""
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
        self._committed = committed
        self._failed = failed
        self._check_room = check_room
        self._loop = asyncio.get_running_loop()
        self._budget = ByteBudget(limits.inline_bytes_per_second)
        self._uploads = self._upload_pool()
        self._full: deque[FlushBuffer] = deque()
        self._open: FlushBuffer | None = None
        self._flights: list[Flight] = []
        self._timer: asyncio.TimerHandle | None = None
        self._held_bytes = 0
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._refusal: Unavailable | None = None
        self._refuse_until = 0.0
        self._failure: Unavailable | None = None
        self._failed_at = 0.0
        self._drained: asyncio.Event | None = None
        self._hurried = False
        """Whether the open buffer is not to wait for company, since somebody waits for it to be gone."""
        self._finishing: asyncio.Future[None] | None = None
        self._journal_key: str | None = None
        self.flushes = 0
        self.appended_bytes = 0
        metrics.held_bytes.set_function(lambda: self._held_bytes)

    # -- accepting --------------------------------------------------------------------------------------------

    def check_available(self, where: TopicPartition) -> None:
        """Refuse before buffering while the store or the catalog is known not to work, or while flushes of this
        partition are still failing because of an earlier one."""
        if self._drained is not None:
            raise Stopping
        if any(where in flight.condemned for flight in self._flights):
            raise FlushFailed
        if self._refusal is not None:
            if self._loop.time() < self._refuse_until:
                raise self._refusal.copy()
            self._refusal = None

    def check_room(self) -> None:
        """Raises `StoreFull` while the disk's reserve is released."""
        self._check_room()

    async def room_for(self, size: int) -> None:
        """Wait until `size` bytes may be buffered; first come, first served."""
        if self._fits(size) and not self._turn.locked():
            return
        try:
            async with asyncio.timeout(self._limits.buffer_wait_ms / 1000), self._turn:
                while not self._fits(size):
                    self._room = self._loop.create_future()
                    await self._room
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
        self._launch_what_may()

    def add_jointly(self, pendings: Sequence[Pending], also: Operation) -> None:
        """A flush of its own, with an operation in the same commit: if any part of it is refused, all of it is. It
        waits for nobody's buffer, and no buffer for it: else those who do this all the time would starve the others."""
        buffer = FlushBuffer(self._loop.time())
        for pending in pendings:
            buffer.add(pending)
        self._held_bytes += buffer.bytes
        self._launch(buffer, also)

    def launch_buffered(self, wheres: AbstractSet[TopicPartition]) -> None:
        """Send off what is buffered of these partitions: a joint flush would overtake it."""
        for buffer in [*self._full, *([self._open] if self._open is not None else [])]:
            self._launch(buffer.split(wheres))

    async def finish(self, wheres: set[TopicPartition]) -> None:
        """Returns when nothing of these partitions is on its way under this broker's epoch. Whoever calls it takes
        nothing more for them; what is appended jointly meanwhile is not waited for, as it never ends."""
        while self._holds(wheres):
            self._hurried = True
            self._launch_what_may()
            if self._finishing is None:
                self._finishing = self._loop.create_future()
            await asyncio.shield(self._finishing)

    def _holds(self, wheres: set[TopicPartition]) -> bool:
        open_ones = [self._open] if self._open is not None else []
        if any(not wheres.isdisjoint(buffer.appends) for buffer in [*self._full, *open_ones]):
            return True
        shares = (share for flight in self._flights for share in flight.shares)
        return any(share.where in wheres and share.epoch != FOREIGN for share in shares)

    async def drain(self) -> None:
        """Take nothing more, flush what is there, and wait until all of it is answered."""
        self._drained = asyncio.Event()
        self._launch_what_may()
        self._check_drained()
        await self._drained.wait()
        if self._uploads is not None:
            self._uploads.shutdown(wait=False)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def failure(self) -> Unavailable | None:
        """Why the last flush failed, if that was not long ago: without producers it is not known how the next one
        would end."""
        if self._failure is not None and self._loop.time() - self._failed_at > FAILURE_SHOWN_S:
            self._failure = None
        return self._failure

    # -- launching --------------------------------------------------------------------------------------------

    def _launch_what_may(self) -> None:
        while (buffer := self._next_buffer()) is not None:
            self._launch(buffer)

    def _next_buffer(self) -> FlushBuffer | None:
        if self._store.appends_are_uploads:
            return self._next_for_upload()
        flying = sum(1 for flight in self._flights if flight.also is None)
        if self._full and flying < LOCAL_FLIGHTS_MAX:
            return self._full.popleft()
        return self._take_open() if not flying and not self._full else None

    def _next_for_upload(self) -> FlushBuffer | None:
        if self._full:
            return self._full.popleft() if self._uploading() < self._limits.uploads_max else None
        if self._open is None:
            return None
        if (small := self._take_small(self._open)) is not None:
            return small
        waited = self._loop.time() - self._open.opened_at
        if self._hurried or self._drained is not None or waited * 1000 >= self._limits.flush_delay_ms:
            return self._take_open() if self._uploading() < self._limits.uploads_max else None
        self._wake_up_in(self._limits.flush_delay_ms / 1000 - waited)
        return None

    def _take_small(self, buffer: FlushBuffer) -> FlushBuffer | None:
        """What of a small buffer no upload holds up goes into the catalog at once; unless one like it is under
        way: then it waits for company."""
        if not self._may_ride(buffer.bytes) or not self._budget.has(buffer.bytes, self._loop.time()):
            return None
        if any(flight.inline and flight.submitted and flight.also is None for flight in self._flights):
            return None
        held_up = {
            where for flight in self._flights if not flight.submitted for where in flight.buffer.appends
        }
        free = buffer.appends.keys() - held_up
        if len(free) == len(buffer.appends):
            return self._take_open()
        return buffer.split(free) if free else None

    def _may_ride(self, size: int) -> bool:
        return size <= self._limits.inline_bytes_max and self._inline.has_room_for(size)

    def _take_open(self) -> FlushBuffer | None:
        buffer, self._open = self._open, None
        return buffer

    def _uploading(self) -> int:
        return sum(
            1 for flight in self._flights if not flight.inline and not flight.uploaded and flight.also is None
        )

    def _wake_up_in(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(delay_s, 0.001), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._launch_what_may()

    def _launch(self, buffer: FlushBuffer, also: Operation | None = None) -> None:
        if not buffer.appends:
            return
        flight = self._lay_out(buffer, self._epoch_of if also is None else self._joint_epoch_of)
        flight.also = also
        partitions = set(buffer.appends)
        flight.predecessors = [
            each for each in self._flights if not partitions.isdisjoint(each.buffer.appends)
        ]
        self._flights.append(flight)
        self.flushes += 1
        if self._uploads is not None and flight.parts is not None:
            upload = self._loop.run_in_executor(self._uploads, self._store.append, flight.parts.parts)
            upload.add_done_callback(lambda done: self._on_uploaded(flight, done))
        else:
            flight.uploaded = True
            self._submit_ready()

    def _lay_out(self, buffer: FlushBuffer, epoch_of: EpochOf) -> Flight:
        epochs = {where: epoch_of(where) for where in buffer.appends}
        if self._may_ride(buffer.bytes) and self._budget.take(buffer.bytes, self._loop.time()):
            return Flight(buffer, lay_out_inline(buffer, epochs), None, self._loop.time())
        layout = lay_out(buffer, epochs)
        return Flight(buffer, layout.shares, layout, self._loop.time())

    def _on_uploaded(self, flight: Flight, upload: "asyncio.Future[Location]") -> None:
        error = upload.exception()
        if error is None:
            flight.uploaded = True
            flight.location = upload.result()
            self._submit_ready()
            self._launch_what_may()
        else:
            if flight.also is None:
                flight.refuse_all()
            refusal = (
                error if isinstance(error, MillpondError) else FlushFailed(f"The upload failed: {error!r}")
            )
            self._on_done(flight, Outcome(error=refusal))

    def _submit_ready(self) -> None:
        """Commit in seal order wherever partitions are shared. Of a flush that shares only some with a slow one
        the others go ahead: a slow upload delays just the partitions in it."""
        held_up: set[TopicPartition] = set()
        for flight in list(self._flights):
            if flight.submitted:
                continue
            free = flight.buffer.appends.keys() - held_up if flight.uploaded else set()
            if len(free) == len(flight.buffer.appends):
                self._submit(flight)
                continue
            held_up.update(flight.buffer.appends)
            if free and flight.also is None:
                self._submit(self._split(flight, free))

    def _split(self, flight: Flight, wheres: set[TopicPartition]) -> Flight:
        part = flight.split(wheres)
        self._flights.insert(self._flights.index(flight), part)
        for later in self._flights:
            if flight in later.predecessors:
                later.predecessors.append(part)
        return part

    def _submit(self, flight: Flight) -> None:
        flight.submitted = True
        flight.ends = {where: self._end_of(where) for where in flight.buffer.appends}
        self._writer.submit(
            Job(
                operation=lambda tx: self._append(tx, flight),
                done=lambda outcome: self._on_done(flight, outcome),
                prepare=lambda: self._make_durable(flight),
                settled=lambda outcome: self._settle(flight, outcome),
                starts_commit=True,
            )
        )

    # -- on the writer thread ---------------------------------------------------------------------------------

    def _make_durable(self, flight: Flight) -> None:
        self._check_room()
        if (
            flight.parts is not None
            and flight.location is None
            and flight.doomed() != set(flight.buffer.appends)
        ):
            flight.location = self._store.append(flight.parts.parts)

    def _append(self, tx: Transaction, flight: Flight) -> Json:
        doomed = flight.doomed()
        shares = [_placed_in(share, flight.location) for share in flight.shares if share.where not in doomed]
        placed = iter(append(tx, shares, self._new_object(tx, flight), now_ms=self._clock.now_ms()))
        results: list[ShareResult] = [
            FlushFailed() if share.where in doomed else next(placed) for share in flight.shares
        ]
        if (
            not flight.has_rest
            and flight.location is not None
            and not any(isinstance(r, Placed) for r in results)
        ):
            seal(tx, flight.location.key)  # an earlier part of it may have left the object open
        if flight.also is not None:
            _check_all(results)
            flight.also(tx)
        flight.answer = encode_results(results), results
        return flight.answer[0]

    def _new_object(self, tx: Transaction, flight: Flight) -> NewObject | None:
        location = flight.location
        if location is None:
            return None
        is_open = self._store.is_open(location.key)
        if is_open and location.key != self._journal_key:
            seal_earlier(tx, self._session, location.key)
        size = sum(FRAME_BYTES + share.length for share in flight.shares)
        # While a rest of it is to come, the object may not be collected, whatever becomes of this part.
        sealed = not is_open and not flight.has_rest
        return NewObject(location.key, "journal", self._session, size, sealed=sealed)

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        results = zip(flight.shares, _results(flight, outcome), strict=True)
        if flight.also is None:  # otherwise it has no sequences: nothing behind it needs it to have happened
            flight.refused = {share.where for share, result in results if not isinstance(result, Placed)}
        if outcome.error is None and flight.location is not None:
            self._journal_key = flight.location.key

    # -- settling ---------------------------------------------------------------------------------------------

    def _on_done(self, flight: Flight, outcome: Outcome) -> None:
        self._flights.remove(flight)
        results = _results(flight, outcome)
        for share, result in zip(flight.shares, results, strict=True):
            pendings = flight.buffer.appends[share.where]
            if isinstance(result, Placed):
                self._committed(pendings, result, flight.ends.get(share.where, 0))
                self._metrics.appends.inc(len(pendings))
                self._metrics.append_bytes.inc(share.length)
                self.appended_bytes += share.length
                if flight.inline and share.epoch != FOREIGN:
                    self._inline.add(share.where, share.length)
            elif flight.also is not None:
                self._failed(share.where, pendings, result)
            else:
                self._fail(flight, share.where, pendings, result)
        self._count(flight, outcome)
        flight.predecessors = []  # else each flight would keep all flights before it in memory
        self._release(flight.buffer.bytes)
        if isinstance(outcome.error, Unavailable) and not _is_its_own(flight, outcome.error):
            self._refusal = self._failure = outcome.error
            self._failed_at = self._loop.time()
            self._refuse_until = self._failed_at + self._limits.refuse_ms / 1000
        elif outcome.error is None:
            self._failure = None
        self._submit_ready()
        self._launch_what_may()
        self._check_drained()
        self._tell_finishing()

    def _tell_finishing(self) -> None:
        finishing, self._finishing, self._hurried = self._finishing, None, False
        if finishing is not None and not finishing.done():
            finishing.set_result(None)

    def _fail(
        self, failed: Flight, where: TopicPartition, pendings: list[Pending], error: MillpondError
    ) -> None:
        """Everything of the partition that is still buffered goes too; what flies behind is refused in turn."""
        self._failed(where, pendings, error)
        self._metrics.refusals.inc(len(pendings))
        for flight in self._flights:
            if failed in flight.predecessors and where in flight.buffer.appends:
                flight.condemned.add(where)
        buffers = [*self._full, *([self._open] if self._open is not None else [])]
        buffered = [pending for buffer in buffers for pending in buffer.take_partition(where)]
        if buffered:
            self._failed(where, buffered, FlushFailed())
            self._metrics.refusals.inc(len(buffered))
            self._release(sum(pending.size for pending in buffered))

    def _count(self, flight: Flight, outcome: Outcome) -> None:
        if outcome.error is None:
            (self._metrics.inline_flushes if flight.inline else self._metrics.stored_flushes).inc()
            self._metrics.flush_seconds.observe(self._loop.time() - flight.sealed_at)

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + size <= self._limits.buffer_bytes_max

    def _check_drained(self) -> None:
        if self._drained is not None and not self._flights and not self._full and self._open is None:
            self._drained.set()

    def _upload_pool(self) -> ThreadPoolExecutor | None:
        if not self._store.appends_are_uploads:
            return None
        return ThreadPoolExecutor(self._limits.uploads_max, thread_name_prefix="millpond-upload")


def _placed_in(share: Share, location: Location | None) -> Share:
    if location is None or location.position == 0:
        return share
    return dataclasses.replace(share, position=location.position + share.position)


def _is_its_own(flight: Flight, error: MillpondError) -> bool:
    """Whether only this flight was refused, by its own operation or behind one that failed: the others may go on."""
    return flight.also is not None and isinstance(error, FlushFailed)


def _check_all(results: list[ShareResult]) -> None:
    for result in results:
        if not isinstance(result, Placed):
            raise result


def _results(flight: Flight, outcome: Outcome) -> list[ShareResult]:
    if outcome.error is not None:
        return [outcome.error] * len(flight.shares)
    if flight.answer is not None and flight.answer[0] is outcome.value:
        return flight.answer[1]
    return decode_results(outcome.value)
