"""`millpond security init`: what it creates, and that it overwrites nothing."""

import stat
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from millpond.cli.security import initialise, security_commands
from millpond.model.errors import CatalogUnavailable
from millpond.security.tls import ServerTls, TlsFiles
from millpond.settings import Settings, load

NAMES = {"ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "millpond.toml"}


class Admins:
    """Stands for the catalog."""

    def __init__(self, failure=None):
        self.failure, self.settings = failure, []

    def create(self, settings):
        if self.failure is not None:
            raise self.failure
        self.settings.append(settings)
        return "s3cret-of-admin"


@pytest.fixture
def admins():
    return Admins()


def invoke(admins, *arguments):
    return CliRunner().invoke(security_commands(admins.create, admins.create), ["init", *map(str, arguments)])


def test_it_creates_files_that_a_broker_can_use(tmp_path, admins):
    folder = tmp_path / "pki"
    done = invoke(admins, "--dir", folder, "--host", "pond.example", "--data-dir", tmp_path / "data")
    assert done.exit_code == 0, done.output
    assert {path.name for path in folder.iterdir()} == NAMES
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    found = tomllib.loads((folder / "millpond.toml").read_text())
    assert (found["security"], found["tls"], found["super_users"]) == ("on", "on", "User:admin")
    assert found["data_dir"] == str(tmp_path / "data")
    tls = ServerTls(TlsFiles(Path(found["tls_certificate"]), Path(found["tls_key"])))
    assert tls.names == {"localhost", "127.0.0.1", "::1", "pond.example"}


def test_the_administrator_is_created_once_and_the_password_shown_once(tmp_path, admins):
    done = invoke(admins, "--dir", tmp_path / "pki", "--set", "http_listen=127.0.0.1:8123")
    assert len(admins.settings) == 1
    assert admins.settings[0].http_listen == "127.0.0.1:8123"
    assert done.output.count("s3cret-of-admin") == 1
    assert "https://localhost:8123/topics" in done.output
    assert "s3cret" not in (tmp_path / "pki" / "millpond.toml").read_text()


def test_examples_have_the_advertised_addresses(tmp_path, admins):
    done = invoke(admins, "--dir", tmp_path, "--set", "kafka_advertise=pond.example:9092")
    assert "bootstrap.servers=pond.example:9092" in done.output


def test_the_settings_file_has_the_settings_that_the_command_received(tmp_path, admins):
    """The broker would otherwise use another catalog, in which there is no administrator, or other ports."""
    arguments = ["--set", "catalog=postgresql://h/db", "--set", "storage=memory://", "--set", "retention=1d"]
    assert invoke(admins, "--dir", tmp_path, *arguments).exit_code == 0
    loaded = load({}, {}, tmp_path / "millpond.toml")
    assert (loaded.catalog, loaded.storage, loaded.retention) == (
        "postgresql://h/db",
        "memory://",
        86_400_000,
    )
    assert (loaded.security, loaded.tls_certificate) == (True, str(tmp_path / "server.pem"))
    found = tomllib.loads((tmp_path / "millpond.toml").read_text())
    assert "flush_delay" not in found, "defaults may change"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_nothing_is_overwritten(tmp_path, admins, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError):
        initialise(tmp_path, [], Settings(), admins.create)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}
    assert admins.settings == []


def test_a_catalog_that_is_away_leaves_no_files(tmp_path):
    failing = Admins(CatalogUnavailable(reason="it is away"))
    with pytest.raises(CatalogUnavailable):
        initialise(tmp_path, [], Settings(), failing.create)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_is_none_is_refused(tmp_path, admins):
    done = invoke(admins, "--dir", tmp_path / "pki", "--host", "https://pond.example")
    assert done.exit_code == 2
    assert "neither a host name nor an IP address" in done.output
    assert not (tmp_path / "pki").exists()


def test_json_has_every_path(tmp_path, admins):
    done = invoke(admins, "--dir", tmp_path, "--json")
    assert '"password": "s3cret-of-admin"' in done.output
    assert str(tmp_path / "ca.pem") in done.output
