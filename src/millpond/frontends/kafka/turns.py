"""Processes long requests in turns, between which the event loop serves other clients.

A handler that does something for each entry of a request takes the entries from a `Turns`. A short request is
processed at once, as if there were none.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

ENTRIES_PER_TURN: Final = 500
"""Maximum number of entries that are processed before the event loop serves other clients. An entry takes 1 to 20
microseconds; an error is one of the slow ones."""


class Turns:
    """The turns of one request. All its lists share them: many lists of one entry take as long as one long list."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ENTRIES_PER_TURN

    async def over(self, entries: Iterable[T]) -> AsyncIterator[T]:
        """The entries, in their order."""
        for entry in entries:
            if self._left == 0:  # as in `step`
                await self.next()
            self._left -= 1
            yield entry

    async def step(self) -> None:
        """Count an entry, in a loop that may end early."""
        if self._left == 0:
            await self.next()
        self._left -= 1

    async def next(self) -> None:
        """Let other tasks run."""
        self._left = ENTRIES_PER_TURN
        await asyncio.sleep(0)
