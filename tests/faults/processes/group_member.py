"""One member of a group, as a process that can be killed or paused: it logs what it owns, reads and commits, line by
line, and leaves in order at SIGTERM.

    python -m tests.faults.processes.group_member '{"kind": "classic", "kafka": […], "grpc": […], "topic": …, …}'

The order of the lines carries the proofs of `group_judge`: messages are logged before their position is committed,
and a partition is logged as revoked before the client tells the coordinator. A commit is logged, with the time at
which it was sent, once the coordinator has accepted it. Times are those of the monotonic clock, which all processes
share.
"""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka

import millpond

MILLPOND = "millpond"
KINDS = ("classic", "consumer", "static", MILLPOND)
"""`consumer` and `static` use the consumer protocol, and so does `millpond`, the consumer of this project's library."""
SESSION_MS = 6_000
HEARTBEAT_MS = 500
POLL_SECONDS = 0.2
MESSAGES_MAX = 100
RETRY_SECONDS = 0.5

Place = tuple[str, int]
Log = Callable[..., None]


def log(event: str, partitions: Sequence[str] = (), **fields: object) -> None:
    line = {"at": time.monotonic(), "event": event, "partitions": partitions}
    sys.stdout.write(json.dumps(line | fields) + "\n")
    sys.stdout.flush()


def config(wanted: Mapping[str, Any]) -> dict[str, Any]:
    kind = wanted["kind"]
    found: dict[str, Any] = {
        "bootstrap.servers": ",".join(wanted["kafka"]),
        "group.id": wanted["group"],
        "fetch.wait.max.ms": 100,
        "socket.timeout.ms": SESSION_MS,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
    }
    if kind == "classic":
        found["session.timeout.ms"] = SESSION_MS
        found["heartbeat.interval.ms"] = HEARTBEAT_MS
        found["partition.assignment.strategy"] = wanted["assignor"]
    else:
        found["group.protocol"] = "consumer"
    if kind == "static":
        found["group.instance.id"] = wanted["name"]
    return found


class MillpondMember:
    """The same with the consumer of this project's library, which takes over, gives up and commits inside its polls.
    All of it runs in one thread, so that the order of the lines is that of the events."""

    def __init__(self, addresses: Sequence[str], topic: str, group: str, log: Log) -> None:
        self._topic = topic
        self._log = log
        self._runner = asyncio.Runner()
        self._runner.run(self._open(addresses, group))

    async def _open(self, addresses: Sequence[str], group: str) -> None:
        self._consumer = millpond.AsyncConsumer(self._topic, group=group, address=addresses)
        (self._reader,), self._member = self._consumer._readers, self._consumer._member
        self._take_over, self._give_up = self._reader.take_over, self._reader.give_up
        self._commit, self._leave = self._member.commit, self._member.leave
        self._reader.take_over, self._reader.give_up = self._assigned, self._revoked
        self._member.commit, self._member.leave = self._committed, self._left

    async def _assigned(self, topic_id: str, numbers: frozenset[int]) -> bool:
        is_read = await self._take_over(topic_id, numbers)
        if is_read:
            self._log("assigned", self._names(numbers))
        return is_read

    def _revoked(self, topic_id: str, number: int) -> None:
        self._log("revoked" if self._member.is_joined else "lost", self._names([number]))
        self._give_up(topic_id, number)

    async def _committed(self, request: Any) -> None:
        sent = time.monotonic()
        offsets = {name((self._topic, number)): at - 1 for number, at in request.read_from.items()}
        try:
            await self._commit(request)
        except millpond.MillpondError as error:
            self._log("refused", sorted(offsets), reason=type(error).__name__)
            raise
        self._log("committed", sorted(offsets), sent=sent, offsets=offsets)

    async def _left(self) -> None:
        self._log("revoked", self._names(self._reader.positions))
        await self._leave()

    def _names(self, numbers: Iterable[int]) -> list[str]:
        return names([(self._topic, number) for number in numbers])

    def step(self) -> None:
        self._runner.run(self._step())

    async def _step(self) -> None:
        try:
            polled = await self._consumer.poll(POLL_SECONDS, messages_max=MESSAGES_MAX)
            offsets: dict[str, list[int]] = {}
            for message in polled.messages:
                offsets.setdefault(name((self._topic, message.partition)), []).append(message.offset)
            if offsets:
                self._log("read", offsets=offsets)
                await self._consumer.commit()
        except millpond.errors.GroupError:
            pass  # logged as refused
        except millpond.MillpondError as error:
            if not error.retriable:
                raise
            self._log("failed", reason=str(error))

    def close(self) -> None:
        """What it cannot commit because no broker responds is read again."""
        try:
            self._runner.run(self._consumer.close())
        except millpond.MillpondError as error:
            self._log("failed", reason=str(error))
        self._runner.close()


class Fatal(Exception):
    """librdkafka's consumer can go on only as a new one, such as a static member whose name is still taken."""


class Member:
    """A consumer of librdkafka that reads, says what it has read, and commits it, step by step."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._clock = clock
        self._owned: set[Place] = set()
        self._next: dict[Place, int] = {}
        """Positions after what was read, of partitions that it owns."""
        given = {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        self._consumer = confluent_kafka.Consumer({**given, **config})
        self._consumer.subscribe(
            list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _assigned(self, _: Any, partitions: list[Any]) -> None:
        self._log("assigned", names(_places(partitions)))
        self._owned.update(_places(partitions))

    def _revoked(self, _: Any, partitions: list[Any]) -> None:
        self._commit()
        self._give_up("revoked", partitions)

    def _lost(self, _: Any, partitions: list[Any]) -> None:
        self._give_up("lost", partitions)

    def _give_up(self, event: str, partitions: list[Any]) -> None:
        places = _places(partitions)
        self._log(event, names(places))
        self._owned.difference_update(places)
        for place in places:
            self._next.pop(place, None)

    def _commit(self) -> None:
        """All positions, also those that have not changed: an accepted commit proves ownership."""
        if not self._next:
            return
        offsets = [confluent_kafka.TopicPartition(*place, offset) for place, offset in self._next.items()]
        sent = self._clock()
        try:
            results = self._consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            self._log("refused", names(list(self._next)), reason=error.args[0].name())
            return
        accepted = [each for each in results if each.error is None]
        found = {name((each.topic, each.partition)): each.offset for each in accepted}
        self._log("committed", sorted(found), sent=sent, offsets=found)
        for each in results:
            if each.error is not None:
                self._log("refused", names(_places([each])), reason=each.error.name())

    def step(self) -> None:
        """A message of a partition that was revoked in the same poll is left to the next owner."""
        offsets: dict[Place, list[int]] = {}
        for message in self._consumer.consume(MESSAGES_MAX, POLL_SECONDS):
            place = (message.topic(), message.partition())
            if message.error() is not None:
                _check(message.error())
            elif place in self._owned:
                offsets.setdefault(place, []).append(message.offset())
        if offsets:
            self._log("read", offsets={name(place): some for place, some in offsets.items()})
            self._next |= {place: some[-1] + 1 for place, some in offsets.items()}
            self._commit()

    def close(self) -> None:
        """After a fatal error it owns nothing more, and is not told so."""
        self._consumer.close()
        if self._owned:
            self._log("lost", names(list(self._owned)))
            self._owned.clear()


def name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def names(places: Sequence[Place]) -> list[str]:
    return sorted(map(name, places))


def _places(partitions: Sequence[Any]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]


def _check(error: Any) -> None:
    if error.fatal() or error.code() == confluent_kafka.KafkaError._FATAL:
        raise Fatal(error.str())


def start(wanted: Mapping[str, Any]) -> Member | MillpondMember:
    if wanted["kind"] == MILLPOND:
        return MillpondMember(wanted["grpc"], wanted["topic"], wanted["group"], log)
    return Member(config(wanted), [wanted["topic"]], log)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    log("started")
    while not ending.is_set():
        member = start(wanted)
        try:
            while not ending.is_set():
                member.step()
        except Fatal as error:
            log("fatal", reason=str(error))
            ending.wait(RETRY_SECONDS)
        finally:
            member.close()
    log("ended")


if __name__ == "__main__":
    main()
