"""A sink's batch counts once, whoever brings it again; the rows of sinks that nobody names do not pile up."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from millpond.catalog import partitions, sinks
from millpond.model.errors import UnknownPartition
from millpond.model.ids import Session, TopicPartition, new_topic_id

ONE, OTHER = Session("one"), Session("other")


def claim(catalog, sink, batch, session=ONE, now_ms=None):
    return catalog.write(sinks.claim, sink, batch, session, now_ms=catalog.now if now_ms is None else now_ms)


def test_a_sink_that_nobody_knows_has_no_newest_batch(catalog):
    assert catalog.read(sinks.newest_batch, "s") is None


def test_a_batch_can_be_claimed_once(catalog):
    assert claim(catalog, "s", 7)
    assert not claim(catalog, "s", 7, OTHER)
    assert catalog.read(sinks.newest_batch, "s") == 7
    assert catalog.rows("SELECT session FROM sink_commits") == [("one",)]


def test_whose_a_sinks_newest_batch_is(catalog):
    assert not catalog.read(sinks.is_newest, "s", 7, ONE)
    claim(catalog, "s", 7)
    assert catalog.read(sinks.is_newest, "s", 7, ONE)
    assert not catalog.read(sinks.is_newest, "s", 7, OTHER)
    assert not catalog.read(sinks.is_newest, "s", 6, ONE)


def test_a_series_of_numbers_belongs_to_one_topic():
    names = {sinks.batch_sink("a", topic) for topic in ("t", "u", None)}
    names |= {sinks.stream_sink("a", topic) for topic in ("t", "u", None)} | {sinks.batch_sink("a/t", "u")}
    assert len(names) == 7
    assert sinks.batch_sink("a", "t") == "batch/a/t"
    assert sinks.stream_sink("q", None) == "stream/q/*"


def test_an_older_batch_is_refused_and_a_newer_one_taken(catalog):
    assert claim(catalog, "s", 7)
    assert not claim(catalog, "s", 6)
    assert claim(catalog, "s", 9)
    assert not claim(catalog, "s", 8)
    assert catalog.read(sinks.newest_batch, "s") == 9


def test_batch_nought_counts(catalog):
    assert claim(catalog, "s", 0)
    assert not claim(catalog, "s", 0)


def test_sinks_do_not_know_each_other(catalog):
    assert claim(catalog, "s", 1)
    assert claim(catalog, "t", 1)


def test_a_claim_that_is_rolled_back_never_was(catalog):
    def claim_and_fail():
        with catalog.database.write() as tx:
            assert sinks.claim(tx, "s", 1, ONE, now_ms=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        claim_and_fail()
    assert claim(catalog, "s", 1)


def test_of_many_who_claim_at_once_one_wins(durable_catalog):
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: claim(durable_catalog, "s", 3, Session(str(number))), range(8)))
    assert sum(won) == 1


def test_passing_sinks_are_forgotten_after_a_day_and_others_never(catalog):
    old, young = sinks.one_time_sink(), sinks.one_time_sink()
    assert old != young
    claim(catalog, old, 0, now_ms=0)
    claim(catalog, "stream/q", 0, now_ms=0)
    claim(catalog, "batch/q", 0, now_ms=0)
    claim(catalog, young, 0, now_ms=1)
    catalog.write(sinks.delete_one_time_sinks, now_ms=sinks.ONE_TIME_KEPT_MS + 1)
    assert sorted(row[0] for row in catalog.rows("SELECT sink FROM sink_commits")) == sorted(
        [young, "stream/q", "batch/q"]
    )


def test_locking_partitions_changes_nothing(catalog):
    topic = catalog.topic(count=3, owner="me")
    before = catalog.read(partitions.of_topic, topic.id)
    catalog.write(sinks.lock_partitions, [TopicPartition(topic.id, number) for number in range(3)])
    assert catalog.read(partitions.of_topic, topic.id) == before


def test_locking_a_partition_that_is_not_there_names_it(catalog):
    gone = TopicPartition(new_topic_id(), 2)
    with pytest.raises(UnknownPartition) as refused:
        catalog.write(sinks.lock_partitions, [gone])
    assert refused.value.facts == {"topic": gone.topic_id.hex(), "partition": 2}


def test_locked_partitions_are_kept_until_the_end(postgres_catalog):
    """Somebody else's append waits for the whole transaction."""
    topic_partition = postgres_catalog.topic_partition()
    with ThreadPoolExecutor(1) as pool:
        with postgres_catalog.database.write() as tx:
            sinks.lock_partitions(tx, [topic_partition])
            append = pool.submit(postgres_catalog.append_one, topic_partition, 5)
            with pytest.raises(TimeoutError):
                append.result(timeout=0.3)
            assert partitions.read(tx, topic_partition).end_offset == 0
        assert append.result(timeout=10).base_offset == 0
