"""A publisher on an event loop: messages to any topic, acknowledged when they are durable, stored once.

    async with AsyncPublisher() as publisher:
        await publisher.send(b"one more", topic="orders", key=b"customer-7", attributes={"kind": "order"})

For a topic with `payload=reference`, bodies go to the object store, and messages refer to them. For a topic
with `payload=large`, only large bodies do.
"""

import asyncio
import sys
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from millpond.client import arguments
from millpond.client.message import Placed
from millpond.client.ordered_turns import OrderedTurns
from millpond.client.payloads import BodyTransfer
from millpond.client.producer import TIMEOUT_S, AsyncProducer
from millpond.client.publishing import Attributes, headers_of, published_record
from millpond.client.reprs import client_repr
from millpond.client.security import TlsArgument, TokenArgument
from millpond.client.sources import ServerAddresses
from millpond.client.topic_producer import TopicProducer
from millpond.model.configs import BY_REFERENCE, LARGE_BY_REFERENCE, MAX_MESSAGE_BYTES, PAYLOAD
from millpond.model.errors import Stopping
from millpond.records import Header, Record

INLINE_BYTES_MAX: Final = 0
"""In topics with bodies by reference, bodies up to this size stay in the message."""


class AsyncPublisher:
    """Sends messages with attributes and delivery times, whose bodies may go to the object store.

    `topic` is where messages go unless a call names another one. `inline_bytes_max` is the size up to which a body
    stays in its message although the topic has `payload=reference`. See `AsyncProducer` for the other arguments."""

    def __init__(
        self,
        topic: str | None = None,
        *,
        address: ServerAddresses = None,
        timeout: float = TIMEOUT_S,
        compression: str = "none",
        inline_bytes_max: int = INLINE_BYTES_MAX,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        self.topic = arguments.optional(arguments.topic, "topic", topic)
        self._inline_bytes_max = arguments.integer("inline_bytes_max", inline_bytes_max)
        self.producer = AsyncProducer(
            topic,
            address=address,
            timeout=timeout,
            compression=compression,
            tls=tls,
            username=username,
            password=password,
            token=token,
        )
        self._bodies = BodyTransfer(self.producer.connections)
        self._turns = OrderedTurns()
        self._closed = False

    async def send(
        self,
        value: bytes | None,
        *,
        topic: str | None = None,
        key: bytes | None = None,
        attributes: Attributes | None = None,
        deliver_at: datetime | int | None = None,
        delay: float | None = None,
    ) -> Placed:
        """Returns when the message is durable, with the place where it is stored. Messages of a key are stored in
        the order of the calls."""
        return await (
            await self.submit(
                value, topic=topic, key=key, attributes=attributes, deliver_at=deliver_at, delay=delay
            )
        )

    async def submit(
        self,
        value: bytes | None,
        *,
        topic: str | None = None,
        key: bytes | None = None,
        attributes: Attributes | None = None,
        deliver_at: datetime | int | None = None,
        delay: float | None = None,
    ) -> "asyncio.Future[Placed]":
        """Like `send`, but returns as soon as the message is queued, with a future of its place. A body that goes
        to the object store is uploaded first."""
        record = published_record(value, key, headers_of(attributes, deliver_at, delay))
        producer = self.in_topic(topic)
        is_free = key is None or self._turns.is_free((producer.topic, key))
        if is_free and self._can_submit_now(producer, record):
            return await producer.submit_record(record)
        if key is None:
            return await producer.submit_record(await self._referring(producer, record))
        with self._turns.take((producer.topic, key)) as turn:
            record = await self._referring(producer, record)
            await turn.wait_turn()
            return await producer.submit_record(record)

    def _can_submit_now(self, producer: TopicProducer, record: Record) -> bool:
        """Whether the message can be queued without waiting, so that no later one can overtake it."""
        return producer.is_ready and len(record.value or b"") <= self._inline_bytes_max_of(producer)

    def in_topic(self, topic: str | None) -> TopicProducer:
        """Of the library itself: the part that sends to this topic, or to the publisher's own."""
        if self._closed:
            raise Stopping("The publisher is closed.")
        return self.producer.in_topic(topic)

    async def referring(self, topic: str, record: Record) -> Record:
        """Of the library itself: the message with its body, or with a reference to it if the topic's config requires
        one."""
        return await self._referring(self.in_topic(topic), record)

    async def _referring(self, producer: TopicProducer, record: Record) -> Record:
        if not record.value or len(record.value) <= await self._ready_inline_bytes_max(producer):
            return record
        reference = await self._bodies.upload(producer.topic, record.value)
        headers: tuple[Header, ...] = (*record.headers, reference.header())
        return Record(None, record.key, headers, record.timestamp)

    async def carried_bytes_max(self, topic: str) -> int:
        """Of the library itself: bodies of this topic that are larger go to the object store."""
        return await self._ready_inline_bytes_max(self.in_topic(topic))

    async def _ready_inline_bytes_max(self, producer: TopicProducer) -> int:
        await producer.ready()
        return self._inline_bytes_max_of(producer)

    def _inline_bytes_max_of(self, producer: TopicProducer) -> int:
        payload_mode = producer.configs.get(PAYLOAD)
        if payload_mode == BY_REFERENCE:
            return self._inline_bytes_max
        if payload_mode == LARGE_BY_REFERENCE:
            return int(producer.configs[MAX_MESSAGE_BYTES]) // 2
        return sys.maxsize

    async def flush(self) -> None:
        """Wait until every submitted message has a result."""
        await self.producer.flush()

    async def close(self) -> None:
        """Send all submitted messages, then close."""
        self._closed = True
        await self.producer.close()

    def __repr__(self) -> str:
        return client_repr(
            "AsyncPublisher",
            is_closed=self._closed,
            topic=self.topic,
            address=self.producer.connections.address,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
