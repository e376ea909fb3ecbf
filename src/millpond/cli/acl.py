"""`millpond acl`: lists, creates and deletes ACLs, which allow and deny operations to users.

The three commands share their options. `create` needs a principal, operations and a resource; for the others, each
option selects ACLs, and `delete` deletes what `list` shows for the same options.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from millpond.cli.connection import admin_of, complete_group, complete_topic
from millpond.cli.options import Command, as_principal, broker_options, json_option
from millpond.cli.output import count_text, print_json, print_table
from millpond.cli.suggestions import SuggestingGroup
from millpond.cli.topic import confirm
from millpond.client import AclEntry, Admin
from millpond.model.acls import CLUSTER_NAME, OPERATIONS, WILDCARD, AclOperation, ResourceType

KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "subscription": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
"""By parameter: the type of the resource that it names."""
RESOURCES: Final = "--topic, --group, --subscription, --transactional-id or --cluster"
SUPPORTED: Final = {
    kind: [AclOperation.ALL.name, *(each.name for each in OPERATIONS[kind])] for kind in KINDS.values()
}
OPERATION_NAMES: Final = list(dict.fromkeys(name for names in SUPPORTED.values() for name in names))


@dataclass(frozen=True, slots=True)
class AclOptions:
    """What the options say. None, and no operations, select every value."""

    principal: str | None
    operations: tuple[str, ...]
    resource_type: str | None
    name: str | None
    pattern_type: str | None
    host: str | None
    permission: str | None

    @property
    def is_empty(self) -> bool:
        return not any(asdict(self).values())

    def selections(self) -> list[dict[str, Any]]:
        """The arguments of `Admin.list_acls` and `Admin.delete_acls`, for each operation."""
        fields = asdict(self)
        operations = fields.pop("operations") or (None,)
        return [{**fields, "operation": each} for each in operations]


# -- options -----------------------------------------------------------------------------------------------------------


def acl_options(command: Command) -> Command:
    """`chosen` makes them an `AclOptions`."""
    options = (
        click.option(
            "--principal", metavar="USER", callback=as_principal, help="User, as alice or User:alice; * is every user."
        ),
        click.option(
            "--operation",
            "operations",
            metavar="NAME[,NAME]",
            multiple=True,
            callback=_as_operations,
            help=f"Operations: {', '.join(OPERATION_NAMES)}.",
        ),
        click.option("--topic", metavar="NAME", shell_complete=complete_topic, help="Topic; * is every topic."),
        click.option("--group", metavar="NAME", shell_complete=complete_group, help="Group; * is every group."),
        click.option(
            "--subscription",
            metavar="TOPIC/NAME",
            callback=_as_subscription,
            help="Subscription; an ACL names it as the group TOPIC/NAME.",
        ),
        click.option("--transactional-id", metavar="NAME", help="Transactional id of a Kafka producer."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option("--prefix", is_flag=True, help="The resource's NAME is the beginning of names."),
        click.option("--host", metavar="ADDRESS", help="IP address of the client; every address unless set."),
        click.option("--deny", is_flag=True, help="Deny; this overrules all ACLs that allow."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def chosen(
    principal: str | None,
    operations: tuple[str, ...],
    prefix: bool,
    host: str | None,
    deny: bool,
    **resources: str | bool | None,
) -> AclOptions:
    """Raises UsageError for options that contradict each other."""
    given = [name for name, value in resources.items() if value not in (None, False)]
    if len(given) > 1:
        raise click.UsageError(f"give one of {RESOURCES}")
    if prefix and given in ([], ["cluster"]):
        raise click.UsageError("--prefix needs the beginning of a name, for example --topic orders-")
    if not given:
        return AclOptions(principal, operations, None, None, None, host, _permission(deny))
    kind = KINDS[given[0]]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else str(resources[given[0]])
    pattern_type = "prefixed" if prefix else "literal"
    _check_supported(operations, kind)
    return AclOptions(principal, operations, kind.name.lower(), name, pattern_type, host, _permission(deny))


def _permission(deny: bool) -> str | None:
    return "deny" if deny else None


def _check_supported(operations: Iterable[str], kind: ResourceType) -> None:
    for each in operations:
        if each.upper() not in SUPPORTED[kind]:
            supported, what = ", ".join(SUPPORTED[kind]), kind.name.lower().replace("_", " ")
            raise click.UsageError(f"a {what} has no operation {each.upper()}; it has {supported}")


def _as_operations(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    found = [each.strip().upper().replace("-", "_") for text in given for each in text.split(",")]
    for each in found:
        if each not in OPERATION_NAMES:
            raise click.BadParameter(f"{each!r} is not one of {', '.join(OPERATION_NAMES)}")
    return tuple(dict.fromkeys(each.lower() for each in found))


def _as_subscription(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and "/" not in value:
        raise click.BadParameter(f"{value!r}: write it as TOPIC/NAME")
    return value


# -- commands ----------------------------------------------------------------------------------------------------------


@click.group(cls=SuggestingGroup)
def acl() -> None:
    """List, create and delete ACLs: what users may do."""


@acl.command(
    "list",
    epilog="\b\nExamples:\n  millpond acl list\n  millpond acl list --principal alice\n"
    "  millpond acl list --topic orders --match",
)
@acl_options
@click.option(
    "--match", is_flag=True, help="Also select ACLs of prefixes and of *, if they apply to the resource."
)
@broker_options
@json_option
def list_acls(match: bool, address: str, timeout: float, as_json: bool, **given: Any) -> None:
    """List ACLs: all, or those that the options select."""
    options = chosen(**given)
    if match and (options.name is None or given["prefix"]):
        raise click.UsageError("--match needs a resource, and no --prefix")
    with admin_of(address, timeout) as admin:
        found = _list(admin, options, match)
    if found or as_json:
        _print(found, as_json)
    elif options.is_empty:
        click.echo("There are no ACLs, so only super users have rights. `millpond acl create` creates one.")
    else:
        click.echo("There are no such ACLs.")


@acl.command(
    epilog="\b\nExamples:\n  millpond acl create --principal alice --operation READ,WRITE --topic orders\n"
    "  millpond acl create --principal alice --operation READ --group billing\n"
    "  millpond acl create --principal team --operation ALL --topic team- --prefix\n"
    "  millpond acl create --principal monitor --operation DESCRIBE --cluster"
)
@acl_options
@broker_options
@json_option
def create(address: str, timeout: float, as_json: bool, **given: Any) -> None:
    """Allow operations on a resource to a user, or deny them."""
    options = chosen(**given)
    entries = _entries(options)
    with admin_of(address, timeout) as admin:
        admin.create_acls(entries)
    _print(entries, as_json)


@acl.command(
    epilog="\b\nExamples:\n  millpond acl delete --principal alice --topic orders\n"
    "  millpond acl delete --principal alice --yes"
)
@acl_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def delete(yes: bool, address: str, timeout: float, as_json: bool, **given: Any) -> None:
    """Delete the ACLs that the options select."""
    options = chosen(**given)
    if options.is_empty:
        raise click.UsageError(
            f"say which ACLs to delete: --principal, --operation, --host, --deny, {RESOURCES}"
        )
    with admin_of(address, timeout) as admin:
        found = _list(admin, options)
        if found and not yes:
            _print(found, as_json=False, to_stderr=True)
            confirm(f"Delete {'this ACL' if len(found) == 1 else 'these ACLs'}?")
        deleted = [each for selection in options.selections() for each in admin.delete_acls(**selection)]
    if as_json:
        _print(deleted, as_json)
    else:
        click.echo(f"deleted {count_text(len(deleted), 'ACL')}")


def _list(admin: Admin, options: AclOptions, match: bool = False) -> list[AclEntry]:
    changes = {"pattern_type": "match"} if match else {}
    return [
        each for selection in options.selections() for each in admin.list_acls(**{**selection, **changes})
    ]


def _entries(options: AclOptions) -> list[AclEntry]:
    if options.principal is None or not options.operations or options.resource_type is None:
        raise click.UsageError(f"say who may do what: --principal, --operation, and one of {RESOURCES}")
    return [
        AclEntry(
            options.resource_type,
            options.name or "",
            options.principal,
            each,
            options.pattern_type or "literal",
            options.host or WILDCARD,
            options.permission or "allow",
        )
        for each in options.operations
    ]


def _print(acls: Iterable[AclEntry], as_json: bool, to_stderr: bool = False) -> None:
    if as_json:
        print_json([asdict(each) for each in acls])
        return
    titles = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST")
    print_table(titles, map(_row, acls), to_stderr=to_stderr)


def _row(acl: AclEntry) -> tuple[str, ...]:
    permission, operation = acl.permission.upper(), acl.operation.upper()
    return acl.principal, permission, operation, acl.resource_type, acl.name, acl.pattern_type, acl.host
