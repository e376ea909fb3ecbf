"""The record batches of a share fetch: those in which the acquired offsets lie.

A batch is passed through as it is stored if most of its messages are acquired; clients ignore the others. Otherwise the
acquired ones go into a new batch.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.log import FetchRequest, Log
from millpond.model.errors import CorruptBatch, MillpondError, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.share_fetch import AcquiredRecords
from millpond.queues import QueueDelivery
from millpond.records import BatchHeader, Buffer, build_batch, iter_records, walk

READ_BYTES: Final = 1024 * 1024
"""Bytes read from the log at a time."""
SMALL_BYTES: Final = 4 * 1024
"""A batch up to this size is always passed through."""
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
PASSED_SHARE: Final = 2
"""A batch is passed through if at least one in two of its messages is acquired."""


@dataclass(slots=True)
class AcquiredBatches:
    buffers: list[Buffer] = field(default_factory=list)
    lost: list[QueueDelivery] = field(default_factory=list)
    """Acquired messages that are not in the batches: the first ones, if they are gone from the log, and all from an
    error on."""
    error: MillpondError | None = None
    """Why."""


async def batches_of(
    log: Log, topic_partition: TopicPartition, deliveries: Sequence[QueueDelivery]
) -> AcquiredBatches:
    """The batches with these deliveries, which are in the order of their offsets."""
    found = AcquiredBatches()
    offsets = [each.offset for each in deliveries]
    done = 0
    while done < len(offsets):
        request = FetchRequest(topic_partition, offsets[done], READ_BYTES)
        [result] = await log.fetch([request], bytes_max=READ_BYTES)
        if isinstance(result.error, OffsetOutOfRange) and result.log_start > offsets[done]:
            following = bisect_left(offsets, result.log_start, done)
            found.lost += deliveries[done:following]
            done = following
            continue
        if result.error is not None or result.next_offset <= offsets[done]:
            found.lost += deliveries[done:]
            found.error = result.error
            return found
        for buffer in result.batches:
            for position, header in walk(buffer):
                if done < len(offsets) and offsets[done] <= header.last_offset:
                    done = await _add(found, log, buffer, position, header, offsets, done)
        done = max(done, bisect_left(offsets, result.next_offset, done))
    return found


async def _add(
    found: AcquiredBatches,
    log: Log,
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    offsets: Sequence[int],
    done: int,
) -> int:
    """Add the batch at this position. Returns how many offsets are done then."""
    following = bisect_left(offsets, header.next_offset, done)
    view = memoryview(buffer)[position : position + header.size]
    acquired = following - done
    if header.size <= SMALL_BYTES or acquired * PASSED_SHARE >= header.record_count:
        found.buffers.append(view)
        return following
    wanted = set(offsets[done:following])
    try:
        found.buffers.append(await log.in_pool(lambda: _only(view, header, wanted)))
    except CorruptBatch:
        found.buffers.append(view)
    return following


def _only(batch: Buffer, header: BatchHeader, wanted: set[int]) -> Buffer:
    """A batch with only these of its messages."""
    records = iter_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    kept = [each for each in records if each.offset in wanted]
    return build_batch(kept, leader_epoch=header.leader_epoch) if kept else batch


def acquired_records(deliveries: Sequence[QueueDelivery]) -> list[AcquiredRecords]:
    """Ranges of neighbouring offsets that were delivered equally often. Counts begin at 1."""
    ranges: list[AcquiredRecords] = []
    last, count = -2, -1
    for offset, _, attempts, _ in deliveries:
        if offset == last + 1 and attempts == count:
            last = offset
            continue
        if ranges:
            ranges[-1].last_offset = last
        ranges.append(AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=attempts + 1))
        last, count = offset, attempts
    if ranges:
        ranges[-1].last_offset = last
    return ranges
