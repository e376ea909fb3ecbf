"""PostgreSQL transactions that really overlap. Each test holds one open until the other waits for it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from millpond.catalog import appends, extents, partitions, topics, transactions, writers
from millpond.catalog.appends import AppendedShare
from millpond.catalog.transactions import Aborted
from millpond.model.errors import (
    ExtentsChanged,
    InvalidTransactionState,
    NotOwner,
    TopicExists,
    UnknownTopic,
    WriterDead,
)


@pytest.fixture
def catalog(postgres_catalog):
    return postgres_catalog


@contextmanager
def while_open(catalog, first, second):
    """Run `second` in a thread while `first` is not yet committed; yields its future, decided after both."""
    done = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        with catalog.database.write() as tx:
            first(tx)
            future = thread.submit(lambda: (catalog.write(second), done.set())[0])
            wait_for_a_waiter(catalog)
            assert not done.is_set()
        yield future


def wait_for_a_waiter(catalog):
    deadline = time.monotonic() + 10
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while catalog.rows(waiting)[0][0] == 0:
        assert time.monotonic() < deadline, "nobody waits for a lock"
        time.sleep(0.005)


def open_transaction(catalog, topic_partition):
    producer = catalog.write(transactions.begin_producer, "tx", 1000, now_ms=1).producer
    catalog.write(transactions.add_partitions, producer, [topic_partition], now_ms=1)
    batch = catalog.batch((producer.producer_id, producer.epoch), 0, 0, transactional=True)
    share = catalog.share(topic_partition, sequences=[batch])
    append = lambda tx: appends.append(tx, [share], None, now_ms=1)  # noqa: E731
    abort = lambda tx: transactions.end(tx, producer, commit=False, bump_epoch=False, now_ms=2)  # noqa: E731
    return producer, append, abort


def test_an_abort_that_meets_the_first_batch_under_way_lists_it_as_aborted(catalog):
    topic_partition = catalog.topic_partition()
    producer, append, abort = open_transaction(catalog, topic_partition)
    with while_open(catalog, append, abort) as ended:
        ended.result(timeout=10)
    assert catalog.read(transactions.aborted, topic_partition, 0, 10) == [Aborted(producer.producer_id, 0, 1)]


def test_a_batch_that_meets_its_transactions_end_under_way_is_refused(catalog):
    topic_partition = catalog.topic_partition()
    _, append, abort = open_transaction(catalog, topic_partition)
    with while_open(catalog, abort, append) as appended:
        assert isinstance(appended.result(timeout=10)[0], InvalidTransactionState)
    row = catalog.partition(topic_partition)
    assert (
        row.end_offset == catalog.read(transactions.last_stable_offset, topic_partition, row.end_offset) == 1
    )


def test_an_append_that_meets_a_claim_under_way_is_fenced(catalog):
    topic_partition = catalog.topic_partition(catalog.topic(owner="s1"))
    append = lambda tx: appends.append(tx, [catalog.share(topic_partition, epoch=1)], None, now_ms=1)  # noqa: E731
    with while_open(catalog, lambda tx: partitions.claim(tx, topic_partition, "s2"), append) as appended:
        assert isinstance(appended.result(timeout=10)[0], NotOwner)


def test_a_claim_waits_for_the_owners_append_and_counts_it(catalog):
    topic_partition = catalog.topic_partition(catalog.topic(owner="s1"))
    append = lambda tx: appends.append(tx, [catalog.share(topic_partition, 3, epoch=1)], None, now_ms=1)  # noqa: E731
    with while_open(catalog, append, lambda tx: partitions.claim(tx, topic_partition, "s2")) as claimed:
        assert claimed.result(timeout=10) == 2
    assert catalog.append_one(topic_partition, epoch=2) == AppendedShare(3, 2, 0)


def test_appends_of_two_writers_wait_for_each_other_and_leave_no_gap(catalog):
    topic_partition = catalog.topic_partition()
    append = lambda tx: appends.append(tx, [catalog.share(topic_partition, 3)], None, now_ms=1)  # noqa: E731
    with while_open(catalog, append, append) as second:
        assert second.result(timeout=10) == [AppendedShare(3, 0, 0)]


def test_two_changes_of_a_topics_config_are_both_kept(catalog):
    catalog.topic()
    change = lambda key: lambda tx: topics.alter_config(tx, "orders", {key: "5"})  # noqa: E731
    with while_open(catalog, change("retention.ms"), change("retention.bytes")) as second:
        second.result(timeout=10)
    assert catalog.read(topics.find, "orders").overrides == {"retention.ms": "5", "retention.bytes": "5"}


def test_of_two_creations_of_a_topic_one_is_told_that_it_exists(catalog):
    create = lambda tx: topics.create(tx, "orders", 1, {}, now_ms=1)  # noqa: E731
    with while_open(catalog, create, create) as second, pytest.raises(TopicExists):
        second.result(timeout=10)


def test_of_two_deletions_of_a_topic_one_is_told_that_it_is_gone(catalog):
    catalog.topic()
    delete = lambda tx: topics.delete(tx, "orders", now_ms=1)  # noqa: E731
    with while_open(catalog, delete, delete) as second, pytest.raises(UnknownTopic):
        second.result(timeout=10)


def test_a_commit_that_meets_its_writers_burial_under_way_is_refused(catalog):
    session = catalog.writer()
    take = lambda tx: writers.claim_commit_number(tx, session, 0, 1, "t")  # noqa: E731
    with (
        while_open(catalog, lambda tx: writers.mark_dead(tx, session, 1), take) as taken,
        pytest.raises(WriterDead),
    ):
        taken.result(timeout=10)


def test_a_lane_that_meets_its_sessions_burial_under_way_is_not_opened(catalog):
    session = catalog.writer()
    named = {"kind": "broker", "address": "", "lease_ms": 1000, "lane": 1}
    register = lambda tx: writers.register(tx, session, **named)  # noqa: E731
    with (
        while_open(catalog, lambda tx: writers.mark_dead(tx, session, 1), register) as made,
        pytest.raises(WriterDead),
    ):
        made.result(timeout=10)


@pytest.mark.parametrize("change", ["merged", "expired"])
def test_whoever_changes_extents_waits_for_an_append_before_it_touches_any(catalog, change):
    """Else the one that appended, and now changes extents as well, would wait for it in turn: a deadlock."""
    topic_partition = catalog.topic_partition()
    for _ in range(4):
        catalog.append_one(topic_partition)
    old = catalog.read(extents.facts, topic_partition, 0, 10)
    row = extents.NewExtent(topic_partition, 0, 4, 0, None, 0, 50, 4, 1, 1, 1, True, None, None)
    segment = catalog.object("segments/a", sealed=True, kind="segment")

    def merge(tx):
        extents.replace(tx, old, row, segment, now_ms=1)

    def expire(tx):
        return extents.remove_below(tx, topic_partition, 4, limit=9, now_ms=1)

    def append_and_expire(tx):
        appends.append(tx, [catalog.share(topic_partition)], None, now_ms=1)
        waiting.submit(lambda: outcomes.append(_outcome(catalog, merge if change == "merged" else expire)))
        wait_for_a_waiter(catalog)
        return expire(tx)

    outcomes = []
    with ThreadPoolExecutor(1) as waiting:
        assert catalog.write(append_and_expire) == 4
    assert outcomes == [ExtentsChanged if change == "merged" else 0]
    assert [e.base_offset for e in catalog.read(extents.facts, topic_partition, 0, 10)] == [4]


def _outcome(catalog, operation):
    try:
        return catalog.write(operation)
    except ExtentsChanged as error:
        return type(error)
