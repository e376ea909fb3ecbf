"""Shared by the sections: the session, the folders, filled topics, and timing."""

import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.home import Unavailable
from pyspark.sql import DataFrame, SparkSession

from millpond import Broker, Settings
from millpond.records import Record, build_batch
from millpond.spark import session
from peers import kafka, programs

ROUNDS = 2
RECORDS_PER_BATCH = 5_000
DISTINCT_BATCHES = 40
KEYS = 200_000


@dataclass(frozen=True)
class Workplace:
    spark: SparkSession
    path: Path
    has_connector: bool
    quick: bool

    @property
    def data(self) -> Path:
        return self.path / "millpond"

    def rows(self, count: int) -> int:
        return count // 10 if self.quick else count

    def topic(self, name: str, **options: str) -> DataFrame:
        source = self.spark.read.format("millpond").option("path", str(self.data)).option("subscribe", name)
        return source.options(**options).load()

    def parquet_of(self, name: str) -> Path:
        """The rows of a topic as Parquet, written once, in twice as many files as there are cores."""
        target = self.path / "parquet" / name
        if not target.exists():
            self.topic(name).write.parquet(str(target))
        return target

    @contextlib.contextmanager
    def kafka(self) -> Iterator[str]:
        with kafka.running(self.path / "kafka") as server:
            yield server.address

    def kafka_topic(self, address: str, name: str) -> DataFrame:
        source = self.spark.read.format("kafka").option("kafka.bootstrap.servers", address)
        return source.option("subscribe", name).load()


def connector_jars() -> str:
    """The jars of Spark's Kafka connector; empty where peers are not available."""
    try:
        return ",".join(map(str, sorted(programs.spark_jars().glob("*.jar"))))
    except Unavailable as error:
        print(f"without Spark's Kafka connector: {error}", file=sys.stderr)
        return ""


def spark_session(path: Path, jars: str) -> SparkSession:
    config = {
        "spark.local.dir": str(path / "spark"),
        "spark.driver.memory": "4g",
        "spark.sql.warehouse.dir": str(path / "warehouse"),
    }
    if jars:
        config["spark.jars"] = jars
    return session("millpond-bench", master="local[2]", config=config, log_level="ERROR")


def fill(path: Path, topic: str, *, partitions: int, rows: int, value_bytes: int, **config: str) -> None:
    """Create a topic of `rows` records of random bytes, with keys from a set of `KEYS`, in batches like those
    of a busy producer."""
    asyncio.run(_fill(path, topic, partitions, rows, value_bytes, config))


async def _fill(
    path: Path, topic: str, partitions: int, rows: int, value_bytes: int, config: dict[str, str]
) -> None:
    per_batch = max(min(RECORDS_PER_BATCH, 900_000 // (value_bytes + 40)), 1)
    chance = random.Random(7)
    now_ms = time.time_ns() // 1_000_000
    batches = [
        build_batch(
            [
                Record(os.urandom(value_bytes), b"key-%08d" % chance.randrange(KEYS), timestamp=now_ms)
                for _ in range(per_batch)
            ]
        )
        for _ in range(min(DISTINCT_BATCHES, max(rows // per_batch, 1)))
    ]
    async with Broker(Settings(data_dir=path), maintain=False) as broker:
        await broker.log.create_topic(topic, partitions, config)
        pending: list[asyncio.Future[object]] = []
        for number in range(max(rows // per_batch, 1)):
            topic_partition = broker.log.topics.partition(topic, number % partitions)
            pending.append(
                await broker.log.submit(topic_partition, bytearray(batches[number % len(batches)]))
            )
            if len(pending) >= 64:
                await asyncio.gather(*pending)
                pending.clear()
        await asyncio.gather(*pending)


def drain(frame: DataFrame) -> None:
    """Read every column of every row, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def interleaved(actions: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each action, after one discarded round."""
    samples: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name, action in actions.items():
            seconds = timed(action)
            print(f"   {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
            if number:
                samples[name].append(seconds)
    return {name: statistics.median(each) for name, each in samples.items()}


def ratio(ours: float, theirs: float | None) -> str:
    return "" if not theirs else f"{ours / theirs:.2f}"


def rates(rows: int, size: int, seconds: float) -> tuple[str, str]:
    return f"{rows / seconds / 1e6:.2f} M", f"{rows * size / seconds / 1e6:,.0f}"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
