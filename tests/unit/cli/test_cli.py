"""The command line: what it prints, what it refuses, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.conftest import LONGEST_S, watched

from millpond.cli import main as entry
from millpond.cli import options, workers
from millpond.cli.main import COMMANDS, cli
from millpond.client import admin
from millpond.settings import Settings, names
from millpond.version import __version__

FREE_PORTS = ["--kafka=127.0.0.1:0", "--grpc=127.0.0.1:0", "--http=127.0.0.1:0"]
SERVE = [sys.executable, "-m", "millpond", "serve", *FREE_PORTS]


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


def test_settings_show_no_password(run):
    variables = {
        "MILLPOND_CATALOG": "postgresql://user:s3cret@host/db",
        "MILLPOND_STORAGE": "s3://bucket?key=s3cret",
    }
    for form in ([], ["--json"]):
        text = run("settings", *form, env=variables).output
        assert "postgresql://host/db" in text
        assert "s3://bucket" in text
        assert "s3cret" not in text


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
        (["settings", "--set", "nothing=1"], "there is no such setting."),
        (["settings", "--set", "retension=1d"], "there is no such setting; did you mean retention?\n"),
        (["settings", "--config", "none.toml"], "No such file"),
        (["serve", *FREE_PORTS, "--set", "log_level=LOUD"], "log_level"),
        (["serve", *FREE_PORTS, "--set", "catalog=mysql://x"], "Setting catalog cannot be"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(monkeypatch, capsys, tmp_path, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["millpond", *arguments])
    with pytest.raises(SystemExit) as raised:
        entry.main()
    assert raised.value.code == 2
    assert sentence in capsys.readouterr().err
    assert os.listdir(tmp_path) == [], "a broker that cannot start leaves no directory"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_where_it_is_and_drains_when_told_to(tmp_path, number):
    process = subprocess.Popen(
        [*SERVE, "--data-dir", str(tmp_path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    facts = json.loads(process.stdout.readline())
    assert facts["data"] == str(tmp_path)
    assert set(facts["listeners"]) == {"kafka", "grpc", "http"}
    second = subprocess.run(
        [*SERVE, "--data-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert "Another broker is running" in second.stderr
    process.send_signal(number)
    _, errors = process.communicate(timeout=LONGEST_S)
    assert (process.returncode, errors) == (0, "")


def test_a_second_signal_ends_a_drain_that_takes_too_long():
    code = "import asyncio; from millpond.cli.serve import _on_signal as on; e = asyncio.Event(); on(e), on(e), print()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert "at once" in done.stderr


def test_an_announcement_for_people(tmp_path):
    process = subprocess.Popen([*SERVE, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert "is ready after" in process.stdout.readline()
    process.terminate()
    rest, _ = process.communicate(timeout=LONGEST_S)
    assert "stopped" in rest


@pytest.mark.parametrize("chosen", ["flag", "environment"])
def test_a_broker_logs_json_if_told_to(tmp_path, chosen):
    """A client that is not Kafka's has its connection closed, which is logged before the client can see it."""
    flags = ["--log-format=json"] if chosen == "flag" else []
    variables = {"MILLPOND_LOG_FORMAT": "json"} if chosen == "environment" else {}
    command = [*SERVE, "--json", f"--data-dir={tmp_path}", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with watched(subprocess.Popen(command, **pipes, env=os.environ | variables)) as process:
        host, port = json.loads(process.stdout.readline())["bound"]["kafka"].split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            lines = map(json.loads, iter(process.stderr.readline, ""))
            logged = next(each for each in lines if each["logger"] == "millpond.frontends.kafka.connection")
        process.terminate()
        process.communicate()
    assert logged["level"] == "INFO"
    assert logged["client"] == host
    assert "HTTP" in logged["reason"]
    assert logged.keys() == {"time", "level", "logger", "event", "client", "reason"}
    assert process.returncode == 0


def test_workers_log_in_the_format_of_the_supervisor():
    assert workers._environment(Settings(log_format="json"))["MILLPOND_LOG_FORMAT"] == "json"


def test_an_interface_is_turned_off_by_an_empty_address(tmp_path):
    command = [*SERVE, "--kafka=", "--http=", "--json", f"--data-dir={tmp_path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        facts = json.loads(process.stdout.readline())
        process.terminate()
    assert set(facts["listeners"]) == {"grpc"}


def commands(group=cli, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()]
)
def test_every_command_explains_itself(run, path, command):
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert command.help.splitlines()[0].split()[0] in result.output
    if not isinstance(command, click.Group):
        assert f"millpond {' '.join(path)}" in result.output, "there is no example"


def test_the_table_of_commands_says_what_they_say(run):
    shown = run("--help").output
    for name, words in COMMANDS.items():
        assert words in shown
        command = cli.get_command(click.Context(cli), name)
        assert command.name == name


def test_a_wrong_call_is_exit_code_2(run):
    for arguments in (["nothing"], ["topic", "create"], ["consume", "t", "--from", "soon"]):
        assert run(*arguments).exit_code == 2


def test_a_port_that_is_taken_is_no_wrong_setting(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = run("serve", *FREE_PORTS, "--http", address, "--data-dir", str(tmp_path / "new"))
    assert done.exit_code == 1
    assert f"Setting http_listen cannot be '{address}': the port is not available (" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["prodce", "t"], "No such command 'prodce'. Did you mean 'produce'?"),
        (["topic", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["group", "rest"], "Did you mean 'reset'?"),
        (["subscription", "discribe"], "Did you mean 'describe'?"),
        (["cluster", "stats"], "Did you mean 'status'?"),
        (["pipeline", "tabel"], "Did you mean 'table'?"),
        (["topic", "xyz"], "No such command 'xyz'. Choose one of: alter, create, delete, describe, list."),
        (["topic", "create", "t", "--partitons", "3"], "Did you mean '--partitions'?"),
        (["serve", "--date-dir", "x"], "Did you mean '--data-dir'?"),
    ],
)
def test_the_nearest_command_or_option_is_suggested(run, arguments, advice):
    done = run(*arguments)
    assert done.exit_code == 2
    assert advice in done.stderr


@pytest.mark.parametrize(
    ("variable", "advice"),
    [
        ("MILLPOND_RETENSION", "is unknown and ignored; did you mean MILLPOND_RETENTION?"),
        ("MILLPOND_ADRESS", "is unknown and ignored; did you mean MILLPOND_ADDRESS?"),
        ("MILLPOND_XYZ", "is unknown and ignored; `millpond settings` lists those that exist."),
    ],
)
def test_an_unknown_variable_is_a_warning_with_the_nearest_name(run, variable, advice):
    done = run("settings", "--json", env={variable: "1d"})
    assert (done.exit_code, json.loads(done.stdout)["retention"]) == (0, "7d")
    assert done.stderr == f"millpond: warning: the environment variable {variable} {advice}\n"


def test_a_command_that_asks_a_broker_warns_of_a_misspelt_address(run):
    done = run("topic", "list", "--address", "127.0.0.1:1", env={"MILLPOND_ADRESS": "x:1"})
    assert "did you mean MILLPOND_ADDRESS?" in done.stderr


def test_no_setting_is_taken_for_a_misspelt_address(run):
    every = {f"MILLPOND_{name.upper()}": "1" for name in names()}
    done = run("topic", "list", "--address", "127.0.0.1:1", env=every)
    assert done.stderr.startswith("millpond: No broker responds")


@pytest.mark.parametrize(
    "variable", ["MILLPOND_ADDRESS", "MILLPOND_SPARK_MASTER", "MILLPOND_TEST_S3_ENDPOINT", "MILLPOND_LEASE"]
)
def test_known_variables_are_no_warning(run, variable):
    assert run("settings", env={variable: "9s"}).stderr == ""


@pytest.mark.parametrize("source", ["MILLPOND_STORE", "--set", "file"])
def test_a_former_name_of_a_setting_is_a_warning_with_the_current_one(run, tmp_path, source):
    file = tmp_path / "millpond.toml"
    file.write_text('store = "memory://"' if source == "file" else "")
    options = ["--set", "store=memory://"] if source == "--set" else []
    variables = {source: "memory://"} if source == "MILLPOND_STORE" else {}
    done = run("settings", "--json", "--config", str(file), *options, env=variables)
    shown = json.loads(done.stdout)
    assert (shown["storage"], "store" in shown) == ("memory://", False)
    named = str(file) if source == "file" else source
    assert done.stderr == (
        f"millpond: warning: the setting store ({named}) is now called storage; the old name will be removed.\n"
    )


def test_both_names_of_a_setting_with_different_values_are_refused(run, tmp_path):
    done = run("serve", "--data-dir", str(tmp_path / "data"), "--storage=memory://", "--set=store=file:///x")
    assert done.exit_code == 2
    assert "`storage` is set too, to another value; remove `store`." in done.stderr
    assert not (tmp_path / "data").exists()


def test_workers_do_not_repeat_the_supervisors_warnings(monkeypatch):
    monkeypatch.setenv("MILLPOND_RETENSION", "1d")
    monkeypatch.setenv("MILLPOND_RETENTION", "1d")
    passed = workers._environment(Settings())
    assert "MILLPOND_RETENSION" not in passed
    assert passed["MILLPOND_RETENTION"] == "7d"
    assert passed["PATH"] == os.environ["PATH"]


def test_asking_a_broker_does_not_load_one():
    code = """
import sys
from millpond.cli.main import cli
cli(["topic", "list", "--address", "127.0.0.1:1"], standalone_mode=False)
"""
    wrapped = f"try:\n    exec({code!r})\nfinally:\n    import sys; print(*sys.modules, file=sys.stdout)"
    done = subprocess.run([sys.executable, "-c", wrapped], capture_output=True, text=True, check=False)
    loaded = set(done.stdout.split())
    assert "millpond.client" in loaded
    assert not loaded & {"millpond.broker", "millpond.settings", "millpond.log", "apsw", "starlette"}


def test_a_broker_loads_no_packages_that_it_may_never_need():
    """It starts in less than a second; cryptography would add a fifth to that."""
    code = "import sys, millpond.broker, millpond.cli.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "millpond.security.authenticator" in loaded
    assert not loaded & {"cryptography", "joserfc", "re2"}


def test_the_default_timeout_is_the_client_librarys():
    assert options.DEFAULT_TIMEOUT_S == admin.TIMEOUT_S


def test_no_secret_of_a_url_is_shown():
    from millpond.cli.serve import _facts
    from millpond.settings import Settings

    shown = _facts(
        Settings(catalog="postgresql://me:secret@host/db", storage="s3://bucket?secret_access_key=secret")
    )
    assert (shown["catalog"], shown["storage"], shown["store"]) == (
        "postgresql://host/db",
        "s3://bucket",
        "s3://bucket",
    )
    assert _facts(Settings())["catalog"] == "SQLite in the data directory"
