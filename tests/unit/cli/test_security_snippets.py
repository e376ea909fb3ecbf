"""What `millpond security init` prints, followed by a new user in an empty directory. `tests/peers` has kcat's part."""

import shutil
import stat
from pathlib import Path

import pytest
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
    found = {path.name: path for path in Path(trial.folder).iterdir() if path.is_file()}
    assert {"java.properties", "librdkafka.conf", "admin.password"} <= found.keys()
    for name, path in found.items():
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
