"""`millpond consume --subscription`: messages of a subscription to standard output, each answered once it is printed.

What was printed is flushed before it is answered, so a message may come again after a failure, and none is left out.
Whoever ends in order, as by Ctrl-C, gives back what was not printed; nothing is counted as failed.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millpond.cli.output import check_reader, count_text, print_bytes, say
from millpond.client import AsyncDelivery, AsyncSubscriber, Message

AT_ONCE: Final = 500
"""Messages that are printed and answered together, if so many are there."""
LOOK_EVERY_S: Final = 2.0
"""How often is looked whether anybody still reads the output."""
ANSWERS: Final = ("ack", "nack", "none")

RenderDelivery = Callable[[Message, int], bytes]
"""A message and how often it has failed."""


@dataclass(frozen=True, slots=True)
class Taking:
    """What was asked for. It ends after `count` messages, or when none came for `wait_s`, if these are given."""

    topic: str
    subscription: str
    consumer: str | None
    answer: str
    count: int | None
    wait_s: float | None
    address: str
    timeout: float


async def take(taking: Taking, render: RenderDelivery) -> bool:
    """Whether it came to its end, and was not interrupted."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    subscriber = AsyncSubscriber(
        taking.address,
        taking.topic,
        taking.subscription,
        consumer=taking.consumer,
        prefetch=min(taking.count or AT_ONCE, AT_ONCE),
        timeout=taking.timeout,
    )
    async with subscriber:
        try:
            await _copy(subscriber, taking, render)
        except asyncio.CancelledError:
            return False
        finally:
            await _finish(subscriber)
    return True


async def _copy(subscriber: AsyncSubscriber, taking: Taking, render: RenderDelivery) -> None:
    left = taking.count
    while left is None or left > 0:
        deliveries = await _next(subscriber, taking.wait_s, min(left or AT_ONCE, AT_ONCE))
        if not deliveries:
            return
        print_bytes(b"".join([await _rendered(each, render) for each in deliveries]))
        for each in deliveries:
            _answer(each, taking.answer)
        left = None if left is None else left - len(deliveries)


async def _next(subscriber: AsyncSubscriber, wait_s: float | None, most: int) -> list[AsyncDelivery]:
    """What is there; waits for the first. Empty when nothing came."""
    first = await subscriber.receive(LOOK_EVERY_S if wait_s is None else wait_s)
    while first is None and wait_s is None:
        check_reader()
        first = await subscriber.receive(LOOK_EVERY_S)
    found = [] if first is None else [first]
    while found and len(found) < most and (more := await subscriber.receive(0)) is not None:
        found.append(more)
    return found


async def _rendered(delivery: AsyncDelivery, render: RenderDelivery) -> bytes:
    about = delivery.metadata
    message = Message(
        about.number,
        await delivery.data(),
        about.key,
        tuple(about.attributes.items()),
        about.publish_time_ms,
        about.partition,
    )
    return render(message, about.retry_count)


def _answer(delivery: AsyncDelivery, answer: str) -> None:
    if answer == "ack":
        delivery.ack()
    elif answer == "nack":
        delivery.nack()


async def _finish(subscriber: AsyncSubscriber) -> None:
    refused = await subscriber.flush()
    if refused:
        say(f"{count_text(len(refused), 'answer')} came too late: those messages may come again")
