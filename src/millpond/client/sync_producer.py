"""`Producer` for code without an event loop. Safe to use from several threads.

    with Producer("orders") as producer:
        placed = producer.send(b"one")

Messages wait in an inbox for their topic until the background loop moves them, so that a topic that is not known yet
does not delay the others.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from millpond.client import arguments, forks
from millpond.client.background import background, on_background_loop, run
from millpond.client.calls import BACKOFF_MAX_S
from millpond.client.lane import QueuedRecord
from millpond.client.message import MessageHeaders, Placed, Sent, record_of, records_of
from millpond.client.producer import BATCH_BYTES, BUFFER_BYTES_MAX, TIMEOUT_S, AsyncProducer
from millpond.client.reprs import sync_repr
from millpond.client.security import TlsArgument, TokenArgument
from millpond.client.sources import ServerAddresses
from millpond.client.topic_producer import STALE, TopicProducer
from millpond.model.errors import MillpondError
from millpond.records import Record, encoded_size_max

INBOX_BYTES_MAX: Final = 1024 * 1024
"""Limit for messages that are submitted and not yet moved to the producer. Beyond it, `submit` waits."""
MOVE_BATCH_MAX: Final = 200


class TopicInbox:
    """Moves the messages for one topic from any thread to the background loop, in order."""

    def __init__(self, producer: TopicProducer, timeout_s: float, bytes_max: int) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._inbox: deque[tuple[QueuedRecord, int | None, float]] = deque()
        self._inbox_bytes = 0
        self._inbox_bytes_max = min(bytes_max, INBOX_BYTES_MAX)
        self._changing = threading.Lock()
        self._has_room = threading.Condition(self._changing)
        self._is_draining = False
        self._drain_lock = asyncio.Lock()

    def submit_record(self, record: Record, partition: int | None = None) -> Sent:
        """Queue a message that was checked. Waits while the inbox is full."""
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
            asyncio.run_coroutine_threadsafe(self.drain(), background.loop())
        return sent

    async def drain(self) -> None:
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
        try:
            await self._producer.ready()
        except Exception as error:  # noqa: BLE001
            moved_bytes = self._refuse_some(error)
        else:
            moved_bytes = await self._put_some()
        with self._changing:
            self._inbox_bytes -= moved_bytes
            if (
                self._inbox_bytes <= self._inbox_bytes_max // 2
            ):  # otherwise callers would be woken up for one or two messages
                self._has_room.notify_all()

    async def _put_some(self) -> int:
        """Returns the bytes of the messages that are no longer in the inbox."""
        moved_bytes = 0
        for _ in range(min(MOVE_BATCH_MAX, len(self._inbox))):
            entry, partition, deadline = self._inbox.popleft()
            moved_bytes += entry.size
            try:
                self._producer.put(entry, partition, deadline)
            except STALE:
                await self._place_again(entry, partition, deadline)
            except Exception as error:  # noqa: BLE001
                _refuse(entry, error)
            if not self._producer.has_room:
                break
        return moved_bytes

    def _refuse_some(self, error: Exception) -> int:
        """Refuses all messages that have no time for another attempt, since that would take a whole timeout."""
        refused_bytes, refused, last_attempt_at = 0, 0, time.monotonic() + BACKOFF_MAX_S
        while self._inbox and (refused < MOVE_BATCH_MAX or self._inbox[0][2] <= last_attempt_at):
            entry, _, _ = self._inbox.popleft()
            refused_bytes += entry.size
            refused += 1
            _refuse(entry, error)
        return refused_bytes

    async def _place_again(self, entry: QueuedRecord, partition: int | None, deadline: float) -> None:
        try:
            await self._producer.place_again(entry, partition, deadline)
        except Exception as error:  # noqa: BLE001
            _refuse(entry, error)


class ProducerInboxes:
    """The inboxes of a producer that lives on the background loop, one for each topic."""

    def __init__(self, producer: AsyncProducer, timeout_s: float, bytes_max: int) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._bytes_max = bytes_max
        self._inboxes: dict[str, TopicInbox] = {}
        self._adding = threading.Lock()

    def of(self, topic: str) -> TopicInbox:
        return self._inboxes.get(topic) or self._added(topic)

    def _added(self, topic: str) -> TopicInbox:
        with self._adding:
            if topic not in self._inboxes:
                producer = run(on_background_loop(lambda: self._producer.in_topic(topic)))
                self._inboxes[topic] = TopicInbox(producer, self._timeout_s, self._bytes_max)
            return self._inboxes[topic]

    async def drain(self) -> None:
        """Move every message to the producer."""
        await asyncio.gather(*(each.drain() for each in list(self._inboxes.values())))


class Producer:
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
        self._producer = run(
            on_background_loop(
                lambda: AsyncProducer(
                    topic,
                    address=address,
                    timeout=timeout,
                    compression=compression,
                    batch_bytes=batch_bytes,
                    buffer_bytes_max=buffer_bytes_max,
                    tls=tls,
                    username=username,
                    password=password,
                    token=token,
                )
            )
        )
        self.topic = self._producer.topic
        self._inboxes = ProducerInboxes(self._producer, timeout, buffer_bytes_max)

    def send(
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
        sent = self.submit(
            value, topic=topic, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return sent.result()

    def send_many(
        self, values: Iterable[bytes | None], *, topic: str | None = None, partition: int | None = None
    ) -> list[Placed]:
        """Returns when all of them are durable, with the places where they are stored, in order. A list or tuple is
        checked as a whole before any of it is sent. If the broker refuses a message, the others are sent, and its error
        is raised."""
        partition = arguments.optional(arguments.number, "partition", partition)
        records = records_of(values)
        inbox = self._inboxes.of(arguments.one_topic(topic, self.topic))
        sents = [inbox.submit_record(record, partition) for record in records]
        return [sent.result() for sent in sents]

    def submit(
        self,
        value: bytes | None,
        *,
        topic: str | None = None,
        key: bytes | None = None,
        headers: MessageHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Like `send`, but returns as soon as the message is queued, with a future of its place. If the message is
        refused, the future has the error. Waits while the buffer is full. Messages to a partition are stored in the
        order of their submits."""
        record = record_of(value, key, headers, timestamp_ms)
        if partition is not None:
            partition = arguments.number("partition", partition)
        return self._inboxes.of(arguments.one_topic(topic, self.topic)).submit_record(record, partition)

    def flush(self) -> None:
        """Wait until every submitted message has a result."""
        run(self._flush())

    def close(self) -> None:
        """Send all submitted messages, then close. Messages without a response at the timeout fail."""
        run(self._close())

    def abort(self) -> None:
        """Close immediately: messages without a response fail."""
        run(self._producer.abort())

    def __repr__(self) -> str:
        return sync_repr(self._producer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _flush(self) -> None:
        await self._inboxes.drain()
        await self._producer.flush()

    async def _close(self) -> None:
        try:
            await self._inboxes.drain()
        finally:
            await self._producer.close()


def _refuse(entry: QueuedRecord, error: Exception) -> None:
    entry.result.set_exception(error.copy() if isinstance(error, MillpondError) else error)
