"""One partition's messages on their way to the broker: a pure machine, without sockets or time.

Messages wait, become a batch, are in flight, and are answered, in this order and in no other. A batch carries the
producer's id and a sequence, so a batch that is sent again after a lost answer is stored once. Three rules keep
that so:

* What is sent again is sent again in its old order, before anything new, with the same bytes.
* A batch that was refused for good leaves a gap in the sequences. What comes after it needs a new identity, and gets
  one only when nothing whose outcome is unknown is left under the old one.
* A broker remembers five batches of a producer, so no more than that are in flight.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from millpond.client.message import Placed, Sent
from millpond.model.errors import MillpondError, OutOfOrderSequence
from millpond.records import Codec, Record, build_batch

IN_FLIGHT_MAX: Final = 5
SEQUENCE_END: Final = 2**31


Answer: TypeAlias = "asyncio.Future[Placed] | Sent"
"""Whom to tell: somebody on this event loop, or in another thread."""


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Entry(NamedTuple):
    record: Record
    size: int
    answer: Answer


@dataclass(slots=True, eq=False)
class OutBatch:
    """Messages that were put together. `deadline` is that of the oldest. Once it was sent, it may be stored."""

    entries: list[Entry]
    size: int
    deadline: float
    identity: Identity
    sequence: int
    data: bytes = b""
    was_sent: bool = False

    def answer(self, partition: int, first_number: int) -> None:
        for delta, entry in enumerate(self.entries):
            if not entry.answer.done():
                entry.answer.set_result(Placed(partition, first_number + delta))

    def refuse(self, error: MillpondError) -> None:
        for entry in self.entries:
            if not entry.answer.done():
                entry.answer.set_exception(error.copy())


class Lane:
    """`identity` is asked for by whoever drives it: `needs_identity` says when."""

    def __init__(self, partition: int, address: str, *, batch_bytes: int, compression: Codec) -> None:
        self.partition = partition
        self.address = address
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._identity: Identity | None = None
        self._sequence = 0
        self._waiting: deque[tuple[Entry, float]] = deque()
        self._waiting_bytes = 0
        self._in_flight: deque[OutBatch] = deque()
        self._failed: deque[OutBatch] = deque()
        self._again: deque[OutBatch] = deque()
        self._has_gap = False
        self.resume_at = 0.0

    # -- in ---------------------------------------------------------------------------------------------------

    def add(self, entry: Entry, deadline: float) -> None:
        self._waiting.append((entry, deadline))
        self._waiting_bytes += entry.size

    @property
    def is_full(self) -> bool:
        """Whether a whole batch waits."""
        return self._waiting_bytes >= self._batch_bytes

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._in_flight or self._failed or self._again)

    # -- out --------------------------------------------------------------------------------------------------

    @property
    def needs_identity(self) -> bool:
        """At the beginning, and after a gap as soon as nothing is left under the old identity."""
        return self._identity is None or (self._has_gap and not (self._in_flight or self._again))

    def take_identity(self, identity: Identity) -> None:
        """A fresh one. Batches that were certainly not stored are numbered anew."""
        self._identity, self._sequence, self._has_gap = identity, 0, False
        for batch in self._failed:
            batch.identity, batch.sequence, batch.data = identity, self._advance(len(batch.entries)), b""
        self._again, self._failed = self._failed, deque()

    def next_batch(self, now: float, now_ms: int) -> OutBatch | None:
        """What to send now, if anything. It is in flight from here on."""
        if self._failed and not self._in_flight and not self._has_gap:
            self._again, self._failed = self._failed + self._again, deque()
        if now < self.resume_at or len(self._in_flight) >= IN_FLIGHT_MAX:
            return None
        if self._failed and not self._has_gap:
            return None  # what follows it in flight is answered first
        batch = self._again.popleft() if self._again else self._new_batch()
        if batch is None:
            return None
        if not batch.data:
            batch.data = self._build(batch, now_ms)
        batch.was_sent = True
        self._in_flight.append(batch)
        return batch

    def _new_batch(self) -> OutBatch | None:
        """A small batch waits while another is in flight, so that it grows; a full one goes at once."""
        must_wait = self._in_flight and not self.is_full
        if not self._waiting or self._has_gap or self._identity is None or must_wait:
            return None
        entries: list[Entry] = []
        size, deadline = 0, self._waiting[0][1]
        while self._waiting and (not entries or size + self._waiting[0][0].size <= self._batch_bytes):
            entry, _ = self._waiting.popleft()
            entries.append(entry)
            size += entry.size
        self._waiting_bytes -= size
        return OutBatch(entries, size, deadline, self._identity, self._advance(len(entries)))

    def _advance(self, count: int) -> int:
        """Sequences run to 2^31-1 and go on at 0, as Kafka's do."""
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

    # -- answers ----------------------------------------------------------------------------------------------

    def settle(self, outcome: int | MillpondError) -> OutBatch | None:
        """The oldest batch in flight was answered: the number of its first message, or why not. Returns it if it is
        done with, one way or the other."""
        batch = self._in_flight.popleft()
        if isinstance(outcome, int):
            batch.answer(self.partition, outcome)
            return batch
        follows_failure = isinstance(outcome, OutOfOrderSequence) and (self._failed or self._has_gap)
        if outcome.retriable or follows_failure:
            self._failed.append(batch)
            return None
        self._has_gap = True
        batch.refuse(outcome)
        return batch

    def lose_answers(self) -> None:
        """The connection is gone: what is in flight may have been stored or not, and is sent again as it is."""
        self._again = self._failed + self._in_flight + self._again
        self._failed, self._in_flight = deque(), deque()

    def expire(self, now: float, timed_out: MillpondError, never_sent: MillpondError) -> list[OutBatch]:
        """Give up what is not in flight and too old, and return it. What is in flight keeps its place until it is
        answered, but nobody waits for it any longer."""
        late = [batch for batch in (*self._failed, *self._again) if batch.deadline <= now]
        for batch in late:
            (self._failed if batch in self._failed else self._again).remove(batch)
            self._has_gap = True
        while self._waiting and self._waiting[0][1] <= now:
            entry, deadline = self._waiting.popleft()
            self._waiting_bytes -= entry.size
            late.append(OutBatch([entry], entry.size, deadline, Identity(-1, -1), 0))
        for batch in (*late, *(each for each in self._in_flight if each.deadline <= now)):
            batch.refuse(timed_out if batch.was_sent else never_sent)
        return late

    def abandon(self, error: MillpondError) -> list[OutBatch]:
        """Everything fails: the producer is closed or cannot go on."""
        waiting = [OutBatch([e], e.size, d, Identity(-1, -1), 0) for e, d in self._waiting]
        everything = [*self._in_flight, *self._failed, *self._again, *waiting]
        for queue in (self._in_flight, self._failed, self._again, self._waiting):
            queue.clear()
        self._waiting_bytes = 0
        for batch in everything:
            batch.refuse(error)
        return everything

    @property
    def oldest_deadline(self) -> float:
        batches = (*self._in_flight, *self._failed, *self._again)
        deadlines = [batch.deadline for batch in batches] + [each[1] for each in list(self._waiting)[:1]]
        return min(deadlines, default=float("inf"))
