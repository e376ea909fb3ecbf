"""A producer on an event loop: messages to one or several topics, acknowledged when they are durable, stored once.

async with AsyncProducer("orders") as producer:
    placed = await producer.send(b"one", key=b"k")
    await producer.send(b"two", topic="others")
"""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from millpond.client import arguments
from millpond.client.calls import Connections
from millpond.client.message import MessageHeaders, Placed, record_of, records_of
from millpond.client.reprs import client_repr
from millpond.client.security import SecurityArguments, TlsArgument, TokenArgument
from millpond.client.sender import SendBuffer
from millpond.client.sources import ServerAddresses
from millpond.client.topic_producer import TopicProducer
from millpond.model.errors import Stopping
from millpond.records import Codec

TIMEOUT_S: Final = 10.0
BATCH_BYTES: Final = 256 * 1024
BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
CODECS: Final = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class AsyncProducer:
    """Sends messages to `topic`, unless a call names another one; a producer without a topic needs it in every call.
    `address` is the broker to try first, or several. `timeout` is the maximum time for a message, including retries.
    `compression` is none, gzip, snappy, lz4 or zstd. A batch has up to `batch_bytes`, and messages in flight take up to
    `buffer_bytes_max` together.

    `tls` is True, the path of a CA file or a `Tls`; `username` and `password`, or `token`, prove who you are."""

    def __init__(
        self,
        topic: str | None = None,
        *,
        address: ServerAddresses = None,
        timeout: float = TIMEOUT_S,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        self.topic = arguments.optional(arguments.topic, "topic", topic)
        self._codec = arguments.choice("compression", compression, CODECS)
        self._batch_bytes = arguments.count("batch_bytes", batch_bytes)
        self._buffer = SendBuffer(arguments.count("buffer_bytes_max", buffer_bytes_max))
        self._connections = Connections(address, timeout, SecurityArguments(tls, username, password, token))
        self._topics: dict[str, TopicProducer] = {}
        self._closed = False

    async def send(
        self,
        value: bytes | None,
        *,
        topic: str | None = None,
        key: bytes | None = None,
        headers: MessageHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Placed:
        """Returns when the message is durable, with the place where it is stored."""
        record = record_of(value, key, headers, timestamp_ms)
        return await (await self.in_topic(topic).submit_record(record, partition))

    async def send_many(
        self, values: Iterable[bytes | None], *, topic: str | None = None, partition: int | None = None
    ) -> list[Placed]:
        """Returns when all of them are durable, with the places where they are stored, in order. A list or tuple is
        checked as a whole before any of it is sent. If the broker refuses a message, the others are sent, and its error
        is raised."""
        producer = self.in_topic(topic)
        futures = [await producer.submit_record(record, partition) for record in records_of(values)]
        return list(await asyncio.gather(*futures))

    async def submit(
        self,
        value: bytes | None,
        *,
        topic: str | None = None,
        key: bytes | None = None,
        headers: MessageHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[Placed]":
        """Like `send`, but returns as soon as the message is queued, with a future of its place. If the message is
        refused, the future has the error. Waits while the buffer is full. Messages to a partition are stored in the
        order of their submits."""
        record = record_of(value, key, headers, timestamp_ms)
        return await self.in_topic(topic).submit_record(record, partition)

    def in_topic(self, topic: str | None) -> TopicProducer:
        """Of the library itself: the part that sends to this topic, or to the producer's own."""
        name = arguments.one_topic(topic, self.topic)
        found = self._topics.get(name)
        if found is None:
            if self._closed:
                raise Stopping("The producer is closed.")
            found = self._topics[name] = TopicProducer(
                name, self._connections, self._buffer, codec=self._codec, batch_bytes=self._batch_bytes
            )
        return found

    @property
    def connections(self) -> Connections:
        """Of the library itself: open until the producer is closed."""
        return self._connections

    async def flush(self) -> None:
        """Wait until every submitted message has a result."""
        await asyncio.gather(*(each.flush() for each in self._topics.values()))

    async def close(self) -> None:
        """Send all submitted messages, then close. Messages without a response at the timeout fail."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.gather(*(each.close() for each in self._topics.values()))
        finally:
            await self._connections.close()

    async def abort(self) -> None:
        """Close immediately: messages without a response fail."""
        self._closed = True
        try:
            await asyncio.gather(*(each.abort() for each in self._topics.values()))
        finally:
            await self._connections.close()

    def __repr__(self) -> str:
        return client_repr(
            "AsyncProducer", is_closed=self._closed, topic=self.topic, address=self._connections.address
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
