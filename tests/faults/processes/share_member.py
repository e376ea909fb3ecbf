"""One member of a share group, as a process that can be killed or paused: it logs what it receives and what it does
with it, a line of JSON each, and leaves in order at SIGTERM.

    python -m tests.faults.processes.share_member '{"kafka": […], "topic": …, "group": …, "seed": …}'

Times are those of the monotonic clock, which all processes share. `since` is a time before which a message was not
delivered: when a poll began that is a little older than the one that returned it, since a response may come after the
poll that asked for it. A message is logged as settled once the broker has said so.
"""

import collections
import json
import random
import signal
import sys
import threading
import time
from typing import Any

import confluent_kafka

ACCEPT, RELEASE = "accept", "release"
TYPES = {
    ACCEPT: confluent_kafka.AcknowledgeType.ACCEPT,
    RELEASE: confluent_kafka.AcknowledgeType.RELEASE,
}
RELEASED_SHARE = 0.1
POLL_SECONDS = 0.5
COMMIT_SECONDS = 10.0
WORK_SECONDS = 0.02
"""At most, for the messages of one poll."""
RETRY_SECONDS = 0.5
RESPONSE_SECONDS_MAX = 1.5
"""From a delivery to the poll that returns it, while the member polls."""


def log(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"at": time.monotonic(), "event": event, **fields}) + "\n")
    sys.stdout.flush()


class Member:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self._topic = wanted["topic"]
        self._draw = random.Random(wanted["seed"])
        self._polls = collections.deque([time.monotonic()])
        """When those began that may have asked for what the next one returns."""
        self._library = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": ",".join(wanted["kafka"]),
                "group.id": wanted["group"],
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        self._library.subscribe([self._topic])

    def step(self) -> None:
        self._polls.append(time.monotonic())
        while self._polls[1] < self._polls[-1] - RESPONSE_SECONDS_MAX:
            self._polls.popleft()
        found = [each for each in self._library.poll(POLL_SECONDS) if each.error() is None]
        if not found:
            return
        messages = [
            [each.partition(), each.offset(), each.key().decode(), each.delivery_count()] for each in found
        ]
        log("got", since=self._polls[0], messages=messages)
        time.sleep(self._draw.random() * WORK_SECONDS)
        fates = {each[0]: [] for each in messages}
        for partition, offset, _, count in messages:
            fate = RELEASE if self._draw.random() < RELEASED_SHARE else ACCEPT
            self._library.acknowledge_offset(self._topic, partition, offset, TYPES[fate])
            fates[partition].append([partition, offset, count, fate])
        log("settling", messages=[each for some in fates.values() for each in some])
        self._commit(fates)

    def _commit(self, fates: dict[int, list[list[Any]]]) -> None:
        for partition, error in self._library.commit_sync(COMMIT_SECONDS).items():
            if error is None:
                log("settled", messages=fates.get(partition.partition, []))
            else:
                log("refused", reason=error.args[0].name(), messages=fates.get(partition.partition, []))

    def close(self) -> None:
        self._library.close()


def main() -> None:
    wanted = json.loads(sys.argv[1])
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    log("started")
    while not ending.is_set():
        member = Member(wanted)
        try:
            while not ending.is_set():
                member.step()
        except confluent_kafka.KafkaException as error:
            log("failed", reason=error.args[0].name())
            ending.wait(RETRY_SECONDS)
        finally:
            member.close()
    log("ended")


if __name__ == "__main__":
    main()
