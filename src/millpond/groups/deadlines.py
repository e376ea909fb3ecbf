"""Named deadlines with fast access to the earliest one.

Moving a deadline to a later time, as every heartbeat does, is cheap: its heap entry stays, and is pushed again when it
reaches the top too early. So the heap has about one entry per name.
"""

import heapq
from collections.abc import Iterator


class NamedDeadlines:
    def __init__(self) -> None:
        self._due: dict[str, int] = {}
        self._queued: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __contains__(self, name: str) -> bool:
        return name in self._due

    def __len__(self) -> int:
        return len(self._due)

    def set(self, name: str, due_ms: int) -> None:
        self._due[name] = due_ms
        queued = self._queued.get(name)
        if queued is None or due_ms < queued:
            self._push(name, due_ms)

    def clear(self, name: str) -> None:
        self._due.pop(name, None)

    def next_ms(self) -> int | None:
        """Nothing is due before this."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Iterator[str]:
        """Names whose deadline has come, earliest first; each is cleared as it is taken."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued, name = heapq.heappop(self._heap)
            if self._queued.get(name) != queued:
                continue  # stale: an earlier entry has replaced it
            del self._queued[name]
            due = self._due.get(name)
            if due is None:
                continue
            if due > now_ms:
                self._push(name, due)
                continue
            del self._due[name]
            yield name

    def _push(self, name: str, due_ms: int) -> None:
        self._queued[name] = due_ms
        heapq.heappush(self._heap, (due_ms, name))
