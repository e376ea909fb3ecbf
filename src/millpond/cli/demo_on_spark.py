"""The Spark part of the demo: writes the topic to a Delta table and queries the table with SQL."""

from typing import TYPE_CHECKING, Final

import click

from millpond.cli.output import Stopwatch
from millpond.cli.temporary_broker import TemporaryBroker
from millpond.model.errors import MillpondError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = "order BIGINT, customer STRING, total DOUBLE"
QUESTION: Final = """
    SELECT customer, count(*) AS orders, round(sum(total), 2) AS revenue
    FROM orders GROUP BY customer ORDER BY revenue DESC LIMIT 3
"""
PACKAGES: Final = "pip install 'millpond[spark,tables]', and Java 17 or 21"


def show_on_spark(broker: TemporaryBroker) -> str:
    click.echo(
        "10. The orders as a Delta table, and a question in SQL; Spark reads files and catalog, not the broker"
    )
    if (missing := _missing()) is not None:
        click.echo(f"   skipped: {missing} (try: {PACKAGES})")
        return f"skipped: {missing}"
    from millpond.spark import session

    watch = Stopwatch()
    log = broker.data_dir.parent / "spark.log"
    spark = session("millpond-demo", master="local[2]", fast_start=True, log_level="ERROR", jvm_log=log)
    started = watch.seconds
    click.echo(f"   Spark started after {started:.1f} s")
    try:
        return _table_and_answer(spark, broker, started)
    finally:
        spark.stop()


def _table_and_answer(spark: "SparkSession", broker: TemporaryBroker, started: float) -> str:
    from millpond.spark import Place
    from millpond.spark.pipelines.job import PipelineJob
    from millpond.spark.pipelines.sql import SqlRequest, run_sql
    from millpond.spark.pipelines.table import TableRequest, run
    from millpond.spark.tables.values.spec import json_values

    job = PipelineJob(Place.at(broker.data_dir), lambda: spark)
    location = str(broker.data_dir.parent / "tables" / "orders")
    watch = Stopwatch()
    report = run(job, TableRequest(("orders",), location, values=json_values(SCHEMA)))
    table_s = watch.seconds
    click.echo(f"   {report['rows']:,} rows in a Delta table after {table_s:.1f} s")
    watch = Stopwatch()
    answer = run_sql(job, SqlRequest(QUESTION, tables={"orders": location}))
    answer_s = watch.seconds
    for customer, orders, revenue in answer.rows:
        click.echo(f"   {customer}: {orders:,} orders, {revenue:,.2f}")
    if report["quarantined"] or len(answer.rows) != 3:
        raise MillpondError("The demo failed: the table lacks rows. Please report it.")
    return f"{report['rows']:,} rows to Delta in {table_s:.1f} s, an answer in {answer_s:.1f} s (start {started:.1f} s)"


def _missing() -> str | None:
    try:
        import deltalake  # noqa: F401  # only checks that it is installed
        import numba  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    from millpond.spark.sessions import java_command

    return "there is no Java" if java_command() is None else None
