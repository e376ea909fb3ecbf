"""What a sink was given and what is stored, without Spark and without a broker."""

from pathlib import Path

import pyarrow as pa

from millpond.catalog import partitions, published_settings, topics
from millpond.catalog.open import open_database
from millpond.catalog.published_settings import PublishedSettings
from millpond.records import Record, iter_records, walk
from millpond.spark.place import Place, database, prepare, reader

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
READ_BYTES = 1 << 30


def make_place(path: Path) -> Place:
    """A data directory with a catalog, as a broker leaves it."""
    path.mkdir(exist_ok=True)
    place = Place.at(path)
    open_database(place.catalog).migrate()
    return place


def make_topic(place: Place, name: str, partitions: int = 1, **config: str):
    named = {key.replace("_", "."): value for key, value in config.items()}
    with prepare(place).write() as tx:
        return topics.create(tx, name, partitions, named, now_ms=1)


def publish(place: Place, **settings) -> None:
    """As a broker with these settings does it."""
    with prepare(place).write() as tx:
        published_settings.publish(tx, PublishedSettings(**settings))


def batch(**columns: list) -> pa.RecordBatch:
    arrays = {name: pa.array(values, type=TYPES[name]) for name, values in columns.items()}
    return pa.record_batch(arrays)


def buffers(place: Place, topic: str) -> dict[int, list[bytearray]]:
    """The bytes of each partition, stamped and checked."""
    with database(place).read() as tx:
        rows = partitions.of_topic(tx, topics.find(tx, topic).id)
    found = {}
    for row in rows:
        offset, runs = row.log_start, []
        while offset < row.end_offset:
            more = reader(place).read_runs(row.topic_partition, offset, READ_BYTES)
            runs += [run.data for run in more]
            offset = more[-1].end_offset
        found[row.topic_partition.partition] = runs
    return found


def stored(place: Place, topic: str) -> dict[int, list[Record]]:
    """The records of each partition."""
    return {
        partition: [
            record for data in runs for record in iter_records(data, decompressed_bytes_max=READ_BYTES)
        ]
        for partition, runs in buffers(place, topic).items()
    }


def headers_of(place: Place, topic: str) -> list:
    """The batch headers, partition by partition."""
    return [header for runs in buffers(place, topic).values() for data in runs for _, header in walk(data)]


def values(place: Place, topic: str) -> list[bytes]:
    return [record.value for records in stored(place, topic).values() for record in records]


def living_sessions(place: Place) -> set[str]:
    with database(place).read() as tx:
        return {row[0] for row in tx.rows("SELECT session FROM writers WHERE dead_since IS NULL")}
