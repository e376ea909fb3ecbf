"""The sink: appends rows to a topic exactly once, compared with Spark's Kafka sink, which is at-least-once."""

import contextlib
from collections.abc import Callable
from itertools import count

from benchmarks.report import Report
from benchmarks.spark.environment import Workplace, fill, interleaved, rates, ratio

ROWS = 1_000_000
SIZE = 100
PARTITIONS = 4


def measure(report: Report, place: Workplace) -> None:
    report.section(
        "Writing to a topic",
        f"Rows with values of {SIZE} bytes and keys, read from a cached DataFrame, into {PARTITIONS} "
        "partitions. Ours commits once, fsynced and exactly once; Kafka's sink has acks=all, without fsync.",
    )
    source = f"read-{SIZE}"
    if not (place.path / "parquet" / source).exists():
        fill(place.data, source, partitions=PARTITIONS, rows=place.rows(ROWS), value_bytes=SIZE)
    parquet = str(place.parquet_of(source))
    frame = place.spark.read.parquet(parquet).select("key", "value").limit(place.rows(ROWS)).cache()
    total = frame.count()
    frame = frame.repartition(4).cache()
    frame.count()
    numbers = count()
    create = {"createTopics": "true", "partitions": str(PARTITIONS)}

    def ours() -> None:
        sink = frame.write.format("millpond").mode("append").options(path=str(place.data), **create)
        sink.option("topic", f"written-{next(numbers)}").save()

    actions: dict[str, Callable[[], object]] = {"millpond": ours}
    with contextlib.ExitStack() as stack:
        if place.has_connector:
            address = stack.enter_context(place.kafka())
            actions["Spark's Kafka sink"] = lambda: _to_kafka(frame, address, f"written-{next(numbers)}")
        seconds = interleaved(actions)
    frame.unpersist()
    rows = [
        (each, *rates(total, SIZE, taken), ratio(taken, seconds["millpond"]))
        for each, taken in seconds.items()
    ]
    report.table(("sink", "rows/s", "MB/s of values", "ours to it"), rows)


def _to_kafka(frame: object, address: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(
        {"bootstrap.servers": address}
    )  # keeps a reference: otherwise it would be closed before the response
    for made in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        made.result(30)
    frame.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic).save()  # type: ignore[attr-defined]
