"""Retention by age and by size, the pure part: the log start moves up, and extents below it are removed.

Offsets never change. As in Kafka, a prefix expires: a record is removed only together with everything before
it. Whole extents are judged by their rows. Inside the first extent that stays, batch headers determine the
new log start, so that a topic with one large extent expires as evenly as one with many small ones.

Old records are not deleted on arrival: nothing expires by age before it has been stored for the *grace*, or
for the retention if that is shorter. For an extent, the append time of its newest part counts. Even if that
part is too young, records inside the extent may expire if they were not late: their timestamps tell when they
were appended.

An extent without an append time has timestamps that cannot be trusted: it stops expiry until its records have
been read (`millpond.rewriting.examination`). So does an extent with an append time in the future, which must
be wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millpond.model.extents import LATE_MS, NO_APPEND_TIME, Extent
from millpond.reading.runs import Run
from millpond.records import NO_TIMESTAMP, walk
from millpond.segments.index import entry_for_timestamp

AHEAD_MS_MAX: Final = 5 * 60 * 1000
"""Maximum difference between the clocks of brokers. A time further in the future than this is wrong."""


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """What is too old at the time `now_ms`."""

    now_ms: int
    retention_ms: int
    grace_ms: int

    @property
    def cutoff_ms(self) -> int:
        """Records older than this are too old."""
        return self.now_ms - self.retention_ms

    @property
    def stored_ms(self) -> int:
        """Minimum time for which a record is stored, however old it was when it was appended."""
        return min(self.retention_ms, self.grace_ms)

    def cutoff_in(self, extent: Extent) -> int | None:
        """Batches of this extent that are older may expire; None if none may. Batches that were not late were
        appended at most `LATE_MS` after their timestamps."""
        if extent.appended_at + self.stored_ms <= self.now_ms:
            return self.cutoff_ms
        if extent.late_at + self.stored_ms > self.now_ms:
            return None
        return min(self.cutoff_ms, self.now_ms - self.stored_ms - LATE_MS)

    def due_ms(self, timestamp: int, extent: Extent) -> int:
        """When a record of this extent expires."""
        inside = max(extent.late_at + self.stored_ms, timestamp + self.stored_ms + LATE_MS + 1)
        return max(timestamp + self.retention_ms + 1, min(extent.appended_at + self.stored_ms, inside))


@dataclass(frozen=True, slots=True)
class ExpiryPoint:
    """Everything below `offset` expires. `boundary` is the extent that may expire in part, and `unexamined`
    the one that must be examined before expiry can continue. At `due_ms` there may be more to expire."""

    offset: int
    due_ms: int
    boundary: Extent | None = None
    unexamined: Extent | None = None
    is_open: bool = False
    """Whether all extents that were checked expire or are empty: extents behind them may expire, too."""


def expired_by_age(extents: Sequence[Extent], log_start: int, limit: AgeLimit) -> ExpiryPoint:
    """The prefix of extents whose newest record is too old, and which have been stored long enough."""
    offset = log_start
    for extent in extents:
        oldest, newest = extent.min_timestamp, _or_append_time(extent.max_timestamp, extent)
        if not extent.records:
            continue  # compaction left it empty: it is removed together with what follows it
        if must_be_examined(extent, limit):
            return ExpiryPoint(offset, limit.now_ms, unexamined=extent)
        cutoff_ms = limit.cutoff_in(extent)
        if cutoff_ms is None or oldest >= cutoff_ms:
            return ExpiryPoint(offset, limit.due_ms(oldest, extent))
        if newest >= cutoff_ms:
            return ExpiryPoint(offset, limit.now_ms, boundary=extent)
        offset = max(offset, extent.end_offset)
    return ExpiryPoint(offset, limit.now_ms + limit.retention_ms, is_open=True)


def must_be_examined(extent: Extent, limit: AgeLimit) -> bool:
    """Whether the extent's age matters now and is not known. Without an append time, a timestamp in the
    future matters, too: if it is wrong, it would keep the extent for ever."""
    is_old = extent.min_timestamp < limit.cutoff_ms
    if extent.appended_at == NO_APPEND_TIME:
        return is_old or extent.max_timestamp > limit.now_ms + AHEAD_MS_MAX
    return is_old and extent.appended_at > limit.now_ms + AHEAD_MS_MAX


def _or_append_time(newest: int, extent: Extent) -> int:
    """Records without a timestamp are as old as their append."""
    return extent.appended_at if newest == NO_TIMESTAMP else newest


def expired_by_size(extents: Sequence[Extent], log_start: int, excess_bytes: int) -> int:
    """Whole extents expire as long as the remaining size is at least the allowed size."""
    offset = log_start
    for extent in extents:
        excess_bytes -= extent.length
        if excess_bytes < 0:
            break
        offset = max(offset, extent.end_offset)
    return offset


def search_start(extent: Extent, cutoff_ms: int) -> int:
    """The offset in the extent where the search for the first batch that stays begins: by the extent's index, all
    earlier batches are older than the cutoff."""
    entry = entry_for_timestamp(extent.index, cutoff_ms)
    return extent.base_offset + (entry.offset if entry is not None else 0)


def first_kept(extent: Extent, run: Run, log_start: int, limit: AgeLimit, cutoff_ms: int) -> tuple[int, int]:
    """The first batch of a run of the extent that stays: its offset, and when it expires."""
    for _, header in walk(run.data):
        newest = _or_append_time(header.newest_timestamp, extent)
        if header.record_count and newest >= cutoff_ms and header.next_offset > log_start:
            due_ms = limit.due_ms(newest, extent)
            return max(extent.base_offset, header.base_offset), due_ms
    return run.end_offset, limit.now_ms
