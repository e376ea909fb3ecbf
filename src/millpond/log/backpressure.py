"""Decides whether the log may accept more now: how many bytes it holds, and why it refuses appends.

An append waits while the accepted and not yet acknowledged bytes have reached their limit; appends that wait get
room in the order of arrival. It is refused while the broker drains, while earlier flushes of its partition are
still failing, and for a moment after the store or the catalog failed a flush: a producer that retries then finds a
broker that responds, and no growing queue. State changes only between awaits.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from millpond.log.flights import Flights
from millpond.log.limits import LogLimits
from millpond.model.errors import FlushFailed, Overloaded, Stopping, Unavailable
from millpond.model.ids import TopicPartition

FAILURE_SHOWN_S = 10.0
"""How long after a failed flush the broker reports that it is not ready, unless a later flush succeeds."""


class Backpressure:
    def __init__(
        self, limits: LogLimits, flights: Flights[Any], check_disk_space: Callable[[], None]
    ) -> None:
        """`flights` knows the partitions whose flushes are failing. `check_disk_space` raises `StoreFull` while the
        disk is so full that the broker has released its reserve."""
        self.check_disk_space = check_disk_space
        self.held_bytes = 0
        """Bytes accepted and not yet acknowledged."""
        self._limits = limits
        self._flights = flights
        self._loop = asyncio.get_running_loop()
        self._room_lock = asyncio.Lock()
        self._room_freed: asyncio.Future[None] | None = None
        self._refusal: Unavailable | None = None
        self._refuse_until = 0.0
        self._failure: Unavailable | None = None
        self._failed_at = 0.0
        self._is_stopping = False

    # -- before an append is buffered -------------------------------------------------------------------------

    def check_available(self, topic_partition: TopicPartition) -> None:
        """Raises if the append must be refused before it is buffered: the broker drains, a recent flush failed,
        or flushes of this partition are still failing because of an earlier one."""
        if self._is_stopping:
            raise Stopping
        if topic_partition in self._flights.condemned:
            raise FlushFailed
        if self._refusal is not None:
            if self._loop.time() < self._refuse_until:
                raise self._refusal.copy()
            self._refusal = None

    async def wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes fit into the buffers' memory limit; first come, first served. One append that is
        larger than the limit is accepted if it is alone."""
        held_max = max(self._limits.buffer_bytes_max - size, 0)
        if self.held_bytes <= held_max and not self._room_lock.locked():
            return
        try:
            async with asyncio.timeout(self._limits.buffer_wait_ms / 1000), self._room_lock:
                while self.held_bytes > held_max:
                    self._room_freed = self._loop.create_future()
                    await self._room_freed
        except TimeoutError:
            raise Overloaded(waiting=self.held_bytes, limit=self._limits.buffer_bytes_max) from None

    # -- bytes ------------------------------------------------------------------------------------------------

    def hold(self, size: int) -> None:
        """Bytes were accepted."""
        self.held_bytes += size

    def release(self, size: int) -> None:
        """Bytes were acknowledged or refused."""
        self.held_bytes -= size
        if self._room_freed is not None and not self._room_freed.done():
            self._room_freed.set_result(None)

    # -- failures and the end ---------------------------------------------------------------------------------

    def flush_failed(self, error: Unavailable) -> None:
        """The store or the catalog failed a flush: refuse appends for `refuse_ms`."""
        self._refusal = self._failure = error
        self._failed_at = self._loop.time()
        self._refuse_until = self._failed_at + self._limits.refuse_ms / 1000

    def flush_succeeded(self) -> None:
        self._failure = None

    @property
    def failure(self) -> Unavailable | None:
        """Why the last flush failed; None if it succeeded, or failed more than `FAILURE_SHOWN_S` ago. Without
        producers it is unknown whether the next flush would fail, too."""
        if self._failure is not None and self._loop.time() - self._failed_at > FAILURE_SHOWN_S:
            self._failure = None
        return self._failure

    def stop(self) -> None:
        """Refuse all appends from now on."""
        self._is_stopping = True
