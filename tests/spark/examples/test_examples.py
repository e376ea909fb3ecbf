"""Every example runs, on topics of a real broker, and does what its first lines say."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.spark.topics import append, fill, serving

from millpond.records import Record
from millpond.spark import Place
from millpond.spark.pipelines.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 300
HIVE = ("--conf", "spark.sql.catalogImplementation=hive")
"""Without it a second run does not find the tables of the first. It takes a while to start."""
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def add(data: Path, topic: str, values: Sequence[bytes], *, also: Sequence[str] = ()) -> None:
    async with serving(data) as broker:
        for name in (topic, *also):
            if name not in {each.name for each in broker.log.topics.all()}:
                await broker.log.create_topic(name, 1, {})
        await append(broker, topic, 0, [Record(value) for value in values])


def messages(spark: "SparkSession", data: Path, topic: str) -> list[tuple[str, str]]:
    frame = spark.read.format("millpond").option("path", str(data)).option("subscribe", topic).load()
    rows = frame.orderBy("offset").selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    return [tuple(row) for row in rows]


def test_words_are_counted_from_topic_to_topic_over_two_runs(tmp_path: Path, spark: "SparkSession"):
    data, count_words = tmp_path / "data", example("word_count.py").count_words
    asyncio.run(add(data, "lines", [b"the mill, the pond", b"the stream"], also=["counts"]))
    count_words(spark, data, tmp_path / "checkpoint")
    assert dict(messages(spark, data, "counts")) == {"the": "3", "mill": "1", "pond": "1", "stream": "1"}
    asyncio.run(add(data, "lines", [b"The pond"]))
    count_words(spark, data, tmp_path / "checkpoint")
    assert sorted(messages(spark, data, "counts")[4:]) == [("pond", "2"), ("the", "4")]
    shutil.rmtree(tmp_path / "checkpoint")
    count_words(spark, data, tmp_path / "checkpoint")
    counted = dict(messages(spark, data, "counts")[6:])
    assert counted == {"the": "4", "mill": "1", "pond": "2", "stream": "1"}, "another query begins anew"


def test_orders_become_a_delta_table_that_answers_sql(tmp_path: Path, spark: "SparkSession"):
    module, data, table = example("orders_to_delta.py"), tmp_path / "data", tmp_path / "table"
    job = Job(Place.at(data), lambda: spark)
    orders = [b'{"customer": "a", "amount": 1.50}', b'{"customer": "b", "amount": 7}', b"no order"]
    asyncio.run(add(data, "orders", orders))
    report = module.add_orders(job, table)
    assert (report["rows"], report["quarantined"]) == (2, 1)
    asyncio.run(add(data, "orders", [b'{"customer": "a", "amount": 8}']))
    module.add_orders(job, table)
    assert module.best_customers(job, table).rows == (("a", Decimal("9.50")), ("b", Decimal("7.00")))


def test_a_query_goes_on_from_the_checkpoint_that_sparks_kafka_source_wrote(
    tmp_path: Path, spark: "SparkSession"
):
    async def make() -> None:
        async with serving(tmp_path / "data") as broker:
            await fill(broker, "orders", 2, 5)

    asyncio.run(make())
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    shutil.copytree(EXAMPLES / "migrate_checkpoint/checkpoint", checkpoint)
    (out / "_spark_metadata").mkdir(parents=True)
    (out / "_spark_metadata/0").write_text("v1")  # what the query itself has written before; here no files
    example("migrate_checkpoint/migrate.py").go_on(spark, tmp_path / "data", checkpoint, out)
    rows = (
        spark.read.parquet(str(out))
        .orderBy("partition", "offset")
        .select("partition", "offset", "value")
        .collect()
    )
    assert [tuple(row) for row in rows] == [(0, 3, "v0-3"), (0, 4, "v0-4"), (1, 4, "v1-4")]


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_declarative_project_reads_a_topic_and_writes_another(tmp_path: Path, java: None, runs: int):
    pytest.importorskip("grpc_status", reason="Declarative Pipelines need pyspark[pipelines]")
    project, data = tmp_path / "project", tmp_path / "data"
    shutil.copytree(EXAMPLES / "declarative", project)
    orders = [b'{"customer": "a", "amount": 10}', b'{"customer": "b", "amount": 200}']
    asyncio.run(add(data, "orders", orders, also=["large-orders"]))
    for number in range(runs):
        run_project(project, data, *(HIVE if runs > 1 else ()))
        asyncio.run(add(data, "orders", [b'{"customer": "a", "amount": %d}' % (300 + number)]))
    assert large_orders(data) == [(b"b", b"200"), (b"a", b"300")][:runs]


def run_project(project: Path, data: Path, *options: str) -> None:
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///STORAGE", (project / "storage").as_uri()))
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", str(spec), *options]
    given = {"MILLPOND_DATA": str(data), "PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    environment = {**os.environ, **given}
    with (project / "log").open("wb") as log:
        done = subprocess.run(
            command, cwd=project, env=environment, stdout=log, stderr=log, timeout=TIMEOUT_S, check=False
        )
    assert done.returncode == 0, (project / "log").read_text()[-3_000:]


def large_orders(data: Path) -> list[tuple[bytes, bytes]]:
    from millpond.model.ids import TopicPartition
    from millpond.records import iter_records
    from millpond.spark.place import reader

    place = Place.at(data)
    (topic,) = Job(place, lambda: None).topics(["large-orders"])
    runs = reader(place).read_runs(TopicPartition(topic.id, 0), 0, 10**6)
    found = [record for run in runs for record in iter_records(run.data, decompressed_bytes_max=10**6)]
    return [(record.key, record.value) for record in found]
