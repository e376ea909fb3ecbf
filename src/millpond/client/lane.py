"""The messages of one partition on the client side: a pure state machine, without sockets or time.

Messages wait, are packed into a batch, are in flight, and get a response, in this order and in no other. A
batch carries the producer's identity and a sequence, so a batch that is sent again after a lost response is
stored once. These rules guarantee it:

* Batches stay in sequence order until they get a response. A batch that must be sent again goes before all
  later ones, with the same bytes, and only when no later batch is in flight.
* A batch whose outcome is unknown (its response was lost) keeps its place and its sequence until a broker
  reports its outcome, even if no caller waits for it any longer: a copy of it may still be in flight. Only a
  batch that was certainly not stored may be dropped or renumbered.
* A dropped batch leaves a gap in the sequences. Later batches continue under the next epoch, which also
  fences every copy of an older batch. The lane changes the epoch as soon as no batch of unknown outcome is
  left under the old one.
* A broker remembers five batches of a producer, so no more than five are in flight. While an outcome is
  unknown, no new batch is sent, since the broker would remember it in place of the unknown one. A broker that
  does not know a producer accepts any sequence as its first, so the first batch of an epoch is sent alone.
  The first batch on a new connection is sent alone, too: a network that breaks under five batches may carry
  one.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from millpond.client.message import Placed, Sent
from millpond.model.errors import (
    CatalogFailed,
    InvalidInput,
    MillpondError,
    OutcomeUnknown,
    OutOfOrderSequence,
    TimedOut,
)
from millpond.records import Codec, Record, build_batch

IN_FLIGHT_MAX: Final = 5
SEQUENCE_END: Final = 2**31
EPOCH_MAX: Final = 2**15 - 1
UNCERTAIN: Final = (OutcomeUnknown, CatalogFailed, TimedOut)
"""Errors after which a batch may be stored nevertheless."""


ResultReceiver: TypeAlias = "asyncio.Future[Placed] | Sent"
"""Receives the result: a future on this event loop, or a `Sent` that another thread waits for."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


class QueuedRecord(NamedTuple):
    record: Record
    size: int
    result: ResultReceiver

    def refuse(self, error: MillpondError) -> None:
        if not self.result.done():
            self.result.set_exception(error.copy())


@dataclass(slots=True, eq=False)
class OutBatch:
    """Messages that are sent together. `deadline` is that of the oldest one."""

    entries: list[QueuedRecord]
    deadline: float
    identity: ProducerIdentity
    sequence: int
    data: bytes = b""
    size: int = field(init=False)
    """The bytes it occupies in the producer's buffer: 0 once its messages have failed."""
    in_flight: bool = False
    is_uncertain: bool = False
    """Whether the outcome of an attempt is unknown: the batch may be stored already, or may still be."""
    is_abandoned: bool = False
    """Whether its messages have failed, so that no caller waits for its response."""
    failure: MillpondError | None = None
    """Why the last attempt certainly failed."""

    def __post_init__(self) -> None:
        self.size = sum(entry.size for entry in self.entries)

    def complete(self, partition: int, first_number: int) -> None:
        for delta, entry in enumerate(self.entries):
            if not entry.result.done():
                entry.result.set_result(Placed(partition, first_number + delta))

    def refuse(self, error: MillpondError) -> int:
        """Fail its messages: no caller waits for it any longer. Returns the bytes that this frees."""
        for entry in self.entries:
            entry.refuse(error)
        self.is_abandoned = True
        held, self.size = self.size, 0
        return held


class Lane:
    """The driver of a lane provides its `identity`; `needs_identity` shows when. One method for each event and each
    transition, more than 20 in all, so that the machine can be read in one file."""

    def __init__(self, partition: int, address: str, *, batch_bytes: int, compression: Codec) -> None:
        self.partition = partition
        self.address = address
        self.batch_bytes = batch_bytes
        self._compression = compression
        self._identity: ProducerIdentity | None = None
        self._sequence = 0
        self._waiting: deque[tuple[QueuedRecord, float]] = deque()
        self._waiting_bytes = 0
        self._open: deque[OutBatch] = deque()
        self._has_gap = False
        self._single_in_flight = True
        self.resume_at = 0.0

    # -- adding -----------------------------------------------------------------------------------------------

    def add(self, entry: QueuedRecord, deadline: float) -> None:
        self._waiting.append((entry, deadline))
        self._waiting_bytes += entry.size

    @property
    def is_full(self) -> bool:
        """Whether enough messages wait for a whole batch."""
        return self._waiting_bytes >= self.batch_bytes

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._open)

    @property
    def has_uncertain(self) -> bool:
        """Whether the outcome of an earlier attempt is unknown."""
        return any(batch.is_uncertain for batch in self._open)

    # -- sending ----------------------------------------------------------------------------------------------

    @property
    def needs_identity(self) -> bool:
        """True at the beginning, and when the epochs of the last identity are used up."""
        return self._identity is None

    def set_identity(self, identity: ProducerIdentity) -> None:
        """Use a fresh identity. All open batches were certainly not stored, and are renumbered."""
        self._identity, self._sequence, self._has_gap, self._single_in_flight = identity, 0, False, True
        for batch in self._open:
            batch.identity, batch.sequence, batch.data = identity, self._advance(len(batch.entries)), b""

    def next_batch(self, now: float, now_ms: int) -> OutBatch | None:
        """The batch to send now, if any. It is in flight from here on."""
        if self._has_gap:
            self._close_gap()
        if now < self.resume_at or self._identity is None or self._in_flight() >= self._in_flight_max():
            return None
        batch = self._new_batch() if all(each.in_flight for each in self._open) else self._failed_batch()
        if batch is None:
            return None
        if not batch.data:
            batch.data = self._build(batch, now_ms)
        batch.in_flight = True
        return batch

    def _in_flight(self) -> int:
        return sum(batch.in_flight for batch in self._open)

    def _in_flight_max(self) -> int:
        return 1 if self._single_in_flight else IN_FLIGHT_MAX

    def _failed_batch(self) -> OutBatch | None:
        """The first batch to send again, unless a later one is in flight: its response must come first.
        Beyond a gap, only a batch whose outcome is unknown is sent again unchanged."""
        found = None
        for batch in self._open:
            if batch.in_flight and found is not None:
                return None
            if not batch.in_flight and found is None and (batch.is_uncertain or not self._has_gap):
                found = batch
        return found

    def _new_batch(self) -> OutBatch | None:
        """A small batch waits while another is in flight, so that it grows. A full one is sent immediately,
        unless the outcome of an earlier batch is unknown."""
        must_wait = (self._open and not self.is_full) or self.has_uncertain
        if not self._waiting or self._has_gap or self._identity is None or must_wait:
            return None
        entries: list[QueuedRecord] = []
        size, deadline = 0, self._waiting[0][1]
        while self._waiting and (not entries or size + self._waiting[0][0].size <= self.batch_bytes):
            entry, _ = self._waiting.popleft()
            entries.append(entry)
            size += entry.size
        self._waiting_bytes -= size
        batch = OutBatch(entries, deadline, self._identity, self._advance(len(entries)))
        self._open.append(batch)
        return batch

    def _close_gap(self) -> None:
        if self._identity is None or any(batch.in_flight or batch.is_uncertain for batch in self._open):
            return
        if self._identity.epoch == EPOCH_MAX:
            self._identity = None
        else:
            self.set_identity(ProducerIdentity(self._identity.producer_id, self._identity.epoch + 1))

    def _advance(self, count: int) -> int:
        """Sequences run to 2^31-1 and continue at 0, as Kafka's do."""
        sequence, self._sequence = self._sequence, (self._sequence + count) % SEQUENCE_END
        return sequence

    def _build(self, batch: OutBatch, now_ms: int) -> bytes:
        return build_batch(
            [entry.record for entry in batch.entries],
            compression=self._compression,
            producer_id=batch.identity.producer_id,
            producer_epoch=batch.identity.epoch,
            base_sequence=batch.sequence,
            now_ms=now_ms,
        )

    # -- responses --------------------------------------------------------------------------------------------

    def settle(self, outcome: int | MillpondError) -> int | None:
        """Handle the response to the oldest batch in flight: the number of its first message, or an error.
        Returns the bytes of the producer's buffer that this frees, or None if the messages are sent again."""
        batch = next(each for each in self._open if each.in_flight)
        batch.in_flight = False
        if isinstance(outcome, int):
            self._open.remove(batch)
            self._single_in_flight = False
            batch.complete(self.partition, outcome)
            return batch.size
        batch.failure = None if isinstance(outcome, UNCERTAIN) else outcome
        if self._may_retry(batch, outcome):
            if batch.is_abandoned and not batch.is_uncertain:
                self._drop(batch)
            return None
        if isinstance(outcome, InvalidInput) and len(batch.entries) > 1 and not batch.is_uncertain:
            self._split(batch)
            return None
        self._drop(batch)
        return batch.refuse(outcome)

    def _may_retry(self, batch: OutBatch, error: MillpondError) -> bool:
        """Whether the batch may be sent again. Every batch behind a failed one gets an out-of-order error.
        Beyond a gap this error also shows that the batch was not stored."""
        if isinstance(error, OutOfOrderSequence) and (self._has_gap or batch is not self._open[0]):
            batch.is_uncertain &= not self._has_gap or self._uncertain_before(batch)
            batch.failure = self._open[0].failure if batch is not self._open[0] else None
            return True
        batch.is_uncertain |= isinstance(error, UNCERTAIN)
        return error.retriable

    def _uncertain_before(self, batch: OutBatch) -> bool:
        """Whether copies of earlier batches could still be stored, and after them copies of this one."""
        for each in self._open:
            if each is batch:
                return False
            if each.is_uncertain:
                return True
        raise AssertionError("it is one of them")

    def _drop(self, batch: OutBatch) -> None:
        self._open.remove(batch)
        self._has_gap = True

    def _split(self, batch: OutBatch) -> None:
        """One of its messages is invalid. The batch is sent again in halves, so that its other messages do
        not fail."""
        place = self._open.index(batch)
        self._drop(batch)
        if batch.is_abandoned:
            return
        middle = len(batch.entries) // 2
        for entries in (batch.entries[middle:], batch.entries[:middle]):
            self._open.insert(place, OutBatch(entries, batch.deadline, batch.identity, batch.sequence))

    def lose_in_flight(self) -> None:
        """The connection is lost: batches in flight may be stored or not, and are sent again unchanged."""
        for batch in self._open:
            batch.is_uncertain |= batch.in_flight
            batch.in_flight = False
        self._single_in_flight = True

    # -- expiry -----------------------------------------------------------------------------------------------

    def expire(self, now: float, timed_out: MillpondError, never_sent: MillpondError) -> int:
        """Fail messages past their deadline. Returns the bytes that this frees. A batch that may be stored
        keeps its place until it gets a response, but no caller waits for it any longer."""
        freed = 0
        for batch in [each for each in self._open if each.deadline <= now and not each.is_abandoned]:
            may_be_stored = batch.in_flight or batch.is_uncertain
            freed += batch.refuse(timed_out if may_be_stored else batch.failure or never_sent)
            if not may_be_stored:
                self._drop(batch)
        while self._waiting and self._waiting[0][1] <= now:
            freed += self._refuse_first_waiting(never_sent)
        return freed

    def abandon(self, error: MillpondError) -> int:
        """Fail everything: the producer is closed or cannot continue."""
        freed = sum(batch.refuse(error) for batch in self._open)
        self._open.clear()
        self._has_gap = True
        while self._waiting:
            freed += self._refuse_first_waiting(error)
        return freed

    def _refuse_first_waiting(self, error: MillpondError) -> int:
        entry, _ = self._waiting.popleft()
        self._waiting_bytes -= entry.size
        entry.refuse(error)
        return entry.size

    @property
    def oldest_deadline(self) -> float:
        for batch in self._open:
            if not batch.is_abandoned:
                return batch.deadline
        return self._waiting[0][1] if self._waiting else float("inf")
