"""Appends: dense offsets in commit order, and refusals that stay alone."""

import pytest

from millpond.catalog import appends, extents, objects, partitions, producers
from millpond.catalog.appends import AppendedShare
from millpond.model.errors import FlushFailed, InvalidTransactionState, NotOwner, UnknownPartition
from millpond.model.ids import TopicPartition


def bases(catalog, topic_partition):
    return [(e.base_offset, e.end_offset) for e in catalog.read(extents.facts, topic_partition, 0, 100)]


def test_offsets_are_dense_and_follow_commit_order(catalog):
    topic_partition = catalog.topic_partition()
    placed = [catalog.append_one(topic_partition, records) for records in (3, 1, 5)]
    assert placed == [AppendedShare(0, 0, 0), AppendedShare(3, 0, 0), AppendedShare(4, 0, 0)]
    assert bases(catalog, topic_partition) == [(0, 3), (3, 4), (4, 9)]
    assert catalog.partition(topic_partition).end_offset == 9
    assert catalog.partition(topic_partition).bytes == 300


def test_results_come_in_the_order_of_the_shares(catalog):
    topic = catalog.topic(count=4)
    catalog.append_one(catalog.topic_partition(topic, 2), 5)
    shares = [catalog.share(catalog.topic_partition(topic, number), 2) for number in (3, 2, 0, 1)]
    assert [result.base_offset for result in catalog.append(*shares)] == [0, 5, 0, 0]


def test_partition_rows_are_locked_in_one_order_whatever_the_order_of_the_shares(catalog):
    first, second = catalog.topic("a", 2), catalog.topic("b", 2)
    topic_partitions = [
        catalog.topic_partition(topic, number) for topic in (second, first) for number in (1, 0)
    ]
    asked = []

    def run(tx):
        each, tx_each = tx.each, lambda sql, many: asked.append((sql, list(many))) or each(sql, many)
        tx.each = tx_each
        appends.append(
            tx, [catalog.share(topic_partition) for topic_partition in topic_partitions], None, now_ms=1
        )

    catalog.write(run)
    extended = next(many for sql, many in asked if sql == appends.EXTEND)
    assert [TopicPartition(*row[4:6]) for row in extended] == sorted(topic_partitions)


def test_an_owner_with_the_right_epoch_and_a_foreign_writer_may_both_append(catalog):
    topic_partition = catalog.topic_partition(catalog.topic(owner="s1"))
    assert catalog.append_one(topic_partition, epoch=1) == AppendedShare(0, 1, 0)
    assert catalog.append_one(topic_partition) == AppendedShare(1, 1, 0)


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_a_fenced_share_is_refused_alone_and_leaves_no_trace(catalog, epoch):
    topic = catalog.topic(count=3, owner="s1")
    moved = catalog.topic_partition(topic, 1)
    catalog.write(partitions.claim, moved, "s2")
    shares = [catalog.share(catalog.topic_partition(topic, number), 2, epoch=1) for number in (0, 2)]
    results = catalog.append(shares[0], catalog.share(moved, 2, epoch=epoch), shares[1])
    assert [type(result) for result in results] == [AppendedShare, NotOwner, AppendedShare]
    assert bases(catalog, moved) == []
    assert (catalog.partition(moved).end_offset, catalog.partition(moved).bytes) == (0, 0)


def test_an_unknown_partition_is_refused_alone(catalog):
    topic = catalog.topic()
    unknown = TopicPartition(topic.id, 7)
    results = catalog.append(catalog.share(unknown), catalog.share(catalog.topic_partition(topic)))
    assert isinstance(results[0], UnknownPartition)
    assert results[0].facts == {"topic": topic.id.hex(), "partition": 7}
    assert results[1] == AppendedShare(0, 0, 0)


@pytest.mark.parametrize(
    ("producer", "first", "transactional", "refusal"),
    [
        ((1, 5), 4, False, FlushFailed),  # a gap
        ((1, 5), 0, False, FlushFailed),  # a repeat
        ((1, 4), 1, False, FlushFailed),  # an old epoch
        ((1, 6), 1, False, FlushFailed),  # a new epoch that does not begin at 0
        ((2, 0), 0, True, InvalidTransactionState),  # no transaction is open here
    ],
)
def test_a_share_its_producer_may_not_write_is_refused_alone_and_leaves_no_gap(
    catalog, producer, first, transactional, refusal
):
    topic = catalog.topic(count=2)
    topic_partition, beside = catalog.topic_partition(topic), catalog.topic_partition(topic, 1)
    catalog.append_one(topic_partition, sequences=[catalog.batch((1, 5), 0, 0)])
    before, states = catalog.partition(topic_partition), catalog.read(producers.load, topic_partition)
    wrong = catalog.batch(producer, first, first, transactional=transactional)
    good = catalog.batch((3, 0), 0, 0)
    refused = catalog.share(topic_partition, 4, times=(2_000_000, 2_000_000), sequences=[wrong])
    results = catalog.append(refused, catalog.share(beside, sequences=[good]))
    assert [type(result) for result in results] == [refusal, AppendedShare]
    assert results[0].retriable is (refusal is FlushFailed)
    assert catalog.partition(topic_partition) == before
    assert catalog.read(producers.load, topic_partition) == states
    assert bases(catalog, topic_partition) == [(0, 1)]
    assert catalog.append_one(topic_partition) == AppendedShare(1, 0, 0)


def test_a_refused_share_leaves_an_empty_partition_empty(catalog):
    topic_partition = catalog.topic_partition()
    before = catalog.partition(topic_partition)
    wrong = catalog.batch((2, 0), 0, 0, transactional=True)
    assert isinstance(catalog.append_one(topic_partition, sequences=[wrong]), InvalidTransactionState)
    assert catalog.partition(topic_partition) == before


def test_one_bad_batch_refuses_its_whole_share(catalog):
    topic_partition = catalog.topic_partition()
    sequences = [catalog.batch((1, 0), 0, 1), catalog.batch((2, 0), 0, 0, offset=2, transactional=True)]
    assert isinstance(catalog.append_one(topic_partition, 3, sequences=sequences), InvalidTransactionState)
    assert catalog.read(producers.load, topic_partition) == {}


def test_the_high_timestamp_is_the_newest_there_ever_was(catalog):
    topic_partition = catalog.topic_partition()
    assert catalog.partition(topic_partition).high_timestamp == -1
    highs = []
    for newest in (5, 3, 9, 9, 1):
        catalog.append_one(topic_partition, times=(0, newest))
        highs.append(catalog.partition(topic_partition).high_timestamp)
    assert highs == [5, 5, 9, 9, 9]
    assert [
        row[0] for row in catalog.rows("SELECT high_timestamp FROM extents ORDER BY base_offset")
    ] == highs


def test_an_extent_carries_all_that_its_share_said(catalog):
    topic_partition = catalog.topic_partition(catalog.topic(owner="s1"))
    to = catalog.object("journal/s1/1")
    share = catalog.share(topic_partition, 4, epoch=1, times=(10, 20), length=300, position=64, stored=True)
    catalog.append(share, to=to)
    (extent,) = catalog.read(extents.find, topic_partition, 0, bytes_max=1, extents_max=1)
    assert (extent.base_offset, extent.end_offset, extent.records, extent.epoch) == (0, 4, 4, 1)
    assert (extent.min_timestamp, extent.max_timestamp, extent.stamped) == (10, 20, False)
    assert (extent.key, extent.position, extent.length, extent.inline) == ("journal/s1/1", 64, 300, None)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_inline_bytes_come_back_as_they_were_and_need_no_object(catalog, kind):
    topic_partition = catalog.topic_partition()
    content = bytes(range(256)) * 64
    catalog.append(appends.AppendShare(topic_partition, -1, 0, len(content), 1, 0, 0, inline=kind(content)))
    (extent,) = catalog.read(extents.find, topic_partition, 0, bytes_max=1, extents_max=1)
    assert (extent.inline, extent.key) == (content, None)
    assert catalog.read(objects.totals) == {}


def test_an_object_counts_only_the_shares_that_were_accepted(catalog):
    topic = catalog.topic(count=3)
    shares = [catalog.share(catalog.topic_partition(topic, number), stored=True) for number in range(3)]
    closed = catalog.batch((2, 0), 0, 0, transactional=True)
    fenced = catalog.share(catalog.topic_partition(topic, 1), epoch=9, stored=True)
    refused = catalog.share(catalog.topic_partition(topic, 2), stored=True, sequences=[closed])
    catalog.append(shares[0], fenced, refused, to=catalog.object("j"))
    assert catalog.rows("SELECT extents FROM objects") == [(1,)]


def test_a_flush_whose_every_share_is_refused_registers_no_object(catalog):
    topic_partition = catalog.topic_partition()
    catalog.append(catalog.share(topic_partition, epoch=9, stored=True), to=catalog.object("j"))
    assert catalog.read(objects.totals) == {}


def test_results_survive_being_stored(catalog):
    topic = catalog.topic(owner="s1")
    results = catalog.append(
        catalog.share(catalog.topic_partition(topic), epoch=9), catalog.share(TopicPartition(topic.id, 4))
    )
    results.append(AppendedShare(5, 6, 7))
    decoded = appends.decode_results(appends.encode_results(results))
    assert [type(each) for each in decoded] == [NotOwner, UnknownPartition, AppendedShare]
    assert (str(decoded[1]), decoded[1].facts) == (str(results[1]), results[1].facts)
    assert decoded[2] == AppendedShare(5, 6, 7)


def test_a_thousand_partitions_fit_one_commit(catalog):
    topic = catalog.topic(count=1000)
    results = catalog.append(
        *(catalog.share(catalog.topic_partition(topic, number), 2) for number in range(1000))
    )
    assert results == [AppendedShare(0, 0, 0)] * 1000
