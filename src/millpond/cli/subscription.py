"""`millpond subscription`: topics as queues: shows and changes subscriptions, and handles dead letters and
blocked messages."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, Final

import click

from millpond.cli.connection import admin_of, complete_topic
from millpond.cli.options import Command, broker_options, json_option
from millpond.cli.output import count_text, print_json, print_table, time_text
from millpond.cli.positions import parse_position
from millpond.cli.suggestions import SuggestingGroup
from millpond.cli.topic import confirm
from millpond.client import Subscription, SubscriptionPartition, SubscriptionState
from millpond.client.subscriptions import NewSubscriptionStart
from millpond.model.subscriptions import BOUNDS, SubscriptionConfig

MODES: Final = ("shared", "key_shared", "exclusive", "failover", "multicast")
EXHAUSTED: Final = ("dead_letter", "block", "drop")
START_HELP: Final = "earliest, latest, a message number, or a time: -1h, 2026-01-31T12:00 (local time)."
KEYS_SHOWN: Final = 10
FAILING_SHOWN: Final = 10

topic_argument = click.argument("topic", shell_complete=complete_topic)
name_argument = click.argument("name", metavar="NAME")
mode_option = click.option(
    "--mode", type=click.Choice(MODES), help="How messages are distributed among consumers. [default: shared]"
)


def config_options(command: Command) -> Command:
    """Options with short names; `CONFIG_NAMES` maps them to the broker's names."""
    options = (
        click.option(
            "--ack-timeout",
            metavar="DURATION",
            help="Time after which an unacknowledged delivery counts as failed.",
        ),
        click.option(
            "--attempts", type=int, metavar="NUMBER", help="Maximum number of failed deliveries of a message."
        ),
        click.option(
            "--on-exhausted",
            type=click.Choice(EXHAUSTED),
            help="What happens to a message after its last attempt.",
        ),
        click.option("--dead-letter-topic", metavar="TOPIC", help="Topic for dead letters."),
        click.option(
            "--backoff", metavar="DURATION", help="Delay before the first retry; doubles after each failure."
        ),
        click.option("--backoff-max", metavar="DURATION", help="Maximum delay before a retry."),
        click.option(
            "--key-window",
            type=int,
            metavar="NUMBER",
            help="Maximum number of messages of one key in flight.",
        ),
        click.option(
            "--leases",
            type=int,
            metavar="NUMBER",
            help="Maximum number of unacknowledged messages of one partition.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


CONFIG_NAMES: Final = {
    "mode": "mode",
    "ack_timeout": "ack_timeout_ms",
    "attempts": "attempts_max",
    "on_exhausted": "on_exhausted",
    "dead_letter_topic": "dead_letter_topic",
    "backoff": "backoff_ms",
    "backoff_max": "backoff_max_ms",
    "key_window": "key_window",
    "leases": "leases_max",
}


class StartType(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    name = "place"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> NewSubscriptionStart:
        try:
            return parse_start(value, time.time())
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is none of {START_HELP}", parameter, context)


def parse_start(text: str, now_s: float) -> NewSubscriptionStart:
    if text in ("earliest", "oldest"):
        return "earliest"
    if text in ("latest", "newest"):
        return "latest"
    start = parse_position(text)
    if start.kind == "last":
        raise ValueError("a subscription starts at the same position in every partition")
    if start.kind == "number":
        return start.at
    seconds = now_s - start.at / 1000 if start.kind == "ago" else start.at / 1000
    return datetime.fromtimestamp(max(seconds, 0), UTC)


@click.group(cls=SuggestingGroup)
def subscription() -> None:
    """Topics as queues: create, show, alter, delete and reset subscriptions; redrive dead letters, unblock messages."""


@subscription.command(
    epilog="\b\nExamples:\n  millpond subscription create orders billing\n"
    "  millpond subscription create orders shipping --mode key_shared --ack-timeout 2m --from latest"
)
@topic_argument
@name_argument
@mode_option
@config_options
@click.option(
    "--from",
    "start",
    type=StartType(),
    default="earliest",
    metavar="PLACE",
    help=f"{START_HELP} [default: earliest]",
)
@broker_options
@json_option
def create(
    topic: str,
    name: str,
    start: NewSubscriptionStart,
    address: str,
    timeout: float,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a subscription on a topic."""
    with admin_of(address, timeout) as admin:
        made = admin.create_subscription(topic, name, _config(given), read_from=start)
    _report(made, "created", as_json)


@subscription.command("list", epilog="\b\nExample:\n  millpond subscription list orders")
@click.argument("topic", required=False, shell_complete=complete_topic)
@broker_options
@json_option
def list_subscriptions(topic: str | None, address: str, timeout: float, as_json: bool) -> None:
    """List the subscriptions of a topic, or of all topics."""
    with admin_of(address, timeout) as admin:
        found = admin.list_subscriptions(topic)
    if as_json:
        print_json([_facts(each) for each in found])
    elif not found:
        click.echo("There are no subscriptions. `millpond subscription create TOPIC NAME` makes one.")
    else:
        rows = [(each.topic, each.name, each.config["mode"], time_text(each.created_at_ms)) for each in found]
        print_table(("TOPIC", "SUBSCRIPTION", "MODE", "CREATED"), rows)


@subscription.command(epilog="\b\nExample:\n  millpond subscription describe orders billing")
@topic_argument
@name_argument
@broker_options
@json_option
def describe(topic: str, name: str, address: str, timeout: float, as_json: bool) -> None:
    """Show what is settled and in flight, the attached consumers, which keys are blocked and why, and which messages
    have failed and why."""
    with admin_of(address, timeout) as admin:
        found = admin.describe_subscription(topic, name, keys_max=KEYS_SHOWN, failing_max=FAILING_SHOWN)
    if as_json:
        print_json(asdict(found) | {"subscription": _facts(found.subscription), "backlog": found.backlog})
        return
    config = _typed(found.subscription.config)
    click.echo(f"{topic} {name}  {config['mode']}, {count_text(found.backlog)} not settled")
    click.echo("  ".join(f"{key}={value}" for key, value in config.items() if key != "mode" and value != ""))
    waiting = f", {found.dead_letters_waiting} on their way" if found.dead_letters_waiting else ""
    click.echo(f"dead letters go to {found.dead_letter_topic}{waiting}")
    _print_state(found)
    _print_failing(found)


@subscription.command(
    epilog="\b\nExample:\n  millpond subscription alter orders billing --attempts 10 --backoff 5s"
)
@topic_argument
@name_argument
@config_options
@broker_options
@json_option
def alter(topic: str, name: str, address: str, timeout: float, as_json: bool, **given: Any) -> None:
    """Change the given configs; consumers stay attached. The mode cannot be changed."""
    config = _config(given)
    if not config:
        raise click.UsageError("say what to change")
    with admin_of(address, timeout) as admin:
        altered = admin.alter_subscription(topic, name, config)
    _report(altered, "altered", as_json)


@subscription.command(epilog="\b\nExample:\n  millpond subscription delete orders billing --yes")
@topic_argument
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def delete(topic: str, name: str, yes: bool, address: str, timeout: float, as_json: bool) -> None:
    """Delete a subscription and its progress. Messages and dead letters are kept."""
    with admin_of(address, timeout) as admin:
        found = admin.describe_subscription(topic, name)
        if not yes:
            confirm(
                f"Delete subscription {name!r} of {topic!r} with {count_text(found.backlog)} not settled?"
            )
        admin.delete_subscription(topic, name)
    _print_result(
        {"topic": topic, "name": name, "deleted": True}, f"deleted subscription {name} of {topic}", as_json
    )


@subscription.command(
    epilog="\b\nExamples:\n  millpond subscription reset orders billing --to earliest\n"
    "  millpond subscription reset orders billing --to -1h --yes"
)
@topic_argument
@name_argument
@click.option("--to", "start", type=StartType(), required=True, metavar="PLACE", help=START_HELP)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def reset(
    topic: str, name: str, start: NewSubscriptionStart, yes: bool, address: str, timeout: float, as_json: bool
) -> None:
    """Move a subscription to another position. Deliveries in flight and retry counts are dropped; consumers
    continue from the new position."""
    with admin_of(address, timeout) as admin:
        if not yes:
            confirm(f"Reset subscription {name!r} of {topic!r} to {start}? Its progress is lost.")
        admin.reset_subscription(topic, name, start)
    facts = {"topic": topic, "name": name, "start": str(start)}
    _print_result(facts, f"subscription {name} of {topic} was reset to {start}", as_json)


@subscription.command(
    epilog="\b\nExample:\n  millpond subscription redrive orders billing --max-messages 100"
)
@topic_argument
@name_argument
@click.option(
    "--max-messages", type=click.IntRange(min=1), default=None, help="Maximum number of messages to redrive."
)
@broker_options
@json_option
def redrive(
    topic: str, name: str, max_messages: int | None, address: str, timeout: float, as_json: bool
) -> None:
    """Send dead letters back to their topic, each of them once, for this subscription only."""
    with admin_of(address, timeout) as admin:
        count = admin.redrive(topic, name, messages_max=max_messages or 0)
    _print_result({"redriven": count}, f"sent {count_text(count, 'dead letter')} back to {topic}", as_json)


@subscription.command(epilog="\b\nExample:\n  millpond subscription unblock orders billing")
@topic_argument
@name_argument
@broker_options
@json_option
def unblock(topic: str, name: str, address: str, timeout: float, as_json: bool) -> None:
    """Retry messages that are blocked after their last attempt. Consumers must be attached."""
    with admin_of(address, timeout) as admin:
        count = admin.unblock(topic, name)
    _print_result({"unblocked": count}, f"let {count_text(count)} go again", as_json)


def _config(given: dict[str, Any]) -> dict[str, object]:
    return {CONFIG_NAMES[name]: value for name, value in given.items() if value is not None}


def _report(found: Subscription, done: str, as_json: bool) -> None:
    _print_result(
        _facts(found), f"{done} subscription {found.name} of {found.topic}, {found.config['mode']}", as_json
    )


def _facts(found: Subscription) -> dict[str, Any]:
    return asdict(found) | {"config": _typed(found.config)}


def _typed(config: Mapping[str, str]) -> dict[str, object]:
    """Numbers as numbers, in the order of the reference; configs that this version does not know come last."""
    order = {field.name: index for index, field in enumerate(fields(SubscriptionConfig))}
    names = sorted(config, key=lambda name: (order.get(name, len(order)), name))
    return {name: int(config[name]) if name in BOUNDS else config[name] for name in names}


def _print_result(facts: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        click.echo(sentence)


def _print_state(found: SubscriptionState) -> None:
    titles = ("PARTITION", "SETTLED BELOW", "NEXT WRITTEN", "NOT SETTLED", "LEASED", "DELAYED")
    click.echo()
    print_table(
        titles,
        [
            (
                _named(each),
                each.floor,
                each.next,
                each.backlog,
                *_in_progress(each, each.leased, each.delayed),
            )
            for each in found.partitions
        ],
    )
    if found.consumers:
        click.echo()
        rows = [
            (each.name, each.leased, each.acked, each.credit, _consumer_state(each))
            for each in found.consumers
        ]
        print_table(("CONSUMER", "HOLDS", "ACKED", "ROOM FOR", ""), rows)
    keys = [(each.partition, key) for each in found.partitions for key in each.keys]
    if keys:
        click.echo()
        print_table(
            ("PARTITION", "KEY", "FIRST", "WAITING", "WHY", "CONSUMER", "UNTIL"),
            [
                (
                    partition,
                    key.key_hash,
                    key.number,
                    key.waiting,
                    key.why,
                    key.consumer,
                    _until(key.until_ms),
                )
                for partition, key in keys
            ],
        )


def _print_failing(found: SubscriptionState) -> None:
    failing = [(each.partition, message) for each in found.partitions for message in each.failing]
    if failing:
        click.echo()
        print_table(
            ("PARTITION", "FAILING", "ATTEMPTS", "NOW", "UNTIL", "LAST REASON"),
            [
                (
                    partition,
                    message.number,
                    message.attempts,
                    message.why,
                    _until(message.until_ms),
                    message.reasons[-1] if message.reasons else "",
                )
                for partition, message in failing
            ],
        )


def _named(each: SubscriptionPartition) -> str:
    return f"{each.partition} {each.member}".rstrip()


def _in_progress(each: SubscriptionPartition, *counts: int) -> Sequence[object]:
    return counts if each.at_work else ["-"] * len(counts)


def _consumer_state(each: Any) -> str:
    return "paused" if each.paused else "not heard of" if each.suspended else ""


def _until(until_ms: int) -> str:
    return time_text(until_ms) if until_ms > 0 else ""
