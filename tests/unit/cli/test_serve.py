"""`millpond serve` as others see it that start and stop it: when it comes back, and how it ends."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
from typing import ClassVar

import pytest
from tests.tls import Pki
from tests.unit.cli.conftest import COMMAND, LONGEST_S, environment, watched
from tests.unit.cluster.conftest import until

from millpond.broker import Broker
from millpond.catalog import writers
from millpond.cli import serve
from millpond.model.errors import CatalogFailed, CatalogUnavailable, WriterDead
from millpond.settings import Settings


class DeclaredDead:
    """A broker that others declare dead as soon as it serves, and that cannot join again."""

    refusal = CatalogUnavailable
    stops_in_between = False
    node_id = 1
    started = 0

    def __init__(self, settings, *, trust_clock=False, **_):
        self.settings, self.bound = settings, {}
        self.trusted_clock.append(trust_clock)

    async def start(self):
        type(self).started += 1
        if self.started == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        if self.started > 1:
            raise self.refusal(reason="it is away")

    async def failed(self):
        return WriterDead(session="gone")

    async def stop(self):
        if self.stops_in_between:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)


@pytest.fixture
async def broker(monkeypatch):
    class Broker(DeclaredDead):
        trusted_clock: ClassVar[list[bool]] = []

    monkeypatch.setattr(serve, "Broker", Broker)
    monkeypatch.setattr(serve, "_announce", lambda *_: None)
    yield Broker
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


async def test_one_that_is_stopped_while_it_cannot_join_again_ends_in_order(broker, capsys):
    await serve._serve(Settings(), as_json=False, supervised=False)
    assert broker.started == 2
    assert capsys.readouterr().out.splitlines()[-1] == "stopped"


async def test_an_operators_word_for_the_clock_counts_at_the_first_start_only(broker):
    """What jumps later pauses retention, also of one that others have declared dead."""
    await serve._serve(Settings(), as_json=False, supervised=False, trust_clock=True)
    assert broker.trusted_clock == [True, False]


async def test_one_that_is_stopped_between_two_lives_ends_in_order(broker, capsys):
    broker.stops_in_between = True
    await serve._serve(Settings(), as_json=False, supervised=False)
    assert broker.started == 1
    assert capsys.readouterr().out.splitlines()[-1] == "stopped"


async def test_a_catalog_that_has_failed_is_said_all_the_same(broker):
    broker.refusal = CatalogFailed
    with pytest.raises(CatalogFailed):
        await serve._serve(Settings(), as_json=False, supervised=False)


def served(folder, *options, **variables):
    """What a broker announced, and the lines it logged until it was stopped."""
    interfaces = ["--kafka=", "--http=", "--grpc=127.0.0.1:0"]
    command = [*COMMAND, "serve", "--json", *interfaces, f"--data-dir={folder}", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with watched(subprocess.Popen(command, **pipes, env=environment(**variables))) as process:
        announced = json.loads(process.stdout.readline())
        process.terminate()
        _, logged = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, logged
    return announced, logged.splitlines()


def test_a_former_name_of_a_setting_is_logged_once_as_text(tmp_path):
    url = (tmp_path / "objects").as_uri()
    announced, logged = served(tmp_path, MILLPOND_STORE=url)
    assert (announced["storage"], announced["store"]) == (url, url)
    [line] = [each for each in logged if "WARNING" in each or "warning" in each]
    assert "deprecated setting used; use its new name" in line
    assert line.endswith("setting=store replacement=storage source=MILLPOND_STORE")


def test_a_former_name_of_a_setting_is_logged_once_as_json(tmp_path):
    _, logged = served(tmp_path, "--log-format=json", "--set", f"store={(tmp_path / 'objects').as_uri()}")
    [found] = [each for each in map(json.loads, logged) if each["level"] == "WARNING"]
    assert found.keys() == {"time", "level", "logger", "event", "setting", "replacement", "source"}
    assert found["event"] == "deprecated setting used; use its new name"
    assert (found["setting"], found["replacement"], found["source"]) == ("store", "storage", "--set")


def test_the_current_name_of_a_setting_is_no_warning(tmp_path):
    url = (tmp_path / "objects").as_uri()
    announced, logged = served(tmp_path, "--storage", url, MILLPOND_STORAGE="memory://")
    assert announced["storage"] == url
    assert not any("deprecated" in line for line in logged)


def test_workers_do_not_repeat_the_warning_of_a_former_name(tmp_path):
    """They get the setting from the supervisor, under its current name, also if an option has overridden it."""
    url = (tmp_path / "objects").as_uri()
    announced, logged = served(tmp_path, "--workers=2", "--storage", url, MILLPOND_STORE="file:///elsewhere")
    assert (announced["storage"], len(announced["workers"])) == (url, 2)
    assert sum("deprecated setting used" in line for line in logged) == 1


async def test_a_broker_that_was_declared_dead_waits_for_a_catalog_that_is_unavailable(
    tmp_path, monkeypatch, capsys
):
    lives, away = [], iter([CatalogUnavailable(reason="away"), CatalogUnavailable(reason="away")])

    class Unlucky(Broker):
        async def start(self):
            if lives:
                for error in away:
                    raise error
            await super().start()
            lives.append(self)

    monkeypatch.setattr(serve, "Broker", Unlucky)
    monkeypatch.setattr(serve, "REJOIN_DELAY_S", 0.01)
    settings = Settings(data_dir=tmp_path, kafka_listen="", grpc_listen="127.0.0.1:0", http_listen="")
    serving = asyncio.create_task(serve._serve(settings, True, True))
    try:
        await until(lambda: len(lives) == 1)
        [first] = lives
        await first.log.create_topic("t")
        await first.log.write(lambda tx: writers.mark_dead(tx, first.session, 1))
        await until(lambda: len(lives) == 2 or serving.done())
        again = lives[-1]
        await until(lambda: serving.done() or (again.bound == first.bound and again.log.partitions()))
        await again.produce("t", b"x")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    sessions = [json.loads(line)["session"] for line in capsys.readouterr().out.splitlines()]
    assert sessions == [first.session, again.session]
    assert first is not again


def test_a_hangup_replaces_the_certificate(tmp_path):
    pki = Pki(tmp_path)
    command = [*COMMAND, "serve", "--json", "--kafka=127.0.0.1:0", "--grpc=", "--http="]
    command += [f"--data-dir={tmp_path / 'data'}"]
    command += [f"--set={name}={value}" for name, value in pki.settings().items()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with watched(subprocess.Popen(command, **pipes, env=environment())) as process:
        host, port = json.loads(process.stdout.readline())["bound"]["kafka"].split(":")
        before = ssl.get_server_certificate((host, int(port)))
        new = pki.install(pki.issue()).certificate_pem().decode()
        process.send_signal(signal.SIGHUP)
        for line in process.stderr:
            if "certificate reloaded" in line:
                break
        after = ssl.get_server_certificate((host, int(port)))
        process.terminate()
        process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0
    assert before != after
    assert after.split() == new.split()


def test_a_plain_client_at_a_tls_port_of_grpc_leaves_no_line_in_the_log(tmp_path):
    """gRPC would write one to stderr by itself."""
    pki = Pki(tmp_path)
    command = [*COMMAND, "serve", "--json", "--kafka=", "--grpc=127.0.0.1:0", "--http="]
    command += [f"--data-dir={tmp_path / 'data'}"]
    command += [f"--set={name}={value}" for name, value in pki.settings().items()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with watched(subprocess.Popen(command, **pipes, env=environment())) as process:
        host, port = json.loads(process.stdout.readline())["bound"]["grpc"].split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1024) == b""
        process.terminate()
        _, logged = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0
    assert "andshake" not in logged
