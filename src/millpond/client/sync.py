"""The same clients without an event loop of one's own: `Producer`, `Consumer`, `Admin`.

    with Producer("orders") as producer, Consumer("orders") as consumer:
        number = producer.send(b"one")
        messages, read_from = consumer.poll()

They run on one loop in a thread of its own, which all of them share. Safe to use from several threads.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import uvloop

from millpond.client.admin import (
    AsyncAdmin,
    BrokerDescription,
    Group,
    GroupDescription,
    Topic,
    TopicDescription,
)
from millpond.client.calls import DEFAULT_ADDRESS
from millpond.client.consumer import BYTES_MAX, FOLLOW_WAIT_S, MESSAGES_MAX, AsyncConsumer, Start
from millpond.client.message import Headers, Message, Placed, Polled, Sent, record_of
from millpond.client.producer import BATCH_BYTES, BUFFER_BYTES_MAX, TIMEOUT_S, AsyncProducer
from millpond.model.errors import MillpondError
from millpond.records import Record

Answer = TypeVar("Answer")
INBOX_MAX: Final = 10_000
"""Messages handed over and not yet taken; past it whoever submits waits."""
MOVED_AT_ONCE: Final = 200


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="millpond-client", daemon=True).start()
    return loop


def _run(call: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run_coroutine_threadsafe(call, _loop()).result()


async def _made(make: Callable[[], Answer]) -> Answer:
    return make()


class Producer:
    """Messages to one topic, durable when `send` returns, and stored once. See `AsyncProducer` for the arguments."""

    def __init__(
        self,
        topic: str,
        *,
        address: str = DEFAULT_ADDRESS,
        timeout: float = TIMEOUT_S,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
    ) -> None:
        self.topic = topic
        self._producer = _run(
            _made(
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
        self._inbox: deque[tuple[Record, int | None, Sent]] = deque()
        self._has_room = threading.Condition()
        self._is_full = False
        self._draining = False
        self._turn = asyncio.Lock()

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Returns the message's number, when it is durable."""
        sent = self.submit(value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        return sent.result().number

    def send_many(self, values: Iterable[bytes | None], *, partition: int | None = None) -> list[Placed]:
        """Returns where they went, in their order, when all of them are durable."""
        return [sent.result() for sent in [self.submit(value, partition=partition) for value in values]]

    def submit(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """As `send`, but returns as soon as the message waits its turn."""
        sent = Sent()
        entry = (record_of(value, key, headers, timestamp_ms), partition, sent)
        if len(self._inbox) >= INBOX_MAX:
            self._wait_for_room()
        self._inbox.append(entry)
        if not self._draining:  # else it is being emptied anyway, and waking a loop is dear
            self._draining = True
            asyncio.run_coroutine_threadsafe(self._drain(), _loop())
        return sent

    def flush(self) -> None:
        """Wait until everything that was submitted is answered."""
        _run(self._flush())

    def close(self) -> None:
        """Sends what was submitted, and leaves."""
        _run(self._flush())
        _run(self._producer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _flush(self) -> None:
        await self._drain()
        await self._producer.flush()

    async def _drain(self) -> None:
        """Move what was submitted to the producer, in order. Whoever comes while this looks for the last time either
        is seen here, or has started another one, which waits for its turn."""
        async with self._turn:
            while self._inbox:
                await self._move_some()
                if not self._inbox:
                    self._draining = False

    async def _move_some(self) -> None:
        error: MillpondError | None = None
        try:
            await self._producer.ready()
        except MillpondError as refused:
            error = refused
        for _ in range(min(MOVED_AT_ONCE, len(self._inbox))):
            record, partition, sent = self._inbox.popleft()
            try:
                if error is not None:
                    raise error.copy()
                self._producer.put(record, partition, sent)
            except MillpondError as refused:
                sent.set_exception(refused)
        if self._is_full:
            with self._has_room:
                self._is_full = False
                self._has_room.notify_all()

    def _wait_for_room(self) -> None:
        with self._has_room:
            self._is_full = True
            while self._is_full and len(self._inbox) >= INBOX_MAX:
                self._has_room.wait()


class Consumer:
    """Messages of one topic from a position of its own. See `AsyncConsumer` for the arguments."""

    def __init__(
        self,
        topic: str,
        read_from: Start = 1,
        *,
        partition: int | None = None,
        group: str | None = None,
        position_file: str | Path | None = None,
        strict: bool = False,
        uncommitted: bool = False,
        address: str = DEFAULT_ADDRESS,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self.topic = topic
        self._consumer = _run(
            _made(
                lambda: AsyncConsumer(
                    topic,
                    read_from,
                    partition=partition,
                    group=group,
                    position_file=position_file,
                    strict=strict,
                    uncommitted=uncommitted,
                    address=address,
                    timeout=timeout,
                )
            )
        )

    def poll(
        self, wait: float = 0.0, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX
    ) -> Polled:
        """Messages from the position on, and where to go on. Waits up to `wait` seconds for a first one."""
        return _run(self._consumer.poll(wait, messages_max=messages_max, bytes_max=bytes_max))

    def __iter__(self) -> Iterator[Message]:
        """Every message, and new ones as they come; it does not end by itself."""
        while True:
            yield from self.poll(FOLLOW_WAIT_S).messages

    @property
    def read_from(self) -> int | dict[int, int]:
        """Where the next poll reads from."""
        return self._consumer.read_from

    def positions(self) -> dict[int, int]:
        """The same, by partition, also before the first poll."""
        return _run(self._consumer.positions())

    def commit(self) -> None:
        """Keep the positions now, where this consumer keeps them."""
        _run(self._consumer.commit())

    def close(self) -> None:
        """Keep the positions and leave."""
        _run(self._consumer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _run(self._consumer.__aexit__(kind, error, trace))


class Admin:
    """Topics and groups. Every method of `AsyncAdmin`."""

    def __init__(self, *, address: str = DEFAULT_ADDRESS, timeout: float = TIMEOUT_S) -> None:
        self._admin = _run(_made(lambda: AsyncAdmin(address=address, timeout=timeout)))

    def create_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Topic:
        return _run(self._admin.create_topic(name, partitions=partitions, configs=configs))

    def list_topics(self) -> list[Topic]:
        return _run(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        return _run(self._admin.describe_topic(name))

    def alter_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> Topic:
        return _run(self._admin.alter_topic(name, partitions=partitions, configs=configs))

    def delete_topic(self, name: str) -> None:
        _run(self._admin.delete_topic(name))

    def delete_messages(self, topic: str, *, before: int | None, partition: int = 0) -> int:
        return _run(self._admin.delete_messages(topic, before=before, partition=partition))

    def find_by_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        return _run(self._admin.find_by_time(topic, timestamp_ms))

    def list_groups(self) -> list[Group]:
        return _run(self._admin.list_groups())

    def describe_group(self, name: str) -> GroupDescription:
        return _run(self._admin.describe_group(name))

    def commit_positions(self, group: str, topic: str, read_from: Mapping[int, int]) -> None:
        _run(self._admin.commit_positions(group, topic, read_from))

    def delete_group(self, name: str) -> None:
        _run(self._admin.delete_group(name))

    def describe_broker(self) -> BrokerDescription:
        return _run(self._admin.describe_broker())

    def close(self) -> None:
        _run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
