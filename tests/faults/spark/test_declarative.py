"""The declarative example as a project of its own, run by Spark's own command in a JVM of its own."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.spark.topics import append, serving

from millpond.records import Record
from millpond.spark import Place
from millpond.spark.pipelines.job import PipelineJob

EXAMPLES = Path(__file__).parents[3] / "examples"

TIMEOUT_S = 300

HIVE = ("--conf", "spark.sql.catalogImplementation=hive")
"""Without it a second run does not find the tables of the first. It takes a while to start."""

QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


async def add(data: Path, topic: str, values: Sequence[bytes], *, also: Sequence[str] = ()) -> None:
    async with serving(data) as broker:
        for name in (topic, *also):
            if name not in {each.name for each in broker.log.topics.all()}:
                await broker.log.create_topic(name, 1, {})
        await append(broker, topic, 0, [Record(value) for value in values])


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
    (topic,) = PipelineJob(place, lambda: None).topics(["large-orders"])
    runs = reader(place).read_runs(TopicPartition(topic.id, 0), 0, 10**6)
    found = [record for run in runs for record in iter_records(run.data, decompressed_bytes_max=10**6)]
    return [(record.key, record.value) for record in found]
