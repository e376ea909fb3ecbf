"""The queue part of the demo: a message that fails once, one that always fails, and keys that keep their
order."""

from typing import Final

import click

from millpond.cli.output import Stopwatch
from millpond.cli.temporary_broker import TemporaryBroker
from millpond.client import Admin, Consumer, Delivery, Producer, Subscriber
from millpond.model.errors import MillpondError

TASKS: Final = ((b"ann", b"paint"), (b"bob", b"poison"), (b"ann", b"polish"), (b"bob", b"pack"))
DONE: Final = {b"ann": [b"paint", b"polish"], b"bob": [b"pack"]}
DEAD_LETTERS: Final = "failed-tasks"
CONFIG: Final = {
    "mode": "key_shared",
    "attempts_max": 2,
    "backoff_ms": "100ms",
    "dead_letter_topic": DEAD_LETTERS,
}
TIMEOUT_S: Final = 30.0


def show_queue(broker: TemporaryBroker) -> str:
    click.echo("9. A topic as a queue: keys in order, a message that fails once, and one that always does")
    address = broker.listeners["grpc"]
    watch = Stopwatch()
    with (
        Admin(address=address, tls=False) as admin,
        Producer("tasks", address=address, tls=False) as producer,
    ):
        for key, task in TASKS:
            producer.send(task, key=key)
        admin.create_topic(DEAD_LETTERS)
        admin.create_subscription("tasks", "workshop", CONFIG)
    done = _work(address)
    letter = _dead_letter(address)
    if done != DONE or letter != b"poison":
        raise MillpondError(f"The demo failed: {done}, {letter!r}. Please report it.")
    click.echo(f"   poison is a dead letter now, in topic {DEAD_LETTERS}")
    return f"3 tasks done, one of them by a retry; 1 dead letter; each key in order ({watch.seconds:.1f} s)"


def _work(address: str) -> dict[bytes, list[bytes]]:
    """The completed tasks of each key, in order of completion."""
    done: dict[bytes, list[bytes]] = {key: [] for key in DONE}
    with Subscriber("tasks", "workshop", address=address, tls=False, timeout=TIMEOUT_S) as subscriber:
        while done != DONE and (delivery := subscriber.receive(TIMEOUT_S)) is not None:
            key, task = delivery.key or b"", delivery.value or b""
            if _fails(delivery):
                delivery.nack(reason=f"cannot {task.decode()}")
            else:
                delivery.ack()
                done[key].append(task)
            outcome = "nack" if _fails(delivery) else "ack"
            retry = f", retry {delivery.metadata.retry_count}" if delivery.metadata.retry_count else ""
            click.echo(f"   {key.decode()}: {task.decode()}{retry}: {outcome}")
    return done


def _fails(delivery: Delivery) -> bool:
    return delivery.value == b"poison" or (delivery.value == b"paint" and not delivery.metadata.retry_count)


def _dead_letter(address: str) -> bytes | None:
    with Consumer(DEAD_LETTERS, address=address, tls=False, timeout=TIMEOUT_S) as consumer:
        messages = consumer.poll(TIMEOUT_S).messages
    return messages[0].value if messages else None
