"""`millpond context`: names for clusters in a file that only the user can open, and that holds no secret."""

import json
import stat

import pytest
from click.testing import CliRunner

from millpond.cli.main import cli


@pytest.fixture
def run(tmp_path):
    def run(*arguments, **variables):
        environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), **variables}
        return CliRunner().invoke(cli, arguments, env=environment, prog_name="millpond")

    return run


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    return str(file)


def shown(run, *arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_context_is_set_shown_used_and_deleted(run, token, tmp_path):
    assert "There are no contexts" in run("context", "list").stdout
    assert (
        run("context", "set", "prod", "--address", "a:1,b:2", "--tls", "--token-file", token).exit_code == 0
    )
    assert run("context", "set", "dev", "--address", "127.0.0.1:1").stdout == "set dev\n"
    prod = {"context": "prod", "address": "a:1,b:2", "tls": True, "token_file": token}
    dev = {"context": "dev", "address": "127.0.0.1:1"}
    assert shown(run, "context", "list") == [prod | {"current": False}, dev | {"current": False}]
    assert shown(run, "context", "use", "prod") == {"current": "prod"}
    assert shown(run, "context", "show") == prod | {"current": True}
    assert shown(run, "context", "show", "dev") == dev | {"current": False}
    assert run("context", "list").stdout.splitlines() == [
        "CURRENT  CONTEXT  ADDRESS      TLS  CREDENTIALS",
        f"*        prod     a:1,b:2      yes  {token}",
        "         dev      127.0.0.1:1  no   -",
    ]
    assert shown(run, "context", "delete", "prod") == {"context": "prod", "deleted": True}
    assert run("context", "show").exit_code == 1, "none is the current one"
    assert [each["context"] for each in shown(run, "context", "list")] == ["dev"]
    file = tmp_path / "config" / "millpond" / "contexts.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "s3cret" not in file.read_text()


def test_setting_again_changes_the_given_fields_only(run, token):
    run("context", "set", "prod", "--address", "a:1", "--tls", "--token-file", token)
    found = shown(run, "context", "set", "prod", "--username", "alice", "--reset", "token_file")
    assert found == {
        "context": "prod",
        "current": False,
        "address": "a:1",
        "tls": True,
        "username": "alice",
    }


def test_paths_are_kept_as_absolute_ones(run, token, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown(run, "context", "set", "prod", "--token-file", "token")["token_file"] == token


def test_no_context_is_used_after_none(run):
    run("context", "set", "prod", "--address", "127.0.0.1:1")
    run("context", "use", "prod")
    assert run("context", "use", "--none").stdout == "current context: -\n"
    assert shown(run, "context", "list")[0]["current"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["set", "no/slash"], 2, "a context has a name of 1 to 100"),
        (["set", "prod", "--address", "nonsense"], 2, "expected host:port"),
        (["set", "prod", "--token-file", "/no/file"], 2, "does not exist"),
        (["set", "prod", "--password", "x"], 2, "No such option '--password'"),
        (["set", "prod", "--reset", "colour"], 2, "Invalid value for '--reset'"),
        (["use", "prod"], 1, "context='prod': expected a context that exists"),
        (["use"], 2, "give the name of a context, or --none"),
        (["show", "prod"], 1, "context='prod': expected a context that exists"),
        (["delete", "prod"], 1, "context='prod': expected a context that exists"),
    ],
)
def test_what_is_wrong_is_refused(run, arguments, code, reason):
    done = run("context", *arguments)
    assert (done.exit_code, reason in done.stderr) == (code, True), done.stderr


def test_a_secret_that_others_can_read_is_refused_and_nothing_is_written(run, token, tmp_path):
    (tmp_path / "token").chmod(0o644)
    done = run("context", "set", "prod", "--token-file", token)
    assert (done.exit_code, "chmod 600" in done.stderr) == (1, True)
    assert "s3cret" not in done.stderr
    assert shown(run, "context", "list") == []


def test_a_token_beside_a_user_name_is_refused(run, token):
    done = run("context", "set", "prod", "--token-file", token, "--username", "alice")
    assert (done.exit_code, "expected no username or password beside it" in done.stderr) == (1, True)
