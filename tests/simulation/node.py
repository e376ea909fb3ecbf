"""A broker as a process that starts, is paused, crashes, is drained, and comes back: the real assembly, on its loop."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.catalog import BrokersCatalog, Weather
from tests.simulation.loop import SimLoop
from tests.simulation.store import BrokersStore
from tests.simulation.writer import SimWriter

from millpond.broker import Broker
from millpond.model.errors import MillpondError, WriterDead
from millpond.settings import Settings
from millpond.topology import RefreshRequests
from millpond.topology.refresh_requests import REFRESH_TIMEOUT_S

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

BORN_MS = 1_800_000_000_000
START_AGAIN_S = 1.0
AMBUSH_S = 0.005


class LoopClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.ahead_ms = 0
        """How far its wall clock is wrong."""

    def now_ms(self) -> int:
        return BORN_MS + self.ahead_ms + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


class SimRefreshRequests(RefreshRequests):
    """Over the simulated network: they may be late, or lost."""

    def __init__(self, node: "Node") -> None:
        super().__init__()
        self._node = node

    async def send(self, addresses: Iterable[str]) -> None:
        await asyncio.gather(*(self._request(each) for each in sorted(set(addresses))))

    async def _request(self, address: str) -> None:
        simulation = self._node.simulation
        other = simulation.nodes.get(address)
        if other is None:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                await simulation.network.call(self._node.name, other, lambda broker: broker.cluster.refresh())


class SimBroker(Broker):
    """Reached by its name instead of ports."""

    def __init__(self, *arguments: Any, place: str, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._place = place

    def _reachable(self) -> dict[str, str]:
        return {"grpc": self._place}


class Node:
    """A place where a broker runs, life after life."""

    def __init__(self, simulation: "Simulation", name: str, settings: Settings) -> None:
        self.simulation = simulation
        self.name = name
        self.settings = settings
        self.catalog = Weather()
        self.store = Weather()
        self.broker: SimBroker | None = None
        self.loop: SimLoop | None = None
        self.serving = False
        self.wanted = False
        """Whether it should be running; one that was drained for good should not."""
        self.lives = 0
        self.ambush: Callable[[], object] | None = None
        """What happens while the next commit or upload is on its way."""
        self._clock: LoopClock | None = None
        self._stop = asyncio.Event()

    # -- a process --------------------------------------------------------------------------------------------

    def start(self) -> None:
        assert self.loop is None, "it runs"
        self.wanted = True
        self.lives += 1
        self._stop = asyncio.Event()
        self.loop = SimLoop(self.simulation.world, f"{self.name}.{self.lives}")
        self.loop.delay_of = self._delay_of
        self._clock = LoopClock(self.loop)
        self.loop.call_soon(lambda: self.loop and self.loop.create_task(self._live(self.loop)))

    def crash(self) -> None:
        """It is gone between two instructions. What had left it may still arrive."""
        loop, self.loop, self.serving = self.loop, None, False
        if loop is not None:
            self.simulation.world.bury(loop)
            self.simulation.graves.append((loop, self.broker))
        self.broker = None

    def pause(self, *, paused: bool) -> None:
        if self.loop is not None:
            self.loop.paused = paused
            self.loop.wake_timers()

    def drain(self) -> None:
        """SIGTERM."""
        self.wanted = False
        if self.loop is not None:
            self.loop.call_soon(self._stop.set)

    def set_pace(self, pace: float) -> None:
        if self.loop is not None:
            self.loop.set_pace(pace)

    def set_wall(self, ahead_ms: int) -> None:
        if self._clock is not None:
            self._clock.ahead_ms = ahead_ms

    async def _live(self, loop: SimLoop) -> None:
        """As `millpond serve`: one that was declared dead joins again; one that fails otherwise ends, and its
        supervisor starts it again."""
        while not self._stop.is_set():
            broker = self._make_broker()
            try:
                await broker.start()
            except MillpondError as error:
                self._note(f"could not start: {type(error).__name__}")
                await asyncio.sleep(START_AGAIN_S)
                continue
            self.broker, self.serving = broker, True
            self._note(f"serves as {broker.session}, node {broker.node_id}")
            error = await self._until_stopped(broker)
            self._note("stops" if error is None else f"ends: {type(error).__name__}: {error}")
            self.serving = error is None
            await broker.stop()
            self.serving = False
            if error is not None and not isinstance(error, WriterDead):
                self.simulation.complain(f"{self.name} ended: {error!r}")
                await asyncio.sleep(START_AGAIN_S)
        self._note("has stopped")
        self.broker = None
        self.simulation.graves.append((loop, self.broker))
        self.simulation.world.bury(loop)
        self.loop = None

    async def _until_stopped(self, broker: SimBroker) -> MillpondError | None:
        stopped = asyncio.ensure_future(self._stop.wait())
        failed = asyncio.ensure_future(broker.failed())
        await asyncio.wait([stopped, failed], return_when=asyncio.FIRST_COMPLETED)
        error = failed.result() if failed.done() else None
        for task in (stopped, failed):
            task.cancel()
        return error

    def _make_broker(self) -> SimBroker:
        simulation = self.simulation
        broker: SimBroker
        if self._clock is not None:
            # Retries of a subscription wait for a wall time: a broker that joins with a clock half an hour behind
            # lets those of its predecessor wait for so long. Clocks may jump, but not before a broker has joined.
            self._clock.ahead_ms = 0

        def wrap_database(memory: Any) -> BrokersCatalog:
            memory.close()
            return BrokersCatalog(simulation.catalog, self.catalog, broker.session, simulation.counts)

        def wrap_store(memory: Any) -> BrokersStore:
            memory.close()
            return BrokersStore(
                simulation.world,
                simulation.store,
                broker.session,
                self.store,
                simulation.counts,
                uploads=simulation.plan.uploads,
            )

        broker = SimBroker(
            replace(self.settings),
            place=self.name,
            clock=self._clock,
            wrap_store=wrap_store,
            wrap_database=wrap_database,
            make_writer=partial(SimWriter, counts=simulation.counts),
            make_refresh_requests=lambda: SimRefreshRequests(self),
            random=random,  # the module itself, which `seeded` has given the seed
            maintain=simulation.plan.maintain,
            supervised=True,
        )
        return broker

    def _delay_of(self, pool: str) -> float:
        """Half of what a call takes, in seconds: mostly milliseconds, sometimes far more."""
        chance = self.simulation.world.random
        if pool == "hop":
            return chance.uniform(0, 0.0005)
        if self.ambush is not None and pool in ("commit", "millpond-upload"):
            self.simulation.world.network.call_later(chance.uniform(0, AMBUSH_S), self.ambush)
            self.ambush = None
        is_store = pool in ("millpond-upload", "millpond-read", "millpond-payloads")
        weather = self.store if is_store else self.catalog
        usual = chance.uniform(0.01, 0.06) if pool == "millpond-upload" else chance.uniform(0.0002, 0.002)
        rare = chance.expovariate(1 / 0.1) if chance.random() < 0.02 else 0.0
        return usual + rare + chance.uniform(0, weather.slow_s)

    def _note(self, text: str) -> None:
        self.simulation.note(self.name, text)


Function = Callable[[SimBroker], Any]
