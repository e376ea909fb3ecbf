"""Examines an extent: compares the timestamps of its records with those in its batch headers and its row.

In an extent without an append time neither is trusted: the version that stored it copied what clients had
written into batch headers, and some clients write the newest timestamp too low. Its records are read once,
before it may expire by age. A wrong header is corrected (with a new CRC, as Kafka does when it appends a
batch), so that the newest timestamp is correct wherever time decides.
"""

from dataclasses import dataclass
from typing import Final

from millpond.model.errors import InvalidInput
from millpond.model.extents import Extent
from millpond.records import NO_TIMESTAMP, BatchHeader, Buffer, read_times, set_max_timestamp, walk
from millpond.rewriting.compaction import Pause

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum decompressed size of one stored batch. The header of a larger batch is trusted."""
TIMESTAMP_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Examined:
    """The actual timestamps of an extent's records. `oldest` is -1 if one of them has no timestamp. `data`
    holds the batches, of which `corrected` have a new header."""

    oldest: int
    newest: int
    data: bytearray
    corrected: int


def examine(data: bytearray, now_ms: int, pause: Pause = lambda _: None) -> Examined:
    """Read the records of an extent's batches, and correct wrong headers in place. A record without a
    timestamp is as old as its append. The append time is not known here, so `now_ms` counts instead."""
    oldest, newest, corrected = TIMESTAMP_MAX, NO_TIMESTAMP, 0
    for position, header in list(walk(data)):
        if header.record_count:
            found = _times(memoryview(data)[position : position + header.size], header, now_ms)
            first, last = found or (header.base_timestamp, header.newest_timestamp)
            oldest, newest = min(oldest, first), max(newest, last)
            if found and last != header.max_timestamp:
                set_max_timestamp(data, position, header, last)
                corrected += 1
        pause(header.size)
    return Examined(oldest if oldest != TIMESTAMP_MAX else NO_TIMESTAMP, newest, data, corrected)


def must_be_stored_again(extent: Extent, found: Examined) -> bool:
    """Whether the stored bytes are wrong: batch headers, or the footer of a segment, which holds the timestamps."""
    is_new = (found.oldest, found.newest) != (extent.min_timestamp, extent.max_timestamp)
    return found.corrected > 0 or (extent.stamped and is_new)


def _times(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[int, int] | None:
    """The oldest and the newest timestamp of a batch that holds records. None if its header must be trusted."""
    if header.is_control:
        return None
    try:
        times = read_times(batch, 0, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except InvalidInput:
        return None
    if times.untimed:
        return NO_TIMESTAMP, max(times.newest, now_ms)
    return times.oldest, times.newest
