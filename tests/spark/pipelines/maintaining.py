"""What the tests of the maintenance pipelines keep saying."""

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from tests.spark.topics import serving

from millpond.catalog import extents as catalog_extents
from millpond.catalog.sqlite import SqliteDatabase
from millpond.maintenance.disk_space import SpaceCheck, without_limit
from millpond.maintenance.garbage import Garbage
from millpond.maintenance.merging import Merging
from millpond.model.ids import TopicPartition
from millpond.records import iter_records
from millpond.spark.pipelines import merge
from millpond.spark.pipelines.job import PipelineJob
from millpond.spark.pipelines.merge import MergeItem
from millpond.spark.place import Place, database, reader, store

MIB = 1024 * 1024
DAY_MS = 24 * 60 * 60 * 1000
NO_SPARK = object()
"""For tests that perform tasks in their own process."""


def place_of(path: Path | Place) -> Place:
    return path if isinstance(path, Place) else Place.at(path)


def job_at(path: Path | Place, spark=None, **named) -> PipelineJob:
    """A job on a data directory; without `spark`, starting it is an error."""

    def start():
        assert spark is not None, "there was nothing to do, and Spark was started all the same"
        return spark

    return PipelineJob(place_of(path), start, **named)


def rows(path: Path | Place, sql: str, *parameters):
    with database(place_of(path)).read() as tx:
        return tx.rows(sql, parameters)


def change(path: Path, sql: str, *parameters) -> None:
    """Behind everybody's back."""
    other = SqliteDatabase(path / "catalog.db")
    with other.write() as tx:
        tx.rows(sql, parameters)
    other.close()


def partition(path: Path | Place, topic: str, number: int = 0) -> TopicPartition:
    [(topic_id,)] = rows(path, "SELECT id FROM topics WHERE name = ? AND deleted_at IS NULL", topic)
    return TopicPartition(bytes(topic_id), number)


def stored(path: Path | Place, topic: str, number: int = 0):
    """(offset, key, value) of everything that is stored of a partition, from its log start on."""
    topic_partition = partition(path, topic, number)
    [(offset, end)] = rows(
        path,
        "SELECT log_start, end_offset FROM partitions WHERE topic_id = ? AND partition = ?",
        *topic_partition,
    )
    found = []
    while offset < end:
        runs = reader(place_of(path)).read_runs(topic_partition, offset, 8 * MIB)
        if not runs:
            break
        for run in runs:
            records = iter_records(run.data, decompressed_bytes_max=64 * MIB)
            found += [(r.offset, r.key, r.value) for r in records if r.offset >= offset]
        offset = runs[-1].end_offset
    return found


def extents(path: Path | Place, topic: str, number: int = 0):
    """(base, end, key of the object or None) in order."""
    return rows(
        path,
        "SELECT e.base_offset, e.end_offset, o.key FROM extents e LEFT JOIN objects o ON o.id = e.object_id"
        " WHERE e.topic_id = ? AND e.partition = ? ORDER BY e.base_offset",
        *partition(path, topic, number),
    )


def objects(path: Path | Place) -> set[str]:
    return set(store(place_of(path)).list(""))


def sessions(path: Path) -> tuple[int, int]:
    """How many Spark writers live, and how many are dead."""
    living = rows(path, "SELECT count(*) FROM writers WHERE kind = 'spark' AND dead_since IS NULL")
    dead = rows(path, "SELECT count(*) FROM writers WHERE kind = 'spark' AND dead_since IS NOT NULL")
    return living[0][0], dead[0][0]


async def collect_garbage(broker) -> int:
    """As a broker does it, without grace."""
    garbage = Garbage(broker.log.upkeep, broker.store, broker.session, broker.clock, grace_ms=-1)
    return await garbage.run_once()


async def collect_at(path: Path, **settings) -> int:
    async with serving(path, **settings) as broker:
        return await collect_garbage(broker)


async def merge_in_broker(broker) -> int:
    space = SpaceCheck(without_limit, broker.metrics.maintenance)
    return await Merging(broker.log.upkeep, broker.store, broker.session, broker.clock, space).run_once()


def expire_leases(path: Path) -> None:
    """As if the lease of every Spark task that ever lived were over."""
    change(path, "UPDATE writers SET expires_at = 0 WHERE kind = 'spark'")


def merge_extents(path: Path, topic: str, number: int, chosen: slice) -> None:
    """Merge these extents of a partition into one, here and now, as a task and its commit do."""
    job, topic_partition = job_at(path), partition(path, topic, number)
    with job.database.read() as tx:
        group = tuple(catalog_extents.facts(tx, topic_partition, 0, 1_000)[chosen])
    item = MergeItem(job.place, topic_partition, (group,))
    assert merge._commit(job, item, merge.work(item), merge.MergeTotals())


def new_postgres(url: str, name: str) -> str:
    """The address of an empty database on the same server."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name}")
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
