"""Idempotence in flight: the sequences of one partition that are committed, buffered or being flushed.

The catalog judges when it commits; this is the owner's earlier look, so that a repeat of a batch which is still
on its way shares its future instead of being refused, and a gap is refused before it joins a buffer. When a
flush fails, everything of the partition that is still on its way fails with it, and the partition drops this
object and reads the catalog's view again: else sequence 1 could commit while 0 is being retried. Changes only
between awaits.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from millpond.model.producers import CommittedBatch, ProducerState, SequencedBatch, judge

Answer = TypeVar("Answer")

UNKNOWN_OFFSET = -1


class Sequences(Generic[Answer]):
    def __init__(self, committed: Mapping[int, ProducerState]) -> None:
        self._committed = dict(committed)
        self._expected = dict(committed)
        self._pending: dict[int, deque[tuple[SequencedBatch, asyncio.Future[Answer]]]] = {}

    def admit(self, batch: SequencedBatch) -> "CommittedBatch | asyncio.Future[Answer] | None":
        """None: the batch is next. A committed batch or a future: it is a repeat, and that is its answer."""
        known = judge(self._expected.get(batch.producer_id), batch)
        if known is None or known.offset != UNKNOWN_OFFSET:
            return known
        waiting = self._pending[batch.producer_id]
        return next(future for sent, future in waiting if sent.base_sequence == batch.base_sequence)

    def expect(self, batch: SequencedBatch, future: "asyncio.Future[Answer]") -> None:
        """The batch has joined a buffer."""
        producer_id = batch.producer_id
        self._pending.setdefault(producer_id, deque()).append((batch, future))
        self._expected[producer_id] = _after(
            self._expected.get(producer_id), batch._replace(offset=UNKNOWN_OFFSET)
        )

    def commit(self, batch: SequencedBatch, offset: int) -> None:
        """The oldest pending batch of this producer was committed at `offset`."""
        producer_id = batch.producer_id
        pending = self._pending[producer_id]
        pending.popleft()
        state = _after(self._committed.get(producer_id), batch._replace(offset=offset))
        self._committed[producer_id] = state
        for later, _ in pending:
            state = _after(state, later._replace(offset=UNKNOWN_OFFSET))
        self._expected[producer_id] = state
        if not pending:
            del self._pending[producer_id]


def _after(state: ProducerState | None, batch: SequencedBatch) -> ProducerState:
    before = state or ProducerState(batch.producer_id, batch.producer_epoch)
    return before.after(batch)
