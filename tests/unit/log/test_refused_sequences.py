"""Idempotent batches that were refused: a later batch of their producer is not accepted before they come again."""

import asyncio

import pytest
from tests.unit.log.conftest import batch as batch_of

from millpond.log import refused_sequences
from millpond.log.admission import Admitted
from millpond.log.buffer import Pending
from millpond.log.refused_sequences import REMEMBERED_MAX, REMEMBERED_MS, RefusedSequences, is_sent_again
from millpond.model.errors import (
    CorruptBatch,
    FlushFailed,
    InvalidTransactionState,
    NotOwner,
    OutOfOrderSequence,
    UnknownPartition,
    UnknownTopic,
)
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.producers import SEQUENCE_MAX, SequencedBatch
from millpond.records import walk

PARTITION = TopicPartition(TopicId(bytes(16)), 0)


def batch(sequence, *, producer_id=7, epoch=0):
    return SequencedBatch(producer_id, epoch, sequence, sequence, 0, False, -1)


def is_accepted(refused, sequenced, *, partition=PARTITION, now_ms=0):
    try:
        refused.check(partition, sequenced, now_ms)
    except OutOfOrderSequence:
        return False
    return True


def test_only_what_follows_a_refused_batch_waits_for_it():
    refused = RefusedSequences()
    refused.add(PARTITION, batch(3), 0)
    refused.add(PARTITION, batch(4), 0)
    assert [is_accepted(refused, batch(number)) for number in (2, 3, 4, 5)] == [True, True, False, False]
    assert is_accepted(refused, batch(4, epoch=1)), "a new epoch begins again"
    assert is_accepted(refused, batch(4, producer_id=8))
    assert is_accepted(refused, batch(4), partition=TopicPartition(TopicId(bytes(16)), 1))
    refused.remove(PARTITION, 7)
    assert is_accepted(refused, batch(5))


def test_the_newest_epoch_and_the_lowest_sequence_count():
    refused = RefusedSequences()
    refused.add(PARTITION, batch(3), 0)
    refused.add(PARTITION, batch(1), 0)
    assert not is_accepted(refused, batch(2))
    refused.add(PARTITION, batch(5, epoch=1), 0)
    refused.add(PARTITION, batch(0), 0)
    assert is_accepted(refused, batch(2))
    assert not is_accepted(refused, batch(6, epoch=1))


def test_a_refusal_is_forgotten_after_a_while():
    refused = RefusedSequences()
    refused.add(PARTITION, batch(0), 0)
    assert not is_accepted(refused, batch(1), now_ms=REMEMBERED_MS - 1)
    assert is_accepted(refused, batch(1), now_ms=REMEMBERED_MS)
    refused.add(PARTITION, batch(4), REMEMBERED_MS)
    assert is_accepted(refused, batch(4), now_ms=REMEMBERED_MS)
    assert not is_accepted(refused, batch(5), now_ms=REMEMBERED_MS)


def test_sequences_that_begin_again_follow_the_highest():
    refused = RefusedSequences()
    refused.add(PARTITION, batch(SEQUENCE_MAX), 0)
    refused.add(PARTITION, batch(0), 0)
    assert [is_accepted(refused, batch(number)) for number in (SEQUENCE_MAX, 0, 1)] == [True, False, False]


def test_only_batches_that_clients_send_again_count():
    assert all(
        map(is_sent_again, (NotOwner(), UnknownTopic(topic="t"), UnknownPartition(topic="t", partition=1)))
    )
    assert not any(map(is_sent_again, (OutOfOrderSequence(), CorruptBatch(reason="CRC"))))


def test_the_oldest_refusals_make_room(monkeypatch):
    assert REMEMBERED_MAX == 10_000
    monkeypatch.setattr(refused_sequences, "REMEMBERED_MAX", 2)
    refused = RefusedSequences()
    for producer_id in (1, 2, 3):
        refused.add(PARTITION, batch(0, producer_id=producer_id), 0)
    assert len(refused) == 2
    assert [is_accepted(refused, batch(1, producer_id=each)) for each in (1, 2, 3)] == [True, False, False]
    refused.add(PARTITION, batch(0, producer_id=2), 1)
    refused.add(PARTITION, batch(0, producer_id=4), 1)
    assert [is_accepted(refused, batch(1, producer_id=each)) for each in (2, 3, 4)] == [False, True, False]
    refused.add(PARTITION, batch(0, producer_id=5), REMEMBERED_MS + 1)
    assert len(refused) == 1, "what has expired is gone"


async def test_a_batch_does_not_overtake_one_that_was_refused_while_the_partition_was_handed_over(engine):
    """As when a handover fails, or a new owner has not yet read that it is one: the producer has both in flight."""
    await engine.log.prepare_handover([engine.topic_partition()])
    with pytest.raises(NotOwner):
        await engine.submit(b"0", producer=(7, 0, 0))
    engine.log.end_handover([engine.topic_partition()])
    with pytest.raises(OutOfOrderSequence):
        await engine.submit(b"1", producer=(7, 0, 1))
    results = [await (await engine.submit(b"%d" % each, producer=(7, 0, each))) for each in (0, 1, 2)]
    assert [result.base_offset for result in results] == [0, 1, 2]
    assert (await (await engine.submit(b"other", producer=(8, 0, 5)))).base_offset == 3, (
        "unknown, so accepted"
    )


def pending_of(engine, *, producer_id):
    data = batch_of(b"0", at=engine.clock.now_ms(), producer=(producer_id, 0, 0))
    admitted = Admitted(data, list(walk(data)), now_ms=engine.clock.now_ms())
    return Pending(engine.topic_partition(), admitted, asyncio.get_running_loop().create_future())


async def test_a_batch_that_a_failed_flush_refused_is_remembered_when_the_partition_comes_back(engine):
    """The partition is another object then, which knows nothing of the failed batch."""
    topic_partition = engine.topic_partition()
    lost = pending_of(engine, producer_id=7)
    engine.log._commit_results.failed(topic_partition, [lost], NotOwner())
    assert isinstance(lost.future.exception(), NotOwner)
    with pytest.raises(OutOfOrderSequence):
        await engine.submit(b"1", producer=(7, 0, 1))
    assert (await (await engine.submit(b"0", producer=(7, 0, 0)))).base_offset == 0


async def test_a_batch_that_failed_with_another_producers_is_remembered_and_the_others_is_not(engine):
    """Its producer sends it again; the one that sent a transactional batch outside a transaction does not."""
    invalid, beside = (pending_of(engine, producer_id=each) for each in (7, 8))
    results = engine.log._commit_results
    results.failed(engine.topic_partition(), [invalid, beside], InvalidTransactionState(producer_id=7))
    assert [type(each.future.exception()) for each in (invalid, beside)] == [
        InvalidTransactionState,
        FlushFailed,
    ]
    later = [batch(1, producer_id=each) for each in (7, 8)]
    accepted = [is_accepted(results._refused, each, partition=engine.topic_partition()) for each in later]
    assert accepted == [True, False]
