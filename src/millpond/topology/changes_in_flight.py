"""Changes that run to completion even if their caller is gone: what was committed must also be applied here."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ChangesInFlight:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def complete(self, change: Coroutine[Any, Any, T]) -> T:
        """Run the change to completion, even if the caller is cancelled."""
        task = asyncio.create_task(change)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the changes in flight."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: asyncio logs no warning if the caller is gone
