"""The lock for saving state of a partition. Either the saver or one transaction holds it."""

import asyncio
from typing import Literal


class SaveLock(asyncio.Lock):
    """A lock that also knows whether a task waits for it. A lock that was just released to a waiting task is not locked
    and yet not available. A task that holds other locks must not wait for it: that could deadlock."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0

    @property
    def is_free(self) -> bool:
        """Whether it can be acquired without waiting, in this step of the event loop."""
        return not self.locked() and not self._waiting

    async def acquire(self) -> Literal[True]:
        self._waiting += 1
        try:
            return await super().acquire()
        finally:
            self._waiting -= 1
