"""One member of a group, as a process that can be killed or paused: it logs what it owns, reads and commits, line by
line, and leaves in order at SIGTERM.

    python -m tests.faults.processes.group_member '{"kind": "classic", "addresses": […], "topic": …, "group": …, …}'

The order of the lines carries the proofs of `group_judge`: messages are logged before their position is committed,
and a partition is logged as revoked before the client tells the coordinator. A commit is logged, with the time at
which it was sent, once the coordinator has accepted it. Times are those of the monotonic clock, which all processes
share.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka

KINDS = ("classic", "consumer", "static")
"""`consumer` and `static` use the consumer protocol."""
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
        "bootstrap.servers": ",".join(wanted["addresses"]),
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


def main() -> None:
    wanted = json.loads(sys.argv[1])
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    log("started")
    while not ending.is_set():
        member = Member(config(wanted), [wanted["topic"]], log)
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
