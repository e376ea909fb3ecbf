"""`millpond`: the entry point; it also turns errors into sentences and exit codes.

A command is imported when it is called, so that a command that only queries a broker does not load the
broker's code.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import click

from millpond.cli.options import keep
from millpond.cli.packages import not_installed
from millpond.cli.suggestions import SuggestingGroup
from millpond.model.errors import (
    GroupInUse,
    InvalidSettings,
    MillpondError,
    NotAuthenticated,
    NotAuthorized,
    PortUnavailable,
    UnknownGroup,
    UnknownToken,
    UnknownTopic,
    UnknownUser,
    Unreachable,
    without_double_periods,
)
from millpond.observability.logs import set_up_logging
from millpond.version import __version__

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

COMMANDS: Final = {
    "serve": "Run a broker.",
    "produce": "Send messages: lines, files or JSON.",
    "consume": "Read messages.",
    "topic": "List, create, describe, alter and delete topics.",
    "group": "List, describe, reset and delete consumer groups.",
    "subscription": "Topics as queues: subscriptions, their state, dead letters.",
    "cluster": "Show the brokers and what they own; drain a broker; rebalance.",
    "pipeline": "Spark jobs over topics: tables, SQL, compaction.",
    "demo": "Show the features in about a minute, in a temporary directory.",
    "bench": "Measure produce and consume throughput and latency.",
    "doctor": "Check for common problems, and suggest remedies.",
    "security": "Create certificates, settings and the first administrator.",
    "user": "List users, set their passwords, and delete them.",
    "token": "List, create and delete API tokens.",
    "acl": "List, create and delete ACLs: what users may do.",
    "quota": "List, set and delete quotas: how fast clients may be.",
    "context": "Named clusters: their address, TLS and credentials.",
    "settings": "Show every setting, its effective value, and what it does.",
    "completion": "Print the completion script for a shell.",
}
"""In the order of the help. Each command has the name of its module."""

EPILOG: Final = """\b
Try it:
  millpond demo
  millpond serve                           (in another terminal)
  echo hello | millpond produce greetings
  millpond consume greetings --follow

\b
Exit codes: 0 success, 1 failure, 2 wrong usage or setting, 130 interrupted.
"""


class CommandFailed(click.ClickException):
    """One sentence on stderr, and exit code 1."""

    exit_code = EXIT_FAILED

    def format_message(self) -> str:
        return without_double_periods(super().format_message())

    def show(self, file: Any = None) -> None:
        click.echo(f"millpond: {self.format_message()}", file=file, err=True)


class WronglySet(CommandFailed):
    """An invalid setting: a usage error, like an unknown option."""

    exit_code = EXIT_USAGE


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """No garbage collection meanwhile. Imports leave no garbage, and looking for it is a seventh of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class LazyGroup(SuggestingGroup):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        with _without_collecting():
            command = getattr(import_module(f"millpond.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Uses the table above: importing every command for its one line of help would take a second."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, context: click.Context) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()
        except MillpondError as error:
            raise failure_of(error) from error
        except ModuleNotFoundError as error:
            if (error.name or "millpond").startswith("millpond"):
                raise  # a bug in Millpond
            raise CommandFailed(str(not_installed(error, "This command"))) from error
        except BrokenPipeError:
            _forget_output()  # the reader of our output has closed it
        except OSError as error:
            _forget_output()
            raise CommandFailed(f"{error.filename or 'The output'}: {error.strerror or error}.") from error
        except (KeyboardInterrupt, click.Abort):
            context.exit(EXIT_INTERRUPTED)
        else:
            return result


def failure_of(error: MillpondError) -> CommandFailed:
    is_wrong_setting = isinstance(error, InvalidSettings) and not isinstance(error, PortUnavailable)
    return (WronglySet if is_wrong_setting else CommandFailed)(sentence_of(error))


def sentence_of(error: MillpondError) -> str:
    """What went wrong and what to do next, for errors where a command can say more than the library."""
    match error:
        case Unreachable() if "TLS" in str(error):
            return f"{error} See --tls, --tls-ca and --address."
        case NotAuthenticated():
            return (
                f"{error} Give --username and --password-file, or --token-file, or choose a context: "
                "`millpond context list`."
            )
        case Unreachable():
            reason = str(error.facts.get("reason", "no answer")).rpartition(": ")[2]
            return (
                f"No broker responds at {error.facts.get('address')}: {reason}. Start one with `millpond serve`, "
                "or set --address (or MILLPOND_ADDRESS) to the address of yours."
            )
        case UnknownTopic():
            return f"{error} `millpond topic list` shows those that exist."
        case UnknownGroup():
            return f"{error} `millpond group list` shows those that exist."
        case UnknownUser():
            return f"{error} `millpond user list` shows those that exist."
        case UnknownToken():
            return f"{error} `millpond token list` shows those that exist."
        case NotAuthorized():
            return f"{error} An administrator can allow it: `millpond acl create --help`."
        case GroupInUse():
            return f"{error} `millpond group describe {error.facts.get('group')}` shows its members."
    return str(error)


def _forget_output() -> None:
    """Prevents a second error when Python flushes the output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="millpond")
@click.option(
    "--context",
    metavar="NAME",
    expose_value=False,
    callback=keep,
    help="Cluster to connect to; `millpond context list` shows them. [env var: MILLPOND_CONTEXT]",
)
def cli() -> None:
    """A durable message log with Kafka, gRPC, HTTP and Spark interfaces."""


def main() -> None:
    # gRPC's own log has another format, and a line for each client that does not use TLS. It reads this when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    set_up_logging("WARNING", others=False)
    cli(prog_name="millpond")
