"""The `millpond` fixture: a real broker on real ports, with its clients, its clock and its faults.

    def test_it(millpond):
        millpond.producer("orders").send(b"one")
        assert millpond.consumer("orders").poll().messages[0].value == b"one"

The broker runs on its own event loop and thread, so a test may be synchronous or asynchronous. Its files are
in memory (`/dev/shm`, if it exists). They survive a restart of the broker, but not the test.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from millpond.broker import Broker
from millpond.client import Admin, Consumer, Producer
from millpond.model.addresses import INTERFACES
from millpond.model.errors import MillpondError
from millpond.model.units import parse_duration_ms
from millpond.settings import RenamedSetting, Settings, load
from millpond.testing.background import run_in_background
from millpond.testing.faults import Faults, FaultyStore
from millpond.testing.outages import WRITES, Outages
from millpond.testing.time_travel import TravellingClock, time_travel

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # directories created here have names that cannot be guessed
DEFAULTS: Final = {
    **{f"{interface}_listen": "127.0.0.1:0" for interface in INTERFACES},
    "group_initial_rebalance_delay": "0ms",
    "inline_bytes_max": "0",
    "disk_reserve": "0",
}
"""Every message goes through the store, so that the store's faults affect it. Groups do not delay their first
rebalance, and no disk space is reserved."""

AnyClient = TypeVar("AnyClient", Producer, Consumer, Admin)


class Millpond:
    """The fixture does `with Millpond({"retention": "10s"}) as millpond:`."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """`settings` by name, as text or as any value whose text can be parsed: `"10s"`, `False`, `8`."""
        self._given = {name: str(value) for name, value in (settings or {}).items()}
        self._clock = TravellingClock()
        self._outages = Outages()
        self._clients: list[Producer | Consumer | Admin] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._broker: Broker | None = None
        self._listeners: dict[str, str] = {}

    # -- addresses --------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """For Kafka clients, as `host:port`."""
        return self._address("kafka")

    @property
    def data_dir(self) -> Path:
        """For Spark: `.option("path", str(millpond.data_dir))`."""
        assert self._directory is not None, "it has been started"
        return Path(self._directory.name)

    @property
    def grpc(self) -> str:
        """For the client library, as `host:port`."""
        return self._address("grpc")

    @property
    def http(self) -> str:
        """As `http://host:port`."""
        return f"http://{self._address('http')}"

    @property
    def broker(self) -> Broker:
        """The broker itself. It runs on another thread: a test may inspect it but must not call it."""
        if self._broker is None:
            raise RuntimeError("the broker is down: start() it first")
        return self._broker

    def _address(self, interface: str) -> str:
        if interface not in self._listeners:
            raise RuntimeError(f"the settings turn {interface} off")
        return self._listeners[interface]

    # -- clients, closed when the test ends ---------------------------------------------------------------------

    def producer(self, topic: str | None = None, **options: Any) -> Producer:
        """`options` as for `millpond.Producer`."""
        return self._closed_at_end(Producer(topic, **{"address": self.grpc, **options}))

    def consumer(self, topics: str | Sequence[str], **options: Any) -> Consumer:
        """`options` as for `millpond.Consumer`."""
        return self._closed_at_end(Consumer(topics, **{"address": self.grpc, **options}))

    def admin(self, **options: Any) -> Admin:
        """`options` as for `millpond.Admin`."""
        return self._closed_at_end(Admin(**{"address": self.grpc, **options}))

    def _closed_at_end(self, client: AnyClient) -> AnyClient:
        self._clients.append(client)
        return client

    # -- time -------------------------------------------------------------------------------------------------

    def advance(self, duration: str = "", *, seconds: float = 0.0) -> None:
        """Advance the broker's time: `advance("1h")`. When it returns, everything that was due has happened:
        messages have expired, group members without heartbeats have been removed, and transactions that timed
        out have been aborted."""
        milliseconds = (parse_duration_ms(duration) if duration else 0) + int(seconds * 1000)
        if milliseconds < 0:
            raise ValueError("time only goes forward")
        run_in_background(time_travel(self.broker, self._clock, milliseconds))

    @property
    def now_ms(self) -> int:
        """The broker's time. Producers stamp messages with their own time, which is not advanced."""
        return self._clock.now_ms()

    # -- faults -----------------------------------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        """The faults of the store, call by call: `faults.fail_before("append")`, `faults.hold("append")`."""
        return self._outages

    def unavailable(self) -> AbstractContextManager[None]:
        """`with millpond.unavailable():` no write to the store succeeds."""
        return self._outages.outage(*WRITES)

    # -- lifecycle --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start again after `stop` or `kill`, on the same ports and with the stored data."""
        if self._broker is not None:
            raise RuntimeError("the broker is running")
        broker = Broker(
            self._settings(),
            clock=self._clock,
            wrap_store=lambda store: FaultyStore(store, self._outages),
            maintain=False,
            listen=True,
        )
        run_in_background(broker.start())
        self._broker, self._listeners = broker, dict(broker.listeners)

    def stop(self) -> None:
        """Like SIGTERM: requests in progress are completed."""
        broker, self._broker = self.broker, None
        run_in_background(broker.stop())

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """Simulate a crash: from one moment to the next nothing is written any more, and the broker does not
        leave the cluster in order. Acknowledged messages are there after `start`; messages in flight may or
        may not be. Planned faults are cleared."""
        broker, self._broker = self.broker, None
        run_in_background(_without_catalog(broker))
        self._outages.clear()
        run_in_background(broker.stop())

    def close(self) -> None:
        """Close the clients, stop the broker and remove its files."""
        self._outages.clear()
        with ExitStack() as undo:
            undo.callback(self._remove)
            undo.callback(self._stop_if_running)
            self._close_clients()

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(
            prefix="millpond-test-", dir=MEMORY if MEMORY.is_dir() else None
        )
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settings(self) -> Settings:
        """Nothing comes from the environment, so that a test behaves the same everywhere."""
        ports = {f"{interface}_listen": address for interface, address in self._listeners.items()}
        assert self._directory is not None, "it is used in a with statement"
        chosen = {**DEFAULTS, "data_dir": self._directory.name, **self._given, **ports}
        return load(chosen, environment={}, on_renamed=_warn_of_former_name)

    def _close_clients(self) -> None:
        """Closing a client contacts the broker; without a broker it would retry until its timeout."""
        if self._clients and self._broker is None:
            self.start()
        while self._clients:
            _close(self._clients.pop())

    def _stop_if_running(self) -> None:
        if self._broker is not None:
            self.stop()

    def _remove(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


def _close(client: Producer | Consumer | Admin) -> None:
    """A test may have closed the client already, or deleted its topic, so errors are ignored."""
    with contextlib.suppress(MillpondError):
        client.close()


async def _without_catalog(broker: Broker) -> None:
    """From now on the broker can acknowledge nothing and cannot leave the cluster."""
    broker.database.close()


def _warn_of_former_name(renamed: RenamedSetting) -> None:
    warnings.warn(f"the setting {renamed.old} is now called {renamed.new}", DeprecationWarning, stacklevel=2)
