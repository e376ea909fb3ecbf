"""The two brokers. Apache Kafka is a process that checks retention every second and expires whole segments. Every batch
of a case fills more than half of a segment, so that each has its own. Millpond runs in this process without a grace
period, and its passes are called, one a second: by itself it checks a partition with nothing to expire every 30 s only.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.broker import Broker
from millpond.testing import running_broker
from millpond.testing.background import run_in_background
from peers import kafka

CHECK_INTERVAL_MS: Final = 1_000
SEGMENT_BYTES: Final = 4_096
PADDING_BYTES: Final = 2_600
"""Random bytes in the first record of every batch."""
KAFKA_SETTINGS: Final = {
    "log.retention.check.interval.ms": str(CHECK_INTERVAL_MS),
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class TestedBroker:
    """`configs` are topic configs of this broker only. `run_pass` runs one pass of retention; Kafka runs its own."""

    __test__ = False

    name: str
    address: str
    configs: Mapping[str, str]
    run_pass: Callable[[], None]


@contextmanager
def kafka_broker(folder: Path) -> Iterator[TestedBroker]:
    with kafka.running(folder, KAFKA_SETTINGS) as server:
        configs = {"internal.segment.bytes": str(SEGMENT_BYTES)}
        yield TestedBroker("Kafka", server.address, configs, lambda: None)


@contextmanager
def millpond_broker(folder: Path) -> Iterator[TestedBroker]:
    context = running_broker(folder, kafka=True, retention_grace=0)
    broker = run_in_background(context.__aenter__())
    try:
        yield TestedBroker(
            "Millpond", broker.listeners["kafka"], {}, lambda: run_in_background(_pass(broker))
        )
    finally:
        run_in_background(context.__aexit__(None, None, None))


async def _pass(broker: Broker) -> None:
    await broker.maintenance.merging.run_once()
    await broker.maintenance.retention.run_now()
