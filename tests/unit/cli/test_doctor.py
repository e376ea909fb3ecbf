"""The doctor on healthy and broken set-ups."""

import json
import os
import socket
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.unit.cli.conftest import LONGEST_S, Millpond
from tests.unit.security.x509_certificates import certificate, common_name, pem_files

from millpond.catalog import security
from millpond.cli import checks, ports, security_checks
from millpond.security.scram import new_credential
from millpond.settings import Settings, load
from millpond.storage import open_database

FREE_PORTS = ["--set=kafka_listen=127.0.0.1:0", "--set=grpc_listen=127.0.0.1:0", "--set=http_listen="]
NOWHERE = Millpond("127.0.0.1:1")


def findings(*arguments, code=0, run=NOWHERE.inside):
    done = run("doctor", "--json", *FREE_PORTS, *arguments)
    assert done.code == code, done.out.decode() + done.err
    return {each["check"]: each for each in done.json["findings"]}


def test_a_healthy_machine(tmp_path):
    found = findings(f"--data-dir={tmp_path / 'new'}")
    assert {each["status"] for each in found.values()} <= {"ok", "warning"}
    assert found["data"]["found"].endswith("new will be created")
    assert found["http port"]["found"] == "off"
    assert not (tmp_path / "new").exists(), "it only looks"
    assert os.listdir(tmp_path) == []


def test_a_broker_that_runs_is_recognized(millpond, monkeypatch):
    monkeypatch.setattr(ports, "ASK_S", LONGEST_S)
    found = findings(f"--set=grpc_listen={millpond.address}", run=millpond.inside)
    assert found["grpc port"]["found"] == f"{millpond.address} is a Millpond that answers"


def test_a_lock_is_noticed(tmp_path):
    (tmp_path / "broker.lock").touch()
    assert findings(f"--data-dir={tmp_path}")["lock"]["found"] == "no broker is running on it"
    descriptor = os.open(tmp_path / "broker.lock", os.O_RDWR)
    checks.fcntl.flock(descriptor, checks.fcntl.LOCK_EX)
    try:
        assert "a broker is running on it" in findings(f"--data-dir={tmp_path}")["lock"]["found"]
    finally:
        os.close(descriptor)


def test_a_port_that_somebody_else_has(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        found = findings(f"--data-dir={tmp_path}", f"--set=kafka_listen={address}", code=1)
    assert found["kafka port"]["status"] == "problem"
    assert "--kafka" in found["kafka port"]["advice"]


def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("no directory")
    assert findings(f"--data-dir={tmp_path / 'file'}", code=1)["data"]["status"] == "problem"
    assert "cannot be written" in findings("--data-dir=/proc/nothing", code=1)["data"]["found"]


@pytest.mark.parametrize(
    ("setting", "check", "words"),
    [
        ("retention=soon", "settings", "Setting retention cannot be 'soon'"),
        ("catalog=mysql://x", "catalog", "neither memory:// nor sqlite"),
        ("storage=ftp://x", "storage", "starts with none of"),
        (
            "storage=s3://bucket/x?endpoint=http://127.0.0.1:1&skip_signature=true&region=us-east-1",
            "storage",
            "store",
        ),
        ("kafka_listen=192.0.2.1:9092", "kafka port", "clients do not authenticate"),
        ("storage=file:///proc/nothing", "data", "cannot be written"),
    ],
)
def test_settings_that_cannot_work(setting, check, words, tmp_path):
    found = findings("--set=catalog=memory://", "--set", setting, code=1)[check]
    assert found["status"] == "problem"
    assert words in found["found"]


@pytest.mark.parametrize(
    ("setting", "check", "package", "module", "extra"),
    [
        ("storage=s3://bucket/x", "storage", "obstore", "millpond.objects.remote", "s3"),
        ("catalog=postgresql://db/x", "catalog", "psycopg", "millpond.catalog.postgres", "postgres"),
    ],
)
def test_a_missing_package_is_named_as_such(monkeypatch, tmp_path, setting, check, package, module, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    found = findings(f"--data-dir={tmp_path}", "--set", setting, code=1, run=NOWHERE.inside)
    assert found[check] == {
        "check": check,
        "status": "problem",
        "found": f"the Python package {package} is not installed",
        "advice": f"pip install 'millpond[{extra}]'",
    }
    assert found[f"extra {extra}"]["found"].startswith(f"not installed: {package}; only needed for ")


def test_an_extra_of_which_a_part_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    found = checks._extra("spark")
    assert (found.status, found.found) == ("warning", "the Python package numba not installed")
    assert found.advice == "pip install 'millpond[spark]'"


def test_what_people_see(tmp_path):
    done = NOWHERE("doctor", *FREE_PORTS, "--data-dir=/proc/nothing")
    assert done.code == 1
    assert done.lines[0].split() == ["CHECK", "STATUS", "FOUND"]
    assert "  data: choose another --data-dir, or let this user write there" in done.lines
    assert done.lines[-1].startswith("1 problem, ")


def test_little_room_slow_disks_and_low_limits(tmp_path, monkeypatch):
    usage = checks.shutil.disk_usage(tmp_path)
    for free, status in ((10**12, "ok"), (500 * 2**20, "warning"), (2**20, "problem")):
        monkeypatch.setattr(checks.shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        assert checks._free(tmp_path).status == status
    assert checks._fsync([1.0, 2.0, 300.0]).status == "ok"
    assert checks._fsync([30.0, 40.0]).status == "warning"
    assert checks.of_limits(10**9)[0].status == "warning"


def test_a_clock_that_was_set_back(tmp_path, monkeypatch):
    catalog = tmp_path / "catalog.db"
    catalog.touch()
    assert list(checks._newest(tmp_path)) == []
    later = time.time() + 10_000
    os.utime(catalog, (later, later))
    [found] = checks._newest(tmp_path)
    assert found.status == "warning"
    monkeypatch.setattr(checks.time, "time", lambda: 0.0)
    assert checks._clock().status == "problem"


def test_java_is_looked_for_only_with_spark(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "is_installed", lambda name: False)
    assert checks._java() == []
    monkeypatch.setattr(checks, "is_installed", lambda name: True)
    for said, status in (
        ('openjdk version "17.0.1"', "ok"),
        ('java version "1.8.0_1"', "warning"),
        ("?", "warning"),
    ):
        program = Path(tmp_path / "bin/java")
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho {json.dumps(said)!s} >&2\n".replace('\\"', '\\"'))
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        [found] = checks._java()
        assert found.status == status, said


# -- security -------------------------------------------------------------------------------------------------


def all_findings(*arguments, environment=None):
    """As (check, status, found), because a check can have several results."""
    settings = load(dict(each.split("=", 1) for each in arguments), {})
    return [
        (each.check, each.status, each.found)
        for each in security_checks.of_security(
            settings, None, environment or {"XDG_CONFIG_HOME": "/nowhere"}
        )
    ]


@pytest.fixture
def secured(tmp_path):
    """What `millpond security init` creates."""
    done = NOWHERE.inside(
        "security", "init", "--json", f"--dir={tmp_path / 'security'}", f"--data-dir={tmp_path / 'data'}"
    )
    assert done.code == 0, done.err
    return tmp_path


def doctor_of(secured, *more, code=0):
    return findings(f"--config={secured / 'security/millpond.toml'}", *more, code=code)


def test_what_init_creates_is_healthy(secured):
    found = doctor_of(secured)
    checked = ("security", "certificate", "client CA", "key file", "data directory", "users", "tokens")
    assert {name: found[name]["status"] for name in checked} == dict.fromkeys(checked, "ok")
    assert found["users"]["found"] == "1 with passwords"


def test_files_that_other_users_can_open(secured):
    key, data = secured / "security/server-key.pem", secured / "data"
    key.chmod(0o640)
    data.chmod(0o755)
    found = doctor_of(secured, code=1)
    assert (found["key file"]["status"], found["data directory"]["status"]) == ("problem", "problem")
    assert found["key file"]["advice"] == f"chmod 600 '{key}'"
    assert found["data directory"]["advice"] == f"chmod 700 '{data}'"


@pytest.mark.parametrize(
    "line",
    [
        'catalog = "postgresql://me:hunter2@127.0.0.1:1/x"',
        'oidc_client_secret = "hunter2"',
        'storage = "http://127.0.0.1:1/bucket?secret_key=hunter2"',
    ],
)
def test_a_settings_file_with_a_password(tmp_path, line):
    config = tmp_path / "millpond.toml"
    config.write_text(f"{line}\n")
    config.chmod(0o644)
    found = findings(f"--config={config}", code=1)
    assert found["settings file"]["status"] == "problem"
    assert "hunter2" not in json.dumps(found)


def test_a_settings_file_without_a_secret_may_be_open(tmp_path, monkeypatch):
    monkeypatch.setenv("MILLPOND_OIDC_CLIENT_SECRET", "hunter2")
    config = tmp_path / "millpond.toml"
    config.write_text('oidc_client_id = "millpond"\noidc_client_secret = ""\n')
    config.chmod(0o644)
    assert "settings file" not in findings(f"--config={config}", f"--data-dir={tmp_path / 'data'}")


@pytest.mark.parametrize(
    ("lasts", "status", "words"),
    [
        (timedelta(days=100), "ok", "it expires on"),
        (timedelta(days=29), "warning", "it expires in 29 days"),
        (timedelta(hours=-1), "problem", "expired"),
    ],
)
def test_the_expiry_of_a_certificate(tmp_path, lasts, status, words):
    chain, private = pem_files(tmp_path)
    made = certificate(common_name("localhost"), lasts=lasts, now=datetime.now(UTC))
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    found = all_findings("tls=on", f"tls_certificate={chain}", f"tls_key={private}")
    [(_, seen, text)] = [each for each in found if each[0] == "certificate"]
    assert seen == status
    assert words in text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["insecure=true", "http_listen=192.0.2.1:80"], "insecure=true: the broker listens on 192.0.2.1:80"),
        (["security=on", "super_users=User:a", "tls=proxy"], "tls=proxy"),
        (
            ["security=on", "super_users=User:a", "kafka_listen=192.0.2.1:1", "insecure=true"],
            "PLAIN is allowed",
        ),
        (["security=on", "super_users=User:a", "kafka_listen=192.0.2.1:1", "insecure=true"], "tls=off"),
        (["security=on", "super_users=User:a;User:b;User:c;User:d"], "4 super users"),
        (["security=on"], "there is no super user"),
    ],
)
def test_weak_settings(settings, words, tmp_path):
    found = all_findings(*settings, f"data_dir={tmp_path / 'new'}")
    assert any(check == "security" and status == "warning" and words in text for check, status, text in found)


def test_stored_users_and_tokens_that_are_weak(secured):
    database = open_database(Settings(data_dir=secured / "data"))
    with database.write() as tx:
        security.put_credentials(tx, [new_credential("bob", "x", "SCRAM-SHA-256", 4096, os.urandom)])
        security.add_token(tx, security.ApiToken("t1", b"", "User:bob", None, 0, "User:admin"))
    database.close()
    found = doctor_of(secured)
    assert found["users"]["found"] == "bob with fewer than 16384 iterations"
    assert found["tokens"]["found"] == "without an expiry: t1 (User:bob)"
    assert {found["users"]["status"], found["tokens"]["status"]} == {"warning"}


def test_files_of_contexts(tmp_path):
    secret, file = tmp_path / "secret", tmp_path / "millpond/contexts.toml"
    secret.write_text("hunter2")
    secret.chmod(0o644)
    file.parent.mkdir()
    file.write_text(f'[contexts.prod]\naddress = "a:1"\ntoken_file = "{secret}"\n')
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "MILLPOND_PASSWORD_FILE": str(secret)}
    file.chmod(0o666)
    found = all_findings(environment=environment)
    assert [(check, status) for check, status, _ in found if status != "ok"] == [
        ("MILLPOND_PASSWORD_FILE", "problem"),
        ("contexts", "problem"),
        ("context prod", "problem"),
    ]
    secret.chmod(0o600)
    file.chmod(0o600)
    assert [status for *_, status, _ in all_findings(environment=environment)] == ["ok"] * 3
    file.write_text('[contexts.prod]\npassword = "hunter2"\n')
    [(check, status, text)] = [each for each in all_findings(environment=environment) if each[1] != "ok"]
    assert (check, status) == ("contexts", "problem")
    assert "hunter2" not in text
