"""What a partition stores of an idempotent producer, and the rule that accepts its next batch.

The rule is applied twice: by the owner before a batch is buffered, and by the catalog when it commits.
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from millpond.model.errors import OutOfOrderSequence, ProducerFenced

REMEMBERED_BATCHES: Final = 5
"""Kafka's own number: a client keeps at most five requests in flight."""

SEQUENCE_MAX: Final = 2**31 - 1
_BATCH: Final = struct.Struct("<iiqq")


class SequencedBatch(NamedTuple):
    """An idempotent batch, identified by its sequences; `offset` is its base offset, -1 while unknown."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    timestamp: int
    transactional: bool
    offset: int


class CommittedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The newest epoch of a producer on one partition and its last batches, oldest first. There are no
    batches after a transaction marker has raised the epoch."""

    producer_id: int
    epoch: int
    batches: tuple[CommittedBatch, ...] = ()

    def after(self, batch: SequencedBatch) -> "ProducerState":
        kept = self.batches if batch.producer_epoch == self.epoch else ()
        newest = CommittedBatch(batch.base_sequence, batch.last_sequence, batch.offset, batch.timestamp)
        return ProducerState(self.producer_id, batch.producer_epoch, (*kept, newest)[-REMEMBERED_BATCHES:])


def next_sequence(sequence: int) -> int:
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


def check_sequence(state: ProducerState | None, batch: SequencedBatch) -> CommittedBatch | None:
    """Returns None if the batch is next and may be appended, or the committed batch that it repeats.

    Raises `ProducerFenced` for an old epoch and `OutOfOrderSequence` for a gap. Without state, any first
    sequence is accepted, as in Kafka: the state may have expired.
    """
    if state is None:
        return None
    if batch.producer_epoch < state.epoch:
        raise ProducerFenced(producer_id=batch.producer_id, epoch=batch.producer_epoch, current=state.epoch)
    if batch.producer_epoch > state.epoch:
        return _first_of_epoch(batch)
    for known in state.batches:
        if (known.base_sequence, known.last_sequence) == (batch.base_sequence, batch.last_sequence):
            return known
    expected = next_sequence(state.batches[-1].last_sequence) if state.batches else 0
    if batch.base_sequence != expected:
        raise OutOfOrderSequence(
            producer_id=batch.producer_id, sequence=batch.base_sequence, expected=expected
        )
    return None


def _first_of_epoch(batch: SequencedBatch) -> CommittedBatch | None:
    if batch.base_sequence != 0:
        raise OutOfOrderSequence(producer_id=batch.producer_id, sequence=batch.base_sequence, expected=0)
    return None


def pack_batches(batches: tuple[CommittedBatch, ...]) -> bytes:
    return b"".join(_BATCH.pack(*batch) for batch in batches)


def unpack_batches(packed: bytes) -> tuple[CommittedBatch, ...]:
    return tuple(CommittedBatch(*fields) for fields in _BATCH.iter_unpack(packed))
