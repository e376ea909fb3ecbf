"""Commands connect with the TLS and credentials of their options, of the environment, or of a context."""

import base64
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from click.testing import CliRunner
from tests.certificates import Authority

from millpond.cli.main import cli, sentence_of
from millpond.errors import NotAuthenticated, Unreachable
from millpond.stubs import admin_pb2

BASIC = "Basic " + base64.b64encode(b"alice:s3cret").decode()


class Recorder(grpc.GenericRpcHandler):
    """A server that lists no topics, refuses all other calls, and remembers the `authorization` of each."""

    def __init__(self, files):
        self.authorizations = []
        self._server = grpc.server(ThreadPoolExecutor(2), handlers=(self,))
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        port = self._server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def service(self, details):
        is_known = details.method.endswith("/ListTopics")
        return grpc.unary_unary_rpc_method_handler(self._answer if is_known else self._refuse)

    def _refuse(self, _, context):
        self._record(context)
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "It is not known")

    def _record(self, context):
        self.authorizations.append(dict(context.invocation_metadata()).get("authorization"))

    def _answer(self, _, context):
        self._record(context)
        return admin_pb2.ListTopicsResponse().SerializeToString()

    def stop(self):
        self._server.stop(0).wait()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def broker(authority):
    recorder = Recorder(authority.server())
    yield recorder
    recorder.stop()


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def run(tmp_path):
    def run(*arguments, **variables):
        environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), **variables}
        done = CliRunner().invoke(cli, arguments, env=environment, prog_name="millpond")
        assert "s3cret" not in done.output
        return done

    return run


@pytest.fixture
def context(run, broker, authority, secret):
    """A context for the server."""
    address, ca = broker.address, str(authority.ca)
    done = run("context", "set", "prod", "--address", address, "--tls-ca", ca, "--token-file", secret)
    assert done.exit_code == 0, done.stderr
    return "prod"


def test_options_of_a_command(run, broker, authority, secret):
    ca = ["--address", broker.address, "--tls-ca", str(authority.ca)]
    for options in ([], ["--token-file", secret], ["--username", "alice", "--password-file", secret]):
        done = run("topic", "list", *ca, *options)
        assert done.exit_code == 0, done.stderr
    assert broker.authorizations == [None, "Bearer s3cret", BASIC]


@pytest.mark.parametrize(
    "command",
    [
        ["produce", "t", "--message", "x"],
        ["consume", "t"],
        ["consume", "t", "--subscription", "s"],
        ["group", "list"],
        ["group", "reset", "g", "--topic", "t", "--to", "earliest"],
        ["subscription", "list"],
        ["cluster", "status"],
        ["bench", "--messages", "1"],
    ],
)
def test_every_command_that_connects_sends_credentials(run, broker, authority, secret, command):
    options = ["--address", broker.address, "--tls-ca", str(authority.ca), "--token-file", secret]
    done = run(*command, *options)
    assert (done.exit_code, "It is not known." in done.stderr) == (1, True), done.stderr
    assert set(broker.authorizations) == {"Bearer s3cret"}


def test_variables_and_options_that_count_more(run, broker, authority, secret, tmp_path):
    variables = {
        "MILLPOND_ADDRESS": broker.address,
        "MILLPOND_TLS_CA": str(authority.ca),
        "MILLPOND_USERNAME": "alice",
        "MILLPOND_PASSWORD": "s3cret",
    }
    assert run("topic", "list", **variables).exit_code == 0
    other = tmp_path / "other"
    other.write_text("other")
    assert run("topic", "list", "--token-file", str(other), **variables).exit_code == 0
    assert broker.authorizations == [BASIC, "Bearer other"]
    assert run("topic", "list", "--no-tls", "--timeout", "1", **variables).exit_code == 1
    assert len(broker.authorizations) == 2


def test_a_context_is_used_if_an_option_or_a_variable_names_it_or_it_is_the_current_one(run, broker, context):
    assert run("--context", context, "topic", "list").exit_code == 0
    assert run("topic", "list", MILLPOND_CONTEXT=context).exit_code == 0
    run("context", "use", context)
    assert run("topic", "list").exit_code == 0
    assert broker.authorizations == ["Bearer s3cret"] * 3


def test_a_context_that_an_option_names_counts_more_than_the_environment(run, broker, context):
    done = run("--context", context, "topic", "list", MILLPOND_ADDRESS="127.0.0.1:1", MILLPOND_TOKEN="other")
    assert (done.exit_code, broker.authorizations) == (0, ["Bearer s3cret"])


def test_the_credentials_of_the_current_context_go_to_no_other_address(run, broker, context, authority):
    run("context", "use", context)
    ca = str(authority.ca)
    assert run("topic", "list", "--tls-ca", ca, "--address", broker.address).exit_code == 0
    assert run("topic", "list", "--tls-ca", ca, MILLPOND_ADDRESS=broker.address).exit_code == 0
    assert broker.authorizations == [None, None]


def test_a_context_that_does_not_exist_is_an_error(run):
    done = run("--context", "nope", "topic", "list")
    assert (done.exit_code, "--context='nope': expected a context of" in done.stderr) == (1, True)


def test_a_password_is_no_option(run):
    for option in ("--password", "--token"):
        done = run("topic", "list", option, "x")
        assert (done.exit_code, f"No such option '{option}'" in done.stderr) == (2, True), done.stderr


def test_options_that_contradict_each_other(run, broker, authority):
    done = run("topic", "list", "--address", broker.address, "--no-tls", "--tls-ca", str(authority.ca))
    assert (done.exit_code, "give --tls-ca or --no-tls, not both" in done.stderr) == (2, True)


def test_a_secret_goes_to_no_other_machine_without_tls(run, secret, monkeypatch):
    monkeypatch.setattr("millpond.cli.connection.check_reachable", lambda *_: None)
    done = run("topic", "list", "--address", "broker.example:9999", "--token-file", secret)
    assert (done.exit_code, "Turn TLS on" in done.stderr, "--tls-ca" in done.stderr) == (1, True, True)


@pytest.mark.parametrize(
    "command", [["produce", "t"], ["consume", "t"], ["bench"], ["cluster", "status"], ["doctor"]]
)
def test_every_command_that_connects_has_the_options(run, command):
    text = run(*command, "--help").stdout
    for option in (
        "--tls / --no-tls",
        "--tls-ca FILE",
        "--username NAME",
        "--password-file FILE",
        "--token-file FILE",
    ):
        assert option in text, command


def test_sentences_say_which_option_to_use():
    assert "--token-file" in sentence_of(NotAuthenticated())
    failed = Unreachable("The TLS handshake with h:1 failed: it does not use TLS.", address="h:1", reason="x")
    assert sentence_of(failed) == f"{failed} See --tls, --tls-ca and --address."


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("MILLPOND_USER_NAME", "MILLPOND_USERNAME"),
        ("MILLPOND_PASSWORDFILE", "MILLPOND_PASSWORD_FILE"),
        ("MILLPOND_TOKENS", "MILLPOND_TOKEN"),
        ("MILLPOND_CONTEX", "MILLPOND_CONTEXT"),
    ],
)
def test_a_misspelt_variable_is_a_warning(run, variable, meant):
    done = run("topic", "list", "--address", "127.0.0.1:1", **{variable: "x"})
    assert f"{variable} is unknown and ignored; did you mean {meant}?" in done.stderr
