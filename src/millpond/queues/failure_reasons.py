"""Why messages of one subscription partition failed: the last reasons of each failing message, in bounded memory.

A reason is a text from a consumer. It is made one printable line of limited size, because it is stored, becomes a
header of a dead letter and is printed on terminals. An ack timeout and a lost connection have reasons of their own.
"""

import heapq
from collections.abc import Mapping
from typing import Final

from millpond.queues.dispatcher_results import Retry
from millpond.queues.limits import ReasonLimits

NO_REASON: Final = "no reason given"
ACK_TIMEOUT: Final = "ack timeout"
CONNECTION_LOST: Final = "connection lost"
CUT: Final = "…"
BYTES_PER_CHARACTER_MAX: Final = 4

Reasons = tuple[str, ...]
"""The oldest first."""


def printable_line(text: str, bytes_max: int) -> str:
    """The text as one line of at most `bytes_max` bytes of UTF-8. Whatever cannot be printed (control characters,
    line ends, lone surrogates) becomes a space; a text that is too long ends with `…`."""
    start = text[: BYTES_PER_CHARACTER_MAX * bytes_max]
    if not start.isprintable():
        start = "".join(each if each.isprintable() else " " for each in start)
    line = " ".join(start.split())
    encoded = line.encode()
    if len(encoded) <= bytes_max and len(start) == len(text):
        return line
    room = bytes_max - len(CUT.encode())
    return encoded[:room].decode(errors="ignore").rstrip() + CUT


class FailureReasons:
    """Every failing message has an entry, empty if its reasons are unknown. When all reasons together would exceed
    their limit, a message that fails keeps only the new reason, cut short."""

    def __init__(self, limits: ReasonLimits, retries: Mapping[int, Retry]) -> None:
        self._limits = limits
        self._reasons: dict[int, Reasons] = {}
        self._bytes = 0
        for offset, retry in retries.items():
            self._put(offset, retry.reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    @property
    def size(self) -> int:
        """Bytes of all reasons."""
        return self._bytes

    def of(self, offset: int) -> Reasons:
        return self._reasons.get(offset, ())

    def first(self, count: int) -> list[int]:
        """The lowest offsets of failing messages."""
        return heapq.nsmallest(count, self._reasons)

    def add(self, offset: int, reason: str) -> None:
        limits = self._limits
        line = printable_line(reason, limits.reason_bytes_max) or NO_REASON
        reasons = (*self.of(offset), line)[-limits.kept_max :]
        if self._bytes + _size(reasons) - _size(self.of(offset)) > limits.total_bytes_max:
            reasons = (printable_line(line, limits.crowded_bytes_max),)
        self._put(offset, reasons)

    def forget(self, offset: int) -> None:
        """The message is settled, or an operator released it."""
        self._bytes -= _size(self._reasons.pop(offset, ()))

    def _put(self, offset: int, reasons: Reasons) -> None:
        self.forget(offset)
        self._reasons[offset] = reasons
        self._bytes += _size(reasons)


def _size(reasons: Reasons) -> int:
    return sum(len(each.encode()) for each in reasons)
