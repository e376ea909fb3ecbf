"""One flush: its data, and what the writer thread does with it.

The event loop prepares a `Flush`, sends it on its way as the cargo of a flight, and hands both to the writer
thread. There `FlushCommitter` stores the bytes and appends the shares to the catalog.
"""

import dataclasses
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from millpond.catalog.appends import (
    AppendedShare,
    AppendShare,
    ShareResult,
    append,
    decode_results,
    encode_results,
)
from millpond.catalog.commits import CommitOperation, Json, OperationResult
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.objects import NewObject, seal, seal_earlier
from millpond.log.buffer import FlushBuffer, Layout
from millpond.log.flights import Flight
from millpond.model.clock import Clock
from millpond.model.errors import FlushFailed
from millpond.model.extents import Location
from millpond.model.ids import Session, TopicPartition
from millpond.objects.store import ObjectStore
from millpond.segments.frame import FRAME_BYTES


class Flush:
    """A sealed buffer, laid out. Batches of one partition are its share of the flush."""

    __slots__ = (
        *("buffer", "ends", "is_inline", "is_partial", "joint_operation", "layout", "location"),
        *("results", "sealed_at", "shares"),
    )

    def __init__(
        self,
        buffer: FlushBuffer,
        shares: list[AppendShare],
        layout: Layout | None,
        sealed_at: float,
        joint_operation: CommitOperation | None = None,
    ) -> None:
        self.buffer = buffer
        self.shares = shares
        self.layout = layout
        """None if the flush is stored inline."""
        self.is_inline = layout is None
        self.sealed_at = sealed_at
        self.joint_operation = joint_operation
        """An operation in the same commit: the flush and the operation are committed together, or neither is."""
        self.location: Location | None = None
        self.is_partial = False
        """Whether other partitions of the same object are still to be committed."""
        self.ends: dict[TopicPartition, int] = {}
        """The end offsets of its partitions, as known here when the flush was submitted."""
        self.results: tuple[Json, list[ShareResult]] | None = None
        """The results of its shares, encoded and decoded. If the response to COMMIT was lost, the committed result is
        another object, and is decoded."""

    def split(self, topic_partitions: AbstractSet[TopicPartition]) -> "Flush":
        """Move some partitions into a new flush of the same object, to be committed ahead of the rest."""
        shares = [share for share in self.shares if share.topic_partition in topic_partitions]
        part = Flush(self.buffer.split(topic_partitions), shares, self.layout, self.sealed_at)
        part.location, part.is_partial = self.location, True
        self.shares = [share for share in self.shares if share.topic_partition not in topic_partitions]
        return part


class FlushCommitter:
    """Used on the writer thread only."""

    def __init__(
        self, store: ObjectStore, session: Session, clock: Clock, check_disk_space: Callable[[], None]
    ) -> None:
        self._store = store
        self._session = session
        self._clock = clock
        self._check_disk_space = check_disk_space
        self._journal_key: str | None = None

    def make_durable(self, flight: Flight[Flush]) -> None:
        """Store the bytes, unless an upload has stored them, or no share of them can be committed."""
        self._check_disk_space()
        flush = flight.cargo
        if (
            flush.layout is not None
            and flush.location is None
            and flight.refused_earlier() != flight.partitions
        ):
            flush.location = self._store.append(flush.layout.parts)

    def append(self, tx: CatalogTransaction, flight: Flight[Flush]) -> Json:
        flush = flight.cargo
        refused_earlier = flight.refused_earlier()
        shares = [share for share in flush.shares if share.topic_partition not in refused_earlier]
        if flush.location is not None and (start := flush.location.position):
            shares = [dataclasses.replace(share, position=start + share.position) for share in shares]
        appended = iter(append(tx, shares, self._new_object(tx, flush), now_ms=self._clock.now_ms()))
        results: list[ShareResult] = [
            FlushFailed() if share.topic_partition in refused_earlier else next(appended)
            for share in flush.shares
        ]
        if (
            not flush.is_partial
            and flush.location is not None
            and not any(isinstance(r, AppendedShare) for r in results)
        ):
            seal(tx, flush.location.key)  # an earlier part of the flush may have left the object open
        if flush.joint_operation is not None:
            _check_all(results)
            flush.joint_operation(tx)
        flush.results = encode_results(results), results
        return flush.results[0]

    def on_outcome(self, flight: Flight[Flush], outcome: OperationResult) -> None:
        """Record what later jobs of the writer thread need to know."""
        flush = flight.cargo
        flight.record_refusals(refused_shares(flush, share_results(flush, outcome)))
        if outcome.error is None and flush.location is not None:
            self._journal_key = flush.location.key

    def _new_object(self, tx: CatalogTransaction, flush: Flush) -> NewObject | None:
        location = flush.location
        if location is None:
            return None
        is_open = self._store.is_open(location.key)
        if is_open and location.key != self._journal_key:
            seal_earlier(tx, self._session, location.key)
        size = sum(FRAME_BYTES + share.length for share in flush.shares)
        # While another part of the flush is still to be committed, the object must not be collected as garbage,
        # even if this part fails.
        sealed = not is_open and not flush.is_partial
        return NewObject(location.key, "journal", self._session, size, sealed=sealed)


def share_results(flush: Flush, outcome: OperationResult) -> list[ShareResult]:
    """The results of its shares, in their order."""
    if outcome.error is not None:
        return [outcome.error] * len(flush.shares)
    if flush.results is not None and flush.results[0] is outcome.value:
        return flush.results[1]
    return decode_results(outcome.value)


def refused_shares(flush: Flush, results: Sequence[ShareResult]) -> frozenset[TopicPartition]:
    """The partitions whose share was not committed."""
    return frozenset(
        [
            share.topic_partition
            for share, result in zip(flush.shares, results, strict=True)
            if not isinstance(result, AppendedShare)
        ]
    )


def _check_all(results: Sequence[ShareResult]) -> None:
    for result in results:
        if not isinstance(result, AppendedShare):
            raise result
