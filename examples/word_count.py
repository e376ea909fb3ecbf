"""Count words from topic to topic with plain Structured Streaming, exactly once.

    python examples/word_count.py ./millpond-data

Reads the topic `lines`, keeps a running count of every word and writes each change to the topic `counts`: key = word,
value = count so far. It takes what is there and stops; run it again and it goes on with what came meanwhile, from its
checkpoint. Leave `availableNow` away and it runs until it is stopped. (A query that only appends needs no
`foreachBatch`: `writeStream.format("millpond")` is exactly once by itself. Changed rows, `update`, Spark gives to no
data source written in Python.)
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from millpond.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"
"""Where Spark says which query is running. The id is kept in the checkpoint: delete that, and it is another query."""


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
        """A micro-batch that is repeated after a crash has the same query and number, and is not written again."""
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        writer = batch.write.format("millpond").option("path", str(data)).option("topic", "counts")
        writer.option("txnAppId", query_id).option("txnVersion", number).mode("append").save()

    query = changes.writeStream.foreachBatch(publish).outputMode("update")
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "./millpond-data")
    count_words(session("word-count"), directory, directory / "checkpoints" / "word-count")
