"""What the `millpond` fixture is: a real broker behind real ports, with its clients, its time and its faults.

    def test_it(millpond):
        millpond.producer("orders").send(b"one")
        assert millpond.consumer("orders").poll().messages[0].value == b"one"

The broker runs on a loop and a thread of its own, so a test may be synchronous or asynchronous. Its files lie in
memory (`/dev/shm`, where there is one) and outlive a restart, but not the test.
"""

import contextlib
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from millpond.broker import Broker
from millpond.client import Admin, Consumer, Producer
from millpond.client.consumer import Start
from millpond.model.addresses import FACES
from millpond.model.errors import MillpondError
from millpond.model.units import parse_duration_ms
from millpond.settings import Settings, load
from millpond.testing.background import run_in_background
from millpond.testing.faults import Faults, FaultyStore
from millpond.testing.outages import WRITES, Outages
from millpond.testing.travel import TravellingClock, travel

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a directory that is made here has a name nobody can guess
DEFAULTS: Final = {
    **{f"{face}_listen": "127.0.0.1:0" for face in FACES},
    "group_initial_rebalance_delay": "0ms",
    "inline_bytes_max": "0",
    "disk_reserve": "0",
}
"""Every message goes through the store, so that the store's faults reach it, groups do not wait for company, and no
disk space is reserved."""

Client = TypeVar("Client", Producer, Consumer, Admin)


class Millpond:
    """`with Millpond({"retention": "10s"}) as millpond:` is what the fixture does."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """`settings` by name, as text or as anything whose text is understood: `"10s"`, `False`, `8`."""
        self._given = {name: str(value) for name, value in (settings or {}).items()}
        self._clock = TravellingClock()
        self._outages = Outages()
        self._clients: list[Producer | Consumer | Admin] = []
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._broker: Broker | None = None
        self._listeners: dict[str, str] = {}

    # -- where it is ------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """For Kafka clients, as `host:port`."""
        return self._address("kafka")

    @property
    def data_dir(self) -> Path:
        """For Spark: `.option("path", str(millpond.data_dir))`."""
        assert self._place is not None, "it has been started"
        return Path(self._place.name)

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
        """The broker itself. It lives on another thread: look at it, but do not call it from a test."""
        if self._broker is None:
            raise RuntimeError("the broker is down: start() it first")
        return self._broker

    def _address(self, face: str) -> str:
        if face not in self._listeners:
            raise RuntimeError(f"the settings turn {face} off")
        return self._listeners[face]

    # -- clients, closed when the test is over ------------------------------------------------------------------

    def producer(self, topic: str, **options: Any) -> Producer:
        """`options` as for `millpond.Producer`."""
        return self._closed_at_end(Producer(topic, **{"address": self.grpc, **options}))

    def consumer(self, topic: str, read_from: Start = 1, **options: Any) -> Consumer:
        """`options` as for `millpond.Consumer`."""
        return self._closed_at_end(Consumer(topic, read_from, **{"address": self.grpc, **options}))

    def admin(self, **options: Any) -> Admin:
        """`options` as for `millpond.Admin`."""
        return self._closed_at_end(Admin(**{"address": self.grpc, **options}))

    def _closed_at_end(self, client: Client) -> Client:
        self._clients.append(client)
        return client

    # -- time -------------------------------------------------------------------------------------------------

    def advance(self, duration: str = "", *, seconds: float = 0.0) -> None:
        """Let time pass for the broker: `advance("1h")`. When it returns, what is due by then has happened: messages
        have expired, members of groups that were not heard of are gone, late transactions are aborted."""
        milliseconds = (parse_duration_ms(duration) if duration else 0) + int(seconds * 1000)
        if milliseconds < 0:
            raise ValueError("time only goes forward")
        run_in_background(travel(self.broker, self._clock, milliseconds))

    @property
    def now_ms(self) -> int:
        """The broker's time. Producers stamp messages with their own, which stays where it is."""
        return self._clock.now_ms()

    # -- faults -----------------------------------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        """What goes wrong in the store, call by call: `faults.fail_before("append")`, `faults.hold("append")`."""
        return self._outages

    def unavailable(self) -> AbstractContextManager[None]:
        """`with millpond.unavailable():` nothing can be written to the store."""
        return self._outages.outage(*WRITES)

    # -- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Again, after `stop` or `kill`: on the same ports, with what was kept."""
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
        """As SIGTERM does: what was begun is answered."""
        broker, self._broker = self.broker, None
        run_in_background(broker.stop())

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """As in a crash, from one moment to the next nothing is written any more, and nobody takes leave. What was
        acknowledged is there after `start`; what was under way may be there or not. Planned faults end with it."""
        broker, self._broker = self.broker, None
        run_in_background(_without_catalog(broker))
        self._outages.clear()
        run_in_background(broker.stop())

    def close(self) -> None:
        """The end: clients are closed, the broker is stopped, its files are removed."""
        self._outages.clear()
        with ExitStack() as undo:
            undo.callback(self._remove)
            undo.callback(self._stop_if_running)
            self._close_clients()

    def __enter__(self) -> Self:
        self._place = tempfile.TemporaryDirectory(
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
        """Nothing comes from the environment: a test is the same for everybody."""
        ports = {f"{face}_listen": address for face, address in self._listeners.items()}
        assert self._place is not None, "it is used in a with statement"
        return load({**DEFAULTS, "data_dir": self._place.name, **self._given, **ports}, environment={})

    def _close_clients(self) -> None:
        """They take leave of the broker; without one they would try until their time is up."""
        if self._clients and self._broker is None:
            self.start()
        while self._clients:
            _close(self._clients.pop())

    def _stop_if_running(self) -> None:
        if self._broker is not None:
            self.stop()

    def _remove(self) -> None:
        if self._place is not None:
            self._place.cleanup()
            self._place = None


def _close(client: Producer | Consumer | Admin) -> None:
    """A test may have closed it, or deleted its topic: that is its business, and it is over."""
    with contextlib.suppress(MillpondError):
        client.close()


async def _without_catalog(broker: Broker) -> None:
    """From here on it can acknowledge nothing, not even that it leaves."""
    broker.database.close()
