"""Count words from topic to topic with plain Structured Streaming, exactly once.

    python examples/word_count.py ./millpond-data

It reads the topic `lines`, keeps a running count of every word and writes each change to the topic `counts`:
the key is the word, the value is the count so far. It processes the available lines and stops. Run it again,
and it continues from its checkpoint with the lines that arrived since. Without `availableNow` it runs until
it is stopped. (A query that only appends needs no `foreachBatch`: `writeStream.format("millpond")` is itself
exactly-once. Spark does not support output mode `update` for data sources written in Python.)
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from millpond.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"
"""The property with the id of the running query. The id is kept in the checkpoint: without the checkpoint it
is another query."""


def count_words(spark: "SparkSession", data: Path, checkpoint: Path) -> None:
    lines = (
        spark.readStream.format("millpond")
        .option("path", str(data))
        .option("subscribe", "lines")
        .option("startingOffsets", "earliest")
        .load()
    )
    words = lines.select(f.explode(f.split(f.lower(f.col("value").cast("string")), r"\W+")).alias("word"))
    counts = words.where("word <> ''").groupBy("word").count()
    changes = counts.select(f.col("word").alias("key"), f.col("count").cast("string").alias("value"))

    def publish(batch: "DataFrame", number: int) -> None:
        """A micro-batch that is repeated after a crash has the same query id and number, and is not written
        again."""
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        writer = batch.write.format("millpond").option("path", str(data)).option("topic", "counts")
        writer.option("txnAppId", query_id).option("txnVersion", number).mode("append").save()

    query = changes.writeStream.foreachBatch(publish).outputMode("update")
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "./millpond-data")
    count_words(session("word-count"), directory, directory / "checkpoints" / "word-count")
