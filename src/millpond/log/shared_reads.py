"""Reads of the store in flight, which all readers at the same offset share, and whose results go into the read cache.

Lives on the event loop; state changes only between awaits.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from millpond.log.cache import ReadCache
from millpond.model.ids import TopicPartition
from millpond.reading.reader import FoundRuns, PartitionRead, StoreReader
from millpond.reading.runs import Run

PendingRuns = asyncio.Future[list[Run] | None]
"""The result of one position: None if the read of many partitions had no time left for it."""
InPool = Callable[[Callable[[], list[FoundRuns]]], Coroutine[Any, Any, list[FoundRuns]]]


class SharedReads:
    def __init__(self, reader: StoreReader, in_pool: InPool, cache: ReadCache) -> None:
        self._reader = reader
        self._in_pool = in_pool
        self._cache = cache
        self._tasks: set[asyncio.Task[None]] = set()
        self.in_flight: dict[tuple[TopicPartition, int], PendingRuns] = {}
        self.bytes_in_flight = 0
        """How much these reads are to bring."""

    async def runs(self, topic_partition: TopicPartition, offset: int, bytes_wanted: int) -> list[Run]:
        """What is stored from `offset` on; empty if nothing is."""
        while True:
            self.start([PartitionRead(topic_partition, offset, bytes_wanted)])
            runs = await asyncio.shield(self.in_flight[topic_partition, offset])
            if runs is not None:
                return runs

    def start(self, wanted: Sequence[PartitionRead]) -> None:
        """Start one read of the positions that are not being read."""
        flights = {}
        for each in wanted:
            key = (each.topic_partition, each.offset)
            if key not in self.in_flight:
                flights[each] = self.in_flight[key] = asyncio.get_running_loop().create_future()
        if flights:
            self.bytes_in_flight += sum(each.bytes_wanted for each in flights)
            task = asyncio.create_task(self._perform(flights))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Reads in flight still return to their waiting callers, but are not cached."""
        for key in [each for each in self.in_flight if each[0] == topic_partition]:
            del self.in_flight[key]

    async def _perform(self, flights: Mapping[PartitionRead, PendingRuns]) -> None:
        wanted = list(flights)
        found: Sequence[FoundRuns | BaseException] = ()
        try:
            found = await self._in_pool(lambda: self._reader.read_many(wanted))
        except BaseException as error:
            found = [error] * len(wanted)
            if not isinstance(error, Exception):  # a cancellation, at the end of the loop
                raise
        finally:
            self.bytes_in_flight -= sum(each.bytes_wanted for each in wanted)
            results = list(zip(wanted, flights.values(), found, strict=True))
            current = [each for each in results if self._end(*each)]
            for read, _, runs in current:
                for run in runs if isinstance(runs, list) else ():
                    self._cache.put(read.topic_partition, run)

    def _end(self, read: PartitionRead, flight: PendingRuns, found: FoundRuns | BaseException) -> bool:
        """Returns whether the result may be cached: not if `forget` was called during the read."""
        key = (read.topic_partition, read.offset)
        is_current = self.in_flight.get(key) is flight
        if is_current:
            del self.in_flight[key]
        if flight.done():
            return False
        if isinstance(found, asyncio.CancelledError):
            flight.cancel()
        elif isinstance(found, BaseException):
            flight.set_exception(found)
            flight.exception()  # retrieved, even if no reader waits for it: asyncio would log a warning
        else:
            flight.set_result(found)
        return is_current
