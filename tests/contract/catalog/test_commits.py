"""Numbered commits: many operations, one COMMIT, each undone alone when it is refused."""

import pytest

from millpond.catalog import appends, groups, topics, writers
from millpond.catalog.commits import OperationResult
from millpond.model.errors import (
    CatalogUnavailable,
    Defect,
    InvalidRequest,
    NotOwner,
    TopicExists,
    UnknownTopic,
    WriterDead,
)


def create(name):
    return lambda tx: topics.create(tx, name, 1, {}, now_ms=1).name


def create_and_refuse(name):
    def operation(tx):
        topics.create(tx, name, 1, {}, now_ms=1)
        raise NotOwner

    return operation


def names(catalog):
    return [topic.name for topic in catalog.read(topics.all_topics)]


def test_operations_run_in_order_and_their_values_come_back(catalog):
    assert catalog.committer().commit([lambda tx: 1, create("a"), lambda tx: None]) == [
        OperationResult(1),
        OperationResult("a"),
        OperationResult(None),
    ]
    assert names(catalog) == ["a"]


def test_an_empty_commit_is_a_commit(catalog):
    assert catalog.committer().commit([]) == []


def test_a_refused_operation_leaves_its_neighbours(catalog):
    operations = [create("a"), create_and_refuse("b"), create("c"), create("a"), create("d")]
    outcomes = catalog.committer().commit(operations)
    assert [type(outcome.error) for outcome in outcomes] == [
        type(None),
        NotOwner,
        type(None),
        TopicExists,
        type(None),
    ]
    assert names(catalog) == ["a", "c", "d"]


def test_an_operation_sees_what_the_ones_before_it_did(catalog):
    outcomes = catalog.committer().commit([create("a"), lambda tx: topics.delete(tx, "a", now_ms=2).name])
    assert outcomes[1] == OperationResult("a")
    assert names(catalog) == []


def test_a_lone_refused_operation_is_undone_and_uses_up_no_number(catalog):
    session = catalog.writer()
    committer = catalog.committer(session)
    (outcome,) = committer.commit([create_and_refuse("a")])
    assert isinstance(outcome.error, NotOwner)
    assert names(catalog) == []
    assert catalog.rows("SELECT commit_no FROM writers") == [(0,)]
    assert committer.commit([create("b")]) == [OperationResult("b")]
    assert catalog.rows("SELECT commit_no FROM writers") == [(1,)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_bug_in_one_operation_is_undone_alone_and_called_so(catalog, count):
    def broken(tx):
        create("half-done")(tx)
        raise ZeroDivisionError

    committer = catalog.committer()
    outcomes = committer.commit([create("a"), broken][-count:])
    assert isinstance(outcomes[-1].error, Defect)
    assert names(catalog) == ["a"][: count - 1]
    assert committer.commit([create("b")]) == [OperationResult("b")]


def test_an_error_of_the_engine_undoes_the_whole_commit_and_is_not_hidden(catalog):
    class EngineError(Exception):
        pass

    def broken(tx):
        raise EngineError

    committer = catalog.committer()
    with pytest.raises(EngineError):
        committer.commit([create("a"), broken])
    assert names(catalog) == []
    assert committer.commit([create("b")]) == [OperationResult("b")]


@pytest.mark.parametrize("value", ["\ud800", 2**63])
@pytest.mark.parametrize("many", [True, False])
def test_a_value_the_database_cannot_hold_refuses_its_operation_alone(catalog, value, many):
    topic_partition = catalog.topic_partition()
    offset = groups.GroupOffset(topic_partition, value if isinstance(value, int) else 1, -1, str(value))

    def poisoned(tx):
        if many:
            groups.commit_offsets(tx, "g", [offset], now_ms=1)
        else:
            tx.rows(groups.COMMIT, ("g", *topic_partition, offset.offset, -1, offset.metadata, 1))

    outcomes = catalog.committer().commit([create("a"), poisoned, create("b")])
    assert isinstance(outcomes[1].error, InvalidRequest)
    assert names(catalog) == ["a", "b", "orders"]


def test_a_nul_in_a_clients_text_never_fails_its_neighbours(catalog):
    """PostgreSQL cannot store it, SQLite can; neither may let one client fail another."""
    offset = groups.GroupOffset(catalog.topic_partition(), 1, -1, "a\x00b")
    commit = lambda tx: groups.commit_offsets(tx, "g", [offset], now_ms=1)  # noqa: E731
    outcomes = catalog.committer().commit([create("a"), commit, create("b")])
    assert outcomes[1].error is None or isinstance(outcomes[1].error, InvalidRequest)
    assert names(catalog) == ["a", "b", "orders"]


def test_appends_of_one_commit_follow_each_other(catalog):
    topic_partition = catalog.topic_partition()
    outcomes = catalog.committer().commit(
        [catalog.append_operation(catalog.share(topic_partition, 2)) for _ in range(3)]
    )
    placed = [appends.decode_results(outcome.value)[0].base_offset for outcome in outcomes]
    assert placed == [0, 2, 4]


def test_numbers_go_up_by_one(catalog):
    committer = catalog.committer()
    for number in (1, 2, 3):
        committer.commit([lambda tx: None])
        assert catalog.rows("SELECT commit_no FROM writers") == [(number,)]


def test_committers_of_several_sessions_do_not_disturb_each_other(catalog):
    topic_partition = catalog.topic_partition()
    first, second = catalog.committer(), catalog.committer()
    for _ in range(3):
        for committer in (first, second):
            committer.commit([catalog.append_operation(catalog.share(topic_partition))])
    assert catalog.partition(topic_partition).end_offset == 6


def test_a_committer_that_starts_again_on_its_session_goes_on(catalog):
    session = catalog.writer()
    catalog.committer(session).commit([create("a")])
    assert catalog.committer(session).commit([create("b")]) == [OperationResult("b")]


def test_a_writer_that_dies_between_commits_is_told_and_changes_nothing(catalog):
    session = catalog.writer()
    committer = catalog.committer(session)
    committer.commit([create("a")])
    catalog.write(writers.mark_dead, session, 1)
    with pytest.raises(WriterDead):
        committer.commit([create("b")])
    assert names(catalog) == ["a"]


def test_a_write_that_raises_is_rolled_back(catalog):
    def create_and_fail(tx):
        create("a")(tx)
        topics.find(tx, "nope")

    with pytest.raises(UnknownTopic):
        catalog.write(create_and_fail)
    assert names(catalog) == []


def test_a_read_sees_committed_rows_only(durable_catalog):
    catalog = durable_catalog
    with catalog.database.write() as tx:
        create("a")(tx)
        assert names(catalog) == []
    assert names(catalog) == ["a"]


def test_a_closed_database_says_so(file_catalog, memory_catalog, empty_postgres):
    for database in (file_catalog.database, memory_catalog.database, empty_postgres):
        database.close()
        database.close()
        with pytest.raises(CatalogUnavailable), database.write() as tx:
            tx.rows("SELECT 1")
        with pytest.raises(CatalogUnavailable), database.read() as tx:
            tx.rows("SELECT 1")


def test_a_foreign_commit_is_noticed_and_ones_own_is_not(file_catalog, tmp_path):
    from millpond.catalog.sqlite import SqliteDatabase

    mine, theirs = file_catalog.database, SqliteDatabase(tmp_path / "catalog.db")
    mine.has_foreign_commits()
    file_catalog.write(create("a"))
    assert not mine.has_foreign_commits()
    with theirs.write() as tx:
        create("b")(tx)
    file_catalog.write(create("c"))
    assert mine.has_foreign_commits()
    assert not mine.has_foreign_commits()
    theirs.close()


def test_postgresql_is_asked_once_a_second(empty_postgres, memory_catalog):
    assert [empty_postgres.has_foreign_commits() for _ in range(2)] == [True, False]
    assert memory_catalog.database.has_foreign_commits() is False
