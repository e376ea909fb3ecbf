"""The same clients for code without an event loop: `Producer`, `Consumer`, `Admin`, `Payloads`.

    with Producer("orders") as producer, Consumer("orders") as consumer:
        placed = producer.send(b"one")
        messages, read_from = consumer.poll()

All of them share one event loop in a background thread. Safe to use from several threads.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from millpond.client import arguments, forks
from millpond.client.admin import (
    AsyncAdmin,
    BrokerDescription,
    Group,
    GroupDescription,
    Topic,
    TopicDescription,
)
from millpond.client.background import background, on_background_loop, run
from millpond.client.calls import ServerAddresses
from millpond.client.cluster import Cluster
from millpond.client.consumer import BYTES_MAX, FOLLOW_WAIT_S, MESSAGES_MAX, AsyncConsumer, ConsumerStart
from millpond.client.lane import QueuedRecord
from millpond.client.message import (
    Message,
    MessageHeaders,
    Placed,
    Polled,
    ReadFrom,
    Sent,
    record_of,
    records_of,
)
from millpond.client.payloads import TIMEOUT_S as TRANSFER_TIMEOUT_S
from millpond.client.payloads import AsyncPayloads, PayloadReference
from millpond.client.producer import BATCH_BYTES, BUFFER_BYTES_MAX, STALE, TIMEOUT_S, AsyncProducer
from millpond.client.subscriptions import Configs, Subscription, SubscriptionState
from millpond.client.subscriptions import NewSubscriptionStart as SubscriptionStart
from millpond.model.errors import MillpondError
from millpond.records import Buffer, Record, encoded_size_max

INBOX_BYTES_MAX: Final = 1024 * 1024
"""Limit for messages that are submitted and not yet moved to the producer. Beyond it, `submit` waits."""
MOVE_BATCH_MAX: Final = 200


class Producer:
    """Messages to one topic, durable when `send` returns, and stored once. See `AsyncProducer` for the arguments."""

    def __init__(
        self,
        topic: str,
        *,
        address: ServerAddresses = None,
        timeout: float = TIMEOUT_S,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
    ) -> None:
        self.topic = topic
        self._producer = run(
            on_background_loop(
                lambda: AsyncProducer(
                    topic,
                    address=address,
                    timeout=timeout,
                    compression=compression,
                    batch_bytes=batch_bytes,
                    buffer_bytes_max=buffer_bytes_max,
                )
            )
        )
        self._timeout_s = timeout
        self._inbox: deque[tuple[QueuedRecord, int | None, float]] = deque()
        self._inbox_bytes = 0
        self._inbox_bytes_max = min(buffer_bytes_max, INBOX_BYTES_MAX)
        self._changing = threading.Lock()
        self._has_room = threading.Condition(self._changing)
        self._is_draining = False
        self._drain_lock = asyncio.Lock()

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: MessageHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Placed:
        """Returns when the message is durable, with the place where it is stored."""
        sent = self.submit(value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        return sent.result()

    def send_many(self, values: Iterable[bytes | None], *, partition: int | None = None) -> list[Placed]:
        """Returns when all of them are durable, with the places where they are stored, in order. A list or tuple is
        checked as a whole before any of it is sent."""
        partition = arguments.optional(arguments.number, "partition", partition)
        sents = [self.submit_record(record, partition) for record in records_of(values)]
        return [sent.result() for sent in sents]

    def submit(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: MessageHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Like `send`, but returns as soon as the message is queued, with a future of its place. Waits while the
        buffer is full. Messages to a partition are stored in the order of their submits."""
        record = record_of(value, key, headers, timestamp_ms)
        if partition is not None:
            partition = arguments.number("partition", partition)
        return self.submit_record(record, partition)

    def submit_record(self, record: Record, partition: int | None = None) -> Sent:
        """The rest of `submit`, for a message that was checked."""
        forks.check()
        sent = Sent()
        entry = QueuedRecord(record, encoded_size_max(record), sent)
        deadline = time.monotonic() + self._timeout_s
        with self._changing:
            while self._inbox and self._inbox_bytes >= self._inbox_bytes_max:
                self._has_room.wait()
            self._inbox.append((entry, partition, deadline))
            self._inbox_bytes += entry.size
            must_drain, self._is_draining = not self._is_draining, True
        if must_drain:  # otherwise a drain is running already, and waking a loop is expensive
            asyncio.run_coroutine_threadsafe(self._drain(), background.loop())
        return sent

    def flush(self) -> None:
        """Wait until every submitted message has a result."""
        run(self._flush())

    def close(self) -> None:
        """Send all submitted messages, then close. Messages without a response at the timeout fail."""
        run(self._close())

    def abort(self) -> None:
        """Close immediately: messages without a response fail."""
        run(self._producer.abort())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _flush(self) -> None:
        await self._drain()
        await self._producer.flush()

    async def _close(self) -> None:
        try:
            await self._drain()
        finally:
            await self._producer.close()

    async def _drain(self) -> None:
        """Move submitted messages to the producer, in order, until none is left. A message that is submitted
        at the same time is either moved here, or starts another drain, which waits for this one."""
        async with self._drain_lock:
            while self._has_more():
                await self._move_some()

    def _has_more(self) -> bool:
        with self._changing:
            self._is_draining = bool(self._inbox)
            return self._is_draining

    async def _move_some(self) -> None:
        """Every error goes to the callers that wait for the messages."""
        refusal: Exception | None = None
        try:
            await self._producer.ready()
        except Exception as error:  # noqa: BLE001
            refusal = error
        moved_bytes = 0
        for _ in range(min(MOVE_BATCH_MAX, len(self._inbox))):
            entry, partition, deadline = self._inbox.popleft()
            moved_bytes += entry.size
            try:
                if refusal is not None:
                    raise refusal
                self._producer.put(entry, partition, deadline)
            except STALE:
                await self._place(entry, partition, deadline)
            except Exception as error:  # noqa: BLE001
                _refuse(entry, error)
            if not self._producer.has_room:
                break
        with self._changing:
            self._inbox_bytes -= moved_bytes
            if (
                self._inbox_bytes <= self._inbox_bytes_max // 2
            ):  # otherwise callers would be woken up for one or two messages
                self._has_room.notify_all()

    async def _place(self, entry: QueuedRecord, partition: int | None, deadline: float) -> None:
        try:
            await self._producer.place(entry, partition, deadline)
        except Exception as error:  # noqa: BLE001
            _refuse(entry, error)


def _refuse(entry: QueuedRecord, error: Exception) -> None:
    entry.result.set_exception(error.copy() if isinstance(error, MillpondError) else error)


class Consumer:
    """Messages of one topic, from a position that the client keeps. See `AsyncConsumer` for the arguments."""

    def __init__(
        self,
        topic: str,
        *,
        address: ServerAddresses = None,
        read_from: ConsumerStart | None = None,
        offset: ReadFrom | None = None,
        partition: int | None = None,
        group: str | None = None,
        position_file: str | Path | None = None,
        strict: bool = False,
        uncommitted: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self.topic = topic
        self._consumer = run(
            on_background_loop(
                lambda: AsyncConsumer(
                    topic,
                    address=address,
                    read_from=read_from,
                    offset=offset,
                    partition=partition,
                    group=group,
                    position_file=position_file,
                    strict=strict,
                    uncommitted=uncommitted,
                    timeout=timeout,
                )
            )
        )

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
    def read_from(self) -> int | dict[int, int]:
        """The position of the next poll."""
        return self._consumer.read_from

    def seek(self, read_from: ConsumerStart | None = None, *, offset: ReadFrom | None = None) -> None:
        """Continue at another position, which is given as for a new consumer. Partitions that numbers or offsets by
        partition do not name keep their positions. Waits for a poll in progress."""
        run(self._consumer.seek(read_from, offset=offset))

    def positions(self) -> dict[int, int]:
        """The position of the next poll by partition. Also works before the first poll."""
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
