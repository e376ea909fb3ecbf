"""The live producer beside a load: a process (`live_producer.py`), so that the load does not share its interpreter."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.kafka.load import fresh_topic
from benchmarks.kafka.subjects import Subject

RECORD_BYTES: Final = 100
PAUSE_S: Final = 0.005

Samples = list[tuple[float, float]]
"""When a record was produced, on the machine's monotonic clock, and how long its acknowledgement took."""


class LiveProducer:
    """Its samples, once it has ended."""

    def __init__(self) -> None:
        self.samples: Samples = []

    def between(self, begin_s: float, end_s: float) -> list[float]:
        """Latencies of the records that were produced in that time."""
        return [seconds for at, seconds in self.samples if begin_s <= at <= end_s]


@contextmanager
def running(subject: Subject, topic: str) -> Iterator[LiveProducer]:
    """The producer for the length of a `with` block, from its first acknowledgement on."""
    command = [sys.executable, "-m", "benchmarks.backfill.live_producer", subject.address, topic]
    command += [str(RECORD_BYTES), str(PAUSE_S)]
    found = LiveProducer()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield found
        finally:
            process.stdin.close()
            found.samples = [(at, seconds) for at, seconds in json.loads(process.stdout.read())]


def idle(subject: Subject, seconds: float) -> list[float]:
    """Latencies without any load."""
    with fresh_topic(subject, 1) as topic:
        with running(subject, topic) as producer:
            begin_s = time.monotonic()
            time.sleep(seconds)
            end_s = time.monotonic()
        return producer.between(begin_s, end_s)
