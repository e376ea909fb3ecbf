"""The roles of PostgreSQL in the threat model, tried: the documented statements are what is executed here."""

import asyncio
import re
from pathlib import Path
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from millpond.broker import Broker
from millpond.catalog.postgres import PostgresDatabase
from millpond.model.errors import InvalidSettings
from millpond.settings import Settings
from millpond.spark import place, sink, source

PAGE = Path(__file__).parents[3] / "docs/explanation/threat-model.md"
BEFORE, AFTER = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
VALUE = StructType([StructField("value", BinaryType())])
SECRET_TABLES = ("scram_credentials", "api_tokens", "acls", "quotas", "sessions")


@pytest.fixture(scope="module")
def as_role(postgres_url):
    """The URL of a database of its own, for a role."""
    host = psycopg.conninfo.conninfo_to_dict(postgres_url)["host"]

    def url(role, database="roles"):
        return f"postgresql://{role}@/{database}?host={quote(host, safe='')}"

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE roles")
    try:
        with psycopg.connect(url("postgres"), autocommit=True) as connection:
            connection.execute(BEFORE)
        yield url
    finally:
        place.close_all()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP DATABASE roles WITH (FORCE)")
            for role in ("broker", "writer", "reader"):
                connection.execute(f"DROP ROLE IF EXISTS millpond_{role}")


@pytest.fixture(scope="module")
def options(as_role, tmp_path_factory):
    """What jobs are given, by role. A broker with its own role has created the tables, and a topic with a message."""
    storage = tmp_path_factory.mktemp("store").as_uri()
    settings = Settings(catalog=as_role("millpond_broker"), storage=storage, disk_reserve=0)
    asyncio.run(_produce(settings, b"one"))
    with psycopg.connect(as_role("millpond_broker"), autocommit=True) as connection:
        connection.execute(AFTER)
    return lambda role: {"catalog": as_role(f"millpond_{role}"), "storage": storage}


def read(options):
    """As Spark does it, without a JVM."""
    asked = {**options, "subscribe": "orders"}
    reader = source.reader(asked, source.schema(asked))
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    return [bytes(value) for batch in batches for value in batch.column("value").to_pylist()]


def test_a_reader_reads_and_a_writer_writes(options):
    assert read(options("reader")) == [b"one"]
    asked = {**options("writer"), "topic": "orders"}
    rows = pa.record_batch({"value": pa.array([b"two"], pa.binary())})
    writer = sink.writer(asked, VALUE, False)
    writer.commit([writer.write(iter([rows]))])
    assert read(options("reader")) == [b"one", b"two"]


def test_neither_sees_users_tokens_or_secrets(options, as_role):
    for role in ("reader", "writer"):
        with psycopg.connect(as_role(f"millpond_{role}"), autocommit=True) as connection:
            for table in SECRET_TABLES:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT * FROM {table}")
    with psycopg.connect(as_role("millpond_writer"), autocommit=True) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM meta")}
    assert "schema_version" in names
    assert not any("secret" in name for name in names)


def test_a_reader_reads_no_meta_and_changes_nothing(options, as_role):
    with psycopg.connect(as_role("millpond_reader"), autocommit=True) as connection:
        for statement in ("SELECT * FROM meta", "DELETE FROM extents", "UPDATE partitions SET epoch = 0"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
    with pytest.raises(InvalidSettings, match="permission denied for table meta"):
        sink.writer({**options("reader"), "topic": "orders"}, VALUE, False)


def test_the_secrets_are_still_there_for_brokers(options, as_role):
    database = PostgresDatabase(as_role("millpond_broker"))
    with database.read() as tx:
        assert {"security_secret", "ack_secret"} <= {name for (name,) in tx.rows("SELECT name FROM meta")}
    database.close()


async def _produce(settings, value):
    async with Broker(settings) as broker:
        await broker.produce("orders", value)
