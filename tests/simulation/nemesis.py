"""What goes wrong: one thing after another, each for a while, at times and places that the seed chooses."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tests.simulation.network import CLIENTS
from tests.simulation.node import Node

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

NODES_MAX = 5


class Nemesis:
    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._random = simulation.world.random
        self._under_way: set[asyncio.Task[None]] = set()
        self.faults: dict[str, Callable[[], object]] = {
            "crash": self._crash,
            "crash in a commit": self._crash_in_a_commit,
            "pause in a commit": self._pause_in_a_commit,
            "pause": self._pause,
            "short pause": self._short_pause,
            "cut from the catalog": self._cut_catalog,
            "cut from the store": self._cut_store,
            "cut from clients": self._cut_clients,
            "cut from other brokers": self._cut_brokers,
            "bad way to the catalog": self._bad_catalog,
            "slow catalog": self._slow_catalog,
            "bad way to the store": self._bad_store,
            "slow store": self._slow_store,
            "lossy network": self._lossy_network,
            "clock of another pace": self._pace,
            "wall clock jumps": self._jump,
            "drain and restart": self._drain,
            "join": self._join,
            "leave": self._leave,
            "catalog outage": self._outage,
            "rebalance": self._look,
        }

    async def run(self, seconds: float) -> None:
        """For so long, and then everybody is well again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        names = sorted(self.faults)
        favourites = self._random.sample(names, self._random.randint(3, len(names)))
        while loop.time() < until:
            await asyncio.sleep(self._random.expovariate(1 / self._simulation.plan.calm_s))
            name = self._random.choice(favourites)
            act = self.faults[name]()
            if not asyncio.iscoroutine(act):
                continue
            self._simulation.count_fault(name)
            self._begin(act)
        for node in self._simulation.nodes.values():
            node.ambush = None
        while self._under_way:
            await asyncio.wait(self._under_way)
        self.heal()

    def _begin(self, act: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(act)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def heal(self) -> None:
        simulation = self._simulation
        simulation.network.cuts.clear()
        simulation.network.lose = simulation.network.slow_s = 0.0
        for node in simulation.nodes.values():
            for weather in (node.catalog, node.store):
                weather.cut, weather.refuse, weather.lose, weather.slow_s = False, 0.0, 0.0, 0.0
            node.pause(paused=False)
            node.set_pace(1.0)
            if node.wanted and node.loop is None:
                node.start()
        if not any(node.wanted for node in simulation.nodes.values()):
            next(node for node in simulation.nodes.values() if node.loop is None).start()
        simulation.note("nemesis", "everybody is well")

    # -- whom it strikes --------------------------------------------------------------------------------------

    def _someone(self) -> Node | None:
        running = [node for node in self._simulation.nodes.values() if node.loop is not None]
        return self._random.choice(running) if running else None

    def _for_a_while(
        self, what: str, begin: Callable[[Node], object], end: Callable[[Node], object], most_s: float
    ) -> object:
        node = self._someone()
        if node is None:
            return None
        return self._strike(node, what, begin, end, self._random.uniform(0.05, most_s))

    async def _strike(
        self,
        node: Node,
        what: str,
        begin: Callable[[Node], object],
        end: Callable[[Node], object],
        seconds: float,
    ) -> None:
        self._simulation.note(node.name, f"{what} for {seconds:.2f} s")
        begin(node)
        await asyncio.sleep(seconds)
        end(node)

    @property
    def _lease_s(self) -> float:
        return self._simulation.plan.lease_ms / 1000

    # -- faults -----------------------------------------------------------------------------------------------

    def _crash(self) -> object:
        node = self._someone()
        return None if node is None else self._down(node, crash=True)

    def _drain(self) -> object:
        node = self._someone()
        return None if node is None else self._down(node, crash=False)

    async def _down(self, node: Node, *, crash: bool) -> None:
        seconds = self._random.choice((0.1, 1.0, 2.5)) * self._lease_s * self._random.random()
        self._simulation.note(node.name, f"{'crashes' if crash else 'is drained'}, back in {seconds:.2f} s")
        if crash:
            self._simulation.gone_now(node)
            node.crash()
        else:
            node.drain()
        node.wanted, life = True, node.lives
        await asyncio.sleep(seconds)
        while node.loop is not None and node.lives == life:
            await asyncio.sleep(0.1)
        if node.loop is None:
            node.start()

    def _pause(self) -> object:
        return self._for_a_while("is paused", self._stop, self._go_on, 3 * self._lease_s)

    def _crash_in_a_commit(self) -> object:
        return self._lie_in_wait(lambda node: self._down(node, crash=True))

    def _pause_in_a_commit(self) -> object:
        seconds = self._random.uniform(0.5, 3) * self._lease_s
        return self._lie_in_wait(
            lambda node: self._strike(node, "is paused in a commit", self._stop, self._go_on, seconds)
        )

    def _lie_in_wait(self, strike: Callable[[Node], Coroutine[Any, Any, None]]) -> object:
        node, home = self._someone(), asyncio.get_running_loop()
        if node is None:
            return None
        node.ambush = lambda: home.call_soon(lambda: self._begin(strike(node)))
        return asyncio.sleep(0)

    def _short_pause(self) -> object:
        return self._for_a_while("is paused", self._stop, self._go_on, 0.3 * self._lease_s)

    def _stop(self, node: Node) -> None:
        self._simulation.gone_now(node)
        node.pause(paused=True)

    def _go_on(self, node: Node) -> None:
        if node.broker is not None:
            self._simulation.gone.pop(node.broker.session, None)
        node.pause(paused=False)

    def _cut_catalog(self) -> object:
        return self._for_a_while(
            "is cut from the catalog",
            lambda node: setattr(node.catalog, "cut", True),
            lambda node: setattr(node.catalog, "cut", False),
            2 * self._lease_s,
        )

    def _cut_store(self) -> object:
        return self._for_a_while(
            "is cut from the store",
            lambda node: setattr(node.store, "cut", True),
            lambda node: setattr(node.store, "cut", False),
            2 * self._lease_s,
        )

    def _cut_clients(self) -> object:
        one_way = self._random.random() < 0.5
        return self._for_a_while(
            "does not hear clients" if one_way else "is cut from clients",
            lambda node: self._cut(node.name, [CLIENTS], one_way),
            lambda node: self._join_again(node.name, [CLIENTS]),
            2 * self._lease_s,
        )

    def _cut_brokers(self) -> object:
        others = list(self._simulation.nodes)
        return self._for_a_while(
            "is cut from other brokers",
            lambda node: self._cut(node.name, others, False),
            lambda node: self._join_again(node.name, others),
            2 * self._lease_s,
        )

    def _cut(self, name: str, others: list[str], one_way: bool) -> None:
        for other in others:
            self._simulation.network.cuts.add((other, name))
            if not one_way:
                self._simulation.network.cuts.add((name, other))

    def _join_again(self, name: str, others: list[str]) -> None:
        self._simulation.network.cuts -= {(name, other) for other in others}
        self._simulation.network.cuts -= {(other, name) for other in others}

    def _bad_catalog(self) -> object:
        refuse, lose = self._random.choice(((0.1, 0.0), (0.0, 0.1), (0.1, 0.3), (0.0, 0.6), (0.5, 0.2)))
        return self._for_a_while(
            f"has a bad way to the catalog ({refuse}, {lose})",
            lambda node: (setattr(node.catalog, "refuse", refuse), setattr(node.catalog, "lose", lose)),
            lambda node: (setattr(node.catalog, "refuse", 0.0), setattr(node.catalog, "lose", 0.0)),
            2 * self._lease_s,
        )

    def _slow_catalog(self) -> object:
        slow_s = self._random.choice((0.05, 0.3, 1.0))
        return self._for_a_while(
            f"finds the catalog slow ({slow_s} s)",
            lambda node: setattr(node.catalog, "slow_s", slow_s),
            lambda node: setattr(node.catalog, "slow_s", 0.0),
            2 * self._lease_s,
        )

    def _bad_store(self) -> object:
        refuse, lose = self._random.choice(((0.1, 0.0), (0.0, 0.2), (0.5, 0.0), (0.2, 0.3)))
        return self._for_a_while(
            f"has a bad way to the store ({refuse}, {lose})",
            lambda node: (setattr(node.store, "refuse", refuse), setattr(node.store, "lose", lose)),
            lambda node: (setattr(node.store, "refuse", 0.0), setattr(node.store, "lose", 0.0)),
            3 * self._lease_s,
        )

    def _slow_store(self) -> object:
        slow_s = self._random.choice((0.2, 1.0, 5.0))
        return self._for_a_while(
            f"finds the store slow ({slow_s} s)",
            lambda node: setattr(node.store, "slow_s", slow_s),
            lambda node: setattr(node.store, "slow_s", 0.0),
            3 * self._lease_s,
        )

    async def _lossy_network(self) -> None:
        network = self._simulation.network
        self._simulation.note("nemesis", "the network is lossy")
        network.lose, network.slow_s = self._random.choice(((0.02, 0.0), (0.1, 0.05), (0.0, 0.5), (0.3, 0.0)))
        await asyncio.sleep(self._random.uniform(0.1, 2 * self._lease_s))
        network.lose = network.slow_s = 0.0

    def _pace(self) -> object:
        pace = self._random.choice((0.9, 0.98, 1.02, 1.1))
        return self._for_a_while(
            f"has a clock of pace {pace}",
            lambda node: node.set_pace(pace),
            lambda node: node.set_pace(1.0),
            5 * self._lease_s,
        )

    def _jump(self) -> object:
        by_ms = self._random.choice((-1_800_000, -5_000, 5_000, 1_800_000))
        return self._for_a_while(
            f"has a wall clock {by_ms} ms ahead",
            lambda node: node.set_wall(by_ms),
            lambda node: node.set_wall(0),
            3 * self._lease_s,
        )

    def _join(self) -> object:
        absent = [node for node in self._simulation.nodes.values() if node.loop is None and not node.wanted]
        if absent:
            return self._enter(self._random.choice(absent))
        if len(self._simulation.nodes) < NODES_MAX:
            return self._enter(self._simulation.add_node())
        return None

    async def _enter(self, node: Node) -> None:
        self._simulation.note(node.name, "joins")
        node.start()

    def _leave(self) -> object:
        staying = [node for node in self._simulation.nodes.values() if node.wanted]
        node = self._someone()
        if node is None or not node.wanted or len(staying) < 2:
            return None
        return self._end(node)

    async def _end(self, node: Node) -> None:
        self._simulation.note(node.name, "leaves for good")
        node.drain()

    async def _outage(self) -> None:
        seconds = self._random.uniform(0.1, 2.5 * self._lease_s)
        self._simulation.note("nemesis", f"nobody reaches the catalog for {seconds:.2f} s")
        nodes = list(self._simulation.nodes.values())
        for node in nodes:
            node.catalog.cut = True
        await asyncio.sleep(seconds)
        for node in nodes:
            node.catalog.cut = False

    def _look(self) -> object:
        node = self._someone()
        broker = node.broker if node is not None else None
        if node is None or node.loop is None or broker is None:
            return None
        return self._ask_for_balance(node)

    async def _ask_for_balance(self, node: Node) -> None:
        broker = node.broker
        if node.loop is not None and broker is not None:
            node.loop.call_soon(broker.peers.notify_all)
