"""Idempotence of batches in flight: the sequences of one partition that are committed, buffered or being flushed.

The catalog checks sequences in the commit. The owner checks them earlier, here: a repeat of a batch that is
still in flight shares its future instead of being refused, and a gap is refused before it joins a buffer.
After a batch has failed, its producer must continue from that batch: otherwise sequence 1 could commit while
0 is being retried. The producers' state is then read from the catalog again, as soon as no batch is in
flight. State changes only between awaits.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from itertools import takewhile
from typing import Generic, TypeVar

from millpond.model.errors import OutOfOrderSequence
from millpond.model.producers import CommittedBatch, ProducerState, SequencedBatch, check_sequence

T = TypeVar("T")

UNKNOWN_OFFSET = -1


class Sequences(Generic[T]):
    """Starts stale: call `load` before the first `admit`."""

    def __init__(self) -> None:
        self._committed: dict[int, ProducerState] = {}
        self._expected: dict[int, ProducerState] = {}
        self._pending: dict[int, deque[tuple[SequencedBatch, asyncio.Future[T]]]] = {}
        self._failed: dict[int, SequencedBatch] = {}
        self._loaded = False

    @property
    def stale(self) -> bool:
        """Whether the catalog must be read. While batches are in flight, the state they lead to counts instead."""
        return not self._loaded and not self._pending

    def load(self, committed: Mapping[int, ProducerState]) -> None:
        """Apply the catalog's state, except for producers that a marker has fenced since it was read."""
        fenced = {
            producer_id: state
            for producer_id, state in self._committed.items()
            if producer_id in committed and state.epoch > committed[producer_id].epoch
        }
        self._committed = {**committed, **fenced}
        self._expected = dict(self._committed)
        self._loaded = True

    def knows(self, producer_id: int) -> bool:
        """Whether there is state of this producer, so that only its next sequence is accepted."""
        return producer_id in self._expected

    def admit(self, batch: SequencedBatch) -> "CommittedBatch | asyncio.Future[T] | None":
        """None: the batch is next. A committed batch or a future: the batch is a repeat, and this is its result."""
        state = self._expected.get(batch.producer_id)
        if state is None:
            self._check_continues(batch)
        known = check_sequence(state, batch)
        if known is None or known.offset != UNKNOWN_OFFSET:
            return known
        waiting = self._pending[batch.producer_id]
        return next(future for sent, future in waiting if _identity(sent) == _identity(batch))

    def expect(self, batch: SequencedBatch, future: "asyncio.Future[T]") -> None:
        """The batch has joined a buffer."""
        self._pending.setdefault(batch.producer_id, deque()).append((batch, future))
        self._recompute_expected(batch.producer_id)

    def commit(self, batch: SequencedBatch, offset: int) -> None:
        """The oldest pending batch of this producer was committed at `offset`."""
        producer_id = batch.producer_id
        pending = self._pending.get(producer_id)
        if pending and pending[0][0] == batch:
            pending.popleft()
        state = _after(self._committed.get(producer_id), batch._replace(offset=offset))
        self._committed[producer_id] = state
        self._failed.pop(producer_id, None)
        self._recompute_expected(producer_id)

    def fail(self, batch: SequencedBatch, future: "asyncio.Future[T]") -> None:
        """The batch was refused. Batches that its producer sent behind it fail, too, and are removed here."""
        self._loaded = False
        pending = self._pending.get(batch.producer_id, ())
        before = list(takewhile(lambda each: each[1] is not future, pending))
        if len(before) == len(pending):
            return  # it was removed together with an earlier one
        self._pending[batch.producer_id] = deque(before)
        self._failed[batch.producer_id] = batch
        self._recompute_expected(batch.producer_id)

    def fence(self, producer_id: int, epoch: int) -> None:
        """A transaction marker carries this epoch: lower epochs are fenced, and the next sequence under it is 0."""
        state = self._committed.get(producer_id)
        if state is None or state.epoch < epoch:
            self._committed[producer_id] = ProducerState(producer_id, epoch)
            self._recompute_expected(producer_id)

    def forget_committed(self) -> None:
        """Producers have expired: read the remaining ones from the catalog, as soon as no batch is in flight."""
        self._loaded = False
        if not self._pending:
            self._committed, self._expected = {}, {}

    def _check_continues(self, batch: SequencedBatch) -> None:
        """A producer without state may start with any sequence, unless its previous batch has just failed."""
        failed = self._failed.get(batch.producer_id)
        if failed is None or failed.producer_epoch != batch.producer_epoch:
            return
        if batch.base_sequence != failed.base_sequence:
            raise OutOfOrderSequence(
                producer_id=batch.producer_id, sequence=batch.base_sequence, expected=failed.base_sequence
            )

    def _recompute_expected(self, producer_id: int) -> None:
        """Compute the producer's state after all its pending batches are committed."""
        state = self._committed.get(producer_id)
        for batch, _ in self._pending.get(producer_id, ()):
            state = _after(state, batch._replace(offset=UNKNOWN_OFFSET))
        if state is None:
            self._expected.pop(producer_id, None)
        else:
            self._expected[producer_id] = state
        if not self._pending.get(producer_id):
            self._pending.pop(producer_id, None)


def _identity(batch: SequencedBatch) -> tuple[int, int, int, int]:
    return batch[:4]


def _after(state: ProducerState | None, batch: SequencedBatch) -> ProducerState:
    before = state or ProducerState(batch.producer_id, batch.producer_epoch)
    return before.after(batch)
