"""Idempotent producers as the catalog keeps them; the rule itself is tested in `unit/model`."""

import pytest

from millpond.catalog import producers, transactions
from millpond.catalog.appends import AppendedShare
from millpond.model.errors import FlushFailed
from millpond.model.producers import SEQUENCE_MAX, CommittedBatch

PRODUCER = (7, 0)


def send(catalog, topic_partition, *runs, producer=PRODUCER):
    """Append a share of batches, each given by its first and last sequence."""
    batches, offset = [], 0
    for first, last in runs:
        batches.append(catalog.batch(producer, first, last, offset=offset))
        offset += last - first + 1 if last >= first else last - first + 2 + SEQUENCE_MAX
    return catalog.append_one(topic_partition, offset, sequences=batches)


def test_each_batch_is_remembered_with_its_own_offset(catalog):
    topic_partition = catalog.topic_partition()
    catalog.append_one(topic_partition, 10)
    assert send(catalog, topic_partition, (0, 2), (3, 3)) == AppendedShare(10, 0, 0)
    state = catalog.read(producers.load, topic_partition)[7]
    assert (state.producer_id, state.epoch) == PRODUCER
    assert state.batches == (CommittedBatch(0, 2, 10, catalog.now), CommittedBatch(3, 3, 13, catalog.now))


def test_five_batches_are_remembered(catalog):
    topic_partition = catalog.topic_partition()
    for number in range(7):
        send(catalog, topic_partition, (number, number))
    state = catalog.read(producers.load, topic_partition)[7]
    assert [batch.base_sequence for batch in state.batches] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("run", [(0, 1), (2, 3), (5, 5), (3, 4), (2, 2)])
def test_what_is_not_next_is_refused_as_stale(catalog, run):
    topic_partition = catalog.topic_partition()
    send(catalog, topic_partition, (0, 1), (2, 3))
    refused = send(catalog, topic_partition, run)
    assert isinstance(refused, FlushFailed)
    assert "stale" in str(refused)
    assert catalog.partition(topic_partition).end_offset == 4


def test_sequences_within_one_share_must_follow_each_other(catalog):
    topic_partition = catalog.topic_partition()
    assert isinstance(send(catalog, topic_partition, (0, 1), (3, 3)), FlushFailed)
    assert isinstance(send(catalog, topic_partition, (0, 1), (0, 1)), FlushFailed)
    assert isinstance(send(catalog, topic_partition, (0, 1), (2, 2)), AppendedShare)


def test_sequences_wrap_around_after_the_largest(catalog):
    topic_partition = catalog.topic_partition()
    send(catalog, topic_partition, (SEQUENCE_MAX - 1, SEQUENCE_MAX))
    assert isinstance(send(catalog, topic_partition, (1, 1)), FlushFailed)
    assert isinstance(send(catalog, topic_partition, (0, 0)), AppendedShare)


def test_a_batch_may_lie_across_the_wrap(catalog):
    topic_partition = catalog.topic_partition()
    assert send(catalog, topic_partition, (SEQUENCE_MAX - 1, 1)) == AppendedShare(0, 0, 0)
    assert catalog.partition(topic_partition).end_offset == 4
    assert send(catalog, topic_partition, (2, 2)) == AppendedShare(4, 0, 0)


def test_a_new_epoch_starts_at_nought_and_forgets_the_old_batches(catalog):
    topic_partition = catalog.topic_partition()
    send(catalog, topic_partition, (0, 4))
    assert isinstance(send(catalog, topic_partition, (5, 5), producer=(7, 1)), FlushFailed)
    assert isinstance(send(catalog, topic_partition, (0, 0), producer=(7, 1)), AppendedShare)
    assert isinstance(send(catalog, topic_partition, (5, 5)), FlushFailed)
    state = catalog.read(producers.load, topic_partition)[7]
    assert (state.epoch, len(state.batches)) == (1, 1)


def test_partitions_and_producers_do_not_share_sequences(catalog):
    topic = catalog.topic(count=2)
    first, second = catalog.topic_partition(topic, 0), catalog.topic_partition(topic, 1)
    send(catalog, first, (0, 4))
    assert isinstance(send(catalog, second, (0, 4)), AppendedShare)
    assert isinstance(send(catalog, first, (0, 4), producer=(8, 0)), AppendedShare)
    assert set(catalog.read(producers.load, first)) == {7, 8}
    assert set(catalog.read(producers.load, second)) == {7}


def test_two_producers_in_one_share_are_judged_apart(catalog):
    topic_partition = catalog.topic_partition()
    batches = [
        catalog.batch((7, 0), 0, 0),
        catalog.batch((8, 0), 0, 0, offset=1),
        catalog.batch((7, 0), 1, 1, offset=2),
    ]
    assert isinstance(catalog.append_one(topic_partition, 3, sequences=batches), AppendedShare)
    offsets = {
        key: state.batches[-1].offset for key, state in catalog.read(producers.load, topic_partition).items()
    }
    assert offsets == {7: 2, 8: 1}


def test_without_state_any_first_sequence_is_accepted(catalog):
    assert isinstance(send(catalog, catalog.topic_partition(), (41, 42)), AppendedShare)


def test_unused_producers_expire_and_may_then_start_anywhere(catalog):
    topic_partition = catalog.topic_partition()
    send(catalog, topic_partition, (0, 0))
    assert catalog.write(producers.expire, unused_since_ms=catalog.now) == 0
    assert catalog.write(producers.expire, unused_since_ms=catalog.now + 1) == 1
    assert catalog.read(producers.load, topic_partition) == {}
    assert isinstance(send(catalog, topic_partition, (9, 9)), AppendedShare)


def test_a_producer_with_an_open_transaction_does_not_expire(catalog):
    topic_partition = catalog.topic_partition()
    producer = catalog.write(transactions.begin_producer, "tx", 1000, now_ms=1).producer
    catalog.write(transactions.add_partitions, producer, [topic_partition], now_ms=1)
    send(catalog, topic_partition, (0, 0), producer=(producer.producer_id, producer.epoch))
    assert catalog.write(producers.expire, unused_since_ms=catalog.now + 1) == 0
    catalog.write(transactions.end, producer, commit=True, bump_epoch=False, now_ms=2)
    assert catalog.write(producers.expire, unused_since_ms=catalog.now + 1) == 1


def test_blocks_of_producer_ids_never_overlap(catalog):
    blocks = [catalog.write(producers.take_ids, count) for count in (1, 100, 3)]
    ids = [number for block in blocks for number in block]
    assert [len(block) for block in blocks] == [1, 100, 3]
    assert len(set(ids)) == 104
    assert min(ids) >= 1
