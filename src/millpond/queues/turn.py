"""Whose turn it is to save something of a partition: that of the saver, or of one transaction."""

import asyncio
from typing import Literal


class Turn(asyncio.Lock):
    """A lock that also tells whether somebody waits for it. One that was released and not taken yet is not locked,
    and still somebody else's: to wait for it with other locks in hand could last for ever."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0

    @property
    def is_free(self) -> bool:
        """Whether it can be taken without waiting, in this step of the loop."""
        return not self.locked() and not self._waiting

    async def acquire(self) -> Literal[True]:
        self._waiting += 1
        try:
            return await super().acquire()
        finally:
            self._waiting -= 1
