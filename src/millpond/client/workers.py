"""Distributes the deliveries of one subscriber over several workers. Deliveries in order go to the same
worker, one after another.

A delivery that a worker has not started with can still be revoked: it is claimed at the last moment.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from millpond.client.delivery import BaseDelivery
from millpond.client.inbox import DeliveryOrder, Inbox
from millpond.client.reasons import reason_of

logger = logging.getLogger(__name__)


class WorkerLanes:
    """Assigns deliveries to workers. Pure."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError("there must be at least one worker")
        self.lanes: list[deque[BaseDelivery]] = [deque() for _ in range(count)]
        self._busy = [0] * count

    def add(self, delivery: BaseDelivery, order: DeliveryOrder) -> int:
        """Returns the number of the worker: that of the delivery's key or partition, or the least busy one."""
        if order is DeliveryOrder.PARTITION:
            number = delivery.partition % len(self.lanes)
        elif order is DeliveryOrder.KEY and delivery.key is not None:
            number = hash((delivery.partition, delivery.key)) % len(self.lanes)
        else:
            number = min(range(len(self.lanes)), key=self._busy.__getitem__)
        self.lanes[number].append(delivery)
        self._busy[number] += 1
        return number

    def next(self, number: int) -> BaseDelivery | None:
        lane = self.lanes[number]
        return lane.popleft() if lane else None

    def done(self, number: int) -> None:
        """The delivery that `next` returned is finished."""
        self._busy[number] -= 1

    def not_started(self) -> list[BaseDelivery]:
        """The deliveries that no worker has taken, in the order of each lane."""
        return [delivery for lane in self.lanes for delivery in lane]


def conclude(delivery: BaseDelivery, failure: BaseException | None) -> None:
    """Acknowledge or nack the delivery, unless the handler has done so."""
    if failure is not None:
        logger.error(
            "message handler failed",
            exc_info=failure,
            extra={
                "topic": delivery.link.topic,
                "partition": delivery.partition,
                "offset": delivery.number - 1,
            },
        )
    if not delivery.is_answered:
        if failure is None:
            delivery.ack()
        else:
            delivery.nack(reason=reason_of(failure))


class AsyncWorkers:
    def __init__(self, inbox: Inbox, count: int, wait_for_delivery: Callable[[], Awaitable[None]]) -> None:
        self._inbox = inbox
        self._lanes = WorkerLanes(count)
        self._count = count
        self._wait_for_delivery = wait_for_delivery
        self._woken = [asyncio.Event() for _ in range(count)]

    async def run(self, handler: Callable[[Any], Awaitable[Any] | None]) -> None:
        """Run until the inbox is closed. Handlers that have started run to their end. What has not started when
        this ends in another way can be taken again."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(self._count):
                    tasks.create_task(self._work(number, handler))
                while not self._inbox.closed:
                    while (delivery := self._inbox.next_unclaimed()) is not None:
                        self._woken[self._lanes.add(delivery, self._inbox.order)].set()
                    await self._wait_for_delivery()
                for woken in self._woken:
                    woken.set()
        finally:
            self._inbox.put_back(self._lanes.not_started())

    async def _work(self, number: int, handler: Callable[[Any], Awaitable[Any] | None]) -> None:
        while True:
            delivery = self._lanes.next(number)
            if delivery is None:
                if self._inbox.closed:
                    return
                self._woken[number].clear()
                await self._woken[number].wait()
                continue
            try:
                if self._inbox.claim(delivery):
                    await self._handle(delivery, handler)
            finally:
                self._lanes.done(number)

    async def _handle(self, delivery: BaseDelivery, handler: Callable[[Any], Awaitable[Any] | None]) -> None:
        failure: BaseException | None = None
        try:
            found = handler(delivery)
            if inspect.isawaitable(found):
                await found
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            failure = error  # something that the handler awaited was cancelled, not this worker
        except Exception as error:  # noqa: BLE001  # any error nacks this message only
            failure = error
        conclude(delivery, failure)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
