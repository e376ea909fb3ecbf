"""`millpond serve --workers N`: several brokers on one machine, each a process that can use one core.

The supervisor serves no clients itself. It locks the data directory, starts the workers, restarts those that
die, and stops them all when it is stopped. Each worker inherits the descriptor of the lock, so that no other
broker can use the directory while one of them lives, even if the supervisor is dead.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import click

from millpond.catalog import clock_pauses, topics, topology, writers
from millpond.cli.variables import unknown_variables
from millpond.cluster import leave
from millpond.data_directory import lock_data_dir
from millpond.model.addresses import INTERFACES, join_address, split_address
from millpond.model.clock import SystemClock
from millpond.model.errors import CannotStart, InvalidSettings, MillpondError
from millpond.model.ids import Session
from millpond.settings import RENAMED, Settings, variable_of
from millpond.storage import open_database, open_reserve

WORKERS_MAX: Final = 64
BACKOFF_MIN_S: Final = 1.0
BACKOFF_MAX_S: Final = 30.0
STABLE_AFTER_S: Final = 60.0
"""If a worker dies after running this long, the cause is considered new, and the restart delay begins at
`BACKOFF_MIN_S` again."""
LINE_BYTES_MAX: Final = 1024 * 1024
EXIT_FORCED: Final = 130
PORTS: Final = 65_536
NO_SESSION: Final = Session("")
Facts = dict[str, Any]

logger = logging.getLogger(__name__)


def settings_of(settings: Settings, number: int) -> Settings:
    """The settings of the worker with this number (from 0): its number is added to every port."""
    moved: dict[str, Any] = {}
    for interface in INTERFACES:
        for name in (f"{interface}_listen", f"{interface}_advertise"):
            moved[name] = _moved(name, getattr(settings, name), number)
    if settings.node_id:
        moved["node_id"] = settings.node_id + number
    return replace(settings, data_dir=settings.data_dir.absolute(), **moved)


def check(settings: Settings, count: int) -> None:
    """Reject settings that cannot work before anything is started."""
    if settings.catalog.startswith("memory:") or settings.storage.startswith("memory:"):
        reason = "workers are processes, and share a catalog and a store that each of them can open"
        raise InvalidSettings(name="--workers", value=str(count), reason=reason)
    taken: dict[str, str] = {}
    for number in range(count):
        worker = settings_of(settings, number)
        for interface in INTERFACES:
            worker.address(interface)
            address = worker.listens(interface)
            if address and split_address(address)[1] and taken.setdefault(address, interface) != interface:
                reason = f"with {count} workers {interface} and {taken[address]} both come to {address}"
                raise InvalidSettings(
                    name=f"{interface}_listen", value=settings.listens(interface), reason=reason
                )


def _moved(name: str, address: str, number: int) -> str:
    """Port 0 stays 0: it means any free port."""
    if not address or not (port := split_address(address)[1]):
        return address
    if port + number >= PORTS:
        raise InvalidSettings(name=name, value=address, reason=f"worker {number} has no port left")
    return join_address(split_address(address)[0], port + number)


@dataclass(slots=True)
class Worker:
    """A sequence of broker processes on the same ports."""

    number: int
    settings: Settings
    lock: int | None
    stopping: asyncio.Event
    process: asyncio.subprocess.Process | None = None
    facts: Facts = field(default_factory=dict)
    """What the worker reported when it became ready: listeners, session. Empty before."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> int:
        """Start the process, and return its exit code when it has ended."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "millpond", "serve", "--json", "--supervised"),
            *("--supervisor", str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(self.settings),
            pass_fds=() if self.lock is None else (self.lock,),
            start_new_session=True,  # Ctrl-C reaches only the supervisor, which signals the workers
            limit=LINE_BYTES_MAX,
        )
        assert self.process.stdout is not None, "it was asked for"
        if self.stopping.is_set():  # the running workers were signalled before this one started
            self.signal(signal.SIGTERM)
        await self._read_status(self.process.stdout)
        return await self.process.wait()

    async def _read_status(self, lines: asyncio.StreamReader) -> None:
        """Read the worker's status lines. A malformed line must not stop this worker or the others."""
        while not lines.at_eof():
            try:
                if line := await lines.readline():
                    self._on_status(json.loads(line))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                logger.warning(
                    "worker sent malformed status", extra={"worker": self.number, "error": str(error)}
                )

    def _on_status(self, facts: Facts) -> None:
        """The worker is ready, for the first time or again. From now on it restarts on the ports that it has
        now."""
        bound: dict[str, Any] = {
            f"{interface}_listen": address for interface, address in facts["bound"].items()
        }
        self.facts = facts
        self.settings = replace(self.settings, **bound)
        self.ready.set()

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)


def _environment(settings: Settings) -> dict[str, str]:
    """Settings are passed in the environment and not as arguments, which every user of the machine can read:
    a catalog URL may contain a password."""
    # The supervisor has already warned about these. A former name beside the current one would be a conflict.
    dropped = {*unknown_variables(os.environ), *map(variable_of, RENAMED)}
    kept = {name: text for name, text in os.environ.items() if name not in dropped}
    return kept | {variable_of(name): text for name, text in settings.shown().items()}


class Supervisor:
    """`run` returns when all workers have ended after `stop`, or raises if one of them cannot start at all."""

    def __init__(
        self,
        settings: Settings,
        count: int,
        *,
        on_ready: Callable[[list[Worker]], None],
        trust_clock: bool = False,
    ) -> None:
        check(settings, count)
        self._settings = settings
        self._trust_clock = trust_clock
        self._directory = None
        if settings.uses_data_dir():
            self._directory = lock_data_dir(settings.data_dir, is_private=settings.security)
        lock = self._directory.lock if self._directory is not None else None
        self._stopping = asyncio.Event()
        self._workers = [
            Worker(number, settings_of(settings, number), lock, self._stopping) for number in range(count)
        ]
        self._on_ready = on_ready
        self._is_prepared = False

    def stop(self) -> None:
        """The first call drains the workers; the second one kills them and ends this process."""
        if self._stopping.is_set():
            click.echo("stopping at once: what was not answered may be lost", err=True)
            self._signal(signal.SIGKILL)
            os._exit(EXIT_FORCED)
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def reload_tls(self) -> None:
        """Forward SIGHUP. A worker that is not ready might have no handler for it yet; it notices a new certificate by
        itself."""
        for worker in self._workers:
            if worker.facts:
                worker.signal(signal.SIGHUP)

    async def run(self) -> None:
        try:
            await asyncio.to_thread(self._prepare)
            self._is_prepared = True
            async with asyncio.TaskGroup() as tasks:
                keeping = [tasks.create_task(self._supervise(worker)) for worker in self._workers]
                telling = tasks.create_task(self._announce_when_ready())
                await asyncio.wait(keeping)
                telling.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._signal(signal.SIGTERM)
            await self._all_ended()
            if self._directory is not None:
                if not any(worker.ready.is_set() for worker in self._workers) and self._has_no_topics():
                    self._directory.remove_if_created()
                self._directory.unlock()

    def _prepare(self) -> None:
        """Runs once, before the workers, so that a problem with the catalog is reported once. Brokers
        recorded in the directory's own catalog are dead, because this process now holds the directory's lock,
        so their leases need not expire first."""
        reserve = open_reserve(self._settings)
        with contextlib.closing(open_database(self._settings, reserve=reserve)) as database:
            database.migrate()
            if self._trust_clock:
                with database.write() as tx:
                    clock_pauses.end(tx)
            if self._directory is not None and not self._settings.catalog:
                with database.write() as tx:
                    writers.mark_other_brokers_dead(tx, NO_SESSION, SystemClock().now_ms())
                    topology.bump_version(tx)

    def _has_no_topics(self) -> bool:
        """A worker may have served clients before it could report that it is ready."""
        if not self._is_prepared:
            return True  # no worker was started
        try:
            with contextlib.closing(open_database(self._settings)) as database, database.read() as tx:
                return not topics.all_topics(tx)
        except MillpondError:
            return False

    async def _supervise(self, worker: Worker) -> None:
        pause_s = BACKOFF_MIN_S
        while not self._stopping.is_set():
            started = time.monotonic()
            worker.facts = {}
            ended = await _run_once(worker)
            if self._stopping.is_set():
                return
            if not worker.ready.is_set():
                raise CannotStart(f"Worker {worker.number} could not start, so none of them does.")
            if worker.facts:
                await asyncio.to_thread(self._declare_dead, worker)
            if time.monotonic() - started >= STABLE_AFTER_S:
                pause_s = BACKOFF_MIN_S
            logger.error(
                "worker is down; will restart it",
                extra={"worker": worker.number, "reason": ended, "delay_s": pause_s},
            )
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    def _declare_dead(self, worker: Worker) -> None:
        """Let other brokers take over what the worker owned immediately instead of when its lease expires: it
        is certainly dead."""
        try:
            with contextlib.closing(open_database(self._settings)) as database:
                leave(database, Session(worker.facts["session"]), clock=SystemClock())
        except MillpondError as error:
            logger.warning(
                "worker could not be removed; takeover waits for its lease to expire",
                extra={"worker": worker.number, "error": str(error)},
            )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _announce_when_ready(self) -> None:
        for worker in self._workers:
            await worker.ready.wait()
        self._on_ready(self._workers)

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            worker.signal(number)

    async def _all_ended(self) -> None:
        processes = [worker.process for worker in self._workers if worker.process is not None]
        await asyncio.gather(*(process.wait() for process in processes))


async def _run_once(worker: Worker) -> str:
    """Run the worker and return how it ended. If a worker that has run before cannot be started now, for
    example because the machine is out of memory, it is retried like one that died, because the other workers
    are not affected."""
    try:
        return _end_of(await worker.run())
    except OSError as error:
        if not worker.ready.is_set():
            raise CannotStart(
                f"Worker {worker.number} could not start, so none of them does: {error}"
            ) from error
        return f"could not be started ({error})"


def _end_of(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"was ended by signal {-code}"


def run_workers(
    settings: Settings,
    count: int,
    announce: Callable[[list[Worker], float], None],
    *,
    trust_clock: bool = False,
) -> None:
    """Run until SIGTERM or SIGINT and the drain that follows."""
    started = time.perf_counter()

    async def run() -> None:
        supervisor = Supervisor(
            settings,
            count,
            on_ready=lambda workers: announce(workers, time.perf_counter() - started),
            trust_clock=trust_clock,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
        if settings.tls_files() is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, supervisor.reload_tls)
        await supervisor.run()

    asyncio.run(run())
