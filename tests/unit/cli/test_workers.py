"""The supervisor of `--workers`, with little scripts for brokers: what goes wrong with one must not end the others."""

import asyncio
import contextlib
import json
import os
import sys

import pytest

from millpond import storage
from millpond.catalog import clock_pauses
from millpond.catalog.clock_pauses import ClockReading
from millpond.cli import workers
from millpond.model.errors import CannotStart
from millpond.objects.disk_reserve import RELEASED, RESERVE
from millpond.settings import Settings, load
from millpond.storage import open_database

READY = repr(json.dumps({"session": "s", "bound": {}, "listeners": {}}))
SERVE = "import time; time.sleep(600)"
spawn = asyncio.create_subprocess_exec


def says(line, then=SERVE, noise=None):
    """A script. `noise` is an expression of Python, of which something else is said first."""
    said = [line] if noise is None else [noise, line]
    return f"{'; '.join(f'print({each}, flush=True)' for each in said)}; {then}"


class Machine:
    """Starts what it is told to, one thing after the other; an error is raised instead."""

    def __init__(self):
        self.scripts = []
        self.started = 0

    async def start(self, *_, **named):
        self.started += 1
        script = self.scripts.pop(0)
        if isinstance(script, Exception):
            raise script
        return await spawn(sys.executable, "-c", script, **named)


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", made.start)
    monkeypatch.setattr(workers, "BACKOFF_MIN_S", 0.05)
    return made


@contextlib.asynccontextmanager
async def supervised(folder, count):
    supervisor = workers.Supervisor(Settings(data_dir=folder), count, on_ready=lambda _: None)
    running = asyncio.ensure_future(supervisor.run())
    try:
        yield supervisor, running
    finally:
        supervisor.stop()
        await running


async def until(check):
    async with asyncio.timeout(20):
        while not check():
            await asyncio.sleep(0.01)


async def test_one_that_cannot_be_started_again_for_now_is_tried_again(machine, tmp_path, caplog):
    no_memory = OSError(12, os.strerror(12))
    machine.scripts = [says(READY, then="exit(3)"), says(READY), no_memory, says(READY)]
    async with supervised(tmp_path, 2) as (supervisor, running):
        await until(lambda: machine.started == 4 and all(each.facts for each in supervisor._workers))
        assert not running.done()
    down = [(each.worker, each.reason) for each in caplog.records if "is down" in each.message]
    assert (0, f"could not be started ([Errno 12] {os.strerror(12)})") in down


@pytest.mark.parametrize("noise", ["'no JSON'", "[1]", "{}", f"'x' * {2 * workers.LINE_BYTES_MAX}"])
async def test_what_one_says_and_nobody_understands_ends_nobody(machine, tmp_path, caplog, noise):
    machine.scripts = [says(READY), says(READY, noise=noise)]
    async with supervised(tmp_path, 2) as (supervisor, running):
        await until(lambda: all(each.facts for each in supervisor._workers))
        assert not running.done()
        assert machine.started == 2
    malformed = [each.worker for each in caplog.records if each.message == "worker sent malformed status"]
    assert set(malformed) == {1}


def test_workers_get_no_setting_under_a_former_name(monkeypatch):
    """It would be in conflict with the current one, if an option has overridden it."""
    monkeypatch.setenv("MILLPOND_STORE", "file:///e")
    passed = workers._environment(Settings(storage="file:///g"))
    assert "MILLPOND_STORE" not in passed
    assert load({}, passed).storage == "file:///g"


async def test_a_hangup_reaches_the_workers_that_are_ready(machine, tmp_path):
    """One that is not ready may have no handler for it, and would be ended."""
    noted = tmp_path / "noted"
    handles = (
        "import signal, pathlib; signal.signal(signal.SIGHUP, lambda *_: "
        f"pathlib.Path({str(noted)!r}).touch()); "
    )
    machine.scripts = [handles + says(READY), SERVE]
    async with supervised(tmp_path / "data", 2) as (supervisor, running):
        await until(lambda: machine.started == 2 and supervisor._workers[0].facts)
        supervisor.reload_tls()
        await until(noted.exists)
        assert not running.done()
        assert machine.started == 2


async def test_one_that_cannot_be_started_at_all_ends_them(machine, tmp_path):
    machine.scripts = [says(READY), OSError(12, os.strerror(12))]
    supervisor = workers.Supervisor(Settings(data_dir=tmp_path), 2, on_ready=lambda _: None)
    with pytest.raises(CannotStart, match=os.strerror(12)):
        await supervisor.run()


@pytest.mark.parametrize("trust_clock", [True, False])
async def test_the_clock_is_vouched_for_once_and_not_by_each_worker(machine, tmp_path, trust_clock):
    settings = Settings(data_dir=tmp_path)
    with contextlib.closing(open_database(settings)) as database:
        database.migrate()
        with database.write() as tx:
            clock_pauses.begin(tx, ClockReading("boot", 1))
        machine.scripts = [OSError(12, os.strerror(12))]
        supervisor = workers.Supervisor(settings, 1, on_ready=lambda _: None, trust_clock=trust_clock)
        with pytest.raises(CannotStart):
            await supervisor.run()
        with database.read() as tx:
            assert (clock_pauses.read(tx) is None) == trust_clock


@pytest.mark.parametrize(
    ("code", "end"),
    [(3, "ended with exit code 3"), (-9, "was ended by SIGKILL"), (-40, "was ended by signal 40")],
)
def test_how_one_ended_is_said(code, end):
    assert workers._end_of(code) == end


def test_a_start_on_a_full_disk_may_use_the_reserve(tmp_path, monkeypatch):
    """Before any worker runs, the supervisor itself writes to the catalog."""
    (tmp_path / RESERVE).write_bytes(bytes(2 * 1024 * 1024))
    opened = []
    real = storage.catalog_open.open_database

    def noted(url, **named):
        opened.append(named["on_full"])
        return real(url, **named)

    monkeypatch.setattr(storage.catalog_open, "open_database", noted)

    async def prepare():
        workers.Supervisor(Settings(data_dir=tmp_path), 2, on_ready=lambda _: None)._prepare()

    asyncio.run(prepare())
    opened[0]()
    assert (tmp_path / RELEASED).exists()
