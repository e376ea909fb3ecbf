"""`millpond quota`: lists, sets and deletes quotas, which limit the rates of users, client ids and addresses,
and the bytes that topics store.

The options of `set` and `delete` name one entity, and those of `list` select entities.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from millpond.cli.connection import admin_of
from millpond.cli.options import Command, broker_options, json_option
from millpond.cli.output import count_text, print_json, print_table
from millpond.cli.suggestions import SuggestingGroup
from millpond.cli.topic import confirm
from millpond.client import Admin, QuotaDescription
from millpond.model.quotas import EVERY_NAME, QUOTA_KEYS, QuotaEntity, keys_of

DEFAULT: Final = "<default>"
"""How a table shows every user, client id or address without a quota of its own."""
ENTITY: Final = "--user, --client-id, --ip, --topic, --default-user, --default-client-id or --default-ip"
HELP: Final = {
    "producer_byte_rate": "Bytes per second that may be produced.",
    "consumer_byte_rate": "Bytes per second that may be consumed.",
    "request_percentage": "Share of the time of one core of each broker, in percent. Kafka clients only.",
    "controller_mutation_rate": "Partitions per second that may be created and deleted.",
    "connection_creation_rate": "Connections per second of an address.",
    "stored_bytes": "Bytes that a topic may store.",
}


@dataclass(frozen=True, slots=True)
class EntityOptions:
    """None selects every value, and is no part of an entity."""

    user: str | None
    client_id: str | None
    ip: str | None
    topic: str | None

    @property
    def is_empty(self) -> bool:
        return all(name is None for name in self.entity)

    @property
    def entity(self) -> QuotaEntity:
        return QuotaEntity(self.user, self.client_id, self.ip, self.topic)

    def selects(self, found: QuotaDescription) -> bool:
        return all(
            wanted in (None, name) for wanted, name in zip(self.entity, _entity_of(found), strict=True)
        )

    def is_entity(self, found: QuotaDescription) -> bool:
        return self.entity == _entity_of(found)

    def __str__(self) -> str:
        return str(self.entity)


def _entity_of(found: QuotaDescription) -> QuotaEntity:
    return QuotaEntity(found.user, found.client_id, found.ip, found.topic)


# -- options -----------------------------------------------------------------------------------------------------------


def entity_options(command: Command) -> Command:
    """`chosen` makes them an `EntityOptions`."""
    options = (
        click.option("--user", metavar="NAME", help="User, as alice or User:alice."),
        click.option("--client-id", metavar="ID", help="Client id of Kafka clients."),
        click.option("--ip", metavar="ADDRESS", help="IP address of clients."),
        click.option(
            "--topic", metavar="NAME", help="Topic; orders-* is all topics with this prefix together."
        ),
        click.option("--default-user", is_flag=True, help="Every user without a quota of its own."),
        click.option("--default-client-id", is_flag=True, help="Every client id without a quota of its own."),
        click.option("--default-ip", is_flag=True, help="Every address without a quota of its own."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def value_options(command: Command) -> Command:
    for key in reversed(QUOTA_KEYS):
        command = click.option(
            _option_of(key), type=click.FloatRange(min=0, min_open=True), metavar="NUMBER", help=HELP[key]
        )(command)
    return command


def key_options(command: Command) -> Command:
    for key in reversed(QUOTA_KEYS):
        command = click.option(_option_of(key), is_flag=True, help=f"Delete {key}.")(command)
    return command


def chosen(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    topic: str | None,
    default_user: bool,
    default_client_id: bool,
    default_ip: bool,
) -> EntityOptions:
    """Raises UsageError for options that contradict each other."""
    names = (
        _name("user", None if user is None else user.removeprefix("User:"), default_user),
        _name("client-id", client_id, default_client_id),
        _name("ip", ip, default_ip),
    )
    if names[2] is not None and names[:2] != (None, None):
        raise click.UsageError("a quota of an address has no user and no client id")
    if topic is not None and names != (None, None, None):
        raise click.UsageError("a quota of a topic has no user, no client id and no address")
    return EntityOptions(*names, topic)


def _name(option: str, name: str | None, is_default: bool) -> str | None:
    if name is not None and is_default:
        raise click.UsageError(f"give --{option} or --default-{option}, not both")
    if name == "":
        raise click.UsageError(f"--{option} is empty; use --default-{option}")
    return EVERY_NAME if is_default else name


def _option_of(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _entity(given: dict[str, Any]) -> EntityOptions:
    """Takes the options of the entity from all options."""
    names = ("user", "client_id", "ip", "topic", "default_user", "default_client_id", "default_ip")
    return chosen(**{name: given.pop(name) for name in names})


def _required_entity(given: dict[str, Any]) -> EntityOptions:
    entity = _entity(given)
    if entity.is_empty:
        raise click.UsageError(f"say whose quotas: {ENTITY}")
    return entity


def _check_keys(entity: EntityOptions, keys: Iterable[str]) -> None:
    supported = keys_of(entity.entity)
    for key in keys:
        if key not in supported:
            raise click.UsageError(f"{entity} has no quota {key}; it has {', '.join(supported)}")


# -- commands ----------------------------------------------------------------------------------------------------------


@click.group(cls=SuggestingGroup)
def quota() -> None:
    """List, set and delete quotas: how fast clients may be."""


@quota.command("list", epilog="\b\nExamples:\n  millpond quota list\n  millpond quota list --user alice")
@entity_options
@broker_options
@json_option
def list_quotas(address: str, timeout: float, as_json: bool, **given: Any) -> None:
    """List quotas: all, or those that the options select."""
    selected = _entity(given)
    with admin_of(address, timeout) as admin:
        found = [each for each in admin.list_quotas() if selected.selects(each)]
    if found or as_json:
        _print(found, as_json)
    elif selected.is_empty:
        click.echo("There are no quotas. `millpond quota set` sets one.")
    else:
        click.echo("There are no such quotas.")


@quota.command(
    "set",
    epilog="\b\nExamples:\n  millpond quota set --user alice --producer-byte-rate 1048576\n"
    "  millpond quota set --default-user --consumer-byte-rate 10485760\n"
    "  millpond quota set --user alice --client-id etl --request-percentage 50\n"
    "  millpond quota set --default-ip --connection-creation-rate 20\n"
    "  millpond quota set --topic 'orders-*' --stored-bytes 10737418240",
)
@entity_options
@value_options
@broker_options
@json_option
def set_quota(address: str, timeout: float, as_json: bool, **given: Any) -> None:
    """Set quotas of a user, a client id, a user with a client id, an address, or a topic.

    Each broker applies rates by itself, as in Kafka: with three brokers, a client may reach three times the rate. The
    most specific quota counts. Other quotas of the same entity are kept. An append to a topic that stores its bytes is
    refused.
    """
    entity = _required_entity(given)
    values = {key: value for key, value in given.items() if value is not None}
    if not values:
        raise click.UsageError(f"say which quotas: {', '.join(map(_option_of, QUOTA_KEYS))}")
    _check_keys(entity, values)
    with admin_of(address, timeout) as admin:
        _alter(admin, entity, values)
        found = [each for each in admin.list_quotas() if entity.is_entity(each)]
    _print(found, as_json)


@quota.command(
    epilog="\b\nExamples:\n  millpond quota delete --user alice\n"
    "  millpond quota delete --user alice --producer-byte-rate --yes"
)
@entity_options
@key_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def delete(yes: bool, address: str, timeout: float, as_json: bool, **given: Any) -> None:
    """Delete quotas of one user, client id, address or topic: all of them, or those that the options name."""
    entity = _required_entity(given)
    keys = [key for key, is_chosen in given.items() if is_chosen]
    _check_keys(entity, keys)
    with admin_of(address, timeout) as admin:
        values = [each.values for each in admin.list_quotas() if entity.is_entity(each)]
        deleted = [key for each in values for key in each if not keys or key in keys]
        if deleted:
            if not yes:
                confirm(f"Delete {', '.join(deleted)} of {entity}?")
            _alter(admin, entity, dict.fromkeys(deleted))
    if as_json:
        print_json({**_entity_json(entity), "deleted": deleted})
    else:
        click.echo(f"deleted {count_text(len(deleted), 'quota')} of {entity}")


def _alter(admin: Admin, entity: EntityOptions, values: Mapping[str, float | None]) -> None:
    admin.alter_quotas(values, user=entity.user, client_id=entity.client_id, ip=entity.ip, topic=entity.topic)


def _print(quotas: Iterable[QuotaDescription], as_json: bool) -> None:
    if as_json:
        print_json([{**_entity_json(each), "values": dict(each.values)} for each in quotas])
        return
    rows = [
        (*map(_shown, _entity_of(each)), key, f"{value:.15g}")
        for each in quotas
        for key, value in _sorted(each.values)
    ]
    print_table(("USER", "CLIENT ID", "IP", "TOPIC", "QUOTA", "VALUE"), rows)


def _sorted(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda each: QUOTA_KEYS.index(each[0]) if each[0] in QUOTA_KEYS else -1)


def _entity_json(entity: EntityOptions | QuotaDescription) -> dict[str, str | None]:
    """An empty name is the default, and null no part of the entity."""
    return {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip, "topic": entity.topic}


def _shown(name: str | None) -> str:
    return "-" if name is None else name or DEFAULT
