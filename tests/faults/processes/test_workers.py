"""`millpond serve --workers N`: the supervisor, its workers, and what becomes of both when one of them dies."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from tests.faults.processes.harness import eventually
from tests.ports import free_port

from millpond.catalog.open import CATALOG_FILE
from millpond.cli.workers import check, settings_of
from millpond.client import Admin, Consumer, Producer
from millpond.model.errors import InvalidSettings
from millpond.settings import Settings

SECONDS_MAX = 120
FREE = ["--kafka=127.0.0.1:0", "--grpc=127.0.0.1:0", "--http=127.0.0.1:0"]


class Workers:
    """A supervisor as a process of its own."""

    def __init__(self, count, *options):
        command = [sys.executable, "-m", "millpond", "serve", "--json", "--workers", str(count), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._watchdog = threading.Timer(SECONDS_MAX, self.process.kill)
        self._watchdog.start()
        line = self.process.stdout.readline()
        self.facts = json.loads(line) if line else {}

    @property
    def workers(self):
        return self.facts["workers"]

    def address(self, number, interface="grpc"):
        return self.workers[number]["listeners"][interface]

    def pids(self):
        """Those of the workers that live."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with contextlib.suppress(FileNotFoundError), open(children) as file:
            return [int(each) for each in file.read().split()]
        return []

    def stop(self, number=signal.SIGTERM):
        """The exit code, and what was logged."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=SECONDS_MAX)
        self._watchdog.cancel()
        return self.process.returncode, errors


@pytest.fixture
def start():
    started = []

    def start(count, *options):
        started.append(Workers(count, *options))
        return started[-1]

    yield start
    for each in started:
        for pid in [worker["pid"] for worker in each.facts.get("workers", ()) if is_alive(worker["pid"])]:
            os.kill(pid, signal.SIGKILL)
        if each.process.poll() is None:
            each.process.kill()
            each.stop()
        each._watchdog.cancel()
        each.process.stdout.close()
        each.process.stderr.close()


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stops_quietly(workers):
    """In order, and with nothing to complain of. Those that go first may say what they handed to the others."""
    code, logged = workers.stop()
    assert " WARNING " not in logged, logged
    assert " ERROR " not in logged, logged
    return code == 0


def statuses(address):
    with Admin(address=address) as admin:
        return admin.cluster()


def test_workers_share_the_directory_and_every_message_is_reached_from_any(start, tmp_path):
    running = start(2, *FREE, "--data-dir", str(tmp_path))
    assert len({each["node_id"] for each in running.workers}) == 2
    first, second = running.address(0), running.address(1)
    with Admin(address=first) as admin:
        admin.create_topic("t", partitions=4)
    with Producer("t", address=second) as producer:
        for number in range(40):
            producer.send(b"%d" % number, key=b"%d" % number)
    with Consumer("t", address=first) as consumer:
        found = []
        while len(found) < 40:
            found += [message.value for message in consumer.poll(1).messages]
    assert sorted(found, key=int) == [b"%d" % number for number in range(40)]
    assert sorted(each.partitions for each in statuses(second).brokers) == [2, 2]
    refused = subprocess.run(
        [sys.executable, "-m", "millpond", "serve", *FREE, "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Another broker is running" in refused.stderr
    assert stops_quietly(running)
    assert not any(is_alive(each["pid"]) for each in running.workers)


def test_a_worker_that_dies_is_replaced_at_once_and_started_again_on_its_ports(start, tmp_path):
    """At once: its lease would have run for ten minutes."""
    running = start(2, *FREE, "--data-dir", str(tmp_path), "--set", "lease=10m")
    with Admin(address=running.address(0)) as admin:
        admin.create_topic("t", partitions=4)
    before = set(running.pids())
    os.kill(running.workers[1]["pid"], signal.SIGKILL)
    with Producer("t", address=running.address(0), timeout=30) as producer:
        for number in range(4):
            producer.send(b"%d" % number, partition=number)
    eventually(lambda: len(set(running.pids()) - before) == 1, "a new worker is there")
    eventually(lambda: _answers(running.address(1)), "it answers where the old one did")
    eventually(lambda: [each.partitions for each in statuses(running.address(1)).brokers] == [2, 2], "even")
    code, errors = running.stop()
    assert code == 0
    assert 'worker is down; will restart it worker=1 reason="was ended by SIGKILL" delay_s=1.0' in errors


def _answers(address):
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def pause_between_commits(pid, folder):
    """A process that is paused while it writes holds the catalog's lock, and everybody waits for it."""
    with (folder / f"{CATALOG_FILE}.lock").open("rb") as lock:
        while True:
            os.kill(pid, signal.SIGSTOP)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)


def test_workers_drain_when_their_supervisor_is_killed_and_hold_the_directory_until_then(start, tmp_path):
    running = start(2, *FREE, "--data-dir", str(tmp_path))
    pids = [each["pid"] for each in running.workers]
    pause_between_commits(pids[0], tmp_path)
    running.process.kill()
    running.process.wait(SECONDS_MAX)
    eventually(lambda: not is_alive(pids[1]), "the one that runs has ended by itself")
    refused = subprocess.run(
        [sys.executable, "-m", "millpond", "serve", *FREE, "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Another broker is running" in refused.stderr, "the one that is paused still has the lock"
    os.kill(pids[0], signal.SIGCONT)
    eventually(lambda: not is_alive(pids[0]), "the other one has ended, too")
    again = start(2, *FREE, "--data-dir", str(tmp_path))
    assert stops_quietly(again)


def test_a_second_signal_ends_workers_that_do_not_drain(start, tmp_path):
    running = start(2, *FREE, "--data-dir", str(tmp_path))
    pids = [each["pid"] for each in running.workers]
    pause_between_commits(pids[0], tmp_path)
    running.process.send_signal(signal.SIGTERM)
    eventually(lambda: not is_alive(pids[1]), "the other one has drained")
    assert running.process.poll() is None
    code, errors = running.stop()
    assert code == 130
    assert "at once" in errors
    eventually(lambda: not any(map(is_alive, pids)), "both have ended")


def test_after_a_crash_of_everything_nobody_waits_for_leases(start, tmp_path):
    running = start(2, *FREE, "--data-dir", str(tmp_path), "--set", "lease=10m")
    with Producer("t", address=running.address(0)) as producer:
        producer.send(b"kept")
    for pid in (running.process.pid, *running.pids()):
        os.kill(pid, signal.SIGKILL)
    running.stop()
    again = start(2, *FREE, "--data-dir", str(tmp_path), "--set", "lease=10m")
    with Consumer("t", address=again.address(1)) as consumer:
        assert [message.value for message in consumer.poll(30).messages] == [b"kept"]
    assert len(statuses(again.address(0)).brokers) == 2
    assert again.stop()[0] == 0


@contextlib.contextmanager
def port_taken_behind_a_free_one():
    """The number of the one that is taken."""
    while True:
        port = free_port()
        try:
            socket.create_server(("127.0.0.1", port - 1)).close()
        except OSError:
            continue
        with socket.create_server(("127.0.0.1", port)):
            yield port
        return


def test_if_one_worker_cannot_start_none_does(start, tmp_path):
    with port_taken_behind_a_free_one() as port:
        options = ["--grpc=127.0.0.1:0", "--http=", f"--kafka=127.0.0.1:{port - 1}"]
        running = start(2, *options, "--data-dir", str(tmp_path))
        assert running.facts == {}
        code, errors = running.stop()
    assert code == 1
    assert "Worker 1 could not start" in errors
    assert f"127.0.0.1:{port}" in errors
    assert "Traceback" not in errors


def test_workers_on_postgresql_and_s3(start, catalog, storage):
    running = start(2, *FREE, "--catalog", catalog, "--storage", storage)
    assert running.facts["data"] is None
    with Producer("t", address=running.address(1)) as producer:
        producer.send(b"one")
    with Consumer("t", address=running.address(0)) as consumer:
        assert [message.value for message in consumer.poll(30).messages] == [b"one"]
    assert running.stop()[0] == 0


def test_each_worker_has_the_ports_after_the_one_before():
    settings = Settings(
        kafka_listen="127.0.0.1:9092",
        kafka_advertise="broker:19092",
        grpc_listen="127.0.0.1:0",
        http_listen="",
        node_id=10,
    )
    third = settings_of(settings, 2)
    assert (third.kafka_listen, third.kafka_advertise) == ("127.0.0.1:9094", "broker:19094")
    assert (third.grpc_listen, third.http_listen, third.node_id) == ("127.0.0.1:0", "", 12)
    assert settings_of(Settings(), 1).node_id == 0


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (Settings(catalog="memory://"), "share"),
        (Settings(storage="memory://"), "share"),
        (Settings(kafka_listen="127.0.0.1:9998"), "both come to"),
        (Settings(kafka_listen="127.0.0.1:65535"), "no port left"),
    ],
)
def test_what_workers_cannot_do_is_refused_before_anything_starts(settings, word):
    with pytest.raises(InvalidSettings, match=word):
        check(settings, 3)
