"""Batch reads: every column of every row of a topic, compared with Parquet and with Spark's Kafka source."""

import contextlib
from collections.abc import Callable

from benchmarks.report import Report
from benchmarks.spark.environment import Workplace, drain, fill, interleaved, rates, ratio

SIZES = ((100, 2_000_000, 4), (1_000, 400_000, 16))
"""(bytes per value, rows, partitions)"""


def measure(report: Report, place: Workplace) -> None:
    report.section(
        "Reading a topic",
        "Whole rows into Spark's `noop` sink, `local[2]`. Values are random bytes, keys 12 bytes. Kafka is Apache "
        "Kafka on the same machine with the same rows in as many partitions, read by Spark's own source.",
    )
    rows = [row for size, count, partitions in SIZES for row in _measure(place, size, count, partitions)]
    report.table(("rows", "what", "rows/s", "MB/s of values", "ours to it"), rows)


def _measure(place: Workplace, size: int, count: int, partitions: int) -> list[tuple[str, ...]]:
    name = f"read-{size}"
    fill(place.data, name, partitions=partitions, rows=place.rows(count), value_bytes=size)
    total = place.topic(name).count()
    parquet = str(place.parquet_of(name))
    actions: dict[str, Callable[[], object]] = {
        "millpond": lambda: drain(place.topic(name)),
        "millpond, value only": lambda: drain(place.topic(name).select("value")),
        "Parquet": lambda: drain(place.spark.read.parquet(parquet)),
    }
    with contextlib.ExitStack() as stack:
        if place.has_connector:
            address = stack.enter_context(place.kafka())
            _copy_to_kafka(place, address, name, parquet, partitions)
            actions["Spark's Kafka source"] = lambda: drain(place.kafka_topic(address, name))
        seconds = interleaved(actions)
    what = f"{total:,} of {size} B, {partitions} partitions"
    return [
        (what, each, *rates(total, size, taken), ratio(taken, seconds["millpond"]))
        for each, taken in seconds.items()
    ]


def _copy_to_kafka(place: Workplace, address: str, name: str, parquet: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(name, partitions)]).values():
        made.result(30)
    frame = place.spark.read.parquet(parquet).select("key", "value", "partition")
    frame.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", name).save()
