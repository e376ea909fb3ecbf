"""Faults with a switch: while it is on, every call of the chosen operations fails and nothing is applied."""

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.model.errors import StoreUnavailable
from millpond.testing.faults import Fault, Faults, Hold, StoreOperation

WRITES: tuple[StoreOperation, ...] = ("append", "put")


class Outages(Faults):
    """During an outage, scripted faults of these operations are not used up."""

    def __init__(self) -> None:
        super().__init__()
        self._failing: frozenset[StoreOperation] = frozenset()
        self._holds: list[Hold] = []

    @contextmanager
    def outage(self, *operations: StoreOperation) -> Iterator[None]:
        before, self._failing = self._failing, self._failing | set(operations)
        try:
            yield
        finally:
            self._failing = before

    def take(self, operation: StoreOperation) -> Fault:
        if operation in self._failing:
            return Fault(before=StoreUnavailable(reason="a test made it unavailable"))
        return super().take(operation)

    def hold(self, operation: StoreOperation, *, applied: bool = False) -> Hold:
        hold = super().hold(operation, applied=applied)
        self._holds.append(hold)
        return hold

    def clear(self) -> None:
        """Clear all faults, and release all held calls."""
        self.error_rate = 0.0
        with self._lock:
            self._script.clear()
        while self._holds:
            self._holds.pop().release()
