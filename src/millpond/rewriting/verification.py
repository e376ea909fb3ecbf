"""Verification, the pure part: finds faults in rows and bytes, each with the offsets that it concerns.

Nothing here performs I/O, and damage raises no error: a check yields findings, and continues as far as the
bytes can be parsed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from millpond.catalog.transactions import Aborted
from millpond.model.errors import CorruptBatch, CorruptObject
from millpond.model.extents import Extent
from millpond.records import BatchHeader, Buffer, check_crc, walk
from millpond.segments.frame import FRAME_BYTES, read_frame
from millpond.segments.segment import check_segment

UNKNOWN: Final = -1
INLINE: Final = "(inline)"


class FaultKind(StrEnum):
    LOST = "lost"
    """The catalog refers to an object that is not there."""
    DAMAGED = "damaged"
    """Stored bytes are not what was written."""
    INCONSISTENT = "inconsistent"
    """Rows that cannot be right, or do not match the bytes."""


@dataclass(frozen=True, slots=True)
class DataFault:
    """One fault, with the offsets of its partition and the position in its object as far as these are known."""

    kind: FaultKind
    reason: str
    base_offset: int = UNKNOWN
    end_offset: int = UNKNOWN
    key: str = ""
    position: int = UNKNOWN


def check_chain(extents: Iterable[Extent], log_start: int, end_offset: int) -> Iterator[DataFault]:
    """Extents must follow each other from the log start to the end, without holes or overlaps. Extents wholly
    below the log start are about to be removed, and may have holes."""
    expected = log_start
    reached = 0
    for extent in extents:
        base, end = extent.base_offset, extent.end_offset
        if base >= end:
            yield _inconsistent("an extent holds no offsets", base, end)
        if base < reached:
            yield _inconsistent("two extents overlap", base, min(reached, end))
        elif base > expected:
            yield _inconsistent("no extent holds these offsets", expected, base)
        reached = max(reached, end)
        expected = max(expected, end)
    if expected < end_offset:
        yield _inconsistent("no extent holds these offsets", expected, end_offset)
    elif expected > end_offset:
        yield _inconsistent("an extent lies past the end of its partition", end_offset, expected)


def check_journal_extent(extent: Extent, data: Buffer) -> list[DataFault]:
    """`data` is the extent's frame and its batches."""
    key, view = extent.key or INLINE, memoryview(data)
    try:
        frame = read_frame(view, 0, key)
    except CorruptObject as error:
        reason = str(error.facts.get("reason"))
        return [_damaged(extent, extent.position - FRAME_BYTES, f"frame: {reason}")]
    found = list(check_batches(extent, view[FRAME_BYTES:]))
    said = (frame.topic_partition, frame.length, frame.records)
    if said != (extent.topic_partition, extent.length, extent.records):
        found.append(_misfit(extent, "the frame before its bytes speaks of others"))
    return found


def check_segment_object(extent: Extent, data: Buffer) -> list[DataFault]:
    """`data` is the whole object. Its own checksums are checked first: they distinguish damage from a wrong row."""
    key = extent.key or INLINE
    try:
        described = check_segment(data, key)
    except CorruptObject as error:
        position = int(error.facts.get("position", UNKNOWN))
        damage = _damaged(extent, position, str(error.facts.get("reason")))
        payload = memoryview(data)[extent.position : extent.position + extent.length]
        if len(payload) < extent.length:
            return [damage]
        return [damage, *check_batches(extent, payload)]
    found = list(check_batches(extent, memoryview(data)[FRAME_BYTES : FRAME_BYTES + described.length]))
    if _facts(described) != _facts(extent):
        found.append(_misfit(extent, "the segment describes itself otherwise"))
    return found


def check_batches(extent: Extent, data: Buffer) -> Iterator[DataFault]:
    """Checks that every batch is complete and undamaged, that offsets are in order and inside the extent, and
    that counts, timestamps and index match the row."""
    if len(data) != extent.length:
        yield _misfit(extent, f"{extent.length} bytes are expected and {len(data)} are there")
        return
    starts: dict[int, int] = {}
    records, following = 0, extent.base_offset
    try:
        for position, header in walk(data):
            at = extent.position + position
            try:
                check_crc(data, position, header)
            except CorruptBatch as error:
                base = header.base_offset if extent.stamped else following
                yield _damaged(extent, at, str(error.facts.get("reason")), base)
            base = header.base_offset if extent.stamped else following
            if base < following:
                yield _damaged(extent, at, f"a batch begins at {base}, before {following}", base)
            starts[position] = base - extent.base_offset
            following = base + header.last_offset_delta + 1
            records += header.record_count
            if header.newest_timestamp > extent.max_timestamp:
                yield _misfit(extent, f"a batch at {base} is newer than the extent")
    except CorruptBatch as error:
        yield _damaged(extent, extent.position, str(error.facts.get("reason")))
        return
    yield from _check_totals(extent, records, following, starts)


def _check_totals(
    extent: Extent, records: int, following: int, starts: dict[int, int]
) -> Iterator[DataFault]:
    if following > extent.end_offset or (not extent.stamped and following != extent.end_offset):
        yield _misfit(extent, f"its batches end at {following}")
    if records != extent.records:
        yield _misfit(extent, f"{extent.records} records are expected and {records} are there")
    if any(starts.get(entry.position) != entry.offset for entry in extent.index):
        yield _misfit(extent, "its index points where no batch begins")


def check_markers(extent: Extent, data: Buffer, aborted: Sequence[Aborted]) -> Iterator[DataFault]:
    """Each aborted transaction that ends in this extent ends with a marker of its producer. `data` is stamped."""
    wanted = {each.last_offset: each for each in aborted}
    for _, header in walk(data):
        each = wanted.get(header.base_offset)
        if each is not None and _ends(header, each):
            del wanted[header.base_offset]
    for offset, each in sorted(wanted.items()):
        if extent.base_offset <= offset < extent.end_offset:
            reason = f"producer {each.producer_id} aborted a transaction here, but there is no marker of it"
            yield _inconsistent(reason, each.first_offset, offset + 1)


def check_aborted(aborted: Iterable[Aborted], end_offset: int) -> Iterator[DataFault]:
    for each in aborted:
        if not 0 <= each.first_offset <= each.last_offset < end_offset:
            reason = f"producer {each.producer_id} aborted a transaction outside the log"
            yield _inconsistent(reason, each.first_offset, each.last_offset + 1)


def same_extent(one: Extent, other: Extent) -> bool:
    """Whether two rows, read at different times, are equal."""
    return (one.key, one.position, *_facts(one)) == (other.key, other.position, *_facts(other))


def seen_again(looks: Callable[[], Sequence[DataFault]], times: int) -> list[DataFault]:
    """The findings that all of several checks report: a finding that disappears is a concurrent change, not
    damage."""
    found = list(looks())
    for _ in range(times - 1):
        if not found:
            break
        again = set(looks())
        found = [finding for finding in found if finding in again]
    return found


def _ends(header: BatchHeader, transaction: Aborted) -> bool:
    return header.is_control and header.producer_id == transaction.producer_id


def _facts(extent: Extent) -> tuple[object, ...]:
    return (
        extent.topic_partition,
        extent.base_offset,
        extent.end_offset,
        extent.length,
        extent.records,
        extent.min_timestamp,
        extent.max_timestamp,
        extent.index,
    )


def _damaged(extent: Extent, position: int, reason: str, base_offset: int | None = None) -> DataFault:
    base = extent.base_offset if base_offset is None else base_offset
    return DataFault(FaultKind.DAMAGED, reason, base, extent.end_offset, extent.key or INLINE, position)


def _misfit(extent: Extent, reason: str) -> DataFault:
    key = extent.key or INLINE
    return DataFault(
        FaultKind.INCONSISTENT, reason, extent.base_offset, extent.end_offset, key, extent.position
    )


def _inconsistent(reason: str, base_offset: int, end_offset: int) -> DataFault:
    return DataFault(FaultKind.INCONSISTENT, reason, base_offset, end_offset)
