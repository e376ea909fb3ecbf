"""The writer without its thread: the same jobs, batches, commits and outcomes, each step at its virtual time."""

import asyncio
import queue
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from tests.simulation.loop import SimLoop

from millpond.catalog.commits import CommitOperation, OperationResult
from millpond.log.writer import WriteJob, Writer
from millpond.model.errors import NotOwner, WriterDead

ZOMBIES = "commits of replaced owners refused"
REFUSED_SHARE = "'NotOwner'"
"""In what a flush stores for a partition that it was refused for."""
CHECK_S = 1.0
"""How often it looks around: as on PostgreSQL."""


class Jobs:
    """What `queue.SimpleQueue` is to the thread. Nobody blocks here: the writer waits for `news` instead."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._jobs: deque[WriteJob | None] = deque()

    def put(self, job: WriteJob | None) -> None:
        self._jobs.append(job)
        self.news.set()

    def qsize(self) -> int:
        return len(self._jobs)

    def get_nowait(self) -> WriteJob | None:
        if not self._jobs:
            self.news.clear()
            raise queue.Empty
        return self._jobs.popleft()

    def get(self, timeout: float) -> WriteJob | None:
        return self.get_nowait()


class SimWriter(Writer):
    """A commit leaves, takes effect, and is heard of at three different times; a pause or a crash may come between.
    Outcomes reach the loop in the order of the commits."""

    def __init__(self, *arguments: Any, counts: dict[str, int], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.counts = counts
        self._foreign_check_s = CHECK_S
        self._virtual = Jobs()
        self._jobs: Any = self._virtual
        self._told_at = 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self._loop = self._sim = loop
        self._work = loop.create_task(self._repeat())

    async def stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._jobs.put(None)
        await asyncio.wait([self._work])

    async def _repeat(self) -> None:
        while True:
            jobs, stop = self._next_jobs()
            if jobs:
                await self._in_virtual_time(jobs)
            elif not stop:
                await self._wait()
            self._check_foreign_commits(self._sim.time())
            if stop:
                return

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._foreign_check_s):
                await self._virtual.news.wait()
        except TimeoutError:
            return

    async def _in_virtual_time(self, jobs: list[WriteJob]) -> None:
        steps = self._perform(jobs)
        while (pause_s := await self._step(lambda: next(steps, None))) is not None:
            await asyncio.sleep(pause_s)

    def _step(self, act: Callable[[], float | None]) -> "asyncio.Future[float | None]":
        future = self._sim.create_future()

        def deliver(value: float | None, error: Exception | None) -> None:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        self._sim.happen(act, deliver, self._sim.delay_of("commit"), self._sim.delay_of("commit"))
        return future

    def _commit(self, operations: list[CommitOperation]) -> Generator[float, None, list[OperationResult]]:
        outcomes = yield from super()._commit(operations)
        refused = sum(isinstance(each.error, WriterDead | NotOwner) for each in outcomes)
        refused += sum(REFUSED_SHARE in str(each.value) for each in outcomes)
        self.counts[ZOMBIES] = self.counts.get(ZOMBIES, 0) + refused
        return outcomes

    def _call_soon(self, function: Callable[..., None], *arguments: Any) -> None:
        self._told_at = max(self._told_at, self._sim.time() + self._sim.delay_of("hop"))
        self._sim.call_at(self._told_at, function, *arguments)
