"""`millpond user`: lists users, sets their passwords and deletes them.

No password is an option: other users of the machine can see the options of a command.
"""

import secrets
import sys
from pathlib import Path
from typing import Final

import click

from millpond.cli.connection import admin_of
from millpond.cli.options import broker_options, json_option
from millpond.cli.output import count_text, print_json, print_note, print_table
from millpond.cli.suggestions import SuggestingGroup
from millpond.cli.topic import confirm
from millpond.client import Admin
from millpond.client.secret_files import SECRET_BYTES_MAX
from millpond.client.sources import password_from_file
from millpond.model.errors import InvalidRequest
from millpond.model.principals import USER

PASSWORD_BYTES: Final = 24

name_argument = click.argument("name", metavar="USER")


@click.group(cls=SuggestingGroup)
def user() -> None:
    """List users, set their passwords, and delete them."""


@user.command("list", epilog="\b\nExample:\n  millpond user list")
@broker_options
@json_option
def list_users(address: str, timeout: float, as_json: bool) -> None:
    """List all users with a password."""
    with admin_of(address, timeout) as admin:
        found = admin.list_users()
    if as_json:
        print_json([{"user": each.name, "mechanisms": dict(each.mechanisms)} for each in found])
    elif not found:
        click.echo("There are no users with a password. `millpond user set USER` creates one.")
    else:
        print_table(("USER", "MECHANISMS"), [(each.name, ", ".join(each.mechanisms)) for each in found])


@user.command(
    "set",
    epilog="\b\nExamples:\n  millpond user set alice\n  millpond user set alice --new-password-file alice.password\n"
    "  millpond user set alice --generate > alice.password",
)
@name_argument
@click.option(
    "--new-password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File that holds the new password. --password-file is your own, to connect.",
)
@click.option("--generate", is_flag=True, help="Choose a random password and print it.")
@broker_options
@json_option
def set_user(
    name: str, new_password_file: Path | None, generate: bool, address: str, timeout: float, as_json: bool
) -> None:
    """Create a user, or replace its password.

    The command asks for the password. If its input is not a terminal, it reads one line. A new user may do nothing:
    see `millpond acl create`.
    """
    if generate and new_password_file is not None:
        raise click.UsageError("give --new-password-file or --generate, not both")
    with admin_of(address, timeout) as admin:
        password = _new_password(name, new_password_file, generate)
        admin.set_password(name, password)
    if as_json:
        print_json({"user": name, **({"password": password} if generate else {})})
    elif generate:
        print_note(f"set the password of user {name}; it is shown only now:")
        click.echo(password)
    else:
        click.echo(f"set the password of user {name}")


@user.command(epilog="\b\nExample:\n  millpond user delete alice --yes")
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def delete(name: str, yes: bool, address: str, timeout: float, as_json: bool) -> None:
    """Delete a user's password, and close the connections that use it.

    The user's tokens stay valid and its ACLs are kept: the command says how many there are.
    """
    with admin_of(address, timeout) as admin:
        if not yes:
            confirm(f"Delete user {name!r}?")
        admin.delete_user(name)
        tokens, acls = _kept(admin, f"{USER}:{name}")
    if as_json:
        print_json({"user": name, "deleted": True, "tokens": tokens, "acls": acls})
        return
    click.echo(f"deleted user {name}")
    if tokens:
        print_note(
            f"{name} still has {count_text(len(tokens), 'token')}: {', '.join(tokens)}. A token is valid until it "
            "expires or is deleted: `millpond token delete ID`."
        )
    if acls:
        print_note(
            f"{name} still has {count_text(acls, 'ACL')}. To delete them: `millpond acl delete --principal {name}`."
        )


def _kept(admin: Admin, principal: str) -> tuple[list[str], int]:
    """The ids of the tokens of a principal, and the number of its ACLs."""
    tokens = [each.id for each in admin.list_tokens() if each.principal == principal]
    return tokens, len(admin.list_acls(principal=principal))


def _new_password(name: str, file: Path | None, generate: bool) -> str:
    if generate:
        return secrets.token_urlsafe(PASSWORD_BYTES)
    if file is not None:
        return password_from_file("--new-password-file", file)
    if sys.stdin.isatty():
        prompt = f"New password of {name}"
        return str(click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True))
    return _line_of_input()


def _line_of_input() -> str:
    line = sys.stdin.readline(SECRET_BYTES_MAX).removesuffix("\n").removesuffix("\r")
    if not line:
        raise InvalidRequest(
            "The input is empty, so nothing was done. Write the password to it, or use --new-password-file."
        )
    return line
