"""Members of one group, in this process, while it grows and shrinks: how long until each partition has one owner again.

The group starts with all its members at once; then one more joins, then one leaves. A step ends when each partition is
assigned to exactly one member, and no member has more than one partition more than another. Prints `start_s`, `join_s`
and `leave_s` as JSON.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

SECONDS_MAX = 240.0
POLL_S = 0.02
REQUEST_S = 60.0

Figures = dict[str, float]


class Group:
    """The members and their assignments, as the members know them."""

    def __init__(self, address: str, protocol: str, topic: str, partitions: int) -> None:
        self._config = {
            "bootstrap.servers": address,
            "group.id": f"rebalance-{uuid.uuid4()}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            self._config["partition.assignment.strategy"] = "range"
        self._topic = topic
        self._partitions = partitions
        self._assigned: dict[confluent_kafka.Consumer, set[int]] = {}

    def add(self) -> None:
        consumer = confluent_kafka.Consumer(self._config)
        owned = self._assigned[consumer] = set()

        def assigned(_: Any, partitions: Iterable[Any]) -> None:
            owned.update(each.partition for each in partitions)

        def revoked(_: Any, partitions: Iterable[Any]) -> None:
            owned.difference_update(each.partition for each in partitions)

        consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def remove(self) -> None:
        consumer = next(iter(self._assigned))
        del self._assigned[consumer]
        consumer.close()

    def time_to_settle(self, change: Callable[[], None]) -> float:
        began = time.perf_counter()
        change()
        while not self._is_settled():
            assert time.perf_counter() < began + SECONDS_MAX, "the group did not settle"
            for consumer in self._assigned:
                consumer.poll(POLL_S / len(self._assigned))
        return time.perf_counter() - began

    def _is_settled(self) -> bool:
        sizes = [len(owned) for owned in self._assigned.values()]
        distinct = len(set().union(*self._assigned.values()))
        return sum(sizes) == distinct == self._partitions and max(sizes) - min(sizes) <= 1

    def close(self) -> None:
        for consumer in self._assigned:
            consumer.close()


def measure(address: str, protocol: str, members: int, partitions: int) -> Figures:
    topic = _topic(address, partitions)
    group = Group(address, protocol, topic, partitions)

    def start() -> None:
        for _ in range(members):
            group.add()

    figures = {
        "start_s": group.time_to_settle(start),
        "join_s": group.time_to_settle(group.add),
        "leave_s": group.time_to_settle(group.remove),
    }
    group.close()
    return figures


def _topic(address: str, partitions: int) -> str:
    name = f"rebalance-{partitions}"
    admin = AdminClient({"bootstrap.servers": address})
    if name not in admin.list_topics(timeout=REQUEST_S).topics:
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(REQUEST_S)
    return name


def main() -> None:
    print(json.dumps(measure(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
