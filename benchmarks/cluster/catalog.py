"""The cost of 100 brokers and 100,000 partitions: the catalog's reads and changes, and the computation of the
placement."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from benchmarks.cluster.servers import on_servers
from benchmarks.engine.setup import folder
from benchmarks.report import Report
from millpond.catalog import compactions, partitions, topics, topology, writers
from millpond.catalog.database import CatalogTransaction, Database
from millpond.catalog.postgres import PostgresDatabase
from millpond.catalog.topology import Topology, topic_of
from millpond.model.ids import Session, new_session
from millpond.model.placement import has_too_many, moves
from millpond.protocol.codec import encode
from millpond.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BROKERS, TOPICS, PARTITIONS_EACH = 100, 100, 1_000
QUICK_BROKERS, QUICK_TOPICS = 10, 10
LEASE_MS = 10**9
METADATA_VERSION = 12
REPEATS = 5
CONNECTIONS = (1, 8, 32)
COMMIT_S, QUICK_COMMIT_S = 5.0, 1.0


class Bench:
    """Times functions, in wall time and in this process's CPU time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.rows: list[tuple[str, str, str]] = []

    def read(self, what: str, function: Callable[[CatalogTransaction], Any], repeats: int = REPEATS) -> Any:
        def run() -> Any:
            with self._database.read() as tx:
                return function(tx)

        return self.time(what, run, repeats)

    def write(self, what: str, function: Callable[[CatalogTransaction], Any]) -> Any:
        def run() -> Any:
            with self._database.write() as tx:
                return function(tx)

        return self.time(what, run, 1)

    def time(self, what: str, run: Callable[[], Any], repeats: int = REPEATS) -> Any:
        walls, cpus, found = [], [], None
        for _ in range(repeats):
            wall, cpu = time.perf_counter(), time.thread_time()
            found = run()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.thread_time() - cpu)
        self.rows.append((what, f"{min(walls) * 1000:.1f}", f"{min(cpus) * 1000:.1f}"))
        return found


def run(report: Report, *, quick: bool) -> None:
    brokers, many = (QUICK_BROKERS, QUICK_TOPICS) if quick else (BROKERS, TOPICS)
    total = many * PARTITIONS_EACH
    report.section(
        f"{brokers} brokers, {total:,} partitions",
        "One process with the rows of that many partitions, on PostgreSQL: the time of each step, and the processor's "
        f"part of it in the broker. The best of {REPEATS}, except for changes.",
    )
    with folder("disk") as path, on_servers(path / "catalog") as place:
        database = PostgresDatabase(place.catalog)
        try:
            database.migrate()
            bench = Bench(database)
            _measure(bench, database, brokers, many)
        finally:
            database.close()
        commits = _commits(place.catalog, QUICK_COMMIT_S if quick else COMMIT_S)
    report.table(("step", "ms", "CPU ms"), bench.rows)
    report.line(commits)
    report.line(_metadata(brokers, many))


def _measure(bench: Bench, database: Database, brokers: int, many: int) -> None:
    sessions = [new_session() for _ in range(brokers)]
    with database.write() as tx:
        for number, session in enumerate(sessions, 1):
            _register(tx, session, number)
    for number in range(many):
        bench.write("create a topic of 1,000 partitions", _creation(number))
    del bench.rows[:-1]
    known: Topology = bench.read("read everything, as a broker that starts", topology.read)
    bench.read("look whether anything has changed, once a second", topology.version)
    bench.read(
        f"read what one broker owns ({len(known.partitions) // brokers:,}), once a second",
        lambda tx: (partitions.owned_by(tx, sessions[0]), compactions.marks(tx, sessions[0])),
    )
    owners = {topic_partition: owner.session or "" for topic_partition, owner in known.partitions.items()}
    bench.time("see that one's share is even, after each change", lambda: _is_even(known, sessions))
    joined = [*sessions, new_session()]
    bench.time("work out who gives what to one more", lambda: moves(owners, joined, family=topic_of), 1)
    bench.write("declare a broker dead and share out what it owned", lambda tx: _replace(tx, sessions[-1]))
    bench.read("read what that has moved", lambda tx: topology.read(tx, known))


def _commits(url: str, seconds: float) -> str:
    """The number of small transactions per second on this PostgreSQL, each on a row that no other connection
    changes."""
    with psycopg.connect(url, autocommit=True) as setup:
        setup.execute("CREATE TABLE busy (id int PRIMARY KEY, value bigint) WITH (fillfactor = 50)")
        setup.execute("INSERT INTO busy SELECT n, 0 FROM generate_series(0, 99) n")
    found = []
    for count in CONNECTIONS:
        with ThreadPoolExecutor(count) as threads:
            done = threads.map(lambda number: _commit_for(url, number, seconds), range(count))
            found.append(f"{sum(done) / seconds:,.0f} with {count}")
    return f"Small transactions a second, by connections at once: {', '.join(found)}."


def _commit_for(url: str, row: int, seconds: float) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        done, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            connection.execute("UPDATE busy SET value = value + 1 WHERE id = %s", (row,))
            done += 1
    return done


def _register(tx: CatalogTransaction, session: Session, number: int) -> None:
    address = json.dumps({"kafka": f"10.0.0.{number}:9092", "grpc": f"10.0.0.{number}:9999"})
    writers.register(tx, session, kind="broker", address=address, lease_ms=LEASE_MS, node_id=number)


def _creation(number: int) -> Callable[[CatalogTransaction], Any]:
    return lambda tx: topics.create(tx, f"topic-{number}", PARTITIONS_EACH, {}, now_ms=1)


def _is_even(known: Topology, sessions: list[Session]) -> bool:
    counts = Counter(owner.session or "" for owner in known.partitions.values())
    return has_too_many(counts, sessions, sessions[0])


def _replace(tx: CatalogTransaction, session: Session) -> int:
    writers.mark_dead(tx, session, 1)
    topology.bump_version(tx)
    return topology.adopt(tx)


def _metadata_row(number: int, owner: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=number, leader_id=owner, leader_epoch=1, replica_nodes=[owner], isr_nodes=[owner]
    )


def _metadata(brokers: int, many: int) -> str:
    """The size of the Kafka metadata response for all topics, and for one topic."""
    nodes = [MetadataResponseBroker(node_id=n, host=f"broker-{n}.example", port=9092) for n in range(brokers)]
    rows = [_metadata_row(number, number % brokers) for number in range(PARTITIONS_EACH)]
    found = []
    for count in (1, many):
        listed = [MetadataResponseTopic(name=f"topic-{n}", partitions=rows) for n in range(count)]
        answer = MetadataResponse(brokers=nodes, cluster_id="cluster", topics=listed)
        found.append(encode(answer, METADATA_VERSION).size)
    return f"Kafka metadata of one such topic: {found[0]:,} bytes; of all {many}: {found[1]:,} bytes."
