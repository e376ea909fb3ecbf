"""What `millpond security init` prints, followed by a new user in an empty directory. `tests/peers` has kcat's part."""

import json
import shutil
import signal
import ssl
import stat
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.unit.cli.conftest import LONGEST_S
from tests.unit.cli.secured_trial import secured_trial

from millpond.cli import ports
from millpond.cli.security_snippets import snippets
from millpond.settings import Settings, load


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    with secured_trial(tmp_path_factory.mktemp("new user")) as following:
        yield following


@pytest.fixture(scope="module")
def command_line(trial):
    """What the first commands print. They create the context that others use."""
    return trial.paste(trial.block("command line"))


def test_the_command_line(command_line):
    assert command_line.endswith("hello\n")


def test_our_client_library(trial):
    assert "b'hello from Python'" in trial.paste(trial.block("millpond"))


def test_confluent_kafka(trial):
    assert "hello" in trial.paste(trial.block("confluent"))


def test_curl(trial):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    assert "hello" in trial.paste(trial.block("curl"))


def test_files_with_the_password_are_private(trial):
    trial.paste(trial.block("java"))
    trial.paste(trial.block("librdkafka").partition("echo hello")[0])
    for name in ("java.properties", "librdkafka.conf", "admin.password"):
        path = Path(trial.folder) / name
        assert trial.password in path.read_text(), name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, name


def test_interfaces_that_are_off_have_no_examples():
    settings = load({"kafka_listen": "", "http_listen": ""}, {})
    titles = " ".join(each.title for each in snippets(settings, Path("c"), Path("ca")))
    assert "Command line" in titles
    assert "librdkafka" not in titles
    assert "curl" not in titles


def test_no_command_has_the_password_among_its_options():
    for each in snippets(Settings(), Path("c"), Path("ca")):
        for line in each.text.splitlines():
            if "$(cat admin.password)" in line:
                assert not line.startswith(("curl", "kcat", "millpond", "echo")), line


def test_the_doctor_recognizes_the_broker_without_credentials(trial, monkeypatch):
    monkeypatch.setattr(ports, "ASK_S", LONGEST_S)
    code, output = trial.run("doctor", "--json", "--config", "millpond-security/millpond.toml")
    findings = json.loads(output)["findings"]
    found = [each["found"] for each in findings if each["check"].endswith(" port")]
    assert (code, len(found)) == (0, 3)
    assert all(each.endswith("is a Millpond that answers") for each in found), found


def test_a_second_user_with_its_own_rights_and_token(trial, command_line):
    """As in the how-to page: a user, its ACLs and a token, each of which can be taken away."""

    def run(line, given=""):
        code, output = trial.run(*line.split(), given=given)
        assert code == 0, (line, output)
        return output

    run("produce greetings", "hello\n")
    assert run("user set alice --generate")
    run("acl create --principal alice --operation READ,WRITE,CREATE --topic orders")
    trial.paste("(umask 077; millpond token create alice --expires 30d > alice.token)")
    run("produce orders --token-file alice.token", "one\n")
    assert run("consume orders --token-file alice.token") == "one\n"
    code, output = trial.run("consume", "greetings", "--token-file", "alice.token")
    assert code == 1
    assert output.startswith("millpond: User:alice may not describe topic 'greetings'.")
    run("acl delete --yes --principal alice")
    run("user delete --yes alice")
    code, output = trial.run("consume", "orders", "--token-file", "alice.token")
    assert (code, "may not" in output) == (1, True)


def test_a_certificate_is_replaced_by_hand(trial, command_line):
    """Move the new files over the old ones; SIGHUP is not needed, but the test does not wait for the 10 s."""
    assert trial.run("produce", "greetings", given="hello\n")[0] == 0
    server = Path(trial.folder) / "millpond-security/server.pem"
    before = server.read_text()
    trial.paste(
        "millpond security init --dir other --data-dir other-data > /dev/null"
        " && cat other/ca.pem >> millpond-security/ca.pem"
        " && mv other/server-key.pem other/server.pem millpond-security/"
    )
    trial.broker.send_signal(signal.SIGHUP)
    own = server.read_text()
    assert own != before
    address = urlsplit(next(line for line in trial.block("curl").split() if line.startswith("https"))).netloc
    host, port = address.split(":")
    deadline = time.monotonic() + LONGEST_S
    while ssl.get_server_certificate((host, int(port))).strip() not in own:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "hello" in trial.run("consume", "greetings")[1]
