"""Loads that callers share: a caller that asks for something while it is being loaded waits for that load."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")


class SharedLoads(Generic[Key, T]):
    """Lives on one event loop. A load goes on if its callers go away, and fails for all of them."""

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Task[T]] = {}

    def is_running(self, key: Key) -> bool:
        return key in self._running

    async def run(self, key: Key, load: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the running load of this key returns. Without one, a load is started."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(load())
            task.add_done_callback(lambda done: self._on_done(key, done))
        return await asyncio.shield(task)

    def _on_done(self, key: Key, task: "asyncio.Task[T]") -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: asyncio logs no warning if the callers are gone
