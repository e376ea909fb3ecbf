"""Remembers idempotent batches that were refused and that their producers will send again.

A partition accepts any first sequence of a producer that it does not know, because the producer's state may have
expired. Without this memory a producer that pipelines would lose messages: while a partition moves, sequence 0 is
refused, and a moment later the same broker serves the partition and accepts sequence 1, which is already on its way.
librdkafka then counts 0 as acknowledged, because a broker that accepts 1 must have stored 0.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from millpond.model.errors import MillpondError, OutOfOrderSequence, UnknownPartition, UnknownTopic
from millpond.model.ids import TopicPartition
from millpond.model.producers import SEQUENCE_MAX, SequencedBatch

REMEMBERED_MAX: Final = 10_000
SEQUENCES: Final = SEQUENCE_MAX + 1
REMEMBERED_MS: Final = 15 * 60 * 1000
"""Longer than clients try to deliver a message: after that they start a new epoch, or give up."""


class _Refusal(NamedTuple):
    producer_epoch: int
    base_sequence: int
    refused_at_ms: int

    def precedes(self, batch: SequencedBatch) -> bool:
        """Sequences begin again at 0 after the highest one, so the shorter way around counts."""
        distance = (batch.base_sequence - self.base_sequence) % SEQUENCES
        return self.producer_epoch == batch.producer_epoch and 0 < distance < SEQUENCES // 2

    def outranks(self, batch: SequencedBatch) -> bool:
        return self.producer_epoch > batch.producer_epoch or self.precedes(batch)

    def has_expired(self, now_ms: int) -> bool:
        return now_ms - self.refused_at_ms >= REMEMBERED_MS


def is_sent_again(error: MillpondError) -> bool:
    """Whether Kafka clients send a batch again that was refused with this error. They also do so for an unknown topic
    or partition, and for a corrupt batch, which does not count: its header may be wrong."""
    return error.retriable or isinstance(error, UnknownTopic | UnknownPartition)


class RefusedSequences:
    """For each producer and partition the first batch that was refused, in this broker's memory only: a later batch
    that was in flight with it goes to the same broker."""

    def __init__(self) -> None:
        self._refusals: OrderedDict[tuple[TopicPartition, int], _Refusal] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refusals)

    def add(self, topic_partition: TopicPartition, batch: SequencedBatch, now_ms: int) -> None:
        key = topic_partition, batch.producer_id
        known = self._refusals.get(key)
        if known is not None and not known.has_expired(now_ms) and known.outranks(batch):
            return
        self._refusals[key] = _Refusal(batch.producer_epoch, batch.base_sequence, now_ms)
        self._refusals.move_to_end(key)
        while len(self._refusals) > REMEMBERED_MAX or self._oldest_has_expired(now_ms):
            self._refusals.popitem(last=False)

    def _oldest_has_expired(self, now_ms: int) -> bool:
        return next(iter(self._refusals.values())).has_expired(now_ms)

    def check(self, topic_partition: TopicPartition, batch: SequencedBatch, now_ms: int) -> None:
        """Raises `OutOfOrderSequence` if an earlier batch of this producer was refused and has not come again."""
        refusal = self._refusals.get((topic_partition, batch.producer_id))
        if refusal is not None and refusal.precedes(batch) and not refusal.has_expired(now_ms):
            raise OutOfOrderSequence(
                producer_id=batch.producer_id, sequence=batch.base_sequence, expected=refusal.base_sequence
            )

    def remove(self, topic_partition: TopicPartition, producer_id: int) -> None:
        """The producer continues with a batch that was accepted."""
        self._refusals.pop((topic_partition, producer_id), None)
