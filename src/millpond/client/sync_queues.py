"""`Subscriber` and `Publisher`: queues for code without an event loop. Safe to use from several threads.

with Subscriber("orders", "billing") as subscriber:
    for delivery in subscriber:
        print(delivery.metadata.number, delivery.data())
        delivery.ack()
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from millpond.client import arguments
from millpond.client.background import on_background_loop, run
from millpond.client.delivery import BaseDelivery, Outcome
from millpond.client.inbox import Inbox
from millpond.client.message import Placed, Sent
from millpond.client.producer import BUFFER_BYTES_MAX, TIMEOUT_S
from millpond.client.publisher import INLINE_BYTES_MAX, AsyncPublisher
from millpond.client.publishing import Attributes, headers_of, published_record
from millpond.client.reprs import sync_repr
from millpond.client.security import TlsArgument, TokenArgument
from millpond.client.sources import ServerAddresses
from millpond.client.subscriber import PREFETCH, PREFETCH_BYTES, VALUE_BYTES_MAX, AsyncSubscriber
from millpond.client.sync_producer import ProducerInboxes
from millpond.client.transaction import AsyncTransaction
from millpond.client.workers import WorkerLanes, conclude
from millpond.model.errors import Stopping


class Delivery(BaseDelivery):
    """A message that was delivered to this subscriber, to be acknowledged. `value` is None if the message has
    none, or if it is large and was left out: `data` returns it."""

    __slots__ = ()

    def data(self) -> bytes | None:
        """The body. It is fetched from the log if it was too large to be delivered, or from the object store
        if the message refers to it."""
        return run(self.link.body_of(self, self._raw))


class _OnBackground(AsyncSubscriber):
    _delivery_class = Delivery

    @property
    def inbox(self) -> Inbox:
        return self._inbox


class Subscriber:
    """Receives the messages of a subscription, which the application acknowledges one by one.

    `address` is the broker to try first, or several. `consumer` is the name of this consumer; by default a unique one
    is generated. `create` creates the subscription with these configs if it does not exist. `prefetch` and
    `prefetch_bytes` limit the deliveries that are received or in flight, and not taken yet. Values larger than
    `value_bytes_max` are left out of the delivery, and so are all values with `metadata_only`: `data` fetches them.
    `timeout` is the time that a broker has to respond. `tls` is True, the path of a CA file or a `Tls`; `username` and
    `password`, or `token`, prove who you are."""

    def __init__(
        self,
        topic: str,
        subscription: str,
        *,
        address: ServerAddresses = None,
        consumer: str | None = None,
        prefetch: int = PREFETCH,
        prefetch_bytes: int = PREFETCH_BYTES,
        value_bytes_max: int = VALUE_BYTES_MAX,
        metadata_only: bool = False,
        create: Mapping[str, object] | None = None,
        timeout: float = TIMEOUT_S,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        self._subscriber = run(
            on_background_loop(
                lambda: _OnBackground(
                    topic,
                    subscription,
                    address=address,
                    consumer=consumer,
                    prefetch=prefetch,
                    prefetch_bytes=prefetch_bytes,
                    value_bytes_max=value_bytes_max,
                    metadata_only=metadata_only,
                    create=create,
                    timeout=timeout,
                    tls=tls,
                    username=username,
                    password=password,
                    token=token,
                )
            )
        )
        self.topic = self._subscriber.topic
        self.subscription = self._subscriber.subscription
        self.consumer = self._subscriber.consumer
        self._inbox = self._subscriber.inbox
        self._is_started = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        """The next delivery; waits for one. The iteration ends when the subscriber is closed."""
        found = self._inbox.take() or self._wait(None)
        if found is None:
            raise StopIteration
        return found  # type: ignore[return-value]  # the subscriber creates no other kind

    def receive(self, wait: float | None = None) -> Delivery | None:
        """The next delivery. Waits at most `wait` seconds; None when they are over."""
        found = self._wait(arguments.optional_seconds("wait", wait))
        if found is None and self._inbox.closed:
            raise Stopping("The subscriber is closed.")
        return found  # type: ignore[return-value]  # the subscriber creates no other kind

    def run(self, handler: Callable[[Delivery], Any], *, workers: int = 1) -> None:
        """Call `handler` with every delivery, until the subscriber is closed (by another thread). `workers`
        threads run it, but only one at a time for each key, in order. When the handler returns, the message
        is acknowledged, unless the handler has done so itself. When the handler raises, the error is logged,
        and the message is nacked with the error as the reason. `SystemExit` and similar exceptions also end `run`."""
        arguments.function("handler", handler)
        arguments.count("workers", workers)
        self.start()
        ThreadWorkers(self._inbox, workers, handler).run()
        self._check()

    def flush(self) -> list[tuple[BaseDelivery, Outcome]]:
        """Wait until every acknowledgement is durable or refused. Returns those refused since the last flush."""
        return run(self._subscriber.flush())

    def transaction(self) -> "Transaction":
        """Acknowledge deliveries and publish messages together, atomically:

        with subscriber.transaction() as transaction:
            transaction.ack(delivery)
            transaction.publish(body, topic="invoices", key=delivery.key)
        """
        return Transaction(self._subscriber.transaction())

    def pause(self) -> None:
        """Receive nothing more for now. Deliveries that have arrived already may still be taken."""
        run(self._subscriber.pause())

    def resume(self) -> None:
        """Receive again, after `pause`."""
        run(self._subscriber.resume())

    def start(self) -> None:
        """Attach, without waiting for a first message. Iterating does the same."""
        if not self._is_started:
            run(self._subscriber.start())
            self._is_started = True

    def close(self) -> None:
        """Wait until every acknowledgement is durable, then detach gracefully. Deliveries that were not acknowledged
        go to other consumers immediately, and do not count as failed. Wakes up callers that wait for a delivery."""
        run(self._subscriber.close())

    def __repr__(self) -> str:
        return sync_repr(self._subscriber)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, wait_s: float | None) -> BaseDelivery | None:
        self.start()
        found = self._inbox.take_with_timeout(wait_s)
        if found is None:
            self._check()
        return found

    def _check(self) -> None:
        if self._inbox.failure is not None:
            raise self._inbox.failure.copy()


class ThreadWorkers:
    """Like `AsyncWorkers`, with threads."""

    def __init__(self, inbox: Inbox, count: int, handler: Callable[[Any], Any]) -> None:
        self._inbox = inbox
        self._handler = handler
        self._lanes = WorkerLanes(count)
        self._changed = threading.Condition()
        self._ended = False
        self._fatal: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"millpond-worker-{number}", daemon=True)
            for number in range(count)
        ]

    def run(self) -> None:
        """Run until the inbox is closed, the calling thread is interrupted, or a handler raises an exception
        such as `SystemExit`. Handlers that have started run to their end; what has not started can be taken again."""
        for thread in self._threads:
            thread.start()
        try:
            while not self._inbox.closed and not self._is_over():
                delivery = self._inbox.wait_for_unclaimed(self._is_over)
                if delivery is not None:
                    with self._changed:
                        self._lanes.add(delivery, self._inbox.order)
                        self._changed.notify_all()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            for thread in self._threads:
                thread.join()
            self._inbox.put_back(self._lanes.not_started())
        if self._fatal is not None:
            raise self._fatal

    def _is_over(self) -> bool:
        return self._fatal is not None

    def _work(self, number: int) -> None:
        while (delivery := self._next(number)) is not None:
            if self._inbox.claim(delivery):
                self._handle(delivery)
            with self._changed:
                self._lanes.done(number)

    def _handle(self, delivery: BaseDelivery) -> None:
        failure: BaseException | None = None
        try:
            self._handler(delivery)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # any error nacks this message only
            failure = error
        except BaseException as error:  # noqa: BLE001  # `run` raises it again: on this thread it would be lost
            failure = self._fatal = error
            self._inbox.wake()
        conclude(delivery, failure)

    def _next(self, number: int) -> BaseDelivery | None:
        with self._changed:
            while not self._ended and not self._is_over():
                if (delivery := self._lanes.next(number)) is not None:
                    return delivery
                self._changed.wait()
            return None


class Transaction:
    """Commits at the end of its `with`. If the block raises, nothing is done, and the deliveries must
    still be acknowledged."""

    def __init__(self, transaction: AsyncTransaction) -> None:
        self._transaction = transaction

    def ack(self, delivery: BaseDelivery) -> None:
        """Acknowledge a delivery when the transaction commits."""
        self._transaction.ack(delivery)

    def publish(
        self,
        value: bytes | None,
        *,
        topic: str,
        key: bytes | None = None,
        attributes: Attributes | None = None,
        partition: int | None = None,
    ) -> None:
        """Add a message to the transaction. It is stored when the transaction commits."""
        self._transaction.publish(value, topic=topic, key=key, attributes=attributes, partition=partition)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return self._transaction.is_empty

    def commit(self) -> None:
        """Returns when it is committed. The request takes effect at most once: if the response is lost, this
        raises `OutcomeUnknown`, and deliveries that were not acknowledged are redelivered."""
        run(self._transaction.commit())

    @property
    def placed(self) -> list[Placed]:
        """Where each message is stored, in order, once they are committed."""
        return self._transaction.placed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._transaction.__aexit__(kind, error, trace))


class Publisher:
    """Sends messages with attributes and delivery times, whose bodies may go to the object store.

    `topic` is where messages go unless a call names another one. `inline_bytes_max` is the size up to which a body
    stays in its message although the topic has `payload=reference`. See `Producer` for the other arguments."""

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
        self._publisher = run(
            on_background_loop(
                lambda: AsyncPublisher(
                    topic,
                    address=address,
                    timeout=timeout,
                    compression=compression,
                    inline_bytes_max=inline_bytes_max,
                    tls=tls,
                    username=username,
                    password=password,
                    token=token,
                )
            )
        )
        self.topic = self._publisher.topic
        self._inboxes = ProducerInboxes(self._publisher.producer, timeout, BUFFER_BYTES_MAX)
        self._carried_bytes_max: dict[str, int] = {}

    def send(
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
        sent = self.submit(
            value, topic=topic, key=key, attributes=attributes, deliver_at=deliver_at, delay=delay
        )
        return sent.result()

    def submit(
        self,
        value: bytes | None,
        *,
        topic: str | None = None,
        key: bytes | None = None,
        attributes: Attributes | None = None,
        deliver_at: datetime | int | None = None,
        delay: float | None = None,
    ) -> Sent:
        """Like `send`, but returns as soon as the message is queued, with a future of its place. A body that goes
        to the object store is uploaded first."""
        record = published_record(value, key, headers_of(attributes, deliver_at, delay))
        topic = arguments.one_topic(topic, self.topic)
        if topic not in self._carried_bytes_max:
            self._carried_bytes_max[topic] = run(self._publisher.carried_bytes_max(topic))
        if record.value and len(record.value) > self._carried_bytes_max[topic]:
            record = run(self._publisher.referring(topic, record))
        return self._inboxes.of(topic).submit_record(record)

    def flush(self) -> None:
        """Wait until every submitted message has a result."""
        run(self._flush())

    def close(self) -> None:
        """Send all submitted messages, then close."""
        run(self._close())

    def __repr__(self) -> str:
        return sync_repr(self._publisher)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _flush(self) -> None:
        await self._inboxes.drain()
        await self._publisher.flush()

    async def _close(self) -> None:
        try:
            await self._inboxes.drain()
        finally:
            await self._publisher.close()
