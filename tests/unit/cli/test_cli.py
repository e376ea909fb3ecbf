"""The command line: what it prints, what it refuses, and how it ends."""

import json
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from millpond.cli import main as entry
from millpond.cli.main import cli
from millpond.version import __version__


@pytest.fixture
def run(monkeypatch):
    def invoked(*arguments, **named):
        return CliRunner().invoke(cli, arguments, **named)

    return invoked


def test_help_and_version(run):
    assert "serve" in run("--help").output
    assert __version__ in run("--version").output
    assert "SIGTERM" in run("serve", "-h").output


def test_settings_are_listed_with_their_values(run):
    shown = json.loads(
        run("settings", "--json", "--set", "retention=10s", "--set", "flush-bytes=1MiB").output
    )
    assert (shown["retention"], shown["flush_bytes"]) == ("10s", "1MiB")
    text = run("settings").output
    assert "MILLPOND_RETENTION" in text
    assert "(default)" in text


def test_the_environment_and_a_file_are_read(run, tmp_path):
    file = tmp_path / "m.toml"
    file.write_text('retention = "1d"')
    result = run("settings", "--json", "--config", str(file), env={"MILLPOND_UPLOADS_MAX": "3"})
    shown = json.loads(result.output)
    assert (shown["retention"], shown["uploads_max"]) == ("1d", "3")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["settings", "--set", "retention=soon"], "Setting retention cannot be 'soon'"),
        (["settings", "--set", "retention"], "write it as NAME=VALUE"),
        (["settings", "--set", "nothing=1"], "there is no such setting"),
        (["serve", "--set", "log_level=LOUD"], "log_level"),
        (["serve", "--set", "catalog=mysql://x"], "Setting catalog cannot be"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(monkeypatch, capsys, tmp_path, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["millpond", *arguments])
    with pytest.raises(SystemExit) as raised:
        entry.main()
    assert raised.value.code == 1
    assert sentence in capsys.readouterr().err


def test_the_demo_shows_the_whole_life_of_messages(run):
    output = run("demo").output
    for words in ("offset 2: three", "nothing lost", "extents became", "the log now starts at 2"):
        assert words in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_where_it_is_and_drains_when_told_to(tmp_path, number):
    command = [sys.executable, "-c", "from millpond.cli.main import main; main()"]
    process = subprocess.Popen(
        [*command, "serve", "--data-dir", str(tmp_path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    facts = json.loads(process.stdout.readline())
    assert facts["data"] == str(tmp_path)
    second = subprocess.run(
        [*command, "serve", "--data-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert "Another broker is running" in second.stderr
    time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "")


def test_an_announcement_for_people(tmp_path):
    command = [sys.executable, "-c", "from millpond.cli.main import main; main()"]
    process = subprocess.Popen(
        [*command, "serve", "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert "is ready after" in process.stdout.readline()
    process.terminate()
    rest, _ = process.communicate(timeout=10)
    assert "stopped" in rest


def test_no_secret_of_a_catalog_url_is_shown():
    from millpond.cli.serve import _without_secrets

    assert _without_secrets("postgresql://me:secret@host/db") == "postgresql://host/db"
    assert _without_secrets("") == ""
