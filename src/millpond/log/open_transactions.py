"""A partition's transactions as its owner knows them: which are open, where each began, which were aborted.

With this state a `read_committed` fetch at the tail never leaves the event loop, and a batch outside any
transaction is refused before it joins a buffer. The state may be behind the catalog but never ahead of it.
Every change but one (a partition is added to a transaction) writes to the partition, so changes are
identified by offset: a snapshot of the catalog taken when the log ended at 70 holds all changes below 70 and
no others. When another writer has written, up to `needed`, an older view is stale, and the catalog is read
again before records are read. State changes only between awaits.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from functools import partial
from operator import attrgetter
from typing import Final

from millpond.catalog.transactions import Aborted, Markers, PartitionMarker, PartitionTransactions
from millpond.model.errors import InvalidTransactionState
from millpond.model.producers import SequencedBatch
from millpond.records import MarkerKind

ABORTED_MAX: Final = 1_000
"""Aborted transactions kept in memory for each partition; for older ones the catalog is read."""

ReadTransactions = Callable[[], Awaitable[PartitionTransactions]]

_marker_of = attrgetter("last_offset")
_begin_of = attrgetter("first_offset")


class OpenTransactions:
    """Starts stale: call `refresh` before the first `last_stable`."""

    __slots__ = (
        *("_aborted", "_aborted_from", "_as_of", "_first", "_loading", "_missed", "_needed", "_open"),
    )

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int | None]] = {}
        self._first: int | None = None
        self._aborted: list[Aborted] = []
        self._aborted_from = 0
        self._as_of = -1
        self._needed = 0
        self._loading: asyncio.Task[None] | None = None
        self._missed: list[tuple[int, Callable[[], None]]] = []

    # -- queries ----------------------------------------------------------------------------------------------

    @property
    def stale(self) -> bool:
        """Whether another writer has written since the catalog was last read."""
        return self._as_of < self._needed

    def last_stable(self, log_start: int, end_offset: int) -> int:
        """All transactions below this offset are decided. The caller has made sure that this view is not stale."""
        first = self._first
        return end_offset if first is None else min(max(first, log_start), end_offset)

    def aborted(self, start: int, end_offset: int) -> list[Aborted] | None:
        """Aborted transactions that touch offsets from `start` up to `end_offset`; None if older ones are
        needed."""
        if start < self._aborted_from:
            return None
        candidates = self._aborted[bisect_left(self._aborted, start, key=_marker_of) :]
        return sorted((each for each in candidates if each.first_offset < end_offset), key=_begin_of)

    def includes(self, producer_id: int, epoch: int) -> bool:
        """Whether this partition is known to be part of the producer's open transaction."""
        found = self._open.get(producer_id)
        return found is not None and found[0] == epoch

    def check(self, batch: SequencedBatch) -> None:
        """Kafka's rule: a transactional batch needs an open transaction. From the first batch of a
        transaction here until its end, the producer sends no other batches here."""
        found = self._open.get(batch.producer_id)
        if batch.transactional:
            is_fine = found is not None and found[0] == batch.producer_epoch
        else:
            is_fine = found is None or found[1] is None
        if not is_fine:
            raise InvalidTransactionState(producer_id=batch.producer_id)

    # -- changes ----------------------------------------------------------------------------------------------

    def need(self, offset: int) -> None:
        """Another writer has written up to `offset`, possibly a marker."""
        self._needed = max(self._needed, offset)

    def added(self, producer_id: int, epoch: int) -> None:
        """The partition was added to a transaction, which has usually written nothing here yet."""
        _, first = self._open.get(producer_id, (epoch, None))
        self._open[producer_id] = (epoch, first)

    def wrote(self, batch: SequencedBatch, offset: int) -> None:
        """A batch of a transaction was committed at `offset`."""
        self._change(offset, partial(self._wrote, batch.producer_id, batch.producer_epoch, offset))

    def ended(self, markers: Markers, marker: PartitionMarker) -> None:
        """A marker was committed."""
        self._change(marker.offset, partial(self._ended, markers, marker))

    # -- the catalog's view -----------------------------------------------------------------------------------

    async def refresh(self, read: ReadTransactions) -> None:
        """Read the catalog until the view is fresh; all waiting callers share one read."""
        while self.stale:
            await self._load(read)

    async def reload(self, read: ReadTransactions) -> None:
        """Read the catalog although nothing shows that the view is stale: another coordinator may have added
        the partition to a transaction, which changes no offset. A read in flight may have started too early,
        so another one follows it."""
        if self._loading is not None:
            await self._load(read)
        await self._load(read)

    async def _load(self, read: ReadTransactions) -> None:
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._ask(read))
            self._loading.add_done_callback(_ignore_outcome)
        await asyncio.shield(self._loading)

    async def _ask(self, read: ReadTransactions) -> None:
        try:
            self._apply_snapshot(await read())
        finally:
            self._loading, self._missed = None, []

    def _apply_snapshot(self, view: PartitionTransactions) -> None:
        self._as_of = view.end_offset
        self._open = dict(view.open)
        self._aborted = list(view.aborted)
        self._aborted_from = view.aborted_from
        for offset, change in self._missed:
            if offset >= self._as_of:
                change()
        self._find_first()

    # -- inside -----------------------------------------------------------------------------------------------

    def _change(self, offset: int, change: Callable[[], None]) -> None:
        """While a read of the catalog is in flight, its result may or may not hold this change, so it is kept."""
        if self._loading is not None:
            self._missed.append((offset, change))
        if offset >= self._as_of:
            change()

    def _wrote(self, producer_id: int, epoch: int, offset: int) -> None:
        _, first = self._open.get(producer_id, (epoch, None))
        if first is None:
            self._open[producer_id] = (epoch, offset)
            self._first = offset if self._first is None else min(self._first, offset)

    def _ended(self, markers: Markers, marker: PartitionMarker) -> None:
        self._open.pop(markers.producer_id, None)
        self._find_first()
        if markers.kind is MarkerKind.ABORT and marker.first_offset is not None:
            self._remember(Aborted(markers.producer_id, marker.first_offset, marker.offset))

    def _remember(self, aborted: Aborted) -> None:
        if self._aborted and self._aborted[-1].last_offset >= aborted.last_offset:
            return  # the catalog's list was read slightly later than the rest, and already has it
        self._aborted.append(aborted)
        if len(self._aborted) > ABORTED_MAX:
            self._aborted_from = self._aborted.pop(0).last_offset + 1

    def _find_first(self) -> None:
        firsts = [first for _, first in self._open.values() if first is not None]
        self._first = min(firsts, default=None)


def _ignore_outcome(loading: "asyncio.Task[None]") -> None:
    """Mark the exception as retrieved: asyncio logs no warning if the caller is gone."""
    if not loading.cancelled():
        loading.exception()
