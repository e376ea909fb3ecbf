"""The query of a job that read from Kafka, after the migration: the format and one option are new, the
checkpoint is the old one.

    python examples/migrate_checkpoint/migrate.py ./millpond-data ./checkpoint ./out
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def go_on(spark: "SparkSession", data: Path, checkpoint: Path, out: Path) -> None:
    orders = (
        spark.readStream.format("millpond")  # was: kafka
        .option("path", str(data))  # was: kafka.bootstrap.servers
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    (
        orders.selectExpr(
            "partition", "offset", "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
        )
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(out))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    topic_partition = [Path(argument) for argument in sys.argv[1:4]]
    go_on(session("migrated"), *topic_partition)
