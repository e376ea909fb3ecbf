"""A subscriber on an event loop: receives the messages of a subscription, which the application acknowledges
one by one.

    async with AsyncSubscriber("orders", "billing") as subscriber:
        async for delivery in subscriber:
            print(delivery.metadata.number, delivery.value)
            delivery.ack()

It attaches to every broker that owns some of the topic's partitions, attaches again whenever a connection
breaks, and receives no more than it has room for. The outcome of an acknowledgement never stops the
subscriber. Iteration ends with an error only if there is nothing to attach to any more (no such topic, no
such subscription, another consumer with its name).
"""

import asyncio
import logging
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, Self

from millpond.client import arguments
from millpond.client.bodies import BodyFetcher
from millpond.client.calls import ADMIN, QUEUE, Connections, Pauses
from millpond.client.delivery import AsyncDelivery, BaseDelivery, Outcome
from millpond.client.inbox import Inbox
from millpond.client.link import AttachParameters, BrokerCredit, SubscribeLink
from millpond.client.outbox import OutboxItem
from millpond.client.reprs import client_repr
from millpond.client.security import SecurityArguments, TlsArgument, TokenArgument
from millpond.client.sources import ServerAddresses
from millpond.client.subscriptions import check_same, config_texts
from millpond.client.transaction import AsyncTransaction
from millpond.client.workers import AsyncWorkers
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import (
    AuthenticationFailed,
    Defect,
    MillpondError,
    Stopping,
    SubscriptionExists,
    SubscriptionReplaced,
)
from millpond.stubs import admin_pb2
from millpond.stubs import queue_pb2 as pb

TIMEOUT_S: Final = 10.0
PREFETCH: Final = 1_000
PREFETCH_BYTES: Final = 32 * 1024 * 1024
VALUE_BYTES_MAX: Final = 256 * 1024
"""Larger values are left out of the delivery, and fetched on demand."""
REFRESH_INTERVAL_S: Final = 10.0
"""How often the subscriber looks for moved partitions when no broker reports a move."""
YIELD_EVERY: Final = 100
"""After this many deliveries, acknowledgements and credit are sent, even if there are more deliveries to take."""
REFUSED_MAX: Final = 1_000
"""How many acknowledgements that were not accepted are remembered until the next flush."""

logger = logging.getLogger(__name__)


class AsyncSubscriber:
    """Receives the messages of a subscription, which the application acknowledges one by one.

    `address` is the broker to try first, or several. `consumer` is the name of this consumer; by default a unique one
    is generated. `create` creates the subscription with these configs if it does not exist. `prefetch` and
    `prefetch_bytes` limit the deliveries that are received or in flight, and not taken yet. Values larger than
    `value_bytes_max` are left out of the delivery, and so are all values with `metadata_only`: `data` fetches them.
    `timeout` is the time that a broker has to respond. `tls` is True, the path of a CA file or a `Tls`; `username` and
    `password`, or `token`, prove who you are."""

    _delivery_class: type[BaseDelivery] = AsyncDelivery

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
        self.topic = arguments.topic("topic", topic)
        self.subscription = arguments.label("subscription", subscription)
        self.consumer = arguments.optional(arguments.text, "consumer", consumer) or _default_consumer_name()
        self._create = None if create is None else config_texts("create", create)
        self._prefetch = arguments.count("prefetch", prefetch)
        self._prefetch_bytes = arguments.count("prefetch_bytes", prefetch_bytes)
        arguments.integer("value_bytes_max", value_bytes_max, 1, arguments.UINT32_MAX)
        arguments.flag("metadata_only", metadata_only)
        self._connections = Connections(address, timeout, SecurityArguments(tls, username, password, token))
        self._timeout_s = self._connections.timeout_s
        self._attach_parameters = AttachParameters(
            topic, subscription, self.consumer, value_bytes_max, metadata_only
        )
        self._clock: Clock = SystemClock()
        self._inbox = Inbox(
            lambda delivery: delivery.link.return_credit(delivery),
            time.monotonic,
            lambda: self._inbox_changed.set(),
        )
        self._bodies = BodyFetcher(self._connections, topic)
        self._links: dict[str, SubscribeLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._supervising: asyncio.Task[None] | None = None
        self._refresh_requested = asyncio.Event()
        self._inbox_changed = asyncio.Event()
        self._taken = 0
        self._paused = False
        self._refused: deque[tuple[BaseDelivery, Outcome]] = deque(maxlen=REFUSED_MAX)

    # -- deliveries -------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        """The next delivery; waits for one. The iteration ends when the subscriber is closed."""
        self._taken += 1
        if self._taken % YIELD_EVERY == 0:
            await asyncio.sleep(0)  # nothing is taken yet, so a cancellation here loses no delivery
        found = self._inbox.take()
        while found is None:
            await self._wait_for_delivery()
            found = self._inbox.take()
            if found is None and self._inbox.closed:
                self._check()
                raise StopAsyncIteration
        return found  # type: ignore[return-value]  # this class creates no other kind

    async def receive(self, wait: float | None = None) -> AsyncDelivery | None:
        """The next delivery. Waits at most `wait` seconds; None when they are over."""
        try:
            async with asyncio.timeout(arguments.optional_seconds("wait", wait)):
                return await anext(self)
        except TimeoutError:
            return self._inbox.take()  # type: ignore[return-value]  # this class creates no other kind
        except StopAsyncIteration:
            raise Stopping("The subscriber is closed.") from None

    async def run(
        self, handler: Callable[[AsyncDelivery], Awaitable[Any] | None], *, workers: int = 1
    ) -> None:
        """Call `handler` with every delivery, until the subscriber is closed. Up to `workers` calls run at a time,
        but only one for each key, in order. When the handler returns, the message is acknowledged, unless the
        handler has done so itself. When the handler raises, the error is logged, and the message is nacked with
        the error as the reason."""
        arguments.function("handler", handler)
        arguments.count("workers", workers)
        await self._start()
        await AsyncWorkers(self._inbox, workers, self._wait_for_delivery).run(handler)
        self._check()

    async def _wait_for_delivery(self) -> None:
        await self._start()
        self._inbox_changed.clear()
        if not self._inbox.closed and not self._inbox.has_waiting:
            await self._inbox_changed.wait()

    def _check(self) -> None:
        if self._inbox.failure is not None:
            raise self._inbox.failure.copy()

    # -- acknowledgements -------------------------------------------------------------------------------------

    async def flush(self) -> list[tuple[BaseDelivery, Outcome]]:
        """Wait until every acknowledgement is durable or refused. Returns those refused since the last flush."""
        for link in list(self._links.values()):
            await link.flushed()
        refused = list(self._refused)
        self._refused.clear()
        return refused

    def transaction(self) -> AsyncTransaction:
        """Acknowledge deliveries and publish messages together, atomically:

        async with subscriber.transaction() as transaction:
            transaction.ack(delivery)
            transaction.publish(body, topic="invoices", key=delivery.key)
        """
        return AsyncTransaction(self._connections, self._attach_parameters)

    # -- flow -------------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Receive nothing more for now. Deliveries that have arrived already may still be taken."""
        self._set_paused(paused=True)

    async def resume(self) -> None:
        """Receive again, after `pause`."""
        self._set_paused(paused=False)

    def _set_paused(self, *, paused: bool) -> None:
        self._paused = paused
        for link in self._links.values():
            link.paused = paused
            link.wake()

    # -- lifecycle --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Attach, without waiting for a first message. Iterating does the same."""
        await self._start()

    async def _start(self) -> None:
        if self._supervising is None and not self._inbox.closed:
            self._supervising = asyncio.create_task(self._supervise())

    async def _supervise(self) -> None:
        """Keep a link to every broker that owns some of the partitions."""
        try:
            await self._create_if_missing()
            while not self._inbox.closed:
                self._refresh_requested.clear()
                await self._update_links(await self._owners())
                try:
                    async with asyncio.timeout(REFRESH_INTERVAL_S):
                        await self._refresh_requested.wait()
                except TimeoutError:
                    continue
        except MillpondError as error:
            self._fail(error)
        except Exception as error:  # a bug must end iteration, not leave it waiting
            logger.exception(
                "unexpected error in subscriber; it cannot continue",
                extra={
                    "topic": self.topic,
                    "subscription": self.subscription,
                    "consumer": self.consumer,
                    "error": error,
                },
            )
            self._fail(Defect(reason=repr(error)))

    async def _create_if_missing(self) -> None:
        if self._create is None:
            return
        request = pb.CreateSubscriptionRequest(topic=self.topic, name=self.subscription, config=self._create)
        try:
            await self._connections.call(QUEUE, "CreateSubscription", request, pb.Subscription)
        except SubscriptionExists:
            await self._check_existing(self._create)

    async def _check_existing(self, wanted: Mapping[str, str]) -> None:
        """An existing subscription with other settings delivers by other rules, for example in another order."""
        request = pb.ListSubscriptionsRequest(topic=self.topic)
        found = await self._connections.call(
            QUEUE, "ListSubscriptions", request, pb.ListSubscriptionsResponse
        )
        for each in found.subscriptions:
            if each.name == self.subscription:
                check_same(self.topic, self.subscription, wanted, each.config)

    async def _owners(self) -> set[str]:
        """The owners of the topic's partitions. Retries until a broker responds."""
        request = admin_pb2.DescribeTopicRequest(name=self.topic)
        while True:
            try:
                found = await self._connections.call(
                    ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription
                )
                break
            except MillpondError as error:
                if not error.retriable or self._connections.is_closed:
                    raise
        owners = {each.owner or self._connections.address for each in found.partitions}
        for owner in owners:
            self._connections.add_known_address(owner)
        for broker in found.brokers:
            self._connections.add_known_address(broker)
        return owners

    async def _update_links(self, owners: set[str]) -> None:
        """Add and remove links so that there is one to each owner. There is only one link to a broker at a time: the
        next one starts after the previous one has detached."""
        share = len(owners)
        self._tasks = {address: task for address, task in self._tasks.items() if not task.done()}
        for address in owners - self._tasks.keys():
            task = self._tasks[address] = asyncio.create_task(self._keep_attached(address, share))
            task.add_done_callback(self._on_link_ended)
        for address, link in self._links.items():
            if address in owners:
                link.credit.resize(*self._share(share))
                link.wake()
            elif not link.is_draining:
                self._background(link.detach(self._timeout_s))

    def _on_link_ended(self, task: "asyncio.Task[None]") -> None:
        """A bug must end iteration, not leave it waiting."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(Defect(reason=repr(error)))
        self._refresh_requested.set()

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _share(self, of: int) -> tuple[int, int]:
        return max(1, self._prefetch // of), max(1, self._prefetch_bytes // of)

    async def _keep_attached(self, address: str, share: int) -> None:
        """Stay attached to one broker: attach again after each retriable error."""
        pauses = Pauses()
        while not self._inbox.closed:
            link = self._links[address] = self._link(address, share)
            try:
                await link.run()
                return
            except MillpondError as error:
                if not _may_attach_again(link, error):
                    self._fail(error)
                    return
            finally:
                self._links.pop(address, None)
            if link.is_draining:
                return
            if link.attached is not None:
                pauses = Pauses()
            await asyncio.sleep(pauses.take())
            self._refresh_requested.set()

    def _link(self, address: str, share: int) -> SubscribeLink:
        link = SubscribeLink(
            address,
            self._connections,
            self._attach_parameters,
            self._inbox,
            BrokerCredit(*self._share(share)),
            delivery_class=self._delivery_class,
            fetch_body=self._bodies.fetch,
            now_ms=self._clock.now_ms,
            on_arrival=self._inbox_changed.set,
            on_lost=self._refresh_requested.set,
            on_refused=self._on_refused,
        )
        link.paused = self._paused
        return link

    def _on_refused(self, item: OutboxItem) -> None:
        assert item.acknowledgement.outcome is not None, "the outcome is set"
        self._refused.append((item.delivery, item.acknowledgement.outcome))

    def _fail(self, error: MillpondError) -> None:
        """Close the inbox. Nothing more will be taken, so all links detach."""
        self._inbox.close(error)
        self._inbox_changed.set()
        self._refresh_requested.set()
        for link in self._links.values():
            if not link.is_draining:
                self._background(link.detach(self._timeout_s))

    async def close(self) -> None:
        """Wait until every acknowledgement is durable, then detach gracefully. Deliveries that were not acknowledged
        go to other consumers immediately, and do not count as failed. Wakes up callers that wait for a delivery."""
        if self._connections.is_closed:
            return
        self._inbox.close()
        self._inbox_changed.set()
        if self._supervising is not None:
            self._supervising.cancel()
        for address, task in self._tasks.items():
            if address not in self._links:
                task.cancel()
        for link in self._links.values():
            self._background(link.detach(self._timeout_s))
        await self._end_all()
        await self._connections.close()

    async def _end_all(self) -> None:
        """Wait until all links have detached. Cancel those that do not in time."""
        tasks = {*self._tasks.values(), *self._leaving}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=2 * self._timeout_s)
            for task in late:
                task.cancel()
        if self._supervising is not None:
            tasks.add(self._supervising)
        await asyncio.gather(*tasks, return_exceptions=True)

    def __repr__(self) -> str:
        return client_repr(
            "AsyncSubscriber",
            is_closed=self._connections.is_closed,
            topic=self.topic,
            subscription=self.subscription,
            consumer=self.consumer,
            address=self._connections.address,
        )

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _may_attach_again(link: SubscribeLink, error: MillpondError) -> bool:
    """A token that was accepted may have expired: the next attachment has the current one."""
    if isinstance(error, AuthenticationFailed):
        return link.attached is not None
    return error.retriable and not isinstance(error, SubscriptionReplaced)


def _default_consumer_name() -> str:
    """A name that no other consumer has, and that shows an operator where it runs."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
