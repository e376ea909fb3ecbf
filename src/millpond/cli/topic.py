"""`millpond topic`: list, create, describe, alter and delete topics."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from millpond.cli.connection import admin_of, complete_topic
from millpond.cli.options import broker_options, json_option, name_and_value
from millpond.cli.output import count_text, print_json, print_table, size_text, time_text
from millpond.cli.suggestions import SuggestingGroup
from millpond.client import Config, Topic, TopicDescription
from millpond.model.configs import DEFINITIONS
from millpond.model.errors import InvalidRequest

topic_argument = click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
config_option = click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    callback=name_and_value,
    help="Topic config by its Kafka name, e.g. retention.ms=60000; repeatable.",
)


@click.group(cls=SuggestingGroup)
def topic() -> None:
    """List, create, describe, alter and delete topics."""


@topic.command("list", epilog="\b\nExample:\n  millpond topic list --json")
@broker_options
@json_option
def list_topics(address: str, timeout: float, as_json: bool) -> None:
    """List all topics."""
    with admin_of(address, timeout) as admin:
        found = admin.list_topics()
    if as_json:
        print_json([_facts(each) for each in found])
    elif not found:
        click.echo(
            "There are no topics. Producing to one creates it: echo hello | millpond produce greetings"
        )
    else:
        rows = [(each.name, each.partitions, time_text(each.created_at_ms), _set(each)) for each in found]
        print_table(("TOPIC", "PARTITIONS", "CREATED", "CONFIGS"), rows)


@topic.command(
    epilog="\b\nExample:\n  millpond topic create orders --partitions 4 --config retention.ms=86400000"
)
@topic_argument
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Partition count; the broker's default unless set."
)
@config_option
@broker_options
@json_option
def create(
    name: str,
    partitions: int | None,
    configs: list[tuple[str, str]],
    address: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Create a topic."""
    with admin_of(address, timeout) as admin:
        made = admin.create_topic(name, partitions=partitions, configs=dict(configs))
    _report(made, "created", as_json)


@topic.command(
    epilog="\b\nExamples:\n  millpond topic describe orders\n  millpond topic describe orders --all"
)
@topic_argument
@click.option("--all", "everything", is_flag=True, help="Also show configs that have their default value.")
@broker_options
@json_option
def describe(name: str, everything: bool, address: str, timeout: float, as_json: bool) -> None:
    """Show a topic's partitions and the configs that differ from their defaults."""
    with admin_of(address, timeout) as admin:
        found = admin.describe_topic(name)
    configs = [each for each in found.configs if everything or _differs(each)]
    if as_json:
        print_json(_description_facts(found, configs))
    else:
        _print_description(found, configs)


@topic.command(
    epilog="\b\nExamples:\n  millpond topic alter orders --partitions 8\n"
    "  millpond topic alter orders --config retention.ms=60000 --reset cleanup.policy"
)
@topic_argument
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="New partition count; cannot be lower than the current one.",
)
@config_option
@click.option("--reset", multiple=True, metavar="NAME", help="Reset this config to its default; repeatable.")
@broker_options
@json_option
def alter(
    name: str,
    partitions: int | None,
    configs: list[tuple[str, str]],
    reset: tuple[str, ...],
    address: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Add partitions to a topic or change its configs."""
    changes: dict[str, str | None] = {**dict(configs), **dict.fromkeys(reset)}
    if both := dict(configs).keys() & set(reset):
        raise click.UsageError(f"{', '.join(sorted(both))} cannot be set and reset at once")
    if partitions is None and not changes:
        raise click.UsageError("say what to alter: --partitions, --config or --reset")
    with admin_of(address, timeout) as admin:
        altered = admin.alter_topic(name, partitions=partitions, configs=changes)
    _report(altered, "altered", as_json)


@topic.command(epilog="\b\nExample:\n  millpond topic delete orders --yes")
@topic_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def delete(name: str, yes: bool, address: str, timeout: float, as_json: bool) -> None:
    """Delete a topic with all its messages."""
    with admin_of(address, timeout) as admin:
        found = admin.describe_topic(name)
        if not yes:
            confirm(f"Delete topic {name!r} with {count_text(_messages(found))}?")
        admin.delete_topic(name)
    if as_json:
        print_json({"topic": name, "deleted": True, "messages": _messages(found)})
    else:
        click.echo(f"deleted topic {name} with {count_text(_messages(found))}")


def confirm(question: str) -> None:
    """Ask for confirmation; raise if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "There is no terminal to ask for confirmation, so nothing was done. Confirm with --yes."
        )
    if not click.confirm(question, err=True):
        raise InvalidRequest("Nothing was done.")


def _report(topic: Topic, done: str, as_json: bool) -> None:
    if as_json:
        print_json(_facts(topic))
    else:
        click.echo(
            f"{done} topic {topic.name} with {count_text(topic.partitions, 'partition')} {_set(topic)}".rstrip()
        )


def _print_description(found: TopicDescription, configs: Sequence[Config]) -> None:
    topic = found.topic
    click.echo(f"{topic.name}  {count_text(_messages(found))}, {size_text(_size(found))}")
    click.echo(f"created {time_text(topic.created_at_ms)}, id {topic.id}\n")
    rows = [
        (each.partition, each.oldest, each.next, each.messages, size_text(each.size_bytes), each.owner)
        for each in found.partitions
    ]
    print_table(("PARTITION", "OLDEST", "NEXT", "MESSAGES", "SIZE", "OWNER"), rows)
    if configs:
        click.echo()
        print_table(("CONFIG", "VALUE", "SET BY"), [(each.name, each.value, each.source) for each in configs])


def _differs(config: Config) -> bool:
    """Whether to show the config. Brokers report some configs as set although they have Kafka's default
    value."""
    known = DEFINITIONS.get(config.name)
    return config.source == "topic" or known is None or config.value != known.default


def _messages(found: TopicDescription) -> int:
    return sum(each.messages for each in found.partitions)


def _size(found: TopicDescription) -> int:
    return sum(each.size_bytes for each in found.partitions)


def _set(topic: Topic) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(topic.configs.items()))


def _facts(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.id,
        "partitions": topic.partitions,
        "created_at_ms": topic.created_at_ms,
        "configs": dict(topic.configs),
    }


def _description_facts(found: TopicDescription, configs: Sequence[Config]) -> dict[str, Any]:
    return {
        "name": found.topic.name,
        "id": found.topic.id,
        "created_at_ms": found.topic.created_at_ms,
        "messages": _messages(found),
        "size_bytes": _size(found),
        "partitions": [
            {
                "partition": each.partition,
                "oldest": each.oldest,
                "next": each.next,
                "messages": each.messages,
                "size_bytes": each.size_bytes,
                "owner": each.owner,
            }
            for each in found.partitions
        ],
        "configs": {each.name: {"value": each.value, "source": each.source} for each in configs},
    }
