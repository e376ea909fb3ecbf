"""Calls from clients to brokers and between brokers: each way takes its time, and may be cut or lose things."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.loop import SimLoop

from millpond.model.errors import MillpondError

if TYPE_CHECKING:
    from tests.simulation.node import Node, SimBroker
    from tests.simulation.simulation import Simulation

T = TypeVar("T")
CLIENTS = "clients"


class Unreachable(Exception):
    """No answer, or nobody there: what was asked may have happened all the same."""


class Network:
    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._world = simulation.world
        self.cuts: set[tuple[str, str]] = set()
        """Pairs that do not hear each other."""
        self.lose = 0.0
        self.slow_s = 0.0

    async def call(
        self,
        caller: str,
        node: "Node",
        function: "Callable[[SimBroker], Awaitable[T]]",
        timeout_s: float = 5.0,
    ) -> T:
        """Run `function` on the broker's loop and return what it returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        future = loop.create_future()
        self._travel(caller, node.name, lambda: self._arrive(caller, node, function, loop, future))
        try:
            async with asyncio.timeout(timeout_s):
                found: T = await future
                return found
        except TimeoutError:
            raise Unreachable(node.name) from None

    def _arrive(self, caller: str, node: "Node", function: Any, home: SimLoop, future: Any) -> None:
        if node.loop is None:
            self._travel(
                node.name, caller, lambda: home.call_soon(_answer, future, None, Unreachable(node.name))
            )
            return
        node.loop.call_soon(self._begin, caller, node, function, home, future)

    def _begin(self, caller: str, node: "Node", function: Any, home: SimLoop, future: Any) -> None:
        loop, broker = node.loop, node.broker
        if loop is None or broker is None or not node.serving:
            self._travel(
                node.name, caller, lambda: home.call_soon(_answer, future, None, Unreachable(node.name))
            )
            return
        task = loop.create_task(function(broker))
        task.add_done_callback(lambda done: self._return(caller, node, done, home, future))

    def _return(
        self, caller: str, node: "Node", task: "asyncio.Task[Any]", home: SimLoop, future: Any
    ) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, MillpondError | Unreachable):
            self._simulation.complain(f"{node.name} answered with a bug: {error!r}", error)
        value = None if error is not None else task.result()
        self._travel(node.name, caller, lambda: home.call_soon(_answer, future, value, error))

    def _travel(self, source: str, target: str, arrive: Callable[[], Any]) -> None:
        random = self._world.random
        if (source, target) in self.cuts or (self.lose and random.random() < self.lose):
            return
        delay_s = random.uniform(0.0001, 0.001) + random.uniform(0, self.slow_s)
        self._world.network.call_later(delay_s, arrive)


def _answer(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
