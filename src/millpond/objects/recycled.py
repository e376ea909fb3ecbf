"""Memory for what is read from files, used again and again: to map fresh pages costs more than to copy into them.

`RecycledMemory.take` returns a view. The memory is free again when neither that view nor a part of it exists any more;
no call is needed for that. Used by many threads at a time.
"""

import ctypes
import mmap
import weakref
from collections import deque
from functools import lru_cache
from typing import Any, Final

SMALL: Final = 64 * 1024
"""Below this size memory is not recycled: allocating it costs little."""
LARGE: Final = 32 * 1024 * 1024
"""Above this size memory is not recycled: such reads are rare, and keeping it would cost more than they do."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Free memory that is kept for later reads."""
STEPS: Final = 4
"""Sizes between a power of two and the next one, so that at most a fifth of the memory is not used."""


class _Loan(weakref.ref[Any]):
    """Refers to the object that exports the memory, which lives as long as a view of it."""

    __slots__ = ("memory",)
    memory: mmap.mmap


class RecycledMemory:
    """`deque` and `dict` operations of one step need no lock, which the callback of a view that ends could not take:
    it may run inside any other call of the same thread. The memory is free before finalizers of objects that refer to
    the view are called, so these must not read it."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._free: dict[int, deque[mmap.mmap]] = {size: deque() for size in _sizes()}
        self._loans: dict[int, _Loan] = {}

    @property
    def kept_bytes(self) -> int:
        return sum(size * len(free) for size, free in self._free.items())

    @property
    def lent(self) -> int:
        """Number of views whose memory is in use."""
        return len(self._loans)

    def take(self, length: int) -> memoryview:
        """A writable view of this length. What it contains is undefined."""
        if not SMALL <= length <= LARGE:
            return memoryview(bytearray(length))
        size = rounded(length)
        try:
            memory = self._free[size].pop()
        except IndexError:
            # Private: a process that is forked must not change what this one reads.
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # The view and its parts keep `exporter` alive. The memory itself could not tell when they end.
        exporter = _array(size).from_buffer(memory)
        loan = _Loan(exporter, self._give_back)
        loan.memory = memory
        self._loans[id(loan)] = loan
        return memoryview(exporter).cast("B")[:length]

    def _give_back(self, loan: weakref.ref[Any]) -> None:
        assert isinstance(loan, _Loan)
        del self._loans[id(loan)]
        if self.kept_bytes + len(loan.memory) <= self._kept_bytes_max:
            self._free[len(loan.memory)].append(loan.memory)


@lru_cache(maxsize=1024)
def rounded(length: int) -> int:
    """The next size at or above `length`."""
    return next(size for size in _sizes() if size >= length)


@lru_cache(maxsize=1024)
def _array(size: int) -> Any:
    """The type of an array of this many bytes."""
    return ctypes.c_char * size


def _sizes() -> list[int]:
    powers = [SMALL << number for number in range((LARGE // SMALL).bit_length() - 1)]
    return [power + power * step // STEPS for power in powers for step in range(STEPS)] + [LARGE]
