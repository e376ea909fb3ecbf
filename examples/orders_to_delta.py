"""Write a topic of JSON orders to a Delta table, and query the table with SQL.

    python examples/orders_to_delta.py ./millpond-data ./orders-table

You can run it repeatedly: each run adds the new orders, once. Orders that are not JSON go to
`./orders-table_quarantine`.
"""

import sys
from pathlib import Path

from millpond.spark import Place, session
from millpond.spark.pipelines.job import PipelineJob
from millpond.spark.pipelines.sql import SqlRequest, SqlResult, run_sql
from millpond.spark.pipelines.table import TableRequest, run
from millpond.spark.tables.values.spec import json_values

QUESTION = "SELECT customer, sum(amount) AS total FROM sales GROUP BY customer ORDER BY total DESC"


def add_orders(job: PipelineJob, table: Path) -> dict[str, object]:
    """Add the new orders of the topic `orders` as rows of the table."""
    values = json_values("customer STRING, amount DECIMAL(12, 2)")
    return run(job, TableRequest(topics=("orders",), location=str(table), values=values))


def best_customers(job: PipelineJob, table: Path) -> SqlResult:
    return run_sql(job, SqlRequest(QUESTION, limit=10, tables={"sales": str(table)}))


if __name__ == "__main__":
    data, place = (Path(argument) for argument in (sys.argv[1:] or ["./millpond-data", "./orders-table"]))
    the_job = PipelineJob(Place.at(data), lambda: session("orders-to-delta"))
    report = add_orders(the_job, place)
    lines = [f"{report['rows']} new rows, {report['quarantined']} in quarantine, version {report['version']}"]
    lines += [f"{customer:20} {total}" for customer, total in best_customers(the_job, place).rows]
    sys.stdout.write("\n".join(lines) + "\n")
