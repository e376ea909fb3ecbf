"""Commands whose credentials a broker refuses: one sentence that says so, no traceback, and exit code 1."""

from contextlib import closing

import pytest
from click.testing import CliRunner
from tests.clients.secured_clients import PASSWORD, SecuredBroker
from tests.each import for_each

from millpond.cli.main import cli
from millpond.errors import AuthenticationFailed, NotAuthenticated
from millpond.testing import SimulatedClock

COMMANDS = (
    ("topic", "list"),
    ("produce", "orders", "--message", "x"),
    ("consume", "orders"),
    ("consume", "orders", "--subscription", "billing"),
    ("group", "list"),
)
NOTHING_STORED = ["stored", "0", "messages"]
"""How the summary begins that `produce` prints in any case."""
A_MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def broker():
    settings = {"grpc": True, "security": True, "lease": 1_000 * A_MINUTE_MS}
    with closing(SecuredBroker(SimulatedClock(), **settings)) as running:
        yield running


@pytest.fixture(scope="module")
def credentials(broker, tmp_path_factory):
    """Options of commands, by what is wrong with them, and the sentence that they get."""
    folder = tmp_path_factory.mktemp("secrets")
    expired = broker.add_token(expires_at_ms=broker.clock.now_ms() + A_MINUTE_MS)
    broker.clock.advance(A_MINUTE_MS)

    def file(name, secret):
        path = folder / name
        path.touch(0o600)
        path.write_text(secret)
        return str(path)

    failed, needed = str(AuthenticationFailed()), str(NotAuthenticated())
    return [
        (("--token-file", file("expired", expired.text)), failed),
        (("--token-file", file("unknown", f"{expired.text[:-4]}AAAA")), failed),
        (("--username", "alice", "--password-file", file("wrong", f"not {PASSWORD}")), failed),
        (("--username", "bob", "--password-file", file("another", PASSWORD)), failed),
        ((), needed),
    ]


@for_each("command", COMMANDS)
def test_a_refused_credential_is_one_sentence(broker, credentials, tmp_path, command):
    for options, sentence in credentials:
        environment = {"XDG_CONFIG_HOME": str(tmp_path)}
        arguments = (*command, "--address", broker.address("grpc"), *options)
        done = CliRunner().invoke(cli, arguments, env=environment, prog_name="millpond")
        said, *more = done.stderr.splitlines()
        assert (done.exit_code, done.stdout) == (1, ""), options
        assert said.startswith(f"millpond: {sentence}"), options
        assert [line.split(" ")[:3] for line in more] == ([NOTHING_STORED] if command[0] == "produce" else [])
