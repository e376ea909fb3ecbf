"""`millpond group`: shows consumer groups, their positions and their lag."""

import asyncio
import time
from typing import Any, Final

import click

from millpond.cli.connection import admin_of, check_reachable, client_options, complete_group, complete_topic
from millpond.cli.options import broker_options, json_option
from millpond.cli.output import count_text, print_json, print_table
from millpond.cli.positions import HELP, StartPosition, StartPositionType, numbers_at
from millpond.cli.suggestions import SuggestingGroup
from millpond.cli.topic import confirm
from millpond.client import AsyncAdmin, GroupDescription, GroupPosition, Member
from millpond.model.errors import UnknownGroup, UnknownPartition

UNKNOWN: Final = "unknown"

group_argument = click.argument("name", metavar="GROUP", shell_complete=complete_group)


@click.group(cls=SuggestingGroup)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list", epilog="\b\nExample:\n  millpond group list")
@broker_options
@json_option
def list_groups(address: str, timeout: float, as_json: bool) -> None:
    """List all groups."""
    with admin_of(address, timeout) as admin:
        found = admin.list_groups()
    if as_json:
        print_json(
            [
                {
                    "group": each.name,
                    "state": each.state,
                    "protocol_type": each.protocol_type,
                    "type": each.type,
                }
                for each in found
            ]
        )
    elif not found:
        click.echo("There are no groups. `millpond consume TOPIC --group NAME` makes one.")
    else:
        rows = [(each.name, each.state, each.protocol_type or "-", each.type) for each in found]
        print_table(("GROUP", "STATE", "PROTOCOL", "TYPE"), rows)


@group.command(epilog="\b\nExample:\n  millpond group describe billing")
@group_argument
@broker_options
@json_option
def describe(name: str, address: str, timeout: float, as_json: bool) -> None:
    """Show a group's members, their partitions, positions and lag."""
    with admin_of(address, timeout) as admin:
        found = admin.describe_group(name)
    if as_json:
        print_json(_facts(found))
        return
    members = count_text(len(found.members), "member")
    click.echo(f"{name}  {found.group.state}, {members}, {_lag_text(found)}")
    click.echo(f"type {found.group.type}, epoch {found.epoch}")
    if found.positions:
        click.echo()
        rows = [
            (
                each.topic,
                each.partition,
                "-" if each.read_from is None else each.read_from,
                each.next,
                UNKNOWN if each.lag is None else each.lag,
            )
            for each in found.positions
        ]
        print_table(("TOPIC", "PARTITION", "READS NEXT", "NEXT WRITTEN", "LAG"), rows)
    if found.members:
        click.echo()
        rows_of_members = [
            (each.id, each.client_id, each.client_host, _partitions_text(each)) for each in found.members
        ]
        print_table(("MEMBER", "CLIENT", "HOST", "PARTITIONS"), rows_of_members)


@group.command(epilog="\b\nExample:\n  millpond group delete billing --yes")
@group_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def delete(name: str, yes: bool, address: str, timeout: float, as_json: bool) -> None:
    """Delete a group that has no members, with its positions."""
    with admin_of(address, timeout) as admin:
        found = admin.describe_group(name)
        if not yes:
            confirm(f"Delete group {name!r} with {count_text(len(found.positions), 'position')}?")
        admin.delete_group(name)
    if as_json:
        print_json({"group": name, "deleted": True})
    else:
        click.echo(f"deleted group {name}")


@group.command(
    epilog="\b\nExamples:\n  millpond group reset billing --topic orders --to earliest --dry-run\n"
    "  millpond group reset billing --topic orders --to -1h"
)
@group_argument
@click.option(
    "--topic", required=True, shell_complete=complete_topic, help="Topic whose positions are reset."
)
@click.option("--to", "place", type=StartPositionType(), metavar="PLACE", required=True, help=HELP)
@click.option("--partition", type=click.IntRange(min=0), help="Reset only this partition.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@broker_options
@json_option
def reset(
    name: str,
    topic: str,
    place: StartPosition,
    partition: int | None,
    dry_run: bool,
    address: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Set the position of a group that has no members; creates the group if it does not exist."""
    check_reachable(address)
    moves = asyncio.run(
        _reset(
            AsyncAdmin(address=address, timeout=timeout, **client_options()),
            *(name, topic, place, partition, dry_run),
        )
    )
    if as_json:
        facts = [dict(zip(("partition", "from", "to", "lag"), move, strict=True)) for move in moves]
        print_json({"group": name, "topic": topic, "dry_run": dry_run, "partitions": facts})
        return
    rows = [(number, "-" if before is None else before, after, lag) for number, before, after, lag in moves]
    print_table(("PARTITION", "BEFORE", "AFTER", "LAG"), rows)
    if dry_run:
        click.echo("Nothing was done: leave out --dry-run to do it.")


Move = tuple[int, int | None, int, int]
"""A partition, the group's previous position, its new position, and the lag from there."""


async def _reset(
    admin: AsyncAdmin, group: str, topic: str, start: StartPosition, partition: int | None, dry_run: bool
) -> list[Move]:
    async with admin:
        description = await admin.describe_topic(topic)
        numbers = await numbers_at(admin, description, start, int(time.time() * 1000))
        if partition is not None and partition not in numbers:
            raise UnknownPartition(topic=topic, partition=partition)
        chosen = {each: to for each, to in numbers.items() if partition in (None, each)}
        before = {each.partition: each.read_from for each in await _positions(admin, group, topic)}
        if not dry_run:
            await admin.commit_positions(group, topic, chosen)
        ends = {each.partition: each.next for each in description.partitions}
        return [(each, before.get(each), to, ends[each] - to) for each, to in chosen.items()]


async def _positions(admin: AsyncAdmin, group: str, topic: str) -> list[GroupPosition]:
    try:
        found = await admin.describe_group(group)
    except UnknownGroup:
        return []
    return [each for each in found.positions if each.topic == topic]


def _lag_text(found: GroupDescription) -> str:
    """Where nothing is committed, the lag is unknown, because the consumers decide where they begin."""
    if found.lag is not None:
        return f"{count_text(found.lag)} behind"
    known = [each.lag for each in found.positions if each.lag is not None]
    if not known:
        return "lag unknown: nothing is committed"
    unknown = count_text(len(found.positions) - len(known), "partition")
    return f"at least {count_text(sum(known))} behind; lag of {unknown} unknown: nothing is committed there"


def _partitions_text(member: Member) -> str:
    """For example `bills: 0; orders: 1, 3`."""
    topics = [f"{topic}: {', '.join(map(str, numbers))}" for topic, numbers in member.assigned.items()]
    return "; ".join(topics) or "-"


def _facts(found: GroupDescription) -> dict[str, Any]:
    return {
        "group": found.group.name,
        "state": found.group.state,
        "protocol_type": found.group.protocol_type,
        "type": found.group.type,
        "epoch": found.epoch,
        "lag": found.lag,
        "members": [
            {
                "id": each.id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "assigned": dict(each.assigned),
            }
            for each in found.members
        ],
        "positions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "read_from": each.read_from,
                "next": each.next,
                "lag": each.lag,
            }
            for each in found.positions
        ],
    }
