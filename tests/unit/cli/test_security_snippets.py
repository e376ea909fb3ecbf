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

from millpond.cli.security_snippets import snippets
from millpond.settings import Settings, load


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    with secured_trial(tmp_path_factory.mktemp("new user")) as following:
        yield following


def test_the_command_line(trial):
    assert trial.paste(trial.block("command line")).endswith("hello\n")


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


def test_the_doctor_recognizes_the_broker_without_credentials(trial):
    found = trial.paste("millpond doctor --json --config millpond-security/millpond.toml")
    ports = [each["found"] for each in json.loads(found)["findings"] if each["check"].endswith(" port")]
    assert len(ports) == 3
    assert all(each.endswith("is a Millpond that answers") for each in ports), ports


def test_a_second_user_with_its_own_rights_and_token(trial):
    """As in the how-to page: a user, its ACLs and a token, each of which can be taken away."""
    trial.paste(trial.block("command line"))
    trial.paste("millpond user set alice --generate > alice.password")
    trial.paste("millpond acl create --principal alice --operation READ,WRITE,CREATE --topic orders")
    trial.paste("(umask 077; millpond token create alice --expires 30d > alice.token)")
    trial.paste("echo one | millpond produce orders --token-file alice.token")
    assert trial.paste("millpond consume orders --token-file alice.token") == "one\n"
    assert trial.paste("! millpond consume greetings --token-file alice.token 2>&1").startswith(
        "millpond: User:alice may not describe topic 'greetings'."
    )
    trial.paste("millpond acl delete --yes --principal alice; millpond user delete --yes alice")
    assert "may not" in trial.paste("! millpond consume orders --token-file alice.token 2>&1")


def test_a_certificate_is_replaced_by_hand(trial):
    """Move the new files over the old ones; SIGHUP is not needed, but the test does not wait for the 10 s."""
    trial.paste(trial.block("command line"))
    before = trial.paste("cat millpond-security/server.pem")
    trial.paste(
        "millpond security init --dir other --data-dir other-data > /dev/null"
        " && cat other/ca.pem >> millpond-security/ca.pem"
        " && mv other/server-key.pem other/server.pem millpond-security/"
    )
    trial.broker.send_signal(signal.SIGHUP)
    own = trial.paste("cat millpond-security/server.pem")
    assert own != before
    address = urlsplit(next(line for line in trial.block("curl").split() if line.startswith("https"))).netloc
    host, port = address.split(":")
    deadline = time.monotonic() + LONGEST_S
    while ssl.get_server_certificate((host, int(port))).strip() not in own:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "hello" in trial.paste("millpond consume greetings")
