"""`millpond token`: lists, creates and deletes API tokens."""

import click

from millpond.cli.connection import admin_of
from millpond.cli.options import as_principal, as_seconds, broker_options, json_option
from millpond.cli.output import print_json, print_note, print_table, time_text
from millpond.cli.suggestions import SuggestingGroup
from millpond.cli.topic import confirm
from millpond.client import TokenDescription
from millpond.model.errors import UnknownToken


@click.group(cls=SuggestingGroup)
def token() -> None:
    """List, create and delete API tokens."""


@token.command("list", epilog="\b\nExample:\n  millpond token list")
@broker_options
@json_option
def list_tokens(address: str, timeout: float, as_json: bool) -> None:
    """List all tokens. Their texts cannot be shown again."""
    with admin_of(address, timeout) as admin:
        found = admin.list_tokens()
    if as_json:
        print_json([_facts(each) for each in found])
    elif not found:
        click.echo("There are no tokens. `millpond token create PRINCIPAL` creates one.")
    else:
        print_table(("TOKEN", "PRINCIPAL", "CREATED", "BY", "EXPIRES", "DESCRIPTION"), map(_row, found))


@token.command(
    epilog="\b\nExamples:\n  millpond token create alice --expires 30d --description 'nightly export' > alice.token\n"
    "  millpond topic list --token-file alice.token"
)
@click.argument("principal", callback=as_principal)
@click.option(
    "--expires",
    "expires_in",
    metavar="DURATION",
    callback=as_seconds,
    help="Lifetime of the token, e.g. 30d; unlimited unless set.",
)
@click.option("--description", metavar="TEXT", default="", help="What the token is for.")
@broker_options
@json_option
def create(
    principal: str, expires_in: float | None, description: str, address: str, timeout: float, as_json: bool
) -> None:
    """Create a token for a user, such as alice or User:alice.

    The text of the token is the only line on standard output. The user needs no password, and the token has the
    rights of the user.
    """
    with admin_of(address, timeout) as admin:
        created = admin.create_token(principal, expires_in=expires_in, description=description)
    if as_json:
        print_json({"id": created.id, "principal": principal, "token": created.text})
        return
    print_note(f"created token {created.id} for {principal}; its text is shown only now:")
    click.echo(created.text)


@token.command(epilog="\b\nExample:\n  millpond token delete abcdefghij23 --yes")
@click.argument("token_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@broker_options
@json_option
def delete(token_id: str, yes: bool, address: str, timeout: float, as_json: bool) -> None:
    """Delete a token, and close the connections that use it."""
    with admin_of(address, timeout) as admin:
        found = next((each for each in admin.list_tokens() if each.id == token_id), None)
        if found is None:
            raise UnknownToken(token=token_id)
        if not yes:
            confirm(
                f"Delete token {token_id} of {found.principal} ({found.description or 'no description'})?"
            )
        admin.delete_token(token_id)
    if as_json:
        print_json({**_facts(found), "deleted": True})
    else:
        click.echo(f"deleted token {token_id} of {found.principal}")


def _row(token: TokenDescription) -> tuple[str, ...]:
    expires = "never" if token.expires_at_ms is None else time_text(token.expires_at_ms)
    created = time_text(token.created_at_ms)
    return token.id, token.principal, created, token.created_by, expires, token.description


def _facts(token: TokenDescription) -> dict[str, str | int | None]:
    return {
        "id": token.id,
        "principal": token.principal,
        "created_at_ms": token.created_at_ms,
        "created_by": token.created_by,
        "expires_at_ms": token.expires_at_ms,
        "description": token.description,
    }
