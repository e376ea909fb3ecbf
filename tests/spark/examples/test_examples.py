"""Every example runs, on topics of a real broker, and does what its first lines say."""

import asyncio
import importlib.util
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.topics import append, fill, serving

from millpond.records import Record
from millpond.spark import Place
from millpond.spark.pipelines.job import PipelineJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"


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
    job = PipelineJob(Place.at(data), lambda: spark)
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


def test_the_declarative_project_declares_tables_and_a_sink_over_topics(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
):
    """Its queries run here on the shared session; `tests/faults/spark` runs the project as its page says."""
    pytest.importorskip("grpc_status", reason="Declarative Pipelines need pyspark[pipelines]")
    from pyspark.pipelines.graph_element_registry import (
        GraphElementRegistry,
        graph_element_registration_context,
    )

    class Declared(GraphElementRegistry):
        def __init__(self) -> None:
            self.outputs: set[str] = set()
            self.flows: dict[str, Any] = {}
            self.targets: dict[str, str] = {}

        def register_output(self, output: Any) -> None:
            self.outputs.add(output.name)

        def register_flow(self, flow: Any) -> None:
            self.flows[flow.name] = flow.func
            self.targets[flow.name] = flow.target

        def register_auto_cdc_flow(self, flow: Any) -> None:
            raise AssertionError

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            raise AssertionError

    data, declared = tmp_path / "data", Declared()
    orders = [b'{"customer": "a", "amount": 10}', b'{"customer": "b", "amount": 200}']
    asyncio.run(add(data, "orders", orders, also=["large-orders"]))
    monkeypatch.setenv("MILLPOND_DATA", str(data))
    with graph_element_registration_context(declared):
        example("declarative/transformations/orders.py")
    assert declared.outputs == {"orders", "customers", "large_orders"}
    assert declared.targets["large"] == "large_orders"
    stream = declared.flows["orders"]().writeStream.format("memory").queryName("orders")
    stream.trigger(availableNow=True).start().awaitTermination()
    try:
        assert sorted(map(tuple, declared.flows["customers"]().collect())) == [("a", 10), ("b", 200)]
    finally:
        spark.catalog.dropTempView("orders")
