"""kill -9 at random moments of a busy broker, again and again (reliability test 1).

A child process serves several producers at once, idempotent ones among them, while extents are merged and garbage
is collected. It says each batch before it sends it and each answer when it has it; what was not answered its next
life sends again, as an application would. At the end the log must hold exactly that history.
"""

import collections
import fcntl
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millpond.testing import running_broker

DRIVER = Path(__file__).with_name("driver.py")
PARTITIONS = 3
PRODUCERS = 6
KILL_AFTER_MS = (10, 500)
PIPE_BYTES = 1 << 20
"""The child must never wait for us to listen."""


class Sender:
    """What the test knows of one producer: what it sent, and what it was told."""

    def __init__(self, number):
        self.number = number
        self.idempotent = number % 2 == 0
        self.producer_id = 1_000 + number if self.idempotent else -1
        self.partition = number % PARTITIONS
        self.next_number = 0
        self.unanswered = {}
        self.doubtful = set()
        self.acknowledged = {}

    def sent(self, first, count, size):
        self.unanswered[first] = (first, count, size)
        self.next_number = max(self.next_number, first + count)

    def ack(self, first, count, offset):
        _, _, size = self.unanswered.pop(first)
        for n in range(count):
            self.acknowledged[first + n] = (offset + n, size)

    def plan(self):
        """For its next life. A non-idempotent batch that is sent again may now be there twice."""
        if not self.idempotent:
            self.doubtful |= {first + n for first, count, _ in self.unanswered.values() for n in range(count)}
        return {
            "number": self.number,
            "partition": self.partition,
            "producer_id": self.producer_id,
            "next_number": self.next_number,
            "unanswered": sorted(self.unanswered.values()),
        }


def live_and_die(data_dir, senders, rng, *, at_start):
    """One life of the broker. Returns the milliseconds from its start until it served; None if unknown."""
    plan = {
        "mode": "load",
        "data_dir": str(data_dir),
        "seed": rng.random(),
        "producers": [each.plan() for each in senders],
    }
    command = [sys.executable, str(DRIVER), json.dumps(plan)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as child:
        fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        if at_start:
            time.sleep(rng.uniform(0.2, 0.6))
            child.kill()
        ready = child.stdout.readline()
        ready_ms = (time.perf_counter() - started) * 1000
        if not at_start:
            time.sleep(rng.uniform(*KILL_AFTER_MS) / 1000)
            child.kill()
        said, errors = child.communicate()
    assert not errors, errors.decode()
    if ready:
        check_starting_ends(senders, json.loads(ready)[1])
    for line in said.splitlines(keepends=True):
        if line.endswith(b"\n"):
            kind, number, *words = json.loads(line)
            getattr(senders[number], kind)(*words)
    return None if at_start else ready_ms


def check_starting_ends(senders, ends):
    """A life begins at or after everything that was acknowledged before it."""
    for each in senders:
        newest = max((offset for offset, _ in each.acknowledged.values()), default=-1)
        assert ends[str(each.partition)] > newest


async def read_partition(broker, number):
    records, offset = [], 0
    while more := await broker.read("load", offset, partition=number):
        records += more
        offset = more[-1].offset + 1
    return records


def check_partition(records, senders):
    """Dense offsets, whole values, every answer where it was said to be, each producer's order kept. Returns
    how many records are there more than once."""
    assert [record.offset for record in records] == list(range(len(records)))
    places = collections.defaultdict(list)
    for record in records:
        producer, number, rest = record.value.split(b":", 2)
        assert set(rest) == {int(number) % 251}
        places[int(producer), int(number)].append(record.offset)
    duplicates = 0
    for each in senders:
        mine = {number: offsets for (producer, number), offsets in places.items() if producer == each.number}
        for number, (offset, size) in each.acknowledged.items():
            assert offset in mine[number], f"producer {each.number} lost {number}"
            assert len(records[offset].value) == size
        twice = {number for number, offsets in mine.items() if len(offsets) > 1}
        assert twice <= (set() if each.idempotent else each.doubtful)
        firsts = [min(mine[number]) for number in sorted(mine)]
        assert firsts == sorted(firsts), f"producer {each.number} is out of order"
        assert sorted(mine) == list(range(len(mine))), f"producer {each.number} has gaps"
        duplicates += sum(len(mine[number]) - 1 for number in twice)
    return duplicates


@pytest.mark.parametrize("cycles", [25, pytest.param(250, marks=pytest.mark.long)])
async def test_kill_minus_nine_at_random_moments_loses_nothing_acknowledged(tmp_path, cycles, figures):
    rng = random.Random(cycles)
    senders = [Sender(number) for number in range(PRODUCERS)]
    async with running_broker(tmp_path) as broker:
        await broker.log.create_topic("load", PARTITIONS)
    ready_ms = []
    for cycle in range(cycles):
        took_ms = live_and_die(tmp_path, senders, rng, at_start=cycle % 8 == 7)
        ready_ms += [took_ms] if took_ms else []
    duplicates = 0
    async with running_broker(tmp_path, tail_bytes_max=0) as broker:
        for number in range(PARTITIONS):
            mine = [each for each in senders if each.partition == number]
            duplicates += check_partition(await read_partition(broker, number), mine)
    acknowledged = sum(len(each.acknowledged) for each in senders)
    assert acknowledged > cycles * 20
    quantiles = statistics.quantiles(ready_ms, n=100)
    figures.append(
        f"kill -9: {cycles} cycles, acknowledged {acknowledged}, lost 0, duplicates {duplicates} (all of unanswered "
        f"non-idempotent appends), process start to serving p50 {quantiles[49]:.0f} ms, p99 {quantiles[98]:.0f} ms"
    )
