"""A clock that advances only when a test advances it."""

from millpond.model.clock import SystemClock


class SimulatedClock:
    """Starts at the real time. `advance` lets time pass; `jump` sets only the wall clock."""

    def __init__(self, now_ms: int | None = None) -> None:
        self._wall_ms = SystemClock().now_ms() if now_ms is None else now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        self._wall_ms += milliseconds
        self._monotonic_ms += milliseconds

    def jump(self, milliseconds: int) -> None:
        self._wall_ms += milliseconds
