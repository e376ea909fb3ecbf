"""A streaming job of its own: `python driver.py <rows> <data> <checkpoint>` copies files of lines into topic `t`."""

import sys

from millpond.spark import session


def main(rows: str, data: str, checkpoint: str) -> None:
    spark = session(
        "sink-under-test", master="local[2]", fast_start=True, config={"spark.driver.memory": "512m"}
    )
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(rows)
    query = (
        lines.selectExpr("value AS key", "value")
        .repartition(2)
        .writeStream.format("millpond")
        .options(path=data, topic="t", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
