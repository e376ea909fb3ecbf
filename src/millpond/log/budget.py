"""A byte budget that refills over time: limits how many bytes per second are stored inline in the catalog."""


class ByteBudget:
    """Holds at most one second's worth of bytes. The caller supplies monotonic time in seconds."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._left = float(bytes_per_second)
        self._at = 0.0

    def has(self, size: int, now_s: float) -> bool:
        elapsed = max(now_s - self._at, 0.0)
        self._left = min(self._left + elapsed * self._rate, float(self._rate))
        self._at = now_s
        return size <= self._left

    def take(self, size: int, now_s: float) -> bool:
        if not self.has(size, now_s):
            return False
        self._left -= size
        return True
