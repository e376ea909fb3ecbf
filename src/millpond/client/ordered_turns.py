"""Lets work for the same key run concurrently, but end in order: turns of a key end in the order in which they were
taken. A key is any hashable value.

A key is stored only while it has turns. Lives on an event loop.
"""

import asyncio
from collections.abc import Hashable
from types import TracebackType
from typing import Self


class OrderedTurns:
    def __init__(self) -> None:
        self._last: dict[Hashable, OrderedTurn] = {}

    def __len__(self) -> int:
        """The number of keys with turns."""
        return len(self._last)

    def is_free(self, key: Hashable) -> bool:
        return key not in self._last

    def take(self, key: Hashable) -> "OrderedTurn":
        """Take a turn behind all others of this key. Enter it with `with`, do the work that may run
        concurrently, then await `wait_turn`."""
        turn = self._last[key] = OrderedTurn(self, key, self._last.get(key))
        return turn

    def forget(self, key: Hashable, turn: "OrderedTurn") -> None:
        if self._last.get(key) is turn:
            del self._last[key]


class OrderedTurn:
    def __init__(self, turns: OrderedTurns, key: Hashable, before: "OrderedTurn | None") -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns = turns
        self._key = key
        self._before = before.ended if before is not None else None

    async def wait_turn(self) -> None:
        if self._before is not None:
            await asyncio.wait([self._before])  # if the caller is cancelled here, the previous turn is not

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the turn, but not before the previous ones have ended: later turns must not overtake them, even if
        this one is exited early."""
        if self._before is None or self._before.done():
            self._end()
        else:
            self._before.add_done_callback(lambda _: self._end())

    def _end(self) -> None:
        self.ended.set_result(None)
        self._turns.forget(self._key, self)
