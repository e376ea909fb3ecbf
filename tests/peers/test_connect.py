"""Kafka Connect: distributed workers with the file connectors, exactly once from a file into a topic."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from peers.connect import FILE_SINK, FILE_SOURCE, Worker
from tests.peers.committed import end, values
from tests.peers.support import available, eventually, shows

from peers import connect

CLIENT = "Kafka Connect"
LINES = 10_000
KILLS = 2
ZOMBIE_LINES = 6_000
SOURCE = {
    "connector.class": FILE_SOURCE,
    "batch.size": "20",
    "producer.override.transaction.timeout.ms": "10000",
}
"""A batch is a transaction. A worker that starts waits for the open transactions of one that was killed to time out, in
Kafka, too; the default is 60 s."""
SINK = {
    "connector.class": FILE_SINK,
    "consumer.override.isolation.level": "read_committed",
    "consumer.override.session.timeout.ms": "6000",
}
"""The group of a sink waits that long for the consumer of a worker that was killed; the default is 45 s."""
Start = Callable[..., Worker]


@pytest.fixture
def start(bootstrap: str, prefix: str, tmp_path: Path) -> Iterator[Start]:
    """Starts workers of one Connect cluster."""
    available(connect.jars)
    with ExitStack() as stack:

        def started(name: str = "worker", **settings: str) -> Worker:
            worker = Worker(tmp_path / name, bootstrap, f"{prefix}-connect", settings)
            return stack.enter_context(worker)

        yield started


def read_file(worker: Worker, file: Path, topic: str) -> None:
    worker.configure(
        f"{topic}-source",
        {**SOURCE, "file": str(file), "topic": topic},
    )


def write_file(worker: Worker, name: str, topic: str, file: Path) -> None:
    worker.configure(name, {**SINK, "topics": topic, "file": str(file)})


def numbered(first: int, count: int) -> list[str]:
    return [f"line {number} {secrets.token_hex(20)}" for number in range(first, first + count)]


def append(file: Path, *lines: str) -> list[str]:
    with file.open("a") as out:
        out.write("".join(f"{line}\n" for line in lines))
    return list(lines)


def wait_for_line(file: Path, line: str) -> list[str]:
    eventually(lambda: file.exists() and line in file.read_text().splitlines())
    return file.read_text().splitlines()


@shows(
    CLIENT, "copies a file into a topic exactly once while its worker is killed, and the topic into a file"
)
def test_kills(start, bootstrap, prefix, tmp_path, counted):
    source, sink, copy = (tmp_path / name for name in ("source.txt", "sink.txt", "copy.txt"))
    lines = append(source, *numbered(0, LINES))
    worker = start()
    read_file(worker, source, prefix)
    write_file(worker, f"{prefix}-sink", prefix, sink)
    for kill in range(1, KILLS + 1):
        eventually(lambda part=kill: end(bootstrap, prefix) > LINES * part // (KILLS + 1))
        worker.kill()
        assert end(bootstrap, prefix) < LINES
        worker.start()
        worker.wait_for(f"{prefix}-source", "RUNNING")
    lines += append(source, "the end")  # the connector emits the rest of its buffer when more arrives
    delivered = wait_for_line(sink, "the end")
    assert values(bootstrap, prefix) == lines
    assert list(dict.fromkeys(delivered)) == lines  # a sink to a file is at least once
    write_file(worker, f"{prefix}-copy", prefix, copy)
    assert wait_for_line(copy, "the end") == lines
    assert worker.offsets(f"{prefix}-source")[0]["offset"] == {"position": source.stat().st_size}
    repeats = len(delivered) - len(lines)
    counted(
        f"{len(lines):,} lines, {KILLS} kills: each once and in order in the topic, and in a file that a sink wrote; "
        f"{repeats:,} lines twice in the file of the sink that was killed"
    )


@shows(CLIENT, "a worker that was paused is fenced when it wakes up; its task ran elsewhere meanwhile")
def test_zombie(start, bootstrap, prefix, tmp_path, counted):
    source = tmp_path / "source.txt"
    lines = append(source, *numbered(0, ZOMBIE_LINES))
    first = start("first")
    read_file(first, source, prefix)
    eventually(lambda: end(bootstrap, prefix) > ZOMBIE_LINES // 4)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = start("second")
        second.wait(lambda: _runs_on(second, f"{prefix}-source"), "the task did not move")
        lines += append(source, "the end")
        eventually(lambda: "the end" in values(bootstrap, prefix)[-1:])
    finally:
        os.kill(first.pid, signal.SIGCONT)
    fenced = ("ProducerFencedException", "InvalidProducerEpochException", "ProducerFenced")
    eventually(lambda: any(word in first.log for word in fenced))
    lines += append(source, "after the end")
    eventually(lambda: "after the end" in values(bootstrap, prefix)[-1:])
    assert values(bootstrap, prefix) == lines
    counted(f"{len(lines):,} lines, one worker stopped and continued: each line once and in order")


def _runs_on(worker: Worker, connector: str) -> bool:
    tasks = worker.get(f"/connectors/{connector}/status")["tasks"]
    return [(task["state"], task["worker_id"]) for task in tasks] == [("RUNNING", worker.worker_id)]


@shows(CLIENT, "keeps its connectors, offsets and status in compacted topics")
def test_topics(start, bootstrap, prefix, counted):
    start()
    names = {
        f"{prefix}-connect-{kind}": count for kind, count in (("configs", 1), ("offsets", 5), ("status", 5))
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.list_topics(timeout=30).topics
    assert {name: len(described[name].partitions) for name in names} == names
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    assert [found.result()["cleanup.policy"].value for found in asked.values()] == ["compact"] * 3
    counted("3 topics")


@shows(CLIENT, "pauses, stops and resumes connectors; their offsets are shown, altered and reset")
def test_pause_and_reset(start, bootstrap, prefix, tmp_path, counted):
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = append(source, "one", "two")
    worker = start()
    read_file(worker, source, prefix)
    write_file(worker, f"{prefix}-sink", prefix, sink)
    assert wait_for_line(sink, "two") == lines
    worker.change(f"{prefix}-source", "pause", "PAUSED")
    lines += append(source, "three")
    worker.change(f"{prefix}-source", "stop", "STOPPED")
    assert values(bootstrap, prefix) == ["one", "two"]
    worker.change(f"{prefix}-source", "resume", "RUNNING")
    assert wait_for_line(sink, "three") == lines

    worker.change(f"{prefix}-source", "stop", "STOPPED")
    place = {"filename": str(source)}
    altered = [{"partition": place, "offset": {"position": len("one\n")}}]
    worker.request("PATCH", f"/connectors/{prefix}-source/offsets", {"offsets": altered})
    assert worker.offsets(f"{prefix}-source") == altered
    worker.change(f"{prefix}-source", "resume", "RUNNING")
    eventually(lambda: values(bootstrap, prefix) == [*lines, "two", "three"])
    worker.change(f"{prefix}-source", "stop", "STOPPED")
    worker.request("DELETE", f"/connectors/{prefix}-source/offsets")
    assert worker.get(f"/connectors/{prefix}-source/offsets")["offsets"] == []
    worker.change(f"{prefix}-source", "resume", "RUNNING")
    eventually(lambda: values(bootstrap, prefix) == [*lines, "two", "three", *lines])

    eventually(lambda: len(sink.read_text().splitlines()) == 8)
    worker.change(f"{prefix}-sink", "stop", "STOPPED")
    position = worker.offsets(f"{prefix}-sink")[0]
    assert position["partition"] == {"kafka_topic": prefix, "kafka_partition": 0}
    worker.request("DELETE", f"/connectors/{prefix}-sink/offsets")
    worker.change(f"{prefix}-sink", "resume", "RUNNING")
    eventually(lambda: len(sink.read_text().splitlines()) == 16)
    assert sink.read_text().splitlines() == 2 * [*lines, "two", "three", *lines]
    counted("3 lines, altered to 2 of them, and reset: 8 in the topic; the sink reset: 16 in the file")
