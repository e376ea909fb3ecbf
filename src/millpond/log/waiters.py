"""Long polls: readers that wait for any of several partitions to grow. State changes only between awaits.

A reader watches before it reads, so that an append between its read and its wait still wakes it up.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from millpond.model.ids import TopicPartition


class Watch:
    """Wakes up once, when any of its partitions changes."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, timeout_s: float) -> None:
        """Return when woken up or after the timeout."""
        await asyncio.wait([self._future], timeout=max(timeout_s, 0))

    def wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class Listener:
    """A callback for each change of one partition, until it is removed."""

    __slots__ = ("wake",)

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake


class Waiters:
    def __init__(self) -> None:
        self._watches: dict[TopicPartition, dict[Watch | Listener, None]] = {}
        """In the order of arrival: the reader that has waited longest wakes up first."""
        self.closed = False

    @contextmanager
    def watch(self, topic_partitions: Sequence[TopicPartition]) -> Iterator[Watch]:
        watch = Watch()
        for topic_partition in topic_partitions:
            self._watches.setdefault(topic_partition, {})[watch] = None
        try:
            yield watch
        finally:
            for topic_partition in set(topic_partitions):
                self._leave(topic_partition, watch)

    def listen(self, topic_partition: TopicPartition, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, which must be quick, at each change; returns a function that ends this."""
        listener = Listener(wake)
        self._watches.setdefault(topic_partition, {})[listener] = None
        return lambda: self._leave(topic_partition, listener)

    def wake(self, topic_partition: TopicPartition) -> None:
        for watch in self._watches.get(topic_partition, ()):
            watch.wake()

    def close(self) -> None:
        """Wake up all waiting readers, because the log stops."""
        self.closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    def _leave(self, topic_partition: TopicPartition, watch: Watch | Listener) -> None:
        watches = self._watches[topic_partition]
        watches.pop(watch, None)
        if not watches:
            del self._watches[topic_partition]
