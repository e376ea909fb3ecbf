"""A broker in a process of its own that a test can kill, trace and restart. Run as a script, told by JSON lines.

It says what happens on its standard output, one JSON list a line, with `writev`: a test that kills at every `write`
means the broker's, not these. Every life starts with `["ready", …]`.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from millpond import Broker, MillpondError, Record, Settings, TopicPartition
from millpond.records import build_batch

SMALL, LARGE = 120, 20_000
IN_FLIGHT_MAX = 3


def say(*words: object) -> None:
    os.writev(1, [json.dumps(words).encode() + b"\n"])


async def hear(reader: asyncio.StreamReader) -> list[object]:
    line = await reader.readline()
    return json.loads(line) if line else ["stop"]


def value_of(producer: int, number: int, size: int) -> bytes:
    """A value that names itself, so that a reader can tell whose it is and that it is whole."""
    name = b"%d:%d:" % (producer, number)
    return name + bytes([number % 251]) * (size - len(name))


@dataclass
class Producer:
    """One sender to one partition. What it has sent and not heard of is sent again by its next life, first."""

    number: int
    partition: int
    producer_id: int
    next_number: int = 0
    unanswered: list[tuple[int, int, int]] = field(default_factory=list)
    """(first number, count, size) of each batch; for an idempotent producer the number is the sequence."""

    @property
    def idempotent(self) -> bool:
        return self.producer_id >= 0

    def batch(self, first: int, count: int, size: int, now_ms: int) -> bytearray:
        records = [Record(value_of(self.number, first + n, size)) for n in range(count)]
        sequence = {"producer_id": self.producer_id, "producer_epoch": 0, "base_sequence": first}
        return bytearray(build_batch(records, now_ms=now_ms, **(sequence if self.idempotent else {})))


async def produce(broker: Broker, topic_id: bytes, producer: Producer, rng: random.Random) -> None:
    """Send without end, a few batches in flight, in order. An answer is said the moment it is known."""
    topic_partition = TopicPartition(topic_id, producer.partition)
    retries = list(producer.unanswered)
    room = asyncio.Semaphore(IN_FLIGHT_MAX if producer.idempotent else 1)
    following = producer.next_number

    async def answer(future: "asyncio.Future[object]", first: int, count: int) -> None:
        result = await future
        say("ack", producer.number, first, count, result.base_offset)
        room.release()

    async with asyncio.TaskGroup() as answers:
        while True:
            if retries:
                first, count, size = retries.pop(0)
            else:
                first, count = following, rng.choice((1, 1, 3))
                size = rng.choice((SMALL, SMALL, LARGE))
                following = first + count
                await asyncio.sleep(rng.uniform(0, 0.004))
            await room.acquire()
            say("sent", producer.number, first, count, size)
            batch = producer.batch(first, count, size, broker.clock.now_ms())
            answers.create_task(answer(await broker.log.submit(topic_partition, batch), first, count))


async def upkeep(broker: Broker) -> None:
    while True:
        await asyncio.sleep(0.03)
        await broker.maintenance.merging.run_once()
        await broker.maintenance.garbage.run_once()


async def load(broker: Broker, plan: dict) -> None:
    """Until killed: several producers at once, merging and garbage collection all the while."""
    rng = random.Random(plan["seed"])
    topic_partition = broker.log.topics.partition("load", 0)
    say("ready", {str(p.topic_partition.partition): p.end_offset for p in broker.log.partitions()})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(upkeep(broker))
        for each in plan["producers"]:
            each["unanswered"] = [tuple(batch) for batch in each["unanswered"]]
            tasks.create_task(
                produce(broker, topic_partition.topic_id, Producer(**each), random.Random(rng.random()))
            )


async def steps(broker: Broker) -> None:
    """What the test says, step by step: append bytes, merge, collect; each answered with what came of it."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await asyncio.gather(*(broker.log.in_pool(lambda: __import__("time").sleep(0.02)) for _ in range(4)))
    threads = {thread.name: thread.native_id for thread in threading.enumerate()}
    say("ready", {"session": broker.session, "threads": threads})
    failed = asyncio.create_task(broker.failed())
    while (words := await hear(reader))[0] != "stop":
        try:
            say("done", *await step(broker, *words))
        except MillpondError as error:
            await asyncio.sleep(0.01)
            say("refused", type(error).__name__, error.retriable, failed.done(), str(error))
    failed.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await failed


async def step(broker: Broker, action: str, *arguments: object) -> list[object]:
    if action == "append":
        number, size = arguments
        return [(await broker.produce("steps", value_of(0, number, size))).base_offset]
    if action == "merge":
        return [await broker.maintenance.merging.run_once()]
    if action == "read":
        return [len(await broker.read("steps", *arguments))]
    raise ValueError(action)


async def main(plan: dict) -> None:
    chosen = {"garbage_grace": 0, "disk_reserve": 0, **plan.get("settings", {})}
    settings = Settings(data_dir=Path(plan["data_dir"]), **chosen)
    async with Broker(settings, maintain=False) as broker:
        await (load(broker, plan) if plan["mode"] == "load" else steps(broker))


def fork_server() -> None:
    """Fork a child for each line: importing everything once makes a test of a hundred children bearable."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin.buffer.raw:
        order = json.loads(line)
        if pid := os.fork():
            say(pid)
            continue
        os.dup2(os.open(order["stdin"], os.O_RDONLY), 0)
        os.dup2(os.open(order["stdout"], os.O_WRONLY), 1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.stdin = os.fdopen(0, closefd=False)
        asyncio.run(main(order["plan"]))
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]))) if len(sys.argv) > 1 else fork_server()
