"""Tasks store, one commit counts: every partition or none, once however often it is tried."""

import itertools
import pickle
import time

import pytest
from tests.lossy_catalog import LossyDatabase
from tests.spark.sink.rows import batch, living_sessions, make_place, make_topic, publish, stored, values

from millpond.catalog import objects, partitions, sinks, topics, writers
from millpond.model.errors import (
    CatalogFailed,
    CatalogUnavailable,
    InvalidTopicName,
    RecordTooLarge,
    UnknownTopic,
    WriterDead,
)
from millpond.spark.place import database, prepare, store
from millpond.spark.sink import sink_commit
from millpond.spark.sink.options import SinkOptions
from millpond.spark.sink.sink_commit import abandon, commit
from millpond.spark.sink.task import gathered, write_task
from millpond.spark.task_writer import COMMIT_LEASE_MS
from millpond.testing import SimulatedClock


@pytest.fixture
def place(tmp_path):
    return make_place(tmp_path)


def write(place, rows, **options):
    flush_bytes = options.pop("flush_bytes", 1 << 20)
    texts = {name: str(value) for name, value in options.items()}
    parsed = SinkOptions.parse({"catalog": place.catalog, "storage": place.storage, **texts})
    message = write_task(parsed, rows if isinstance(rows, list) else [rows], flush_bytes=flush_bytes)
    return pickle.loads(pickle.dumps(message))  # as it travels from a task to the driver


def test_rows_of_several_tasks_are_read_in_the_order_of_tasks(place):
    make_topic(place, "t")
    first = write(place, batch(value=[b"1", b"2"]), topic="t")
    second = write(place, batch(value=[b"3"]), topic="t")
    assert values(place, "t") == []
    assert commit(database(place), "s", 0, [second, first])
    [records] = stored(place, "t").values()
    assert [(record.offset, record.value) for record in records] == [(0, b"3"), (1, b"1"), (2, b"2")]


def test_several_flushes_of_a_task_stay_in_order_and_share_an_object(place):
    make_topic(place, "t", 2)
    rows = [
        batch(key=[b"k"] * 10, value=[b"%03d" % n for n in range(start, start + 10)])
        for start in range(0, 100, 10)
    ]
    message = write(place, rows, topic="t", flush_bytes=250)
    assert len(message.flushes) > 3
    assert len({flush.key for flush in message.flushes}) == 1
    commit(database(place), "s", 0, [message])
    assert values(place, "t") == [b"%03d" % n for n in range(100)]
    with database(place).read() as tx:
        [(count, size, sealed)] = tx.rows("SELECT extents, bytes, sealed FROM objects")
        extents = tx.rows("SELECT count(*) FROM extents")[0][0]
    assert (count, sealed) == (extents, 1)
    assert size == store(place).size(message.flushes[0].key)


def test_a_batch_that_comes_again_changes_nothing_and_gives_up_what_it_stored(place, caplog):
    make_topic(place, "t")
    assert commit(database(place), "s", 4, [write(place, batch(value=[b"1"]), topic="t")])
    again = write(place, batch(value=[b"1"]), topic="t")
    assert again.session in living_sessions(place)
    assert not commit(database(place), "s", 4, [again])
    assert not commit(database(place), "s", 3, [write(place, batch(value=[b"0"]), topic="t")])
    assert {line.message for line in caplog.records} == {"batch was committed before; nothing appended"}
    assert [(line.sink, line.batch) for line in caplog.records] == [("s", 4), ("s", 3)]
    assert values(place, "t") == [b"1"]
    assert living_sessions(place) == set()
    with database(place).read() as tx:
        assert again.flushes[0].key not in {key for (key,) in tx.rows("SELECT key FROM objects")}


def test_a_commit_ends_the_sessions_of_its_tasks(place):
    make_topic(place, "t")
    message = write(place, batch(value=[b"1"]), topic="t")
    assert living_sessions(place) == {message.session}
    commit(database(place), "s", 0, [message])
    assert living_sessions(place) == set()


def test_what_a_dead_session_stored_fails_the_whole_commit(place):
    """Its objects may have been collected."""
    make_topic(place, "t")
    good, bad = (write(place, batch(value=[b"%d" % n]), topic="t") for n in range(2))
    with prepare(place).write() as tx:
        writers.mark_dead(tx, bad.session, 1)
    with pytest.raises(WriterDead):
        commit(database(place), "s", 0, [good, bad])
    assert values(place, "t") == []
    with database(place).read() as tx:
        assert sinks.newest_batch(tx, "s") is None


def test_a_topic_deleted_meanwhile_fails_the_whole_commit_by_name(place):
    make_topic(place, "kept")
    make_topic(place, "gone")
    message = write(place, batch(value=[b"1", b"2"], topic=["kept", "gone"]))
    with prepare(place).write() as tx:
        topics.delete(tx, "gone", now_ms=2)
    with pytest.raises(UnknownTopic, match="'gone'"):
        commit(database(place), "s", 0, [message])
    assert values(place, "kept") == []
    assert message.session in living_sessions(place)
    abandon(database(place), [message, None])
    assert living_sessions(place) == set()


@pytest.mark.parametrize("lost", ["lose before", "lose after", "refuse"])
def test_a_commit_whose_answer_is_lost_is_tried_again_and_counts_once(place, lost, caplog):
    make_topic(place, "t")
    message = write(place, batch(value=[b"1"]), topic="t")
    delays = []
    losing = LossyDatabase(database(place), lost, lost, lost)
    commit(losing, "s", 0, [message], sleep=delays.append)
    assert values(place, "t") == [b"1"]
    assert losing.writes == 4
    assert len(delays) == 3
    assert living_sessions(place) == set()
    assert caplog.records == [], "nobody else has committed it"


def test_a_catalog_that_stays_away_is_given_up_after_a_bounded_time(place):
    make_topic(place, "t")
    message = write(place, batch(value=[b"1"]), topic="t")
    delays = []
    losing = LossyDatabase(database(place), *itertools.repeat("refuse", 100))
    with pytest.raises(CatalogUnavailable):
        commit(losing, "s", 0, [message], sleep=delays.append)
    assert losing.writes == sink_commit.TRIES_MAX
    assert sum(delays) < 60


def test_a_catalog_whose_disk_failed_is_not_asked_again(place):
    losing = LossyDatabase(database(place), "fail")
    with pytest.raises(CatalogFailed):
        commit(losing, "s", 0, [], sleep=lambda _: None)
    assert losing.writes == 1


def test_appends_follow_what_is_there_and_leave_the_owner_its_epoch(place):
    topic = make_topic(place, "t")
    with prepare(place).write() as tx:
        partitions.claim_all(tx, "broker")
    for number in range(3):
        commit(database(place), "s", number, [write(place, batch(value=[b"%d" % number]), topic="t")])
    with database(place).read() as tx:
        [row] = partitions.of_topic(tx, topic.id)
    assert (row.owner, row.epoch, row.end_offset) == ("broker", 1, 3)


def test_a_task_without_rows_has_no_session_and_still_claims(place):
    make_topic(place, "t")
    message = write(place, [], topic="t")
    assert message.session is None
    assert commit(database(place), "s", 0, [message])
    assert not commit(database(place), "s", 0, [message])


def test_a_task_that_fails_gives_up_what_it_stored(place):
    make_topic(place, "t", max_message_bytes="5000")
    rows = [batch(value=[b"x" * 1000]), batch(value=[b"x" * 6000])]
    with pytest.raises(RecordTooLarge):
        write(place, rows, topic="t", flush_bytes=1000)
    assert living_sessions(place) == set()
    with database(place).read() as tx:
        assert len(writers.dead_sessions(tx)) == 1
    [orphan] = store(place).list("journal/")
    with database(place).read() as tx:
        assert objects.known_keys(tx, orphan.split("/")[1]) == set()


def test_a_task_that_is_done_waits_a_day_for_the_commit(place):
    """The slowest task of a stage may need hours more than the first."""
    make_topic(place, "t")
    message = write(place, batch(value=[b"1"]), topic="t")
    with database(place).read() as tx:
        [(expires_at,)] = tx.rows("SELECT expires_at FROM writers WHERE session = ?", (message.session,))
        _, now_ms = tx.lease_clock()
    assert COMMIT_LEASE_MS - 60_000 < expires_at - now_ms <= COMMIT_LEASE_MS


def test_a_slow_task_renews_its_lease(place):
    make_topic(place, "t")
    clock = SimulatedClock()
    leases = []

    def slow_rows():
        for number in range(3):
            yield batch(value=[b"%d" % number * 600])
            clock.advance(30 * 60 * 1000)
            time.sleep(0.003)  # leases go by the machine's own milliseconds
            with database(place).read() as tx:
                leases.append(tx.rows("SELECT expires_at FROM writers"))

    options = SinkOptions.parse({"catalog": place.catalog, "storage": place.storage, "topic": "t"})
    write_task(options, slow_rows(), clock=clock, flush_bytes=500)
    assert leases[0] == []
    assert leases[2] > leases[1]


def partitions_of(place, *names):
    with database(place).read() as tx:
        return [topics.find(tx, name).partitions for name in names]


@pytest.mark.parametrize(
    ("settings", "options", "expected"),
    [
        ({}, {}, 1),
        ({"default_partitions": 4}, {}, 4),
        ({"default_partitions": 4}, {"partitions": 3}, 3),
        ({"auto_create_topics": False, "default_partitions": 4}, {"createTopics": "true"}, 4),
    ],
)
def test_topics_that_rows_name_and_that_do_not_exist_are_created(place, settings, options, expected):
    publish(place, **settings)
    message = write(place, batch(value=[b"1", b"2"], topic=["a", "b"]), **options)
    commit(database(place), "s", 0, [message])
    assert partitions_of(place, "a", "b") == [expected] * 2
    assert values(place, "a") == [b"1"]


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        (
            {"auto_create_topics": False},
            {},
            "auto_create_topics is false: create it first, or set option createTopics",
        ),
        ({}, {"createTopics": "false"}, "option createTopics is false"),
    ],
)
def test_topics_are_not_created_where_that_is_switched_off(place, settings, options, words):
    publish(place, **settings)
    with pytest.raises(UnknownTopic, match=f"There is no topic 'a', and .*{words}"):
        write(place, batch(value=[b"1"], topic=["a"]), **options)
    with pytest.raises(InvalidTopicName):
        write(place, batch(value=[b"1"], topic=["a/b"]), **options)


def test_what_a_sink_appends_has_the_time_of_the_commit(place):
    """However long its tasks took, and however old its rows are."""
    make_topic(place, "t")
    message = write(place, batch(value=[b"1"], timestamp=[1_000_000]), topic="t")
    commit(database(place), "s", 0, [message], clock=SimulatedClock(5_000_000))
    with database(place).read() as tx:
        assert tx.rows("SELECT max_timestamp, appended_at FROM extents") == [(1_000, 5_000_000)]


def test_rows_are_gathered_up_to_the_bound_and_large_batches_are_cut():
    big = batch(value=[b"x" * 1000] * 100)
    small = batch(value=[b"y"])
    tables = list(gathered([small, big, small, batch(value=[]), small], 10_000))
    assert sum(table.num_rows for table in tables) == 103
    assert max(table.nbytes for table in tables) <= 10_000 + 2_000  # a slice is cut by rows, not by bytes
    assert [value for table in tables for value in table.column("value").to_pylist()] == [
        b"y", *[b"x" * 1000] * 100, b"y", b"y",
    ]  # fmt: skip
    assert tables[-1].num_rows == 2  # small ones travel together


def test_a_row_larger_than_the_bound_travels_alone():
    tables = list(gathered([batch(value=[b"x" * 1000] * 3)], 10))
    assert [table.num_rows for table in tables] == [1, 1, 1]
