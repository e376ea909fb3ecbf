"""Members of share groups (KIP-932), which are share consumers of librdkafka, and what tests say to them.

Nothing here depends on time: a member polls until something is there, and that nothing more comes is shown by a later
message that comes instead.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import confluent_kafka as library
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.clients.patience import JOIN_SECONDS, SECONDS_MAX

ACCEPT, RELEASE, REJECT = (
    library.AcknowledgeType.ACCEPT,
    library.AcknowledgeType.RELEASE,
    library.AcknowledgeType.REJECT,
)
IMPLICIT, EXPLICIT = "implicit", "explicit"
ANSWER_SECONDS_MAX = 30.0
LOCK = "share.record.lock.duration.ms"
LIMIT = "share.delivery.count.limit"


class Delivered(NamedTuple):
    partition: int
    offset: int
    value: bytes
    count: int
    """Which delivery of the message this is, from 1."""


class ShareMember:
    def __init__(self, address: str, group: str, topics: Sequence[str], mode: str, **options: object) -> None:
        config = {
            "bootstrap.servers": address,
            "group.id": group,
            "share.acknowledgement.mode": mode,
            "reconnect.backoff.ms": 100,
            "log_level": 2,
        }
        self.library = library.ShareConsumer(
            config | {name.replace("_", "."): value for name, value in options.items()}
        )
        self.library.subscribe(list(topics))
        self._topic = topics[0]

    def poll(self, seconds: float = JOIN_SECONDS) -> list[Delivered]:
        """Errors that the library reports and recovers from are no messages."""
        return [
            Delivered(each.partition(), each.offset(), each.value(), each.delivery_count())
            for each in self.library.poll(seconds)
            if each.error() is None
        ]

    def acknowledge(self, messages: Iterable[Delivered], how: int = ACCEPT) -> None:
        for each in messages:
            self.library.acknowledge_offset(self._topic, each.partition, each.offset, how)

    def commit(self) -> list[str | None]:
        """The error of each partition, or None."""
        results = self.library.commit_sync(ANSWER_SECONDS_MAX).values()
        return [None if each is None else each.args[0].name() for each in results]

    def settle(self, messages: Iterable[Delivered], how: int = ACCEPT) -> None:
        self.acknowledge(messages, how)
        assert set(self.commit()) == {None}

    def close(self) -> None:
        self.library.close()


class Share:
    """A broker, a topic and a share group that starts at its beginning."""

    def __init__(self, address: str, stack: ExitStack, pass_lock: Callable[[], None]) -> None:
        self.address = address
        self.pass_lock = pass_lock
        """Let the time pass that a member has for a message."""
        self._stack = stack
        self.topic, self.group = f"t-{uuid.uuid4().hex[:12]}", f"g-{uuid.uuid4().hex[:12]}"
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
        self._producer = library.Producer({"bootstrap.servers": address, "log_level": 2})

    def with_topic(self, topic: str) -> "Share":
        """Another group, on a topic that exists."""
        other = Share(self.address, self._stack, self.pass_lock)
        other.topic = topic
        return other

    def create(self, partitions: int = 1) -> None:
        self._admin.create_topics([NewTopic(self.topic, partitions, 1)])[self.topic].result()
        self.configure({"share.auto.offset.reset": "earliest"})

    def configure(self, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.group, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result()

    def produce(self, *values: object, partition: int = 0, key: bytes | None = None) -> None:
        """A batch for each message: members take whole batches."""
        for value in values:
            self._producer.produce(self.topic, str(value).encode(), key, partition)
            assert self._producer.flush(ANSWER_SECONDS_MAX) == 0

    def abort(self, *values: object) -> None:
        """Messages of a transaction that is aborted."""
        config = {"bootstrap.servers": self.address, "transactional.id": self.group, "log_level": 2}
        producer = library.Producer(config)
        producer.init_transactions(ANSWER_SECONDS_MAX)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, str(value).encode(), partition=0)
        assert producer.flush(ANSWER_SECONDS_MAX) == 0
        producer.abort_transaction(ANSWER_SECONDS_MAX)

    def member(self, mode: str = EXPLICIT, **options: object) -> ShareMember:
        member = ShareMember(self.address, self.group, [self.topic], mode, **options)
        self._stack.callback(member.close)
        return member


def until(get: Callable[[], list[Delivered]], is_done: Callable[[list[Delivered]], bool]) -> list[Delivered]:
    """What has come when it is enough."""
    found: list[Delivered] = []
    give_up = time.monotonic() + SECONDS_MAX
    while not is_done(found):
        assert time.monotonic() < give_up, found
        found += get()
    return found


def values(messages: Iterable[Delivered]) -> list[bytes]:
    return [each.value for each in messages]
