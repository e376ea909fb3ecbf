"""A run: consecutive stamped batches of one partition in memory. Readers receive slices of runs."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from millpond.model.extents import Extent
from millpond.model.ids import TopicPartition
from millpond.records import BatchHeader, Buffer, stamp, walk


class Run:
    """`data` holds whole batches whose offsets lie in [base_offset, end_offset); it never changes again."""

    __slots__ = ("base_offset", "data", "end_offset")

    def __init__(self, base_offset: int, end_offset: int, data: Buffer) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.data = data


ReadRuns = Callable[[TopicPartition, int, int], list[Run]]
"""`StoreReader.read_runs`: partition, offset, bytes wanted."""
ReadExtentFrom = Callable[[Extent, int, int], Run]
"""`StoreReader.read_from`: extent, offset, bytes wanted."""


def stamped(data: Buffer, headers: Sequence[tuple[int, BatchHeader]], base_offset: int, epoch: int) -> Run:
    """Assign consecutive offsets to the batches at these positions, in place if the buffer is writable: then
    readers of the original buffer see the stamped batches, too."""
    writable = bytearray(data) if memoryview(data).readonly else cast("bytearray | memoryview", data)
    following = base_offset
    for position, header in headers:
        stamp(writable, position, following, epoch)
        following += header.last_offset_delta + 1
    return Run(base_offset, following, writable)


def take(
    runs: Iterable[Run], offset: int, bytes_max: int, end_offset: int, *, must_yield: bool = True
) -> tuple[list[Buffer], int]:
    """Whole batches starting with the one that holds `offset`: at least one if `must_yield`, then as many as
    fit the budget, none that starts at or past `end_offset`. Returns them and the offset that follows."""
    taken: list[Buffer] = []
    room = bytes_max
    following = offset
    for run in runs:
        piece, following, is_whole = _piece(
            run, following, room, end_offset, is_first=must_yield and not taken
        )
        if piece is not None:
            taken.append(piece)
            room -= len(piece)
        if not is_whole or room <= 0:
            break
    return taken, following


def _piece(
    run: Run, offset: int, room: int, end_offset: int, *, is_first: bool
) -> tuple[Buffer | None, int, bool]:
    """The part of a run that starts at `offset` and fits, the offset that follows, and whether that is the
    run's end. In the common case the whole run, unchanged; None where compaction left a gap."""
    if offset <= run.base_offset and run.end_offset <= end_offset and len(run.data) <= room:
        return run.data, run.end_offset, True
    start: int | None = None
    stop, following = 0, offset
    for position, header in walk(run.data):
        if header.next_offset <= offset:
            continue
        start = position if start is None else start
        too_much = position + header.size - start > room and not (is_first and position == start)
        if header.base_offset >= end_offset or too_much:
            return memoryview(run.data)[start:stop] if stop else None, following, False
        stop, following = position + header.size, header.next_offset
    whole = run.end_offset <= end_offset
    piece = memoryview(run.data)[start:stop] if stop else None
    return piece, max(following, run.end_offset) if whole else following, whole
