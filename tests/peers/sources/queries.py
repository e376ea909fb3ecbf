"""The same questions to Spark's Kafka source on Apache Kafka and on our Kafka interface, and to `format("millpond")`.

`python queries.py PLACES FOLDER`: PLACES is JSON with addresses and the path, jars are in `PEERS_SPARK_JARS`. Prints
one line of JSON: reader to question to answer.
"""
# ruff: noqa: BLE001  # an error is an answer

import json
import os
import sys
from pathlib import Path

from millpond.spark import session

BATCH = {
    "all of it": {},
    "headers": {"includeHeaders": "true"},
    "one partition assigned": {"assign": '{"mixed": [1]}'},
    "a pattern": {"subscribePattern": "mix.*|plai."},
    "several topics": {"subscribe": "mixed,plain"},
    "from offsets": {"startingOffsets": '{"mixed": {"0": 5, "1": -2, "2": 3}}'},
    "up to offsets": {"endingOffsets": '{"mixed": {"0": 5, "1": -1, "2": 3}}'},
    "between offsets": {
        "startingOffsets": '{"mixed": {"0": 5, "1": 5, "2": 5}}',
        "endingOffsets": '{"mixed": {"0": 9, "1": 9, "2": 5}}',
    },
    "from a time": {"startingTimestamp": "1700000010000"},
    "up to a time": {"endingTimestamp": "1700000010000"},
    "times by partition": {
        "startingOffsetsByTimestamp": '{"mixed": {"0": 1700000005000, "1": 1700000000000, "2": 1700000012000}}',
        "endingOffsetsByTimestamp": '{"mixed": {"0": 1700000015000, "1": 1700000003000, "2": 1700000012000}}',
    },
    "a time beats offsets": {"startingTimestamp": "1700000010000", "startingOffsets": "earliest"},
    "a time beats times by partition": {
        "startingTimestamp": "1700000010000",
        "startingOffsetsByTimestamp": '{"mixed": {"0": 0, "1": 0, "2": 0}}',
    },
    "times by partition beat offsets": {
        "startingOffsetsByTimestamp": '{"mixed": {"0": 1700000010000, "1": 1700000010000, "2": 1700000010000}}',
        "startingOffsets": '{"mixed": {"0": 0, "1": 0, "2": 0}}',
    },
    "a time nobody has reached": {"startingTimestamp": "1900000000000"},
    "a time nobody has reached, latest": {
        "startingTimestamp": "1900000000000",
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "only what is committed": {"kafka.isolation.level": "read_committed"},
    "many partitions": {"minPartitions": "7"},
    "few records in each": {"maxRecordsPerPartition": "4"},
    "fetch tuning": {"kafkaConsumer.pollTimeoutMs": "5000", "fetchOffset.numRetries": "2"},
    "latest as a start": {"startingOffsets": "latest"},
    "earliest as an end": {"endingOffsets": "earliest"},
    "offsets that are no JSON": {"startingOffsets": "{mixed"},
    "offsets of a partition too few": {"startingOffsets": '{"mixed": {"0": 5}}'},
    "offsets of another topic": {"startingOffsets": '{"other": {"0": 5}}'},
    "two ways to choose": {"assign": '{"mixed": [1]}', "subscribe": "mixed"},
    "a topic that is not there": {"subscribe": "nowhere"},
    "offsets past the end": {"startingOffsets": '{"plain": {"0": 500}}', "subscribe": "plain"},
    "a strategy nobody knows": {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "maybe"},
    "no records in a partition": {"maxRecordsPerPartition": "0"},
}
STREAM = {
    "all at once": {"startingOffsets": "earliest"},
    "seven at a time": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"},
    "from offsets": {
        "startingOffsets": '{"mixed": {"0": 5, "1": -2, "2": -1}}',
        "maxOffsetsPerTrigger": "100",
    },
    "from a time": {"startingTimestamp": "1700000010000"},
}
CHOOSES = ("assign", "subscribe", "subscribePattern")
ROW = [
    "topic",
    "partition",
    "offset",
    "cast(key as string) k",
    "cast(value as string) v",
    "unix_millis(timestamp) t",
]
ROW += ["timestampType"]


class Reader:
    """One of the three: a format, and the options that say where."""

    def __init__(self, spark, kind, options, folder):
        self.spark, self.kind, self.options, self.folder = spark, kind, options, folder

    def _with(self, source, options):
        chosen = {} if any(name in options for name in CHOOSES) else {"subscribe": "mixed"}
        return source.format(self.kind).options(**self.options, **chosen, **options)

    def batch(self, options):
        frame = self._with(self.spark.read, options).load()
        headers = ["to_json(headers) h"] if "includeHeaders" in options else []
        return sorted((list(row) for row in frame.selectExpr(*ROW, *headers).collect()), key=str)

    def stream(self, name, options):
        """Rows, how many batches there were, and the offsets that the query ended at."""
        rows = []
        frame = self._with(self.spark.readStream, options).load().selectExpr(*ROW)

        def keep(batch, number):
            rows.extend(list(row) for row in batch.collect())

        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.folder / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        busy = [each for each in query.recentProgress if each["numInputRows"]]
        ends = json.loads(busy[-1]["sources"][0]["endOffset"]) if busy else None
        return {"rows": sorted(rows, key=str), "batches": len(busy), "ends": ends}


def asked(question, *arguments):
    try:
        return question(*arguments)
    except Exception as error:
        return {"error": type(error).__name__}


def continued(first, second, folder, produce_more):
    """A query begun by one source and gone on with by the other, on one checkpoint."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    before = first.stream(folder, options)
    produce_more()
    after = Reader(second.spark, second.kind, second.options, first.folder).stream(folder, options)
    return {"before": before["rows"], "after": after["rows"], "ends": after["ends"]}


def main():
    places, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    spark = session(
        "millpond-peers",
        master="local[2]",
        config={
            "spark.jars": os.environ["PEERS_SPARK_JARS"],
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        fast_start=True,
        log_level="OFF",
    )
    readers = {
        "kafka": Reader(spark, "kafka", {"kafka.bootstrap.servers": places["kafka"]}, folder / "kafka"),
        "interface": Reader(
            spark, "kafka", {"kafka.bootstrap.servers": places["interface"]}, folder / "interface"
        ),
        "millpond": Reader(spark, "millpond", {"path": places["path"]}, folder / "millpond"),
    }
    answers = {name: {} for name in readers}
    for name, reader in readers.items():
        for question, options in BATCH.items():
            answers[name][question] = asked(reader.batch, options)
        for question, options in STREAM.items():
            key = question.replace(" ", "-")
            answers[name][f"stream: {question}"] = asked(reader.stream, key, options)
    answers["moved"] = {}
    for a, b in (("interface", "millpond"), ("millpond", "interface")):
        more = lambda a=a: produce(places["interface"], f"after {a}")  # noqa: E731  # one line each
        answers["moved"][f"{a} to {b}"] = asked(continued, readers[a], readers[b], f"moved-from-{a}", more)
    print(json.dumps(answers))
    spark.stop()


def produce(address, text):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})
    for partition in range(3):
        for number in range(4):
            producer.produce(
                "mixed",
                f"{text} {number}".encode(),
                b"more",
                partition=partition,
                timestamp=1_700_000_100_000,
            )
    producer.flush()


if __name__ == "__main__":
    main()
