"""`millpond consume`: prints the messages of a topic to standard output, up to its end or continuously.

Printed messages are flushed before positions are committed, so after a failure a message may be printed
twice, but none is skipped. On Ctrl-C the positions of the printed messages are committed.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from millpond.cli.connection import check_reachable, client_options, complete_group, complete_topic
from millpond.cli.consume_subscription import (
    ACK_CHOICES,
    RenderDelivery,
    SubscriptionArguments,
    print_deliveries,
)
from millpond.cli.main import EXIT_INTERRUPTED, sentence_of
from millpond.cli.messages import delivery_line, to_line
from millpond.cli.options import broker_options
from millpond.cli.output import check_reader, print_bytes, print_note
from millpond.cli.positions import HELP, OLDEST, StartPosition, StartPositionType, numbers_at
from millpond.client import AsyncAdmin, AsyncConsumer, Message
from millpond.model.errors import MillpondError, Unavailable, UnknownTopic

WAIT_S: Final = 2.0
"""How long one poll waits. Between polls the command checks whether the output is still being read."""
RETRY_DELAY_S: Final = 0.2
SHARE_WAIT_S: Final = 6.0
"""How long a new member of a group waits for its share, unless --follow is set. The other members have to give it up:
Kafka's clients ask every 5 s whether they do."""
SHARE_POLL_S: Final = 0.5
MESSAGES_AT_ONCE: Final = 1_000
FIRST_BYTES: Final = 64 * 1024
BYTES_AT_ONCE: Final = 1024 * 1024
"""The first poll is small, because often only the first few messages are needed."""
KEY_SEPARATOR: Final = ":"

Render = Callable[[Message], bytes]

EPILOG: Final = """\b
Examples:
  millpond consume orders
  millpond consume orders --follow --from latest --show-key
  millpond consume orders --from -1h --json | jq .value
  millpond consume orders --group billing --count 100
  millpond consume pictures --raw --from 7 --count 1 > cat.png
  millpond consume orders --subscription billing --follow

\b
With --group or --position-file reading begins where it left off; --from says where to begin at first.
With --group the command joins the group: its members, such as Kafka consumers, share the partitions. With
--partition it is no member, and the group must have none.
With --subscription each message is acknowledged once it is printed; see `millpond subscription`.
"""
ONLY_LOG: Final = ("place", "partition", "group", "position_file")
ONLY_SUBSCRIPTION: Final = ("consumer", "answer", "reason", "wait")


@dataclass(frozen=True, slots=True)
class ConsumeArguments:
    """The parsed arguments of the command."""

    topic: str
    start: StartPosition
    partition: int | None
    count: int | None
    follow: bool
    group: str | None
    position_file: Path | None
    address: str
    timeout: float


@click.command(epilog=EPILOG)
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--from",
    "place",
    type=StartPositionType(),
    default=OLDEST,
    metavar="PLACE",
    help=f"{HELP} [default: earliest]",
)
@click.option("--partition", type=click.IntRange(min=0), help="Read only this partition.")
@click.option("--count", type=click.IntRange(min=1), help="Number of messages after which to stop.")
@click.option(
    "--follow", "-f", is_flag=True, help="Wait for more messages, and for a topic that does not exist yet."
)
@click.option(
    "--group",
    shell_complete=complete_group,
    help="Read as a member of this consumer group, which shares the partitions and stores the positions.",
)
@click.option(
    "--position-file", type=click.Path(path_type=Path, dir_okay=False), help="Store positions in this file."
)
@click.option(
    "--subscription", metavar="NAME", help="Receive from this subscription, and acknowledge what was printed."
)
@click.option(
    "--consumer", metavar="NAME", help="With --subscription: name of this consumer; generated unless set."
)
@click.option(
    "--answer",
    type=click.Choice(ACK_CHOICES),
    default="ack",
    help="With --subscription: response to each printed message. `none` returns it at the end, without counting an "
    "attempt. [default: ack]",
)
@click.option(
    "--reason",
    metavar="TEXT",
    help="With --answer nack: why the messages are rejected; kept with them and in their dead letters.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0.001),
    default=WAIT_S,
    metavar="SECONDS",
    help="With --subscription: stop when no message arrived for this long, unless --follow is set. "
    f"[default: {WAIT_S:g}]",
)
@click.option("--show-key", is_flag=True, help="Print KEY:VALUE.")
@click.option("--key-separator", metavar="TEXT", help="Print key and value, separated by this text.")
@click.option(
    "--show-headers", is_flag=True, help="Print headers as NAME=VALUE,… and a tab before each message."
)
@click.option("--raw", is_flag=True, help="Print values only, without separators.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print each message as one line of JSON, with all its fields."
)
@broker_options
@click.pass_context
def consume(
    context: click.Context,
    topic: str,
    place: StartPosition,
    partition: int | None,
    count: int | None,
    follow: bool,
    group: str | None,
    position_file: Path | None,
    subscription: str | None,
    consumer: str | None,
    answer: str,
    reason: str | None,
    wait: float,
    show_key: bool,
    key_separator: str | None,
    show_headers: bool,
    raw: bool,
    as_json: bool,
    address: str,
    timeout: float,
) -> None:
    """Read messages, oldest first, one line each. Stops at the end of the topic unless --follow is set."""
    if group is not None and position_file is not None:
        raise click.UsageError("give --group or --position-file, not both")
    _check_together(context, subscription)
    if reason is not None and answer != "nack":
        raise click.UsageError("--reason is for --answer nack")
    separator = key_separator if key_separator is not None else KEY_SEPARATOR if show_key else None
    render = _renderer(separator, show_headers, raw, as_json)
    if subscription is not None:
        wait_s = None if follow else wait
        subscription_arguments = SubscriptionArguments(
            topic, subscription, consumer, answer, reason, count, wait_s, address, timeout
        )
        _consume_subscription(
            context, subscription_arguments, delivery_line if as_json else lambda message, _: render(message)
        )
        return
    arguments = ConsumeArguments(
        topic, place, partition, count, follow, group, position_file, address, timeout
    )
    if not follow:
        check_reachable(address)
    try:
        ended = asyncio.run(_consume(arguments, render))
    except asyncio.CancelledError:  # Ctrl-C was pressed again while positions were being committed
        ended = False
    if not ended:
        context.exit(EXIT_INTERRUPTED)


def _consume_subscription(
    context: click.Context, subscription_arguments: SubscriptionArguments, render: RenderDelivery
) -> None:
    check_reachable(subscription_arguments.address)
    try:
        ended = asyncio.run(print_deliveries(subscription_arguments, render))
    except asyncio.CancelledError:  # Ctrl-C was pressed again while acknowledgements were in flight
        ended = False
    if not ended:
        context.exit(EXIT_INTERRUPTED)


def _check_together(context: click.Context, subscription: str | None) -> None:
    alien = ONLY_SUBSCRIPTION if subscription is None else ONLY_LOG
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in alien:
            without = "goes only with" if subscription is None else "does not go with"
            raise click.UsageError(f"{parameter.opts[0]} {without} --subscription")


# -- reading --------------------------------------------------------------------------------------------------


async def _consume(arguments: ConsumeArguments, render: Render) -> bool:
    """Returns whether it reached its end without being interrupted."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        consumer = await _opened(arguments)
    except asyncio.CancelledError:
        return False
    async with consumer:
        try:
            await _copy(consumer, arguments, render)
        except asyncio.CancelledError:
            return False
    return True


async def _opened(arguments: ConsumeArguments) -> AsyncConsumer:
    """A consumer at the starting position. With --follow it waits for the topic and the broker."""
    start, last_note = arguments.start, ""
    async with AsyncAdmin(address=arguments.address, timeout=arguments.timeout, **client_options()) as admin:
        while True:
            try:
                description = await admin.describe_topic(arguments.topic)
                numbers = await numbers_at(admin, description, start, int(time.time() * 1000))
            except (UnknownTopic, Unavailable) as error:
                if not arguments.follow:
                    raise
                last_note = _print_if_new(_waiting_for(arguments, error), last_note)
                if isinstance(error, UnknownTopic):
                    start = OLDEST  # a new topic has only messages from after now
                await asyncio.sleep(RETRY_DELAY_S)
            else:
                break
    return AsyncConsumer(
        arguments.topic,
        read_from=numbers,
        partition=arguments.partition,
        group=arguments.group,
        position_file=arguments.position_file,
        address=arguments.address,
        timeout=arguments.timeout,
        **client_options(),
    )


async def _copy(consumer: AsyncConsumer, arguments: ConsumeArguments, render: Render) -> None:
    left = arguments.count
    last_note, bytes_max = "", FIRST_BYTES
    wait_s = WAIT_S if arguments.follow else 0.0
    share_until = asyncio.get_running_loop().time() + SHARE_WAIT_S
    while left is None or left > 0:
        before = consumer.read_from
        try:
            polled = await consumer.poll(
                wait_s,
                messages_max=min(left or MESSAGES_AT_ONCE, MESSAGES_AT_ONCE),
                bytes_max=bytes_max,
            )
        except Unavailable as error:
            if not arguments.follow:
                raise
            last_note = _print_if_new(_waiting_for(arguments, error), last_note)
            await asyncio.sleep(RETRY_DELAY_S)
            continue
        last_note, bytes_max = "", BYTES_AT_ONCE
        if polled.messages:
            print_bytes(b"".join(map(render, polled.messages)))
            left = None if left is None else left - len(polled.messages)
        elif arguments.follow:
            check_reader()
        elif polled.read_from == before:  # the poll returned nothing and skipped nothing
            if any(consumer.assignment.values()):
                return
            if asyncio.get_running_loop().time() >= share_until:
                print_note(f"the other members of group {arguments.group!r} have all partitions")
                return
            wait_s = SHARE_POLL_S


def _waiting_for(arguments: ConsumeArguments, error: MillpondError) -> str:
    if isinstance(error, UnknownTopic):
        return f"waiting for topic {arguments.topic!r}, which does not exist yet"
    return f"waiting for the broker at {arguments.address}: {sentence_of(error)}"


def _print_if_new(sentence: str, last_note: str) -> str:
    if sentence != last_note:
        print_note(sentence)
    return sentence


# -- printing -------------------------------------------------------------------------------------------------


def _renderer(separator: str | None, show_headers: bool, raw: bool, as_json: bool) -> Render:
    if raw + as_json > 1 or ((raw or as_json) and (separator is not None or show_headers)):
        raise click.UsageError(
            "--raw and --json each print a message in their own way, without other options"
        )
    if raw:
        return lambda message: message.value or b""
    if as_json:
        return lambda message: to_line(message) + b"\n"
    parting = (separator or "").encode(errors="surrogateescape")

    def line(message: Message) -> bytes:
        headers = _headers(message) + b"\t" if show_headers else b""
        key = message.key + parting if separator is not None and message.key is not None else b""
        return headers + key + (message.value or b"") + b"\n"

    return line


def _headers(message: Message) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers)
