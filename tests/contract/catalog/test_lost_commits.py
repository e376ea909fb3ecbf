"""A lost COMMIT answer, retried, appends once.

On SQLite the answer is lost by a wrapper. On PostgreSQL it is lost for real: a proxy between client and server cuts
the connection around the COMMIT message, and can keep the first transaction undecided while the retry waits for it.
"""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.lossy_catalog import LossyDatabase

from millpond.catalog import appends, extents, transactions, writers
from millpond.catalog.commits import ATTEMPTS_MAX, Committer
from millpond.catalog.postgres import PostgresDatabase
from millpond.model.errors import CatalogUnavailable, OutcomeUnknown


class Proxy:
    """TCP in front of PostgreSQL's socket. Armed, it does one thing at the next COMMIT that passes:

    `after`   lets it take effect and cuts the connection instead of answering
    `before`  cuts without passing it on, so the server rolls back
    `hold`    cuts the client's side and keeps the server's open until `decide`
    """

    def __init__(self, url):
        query = parse_qs(urlsplit(url).query)
        self._target = f"{query['host'][0]}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/postgres"
        self.armed = None
        self.cuts = 0
        self._held = None
        self._cut_off = None
        self._sockets = [self._listener]
        self._threads = []
        self._run(self._accept)

    def decide(self, *, commit):
        """Let the held COMMIT through, or let the server find its client gone."""
        server, message = self._held
        if commit:
            server.sendall(message)
        else:
            server.shutdown(socket.SHUT_RDWR)

    def close(self):
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for each in self._sockets:
            each.close()

    def _run(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._sockets += [client, server]
                server.connect(self._target)
                self._run(self._upstream, client, server)
                self._run(self._downstream, client, server)

    def _upstream(self, client, server):
        with suppress(OSError):
            while data := client.recv(65536):
                if self.armed and b"COMMIT\0" in data:
                    self._cut(client, server, data)
                    return
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _downstream(self, client, server):
        with suppress(OSError):
            while data := server.recv(65536):
                if client is not self._cut_off:
                    client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def _cut(self, client, server, data):
        mode, self.armed = self.armed, None
        self.cuts += 1
        self._cut_off = client
        if mode == "after":
            server.sendall(data)
            time.sleep(0.1)  # the server commits; its answer goes to nobody
        if mode == "hold":
            self._held = (server, data)
        else:
            server.shutdown(socket.SHUT_RDWR)
        client.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(postgres_url):
    proxy = Proxy(postgres_url)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied(proxy, postgres_catalog):
    """The same schema as `postgres_catalog`, reached through the proxy."""
    database = PostgresDatabase(proxy.url, schema=postgres_catalog.database._schema)
    yield database
    database.close()


def append_one(catalog, topic_partition, records=3):
    return [catalog.append_operation(catalog.share(topic_partition, records))]


def base_offset(outcomes):
    (placed,) = appends.decode_results(outcomes[0].value)
    return placed.base_offset


def assert_appended(catalog, topic_partition, *runs):
    found = catalog.read(extents.facts, topic_partition, 0, 100)
    assert [(each.base_offset, each.end_offset) for each in found] == list(runs)
    assert catalog.partition(topic_partition).end_offset == runs[-1][1]
    assert catalog.partition(topic_partition).bytes == 100 * len(runs)


def wait_for_a_waiter(catalog):
    deadline = time.monotonic() + 10
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while catalog.rows(waiting)[0][0] == 0:
        assert time.monotonic() < deadline, "nobody waits for a lock"
        time.sleep(0.01)


@pytest.mark.parametrize("lost", [["lose after"], ["lose before"], ["lose before", "refuse", "lose after"]])
def test_a_lost_commit_answer_retried_appends_once_on_sqlite(file_catalog, lost):
    catalog = file_catalog
    topic_partition = catalog.topic_partition()
    committer = Committer(LossyDatabase(catalog.database, *lost), catalog.writer(), sleep=lambda _: None)
    assert base_offset(committer.commit(append_one(catalog, topic_partition))) == 0
    assert_appended(catalog, topic_partition, (0, 3))
    assert base_offset(committer.commit(append_one(catalog, topic_partition))) == 3
    assert_appended(catalog, topic_partition, (0, 3), (3, 6))


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_lost_commit_answer_retried_appends_once_on_postgresql(postgres_catalog, proxied, proxy, when):
    catalog = postgres_catalog
    topic_partition = catalog.topic_partition()
    committer = Committer(proxied, catalog.writer())
    proxy.armed = when
    assert base_offset(committer.commit(append_one(catalog, topic_partition))) == 0
    assert proxy.cuts == 1
    assert_appended(catalog, topic_partition, (0, 3))
    assert base_offset(committer.commit(append_one(catalog, topic_partition))) == 3
    assert_appended(catalog, topic_partition, (0, 3), (3, 6))


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_connection_lost_at_commit_is_an_unknown_outcome_and_lost_earlier_it_is_not(proxied, proxy, when):
    proxy.armed = when
    with pytest.raises(OutcomeUnknown), proxied.write() as tx:
        tx.rows("SELECT 1")
    with pytest.raises(CatalogUnavailable) as refused, proxied.write() as tx:
        tx.rows("SELECT pg_terminate_backend(pg_backend_pid())")
    assert not isinstance(refused.value, OutcomeUnknown)


@pytest.mark.parametrize("commit", [True, False])
def test_a_retry_that_meets_its_undecided_first_try_waits_and_appends_once(
    postgres_catalog, proxied, proxy, commit
):
    catalog = postgres_catalog
    topic_partition = catalog.topic_partition()
    committer = Committer(proxied, catalog.writer())
    proxy.armed = "hold"
    with ThreadPoolExecutor(1) as thread:
        retried = thread.submit(committer.commit, append_one(catalog, topic_partition))
        wait_for_a_waiter(catalog)
        assert catalog.partition(topic_partition).end_offset == 0
        proxy.decide(commit=commit)
        assert base_offset(retried.result(timeout=10)) == 0
    assert proxy.cuts == 1
    assert_appended(catalog, topic_partition, (0, 3))
    assert base_offset(committer.commit(append_one(catalog, topic_partition))) == 3


@pytest.mark.parametrize("loss", ["lose after", "lose before"])
def test_an_earlier_commit_that_nobody_could_resolve_does_not_confuse_the_next(catalog, loss):
    topic_partition = catalog.topic_partition()
    plan = [loss, *["refuse"] * (ATTEMPTS_MAX - 1)]
    committer = Committer(LossyDatabase(catalog.database, *plan), catalog.writer(), sleep=lambda _: None)
    with pytest.raises(OutcomeUnknown):
        committer.commit(append_one(catalog, topic_partition, 3))
    committed = loss == "lose after"
    outcomes = committer.commit(append_one(catalog, topic_partition, 5))
    assert base_offset(outcomes) == (3 if committed else 0)
    assert_appended(catalog, topic_partition, *([(0, 3), (3, 8)] if committed else [(0, 5)]))
    assert base_offset(committer.commit(append_one(catalog, topic_partition, 1))) == (8 if committed else 5)


@pytest.mark.parametrize("commit", [True, False])
def test_an_earlier_commit_still_undecided_does_not_confuse_the_next(postgres_catalog, commit):
    """Its row lock makes the next wait; then the token tells that the number was not used by this one."""
    catalog = postgres_catalog
    topic_partition, session = catalog.topic_partition(), catalog.writer()
    decided = threading.Event()
    numbered = threading.Event()

    def earlier():
        with suppress(ZeroDivisionError), catalog.database.write() as tx:
            writers.claim_commit_number(tx, session, 0, 1, "another")
            appends.append(tx, [catalog.share(topic_partition, 3)], None, now_ms=1)
            writers.store_result(tx, session, 0, '[["not yours"]]')
            numbered.set()
            decided.wait(10)
            if not commit:
                raise ZeroDivisionError

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(earlier)
        assert numbered.wait(10)
        second = threads.submit(catalog.committer(session).commit, append_one(catalog, topic_partition, 5))
        wait_for_a_waiter(catalog)
        decided.set()
        first.result(timeout=10)
        assert base_offset(second.result(timeout=10)) == (3 if commit else 0)
    assert_appended(catalog, topic_partition, *([(0, 3), (3, 8)] if commit else [(0, 5)]))


def test_a_lost_answer_of_a_writer_declared_dead_meanwhile_is_still_found(catalog):
    topic_partition, session = catalog.topic_partition(), catalog.writer()
    mark_dead = lambda _: catalog.write(writers.mark_dead, session, 1)  # noqa: E731
    committer = Committer(LossyDatabase(catalog.database, "lose after"), session, sleep=mark_dead)
    assert base_offset(committer.commit(append_one(catalog, topic_partition))) == 0
    assert_appended(catalog, topic_partition, (0, 3))


def test_refusals_inside_a_lost_commit_come_back_as_they_were(catalog):
    topic_partition = catalog.topic_partition()
    fenced = catalog.append_operation(catalog.share(topic_partition, 2, epoch=9))
    committer = Committer(
        LossyDatabase(catalog.database, "lose after"), catalog.writer(), sleep=lambda _: None
    )

    def refused(tx):
        raise CatalogUnavailable.__mro__[2]("a message", detail=5)

    outcomes = committer.commit([*append_one(catalog, topic_partition), fenced, refused])
    assert base_offset(outcomes) == 0
    assert type(appends.decode_results(outcomes[1].value)[0]).__name__ == "NotOwner"
    assert (str(outcomes[2].error), outcomes[2].error.facts) == ("a message", {"detail": 5})


def test_a_server_that_dropped_every_connection_costs_a_retry_and_no_error(
    postgres_catalog, postgres_url, monkeypatch
):
    monkeypatch.setattr("millpond.catalog.postgres.ACQUIRE_TIMEOUT_S", 30.0)
    catalog = postgres_catalog
    database = PostgresDatabase(postgres_url, schema=catalog.database._schema)
    topic_partition, committer = catalog.topic_partition(), Committer(database, catalog.writer())
    with ThreadPoolExecutor(8) as threads:  # fill the pool
        barrier = threading.Barrier(8)

        def hold():
            with database.read() as tx:
                barrier.wait(30)
                return tx.rows("SELECT pg_backend_pid()")[0][0]

        pids = [future.result() for future in [threads.submit(hold) for _ in range(8)]]
    with catalog.database.read() as tx:
        tx.each("SELECT pg_terminate_backend(CAST(? AS INTEGER))", [(pid,) for pid in pids])
    time.sleep(0.1)
    assert base_offset(committer.commit(append_one(catalog, topic_partition))) == 0
    assert_appended(catalog, topic_partition, (0, 3))
    database.close()


@pytest.mark.parametrize("lost", [["lose after"], ["lose before"], ["lose before", "refuse", "lose after"]])
def test_an_end_whose_answer_was_lost_writes_one_marker_and_tells_where(catalog, lost):
    topic_partition = catalog.topic_partition()
    producer = catalog.write(transactions.begin_producer, "tx", 1000, now_ms=1).producer
    catalog.write(transactions.add_partitions, producer, [topic_partition], now_ms=1)
    batch = catalog.batch(producer.identity, 0, 0, transactional=True)
    catalog.append_one(topic_partition, sequences=[batch])
    committer = Committer(LossyDatabase(catalog.database, *lost), catalog.writer(), sleep=lambda _: None)

    def end(tx):
        return transactions.encode_transition(
            transactions.end(tx, producer, commit=False, bump_epoch=True, now_ms=5)
        )

    ended = transactions.decode_transition(committer.commit([end])[0].value)
    assert ended.producer.epoch == 1
    assert [
        (each.topic_partition, each.offset, each.first_offset) for each in ended.markers.partition_markers
    ] == [(topic_partition, 1, 0)]
    assert catalog.partition(topic_partition).end_offset == 2
    again = transactions.decode_transition(committer.commit([end])[0].value)
    assert (again.producer, again.markers) == (ended.producer, None)
