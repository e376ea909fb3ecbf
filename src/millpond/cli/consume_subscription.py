"""`millpond consume --subscription`: prints the messages of a subscription and acknowledges each one after
printing it.

Printed messages are flushed before they are acknowledged, so after a failure a message may be delivered
again, but none is skipped. When the command ends normally or by Ctrl-C, it returns the messages
that were not printed; these do not count as failed.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millpond.cli.connection import client_options
from millpond.cli.output import check_reader, count_text, print_bytes, print_note
from millpond.client import AsyncDelivery, AsyncSubscriber, Message

AT_ONCE: Final = 500
"""Maximum number of messages that are printed and acknowledged together."""
OUTPUT_CHECK_S: Final = 2.0
"""How often the command checks whether the output is still being read."""
ACK_CHOICES: Final = ("ack", "nack", "none")

RenderDelivery = Callable[[Message, int], bytes]
"""Takes a message and the number of its failed deliveries."""


@dataclass(frozen=True, slots=True)
class SubscriptionArguments:
    """The parsed arguments of the command. It ends after `count` messages, or when none came for `wait_s`, if
    these are set."""

    topic: str
    subscription: str
    consumer: str | None
    answer: str
    reason: str | None
    count: int | None
    wait_s: float | None
    address: str
    timeout: float


async def print_deliveries(arguments: SubscriptionArguments, render: RenderDelivery) -> bool:
    """Print the deliveries. Returns whether it ended without being interrupted."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    subscriber = AsyncSubscriber(
        arguments.topic,
        arguments.subscription,
        address=arguments.address,
        consumer=arguments.consumer,
        prefetch=min(arguments.count or AT_ONCE, AT_ONCE),
        timeout=arguments.timeout,
        **client_options(),
    )
    async with subscriber:
        try:
            await _print_all(subscriber, arguments, render)
        except asyncio.CancelledError:
            return False
        finally:
            await _finish(subscriber)
    return True


async def _print_all(
    subscriber: AsyncSubscriber, arguments: SubscriptionArguments, render: RenderDelivery
) -> None:
    left = arguments.count
    while left is None or left > 0:
        deliveries = await _next(subscriber, arguments.wait_s, min(left or AT_ONCE, AT_ONCE))
        if not deliveries:
            return
        print_bytes(b"".join([await _rendered(each, render) for each in deliveries]))
        for each in deliveries:
            _acknowledge(each, arguments)
        left = None if left is None else left - len(deliveries)


async def _next(subscriber: AsyncSubscriber, wait_s: float | None, most: int) -> list[AsyncDelivery]:
    """The available messages; waits for the first one. Empty if none came."""
    first = await subscriber.receive(OUTPUT_CHECK_S if wait_s is None else wait_s)
    while first is None and wait_s is None:
        check_reader()
        first = await subscriber.receive(OUTPUT_CHECK_S)
    found = [] if first is None else [first]
    while found and len(found) < most and (more := await subscriber.receive(0)) is not None:
        found.append(more)
    return found


async def _rendered(delivery: AsyncDelivery, render: RenderDelivery) -> bytes:
    metadata = delivery.metadata
    message = Message(
        metadata.number,
        await delivery.data(),
        metadata.key,
        tuple(metadata.attributes.items()),
        metadata.publish_time_ms,
        metadata.partition,
        metadata.topic,
    )
    return render(message, metadata.retry_count)


def _acknowledge(delivery: AsyncDelivery, arguments: SubscriptionArguments) -> None:
    if arguments.answer == "ack":
        delivery.ack()
    elif arguments.answer == "nack":
        delivery.nack(reason=arguments.reason)


async def _finish(subscriber: AsyncSubscriber) -> None:
    refused = await subscriber.flush()
    if refused:
        print_note(
            f"{count_text(len(refused), 'acknowledgement')} came too late: those messages may come again"
        )
