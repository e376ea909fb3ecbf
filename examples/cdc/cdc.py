"""Change data capture: PostgreSQL → Debezium → Millpond → a Delta table, by Spark, in one command.

    python examples/cdc/cdc.py ./cdc-demo

It starts a PostgreSQL, a broker and a Kafka Connect worker with Debezium on this machine, changes the table `orders`
while Spark merges the changes into `./cdc-demo/orders`, compares both tables, and stops everything.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from pyspark.sql import functions as f

from millpond.spark import session

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from peers import connect, postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Row = tuple[int, str, Decimal, str | None]
SHOP = "shop"
TOPIC = f"{SHOP}.public.orders"
SNAPSHOT, ROUNDS, INSERTS, UPDATES, DELETES = 1_000, 20, 20, 15, 10
"""Rows before Debezium starts; then rounds of inserts, updates and deletes."""
WAIT_SECONDS_MAX = 120

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12, 2), note text)"
INSERT = """
INSERT INTO orders SELECT id, 'customer ' || id %% 7, id * 1.25, CASE WHEN id %% 3 = 0 THEN NULL ELSE 'note ' || id END
FROM generate_series(%s::bigint, %s::bigint) id
"""
EVENT = """
op STRING, before STRUCT<id: BIGINT>, after STRUCT<id: BIGINT, customer: STRING, amount: STRING, note: STRING>
"""
COLUMNS = ("id", "customer", "amount", "note")


def main(folder: Path) -> bool:
    """Whether both tables are equal at the end."""
    with ExitStack() as stack:
        database = stack.enter_context(postgres.running(postgres.LOGICAL))
        rows = stack.enter_context(psycopg.connect(database, autocommit=True))
        rows.execute(TABLE)
        rows.execute(INSERT, (1, SNAPSHOT))
        say(f"PostgreSQL: {database}, table orders with {SNAPSHOT:,} rows")
        broker = stack.enter_context(running_broker(folder))
        say(f"Millpond: {broker}, data in {folder / 'data'}")
        plugins = connect.debezium()
        worker = stack.enter_context(connect.Worker(folder / "connect", broker, "cdc", plugins=plugins))
        worker.configure("orders", debezium(database))
        say(f"Kafka Connect {connect.VERSION}, Debezium {connect.DEBEZIUM}: changes go to topic {TOPIC}")
        spark = session("cdc")
        merger = Merger(folder / "orders")
        query = merger.start(spark, folder)
        stack.callback(query.stop)
        merger.wait(SNAPSHOT, query)
        say(f"Spark: the snapshot is in the Delta table {merger.table}")
        change(rows)
        merger.wait(SNAPSHOT + ROUNDS * (INSERTS + UPDATES + DELETES), query)
        wanted = sorted(rows.execute("SELECT id, customer, amount, note FROM orders").fetchall())
        equal = delta_rows(merger.table) == wanted
        say(
            f"{merger.applied:,} events ({SNAPSHOT:,} of the snapshot, {ROUNDS * INSERTS} inserts, "
            f"{ROUNDS * UPDATES} updates, {ROUNDS * DELETES} deletes) in {merger.commits} merges"
        )
        say(f"PostgreSQL has {len(wanted):,} rows; the Delta table is {'equal' if equal else 'DIFFERENT'}")
    say("stopped")
    return equal


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """The address of its Kafka interface."""
    folder.mkdir(parents=True, exist_ok=True)
    program = str(Path(sys.executable).with_name("millpond"))
    listeners = ("kafka_listen=127.0.0.1:0", "grpc_listen=", "http_listen=")
    settings = [part for each in listeners for part in ("--set", each)]
    command = [program, "serve", "--data-dir", str(folder / "data"), "--json", *settings]
    with (
        (folder / "broker.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,  # noqa: S603
    ):
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listeners"]["kafka"]
        finally:
            process.terminate()


def debezium(database: str) -> dict[str, str]:
    """The connector's config. Its task writes changes and its position in PostgreSQL's log in one transaction."""
    host, port, user, name = postgres.parts(database)
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": connect.POSTGRES_SOURCE,
        "database.hostname": host,
        "database.port": str(port),
        "database.user": user,
        "database.password": "unused",
        "database.dbname": name,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.orders",
        "topic.prefix": SHOP,
        "decimal.handling.mode": "string",
        "exactly.once.support": "required",
        **{
            f"{part}.converter{setting}": value
            for part in ("key", "value")
            for setting, value in (("", json_converter), (".schemas.enable", "false"))
        },
    }


def change(rows: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Insert new rows, update some and delete the oldest, each statement a transaction."""
    for turn in range(ROUNDS):
        first = SNAPSHOT + turn * INSERTS + 1
        rows.execute(INSERT, (first, first + INSERTS - 1))
        updated = 500 + turn * UPDATES
        rows.execute(
            "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s",
            (updated, updated + UPDATES - 1),
        )
        deleted = turn * DELETES
        rows.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", (deleted + 1, deleted + DELETES))


class Merger:
    """Merges the events of each micro-batch into a Delta table. A batch that is repeated after a crash changes nothing:
    it sets each row to the same values."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.applied = self.commits = 0

    def start(self, spark: "SparkSession", folder: Path) -> "StreamingQuery":
        source = spark.readStream.format("millpond").option("path", str(folder / "data"))
        source = source.option("subscribe", TOPIC).option("startingOffsets", "earliest")
        stream = source.option("kafka.isolation.level", "read_committed").load()
        writer = stream.where("value IS NOT NULL").writeStream.foreachBatch(self.merge)
        checkpoint = str(folder / "checkpoint")
        return writer.option("checkpointLocation", checkpoint).trigger(processingTime="1 second").start()

    def merge(self, batch: "DataFrame", _: int) -> None:
        from deltalake import DeltaTable

        changes = latest(batch).toArrow()
        if changes.num_rows == 0:
            return
        target = DeltaTable.create(
            str(self.table), changes.select(COLUMNS).schema, mode="ignore", name="orders"
        )
        values = {column: f"s.{column}" for column in COLUMNS}
        merger = target.merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
        merger = merger.when_matched_delete("s.deleted")
        merger = merger.when_matched_update(values, predicate="NOT s.deleted")
        merger.when_not_matched_insert(values, predicate="NOT s.deleted").execute()
        self.applied += sum(changes["events"].to_pylist())
        self.commits += 1

    def wait(self, events: int, query: "StreamingQuery") -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while self.applied < events:
            if (error := query.exception()) is not None:
                raise error
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.applied} of {events} events after {WAIT_SECONDS_MAX} s")
            time.sleep(0.2)


def latest(batch: "DataFrame") -> "DataFrame":
    """The last state of each row that the batch changes, with the number of its events."""
    event = f.from_json(f.col("value").cast("string"), EVENT)
    events = batch.select("offset", event.alias("event")).select("offset", "event.*")
    key = f.coalesce("after.id", "before.id").alias("id")
    last = f.max_by(f.struct("op", "after"), "offset").alias("last")
    return (
        events.groupBy(key)
        .agg(last, f.count("*").alias("events"))
        .selectExpr(
            "id",
            "last.after.customer AS customer",
            "CAST(last.after.amount AS DECIMAL(12, 2)) AS amount",
            "last.after.note AS note",
            "last.op = 'd' AS deleted",
            "events",
        )
    )


def delta_rows(table: Path) -> Sequence[Row]:
    from deltalake import DeltaTable

    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted(tuple(row[column] for column in COLUMNS) for row in found)


if __name__ == "__main__":
    sys.exit(0 if main(Path(sys.argv[1] if len(sys.argv) > 1 else "./cdc-demo")) else 1)
