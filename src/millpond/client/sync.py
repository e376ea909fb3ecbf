"""The same clients for code without an event loop: `Consumer`, `Admin`, `Payloads`.

    with Consumer("orders") as consumer:
        messages, read_from = consumer.poll()

All of them share one event loop in a background thread. Safe to use from several threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from millpond.client.admin import (
    AsyncAdmin,
    BrokerDescription,
    Group,
    GroupDescription,
    Topic,
    TopicDescription,
)
from millpond.client.background import on_background_loop, run
from millpond.client.calls import ServerAddresses
from millpond.client.cluster import Cluster
from millpond.client.consumer import BYTES_MAX, FOLLOW_WAIT_S, MESSAGES_MAX, AsyncConsumer, ConsumerStart
from millpond.client.message import Message, NextPosition, Polled, ReadFrom
from millpond.client.payloads import TIMEOUT_S as TRANSFER_TIMEOUT_S
from millpond.client.payloads import AsyncPayloads, PayloadReference
from millpond.client.producer import TIMEOUT_S
from millpond.client.subscriptions import Configs, Subscription, SubscriptionState
from millpond.client.subscriptions import NewSubscriptionStart as SubscriptionStart
from millpond.records import Buffer


class Consumer:
    """Messages of one or several topics, from a position that the client keeps. See `AsyncConsumer` for the
    arguments."""

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        address: ServerAddresses = None,
        read_from: ConsumerStart | Mapping[str, ConsumerStart] | None = None,
        offset: ReadFrom | Mapping[str, ReadFrom] | None = None,
        partition: int | None = None,
        group: str | None = None,
        reader: str | None = None,
        position_file: str | Path | None = None,
        strict: bool = False,
        uncommitted: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self._consumer = run(
            on_background_loop(
                lambda: AsyncConsumer(
                    topics,
                    address=address,
                    read_from=read_from,
                    offset=offset,
                    partition=partition,
                    group=group,
                    reader=reader,
                    position_file=position_file,
                    strict=strict,
                    uncommitted=uncommitted,
                    timeout=timeout,
                )
            )
        )
        self.topics = self._consumer.topics

    def poll(
        self, wait: float = 0.0, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX
    ) -> Polled:
        """Messages from the position on, and the next position. Waits up to `wait` seconds for a first
        message. A batch that cannot be decoded raises UnreadableBatch, after the messages before it were
        returned; `seek` skips it."""
        return run(self._consumer.poll(wait, messages_max=messages_max, bytes_max=bytes_max))

    def __iter__(self) -> Iterator[Message]:
        """Every message, and new ones as they arrive; the iteration does not end by itself."""
        while True:
            yield from self.poll(FOLLOW_WAIT_S).messages

    @property
    def read_from(self) -> NextPosition | dict[str, NextPosition]:
        """The position of the next poll, by topic if the consumer has a list of them."""
        return self._consumer.read_from

    def seek(
        self,
        read_from: ConsumerStart | Mapping[str, ConsumerStart] | None = None,
        *,
        offset: ReadFrom | Mapping[str, ReadFrom] | None = None,
    ) -> None:
        """Continue at another position, which is given as for a new consumer. Topics and partitions that it does not
        name keep their positions. Waits for a poll in progress."""
        run(self._consumer.seek(read_from, offset=offset))

    def positions(self) -> dict[int, int] | dict[str, dict[int, int]]:
        """The position of the next poll by partition, or by topic and partition if the consumer has a list of topics.
        Also works before the first poll."""
        return run(self._consumer.positions())

    def commit(self) -> None:
        """Keep the positions now, in the file or group of this consumer."""
        run(self._consumer.commit())

    def close(self) -> None:
        """Keep the positions and close."""
        run(self._consumer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._consumer.__aexit__(kind, error, trace))


class Admin:
    """Topics, groups, subscriptions and brokers. Has every method of `AsyncAdmin`."""

    def __init__(self, *, address: ServerAddresses = None, timeout: float = TIMEOUT_S) -> None:
        self._admin = run(on_background_loop(lambda: AsyncAdmin(address=address, timeout=timeout)))

    def create_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Topic:
        return run(self._admin.create_topic(name, partitions=partitions, configs=configs))

    def list_topics(self) -> list[Topic]:
        return run(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        return run(self._admin.describe_topic(name))

    def alter_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> Topic:
        return run(self._admin.alter_topic(name, partitions=partitions, configs=configs))

    def delete_topic(self, name: str) -> None:
        run(self._admin.delete_topic(name))

    def delete_messages(self, topic: str, *, before: int | None, partition: int = 0) -> int:
        return run(self._admin.delete_messages(topic, before=before, partition=partition))

    def find_by_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        return run(self._admin.find_by_time(topic, timestamp_ms))

    def list_groups(self) -> list[Group]:
        return run(self._admin.list_groups())

    def describe_group(self, name: str) -> GroupDescription:
        return run(self._admin.describe_group(name))

    def commit_positions(
        self,
        group: str,
        topic: str,
        read_from: ConsumerStart | None = None,
        *,
        offset: ReadFrom | None = None,
    ) -> None:
        run(self._admin.commit_positions(group, topic, read_from, offset=offset))

    def delete_group(self, name: str) -> None:
        run(self._admin.delete_group(name))

    def create_subscription(
        self,
        topic: str,
        name: str,
        config: Configs | None = None,
        *,
        read_from: SubscriptionStart | None = None,
        offset: int | None = None,
    ) -> Subscription:
        return run(self._admin.create_subscription(topic, name, config, read_from=read_from, offset=offset))

    def alter_subscription(self, topic: str, name: str, config: Configs) -> Subscription:
        return run(self._admin.alter_subscription(topic, name, config))

    def delete_subscription(self, topic: str, name: str) -> None:
        run(self._admin.delete_subscription(topic, name))

    def list_subscriptions(self, topic: str | None = None) -> list[Subscription]:
        return run(self._admin.list_subscriptions(topic))

    def describe_subscription(self, topic: str, name: str, *, keys_max: int = 10) -> SubscriptionState:
        return run(self._admin.describe_subscription(topic, name, keys_max=keys_max))

    def reset_subscription(
        self,
        topic: str,
        name: str,
        read_from: SubscriptionStart | None = None,
        *,
        offset: int | None = None,
    ) -> None:
        run(self._admin.reset_subscription(topic, name, read_from, offset=offset))

    def redrive(self, topic: str, name: str, *, messages_max: int = 0) -> int:
        return run(self._admin.redrive(topic, name, messages_max=messages_max))

    def unblock(self, topic: str, name: str) -> int:
        return run(self._admin.unblock(topic, name))

    def describe_broker(self) -> BrokerDescription:
        return run(self._admin.describe_broker())

    def cluster(self) -> Cluster:
        return run(self._admin.cluster())

    def drain(self, node_id: int, *, undo: bool = False) -> Cluster:
        return run(self._admin.drain(node_id, undo=undo))

    def rebalance(self) -> Cluster:
        return run(self._admin.rebalance())

    def close(self) -> None:
        run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Payloads:
    """Bodies by reference. See `AsyncPayloads`."""

    def __init__(
        self,
        topic: str | None = None,
        *,
        address: ServerAddresses = None,
        timeout: float = TRANSFER_TIMEOUT_S,
    ) -> None:
        self._payloads = run(
            on_background_loop(lambda: AsyncPayloads(topic, address=address, timeout=timeout))
        )

    def upload(self, body: Buffer, *, topic: str | None = None) -> PayloadReference:
        """Returns when the body is durable. A failed upload leaves nothing, or bytes that are collected later."""
        return run(self._payloads.upload(body, topic=topic))

    def download(self, reference: PayloadReference) -> bytes:
        """The body. `CorruptPayload` if it does not match the message's reference."""
        return run(self._payloads.download(reference))

    def close(self) -> None:
        run(self._payloads.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
