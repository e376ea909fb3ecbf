"""Members of one new group, started together in this process: measures when they have their assignments and
the first message.

Prints `first_s`, `all_s` and `generations` as JSON.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import aiokafka
import confluent_kafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

TOPIC, GROUP = "work", "workers"
SECONDS_MAX = 120.0
POLL_S = 0.02

Figures = dict[str, float]


class Tally:
    """The partitions of each member. It is done when each member has one partition, and the first message was
    read."""

    def __init__(self, members: int) -> None:
        self.began = time.perf_counter()
        self.done = asyncio.Event()
        self._assigned: list[set[int]] = [set() for _ in range(members)]
        self._first_s: float | None = None
        self._all_s: float | None = None

    def assign(self, member: int, partitions: set[int]) -> None:
        self._assigned[member] = partitions
        if all(self._assigned) and sum(map(len, self._assigned)) == len(self._assigned):
            self._all_s = time.perf_counter() - self.began
        self._look()

    def read(self) -> None:
        if self._first_s is None:
            self._first_s = time.perf_counter() - self.began
        self._look()

    def _look(self) -> None:
        if self._first_s is not None and self._all_s is not None:
            self.done.set()

    def figures(self) -> Figures:
        assert self._first_s is not None, "it is done"
        assert self._all_s is not None, "it is done"
        return {"first_s": self._first_s, "all_s": self._all_s}


class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no type information
    def __init__(self, tally: Tally, member: int) -> None:
        self._tally, self._member = tally, member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._tally.assign(self._member, set())

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._tally.assign(self._member, {each.partition for each in assigned})


async def with_aiokafka(address: str, members: int, generations: Callable[[], int]) -> Figures:
    consumers = [
        aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
        )
        for _ in range(members)
    ]
    tally = Tally(members)
    for number, consumer in enumerate(consumers):
        consumer.subscribe([TOPIC], listener=Listener(tally, number))
    working = [asyncio.create_task(_work(consumer, tally)) for consumer in consumers]
    async with asyncio.timeout(SECONDS_MAX):
        await tally.done.wait()
    figures = {**tally.figures(), "generations": generations()}
    for task in working:
        task.cancel()
    await asyncio.gather(*working, *(consumer.stop() for consumer in consumers), return_exceptions=True)
    return figures


async def _work(consumer: Any, tally: Tally) -> None:
    await consumer.start()
    async for _ in consumer:
        tally.read()


def with_librdkafka(address: str, members: int, generations: Callable[[], int]) -> Figures:
    config = {
        "bootstrap.servers": address,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
    }
    tally = Tally(members)
    consumers = [confluent_kafka.Consumer(config) for _ in range(members)]
    for number, consumer in enumerate(consumers):
        _subscribe(consumer, tally, number)
    give_up = time.perf_counter() + SECONDS_MAX
    while not tally.done.is_set():
        assert time.perf_counter() < give_up, "the members never got their partitions"
        for consumer in consumers:
            message = consumer.poll(POLL_S / members)
            if message is not None and message.error() is None:
                tally.read()
    figures = {**tally.figures(), "generations": generations()}
    for consumer in consumers:
        consumer.close()
    return figures


def _subscribe(consumer: Any, tally: Tally, member: int) -> None:
    def assigned(_: Any, partitions: Any) -> None:
        tally.assign(member, {each.partition for each in partitions})

    def revoked(_: Any, __: Any) -> None:
        tally.assign(member, set())

    consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=revoked)


async def prepare(address: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, partitions, 1)])
    await admin.close()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)


def stored_generation(catalog: str) -> int:
    """The broker stores each generation before its members receive it."""
    with closing(sqlite3.connect(f"file:{catalog}?mode=ro", uri=True)) as database:
        found: int = database.execute(
            "SELECT generation FROM groups WHERE group_id = ?", (GROUP,)
        ).fetchone()[0]
    return found


def main() -> None:
    wanted = json.loads(sys.argv[1])
    address, members = wanted["address"], wanted["members"]
    asyncio.run(prepare(address, members))

    def generations() -> int:
        return stored_generation(wanted["catalog"])

    if wanted["client"] == "aiokafka":
        figures = asyncio.run(with_aiokafka(address, members, generations))
    else:
        figures = with_librdkafka(address, members, generations)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
