"""A Spark job that counts the messages of a topic as they come, by partition, and prints the counts.

It reads with Spark's own Kafka connector; Millpond's own Spark source comes later. `BOOTSTRAP_SERVERS` and `TOPIC` say
what it reads. With `ONCE=true` it counts what is there and ends.
"""

import os

from pyspark.sql import DataFrame, SparkSession


def messages(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def main() -> None:
    spark = SparkSession.builder.appName("millpond-count").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    counts = (
        messages(spark, os.environ["BOOTSTRAP_SERVERS"], os.environ["TOPIC"]).groupBy("partition").count()
    )
    writer = counts.writeStream.format("console").outputMode("complete")
    if os.environ.get("ONCE") == "true":
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
