"""Examining an extent: what its records say of their times, against what its batch headers and its row say.

Of an extent without an append time neither is trusted: a version that stored it took over what clients had written
into batch headers, and some write the newest timestamp too low. Its records are read once, before age may expire it. A
batch whose header is wrong gets a true one (with a new CRC, as Kafka does it when it takes a batch in), so that the
newest timestamp is true wherever time decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millpond.model.errors import InvalidInput
from millpond.model.extents import Extent
from millpond.records import NO_TIMESTAMP, BatchHeader, Buffer, read_times, set_max_timestamp, walk

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""What one stored batch may expand to. The headers of one that expands to more are believed."""
TIMESTAMP_MAX: Final = 2**63 - 1

Pause = Callable[[int], None]
"""Told how many bytes have just been worked on; may sleep, and may raise to give up."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The true times of an extent's records: `oldest` is -1 if one of them has no timestamp. `data` are its batches, of
    which `corrected` have a new header."""

    oldest: int
    newest: int
    data: bytearray
    corrected: int


def examine(data: bytearray, now_ms: int, pause: Pause = lambda _: None) -> Examined:
    """Read the records of an extent's batches. Wrong headers are corrected in place. A record without a timestamp is as
    old as its append, and counts as `now_ms` here: when it was appended is not known."""
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
    """Whether its bytes say something else: its batches, or, of a segment, the footer, which has the extent's times."""
    is_new = (found.oldest, found.newest) != (extent.min_timestamp, extent.max_timestamp)
    return found.corrected > 0 or (extent.stamped and is_new)


def _times(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[int, int] | None:
    """Of a batch that holds records: the oldest and the newest timestamp. None if its header must be believed."""
    if header.is_control:
        return None
    try:
        times = read_times(batch, 0, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except InvalidInput:
        return None
    if times.untimed:
        return NO_TIMESTAMP, max(times.newest, now_ms)
    return times.oldest, times.newest
