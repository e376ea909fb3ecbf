"""Virtual time: a world of event loops, one for each process, on one thread, where nothing waits for real.

The world runs what is ready on any loop that is not paused, loops in an order of the seed's choosing and callbacks of
a loop in asyncio's order; when nothing is ready it jumps to the next timer. Each loop has its own clock, which may go
faster or slower than the world's. What a real process gives to a thread happens here on the loop after a delay of the
seed's choosing, or on the network's loop if it had left the process already: then neither a pause nor a crash of the
process stops it.
"""

import asyncio
import contextvars
import heapq
import itertools
import math
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

EXPECTED = ("was never retrieved", "was destroyed but it is pending")
"""What asyncio says of tasks that vanish with their process."""


ROUNDING_S = 1e-9
"""By so little a clock of another pace may be off when a timer's time has come."""
CLOSES_MAX = 20
TURNS_MAX = 20_000
"""Turns of loops without any time passing: more are a circle."""


class Stuck(Exception):
    """Nothing is ready and no timer is set: whoever waits, waits for ever. Or something goes on for ever."""


class World:
    """Time, in seconds, and everybody who lives in it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.loops: list[SimLoop] = []
        self.numbers = itertools.count()
        self.complaints: list[str] = []
        """Errors that reached nobody: bugs of a part, or of the simulation."""
        self.steps = 0
        self.network = SimLoop(self, "network")

    def run(self, until: Callable[[], bool], deadline: float) -> bool:
        """Whether `until` came true before the deadline."""
        turns = 0
        while not until():
            loop = self._ready_loop()
            if loop is None:
                loop, when = self._next_timer()
                if when > deadline:
                    return False
                if when > self.now:
                    self.now, turns = when, 0
                loop.wake_timers()
                continue
            loop.run_ready()
            self.steps += 1
            turns += 1
            if turns > TURNS_MAX:
                raise Stuck(f"{loop.name} turns in circles")
        return True

    def _ready_loop(self) -> "SimLoop | None":
        ready = [loop for loop in self.loops if loop.ready and not loop.paused]
        if len(ready) < 2:
            return ready[0] if ready else None
        return ready[self.random.randrange(len(ready))]

    def _next_timer(self) -> "tuple[SimLoop, float]":
        first, found = math.inf, None
        for loop in self.loops:
            if not loop.paused and (when := loop.next_timer()) is not None and when < first:
                first, found = when, loop
        if found is None:
            raise Stuck
        return found, first

    def bury(self, loop: "SimLoop") -> None:
        loop.dead = loop.paused = True
        loop.ready.clear()
        loop.timers.clear()
        self.loops.remove(loop)


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """Sets of tasks have the same order each time: they hash by number, not by address."""

    def __init__(self, *arguments: Any, number: int, **named: Any) -> None:
        self._sim_number = number
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._sim_number


class SimFuture(asyncio.Future):  # type: ignore[type-arg]
    def __init__(self, *, number: int, loop: "SimLoop") -> None:
        self._sim_number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._sim_number


class SimLoop(asyncio.AbstractEventLoop):
    """One process. It can be paused, its clock can be set to another pace, and it can vanish."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.paused = False
        self.dead = False
        self.tasks: list[SimTask] = []
        self.delay_of: Callable[[str], float] = lambda _: 0.001
        """How long a call takes on its way and on its way back, by the name of the pool that makes it."""
        self._pace = 1.0
        self._world_then = world.now
        self._local_then = world.now
        self._reached = world.now
        world.loops.append(self)

    # -- time -------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return max(self._local_then + (self.world.now - self._world_then) * self._pace, self._reached)

    def set_pace(self, pace: float) -> None:
        """From now on a second of the world is `pace` seconds here."""
        self._local_then, self._world_then = self.time(), self.world.now
        self._pace = pace

    def next_timer(self) -> float | None:
        """When, in the world's time."""
        while self.timers and self.timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(self.timers)
        if not self.timers:
            return None
        return self._world_then + (self.timers[0][0] - self._local_then) / self._pace

    def wake_timers(self) -> None:
        now = self.time() + ROUNDING_S
        while self.timers and self.timers[0][0] <= now:
            when, _, handle = heapq.heappop(self.timers)
            self._reached = max(self._reached, when)  # or whoever looks would find it is not yet time
            if not handle.cancelled():
                self.ready.append(handle)

    # -- running ----------------------------------------------------------------------------------------------

    def run_ready(self) -> None:
        """One turn of the loop: what is ready now, in order."""
        events._set_running_loop(self)
        try:
            for _ in range(len(self.ready)):
                if not self.ready or self.paused:
                    return
                handle = self.ready.popleft()
                if not handle._cancelled:  # type: ignore[attr-defined]
                    handle._run()
        finally:
            events._set_running_loop(None)

    @contextmanager
    def running(self) -> Iterator[None]:
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(before)

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + max(delay, 0), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            heapq.heappush(self.timers, (when, next(self.world.numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left where it is, and passed over when its time has come."""

    def create_future(self) -> SimFuture:
        return SimFuture(number=next(self.world.numbers), loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> SimTask:
        task = SimTask(coro, loop=self, name=name, context=context, number=next(self.world.numbers))
        self.tasks.append(task)
        if len(self.tasks) > 5_000:
            self.tasks = [each for each in self.tasks if not each.done()]
        return task

    # -- what a process gives to threads ----------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> SimFuture:
        pool = getattr(executor, "_thread_name_prefix", "")
        future = self.create_future()

        def deliver(value: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self.happen(lambda: func(*args), deliver, self.delay_of(pool), self.delay_of(pool))
        return future

    def happen(
        self,
        act: Callable[[], Any],
        deliver: Callable[[Any, Exception | None], None],
        there_s: float,
        back_s: float,
    ) -> None:
        """`act` takes place after a while, and this loop hears of it after another."""

        def perform() -> None:
            value, error = None, None
            try:
                value = act()
            except Exception as raised:  # noqa: BLE001  # whatever a thread would have raised
                error = raised
            self.call_later(back_s, deliver, value, error)

        has_left = self.world.random.random() < 0.5
        where = self.world.network if has_left else self
        where.call_later(there_s, perform)

    # -- the rest of asyncio's interface ----------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        message = str(context.get("message", ""))
        if not self.dead and not any(each in message for each in EXPECTED):
            self.world.complaints.append(f"{self.name}: {message}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.dead

    def set_debug(self, enabled: bool) -> None:
        """There is none."""

    def forget(self) -> None:
        """The world ends: nobody is to be told of what was never finished."""
        self.dead = True
        with self.running():
            for task in self.tasks:
                task._log_destroy_pending = False
                if not task.done():
                    _close(task.get_coro())


def _close(coroutine: Any) -> None:
    """One that waits for something even while it is closed is closed again."""
    for _ in range(CLOSES_MAX):
        try:
            coroutine.close()
            return
        except Exception:  # noqa: BLE001  # nobody is left to hear of it
            continue
