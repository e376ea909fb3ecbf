"""Appends that wait for a flush, and the layout of a flush.

A buffer groups its appends by partition, in arrival order within each partition. Once it is sealed and laid
out it becomes one journal object (frame, batches, frame, batches …) and one share for each partition. No I/O
happens here.
"""

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from millpond.catalog.appends import AppendShare
from millpond.log.admission import Admitted
from millpond.model.ids import TopicPartition
from millpond.model.producers import SequencedBatch
from millpond.records import BatchHeader, Buffer
from millpond.segments.frame import FRAME_BYTES, pack_frame
from millpond.segments.index import INDEX_EVERY_BYTES, build_index, pack_index

APPEND_TIME_UNUSED = -1


class AppendResult(NamedTuple):
    """Where an append was stored. `timestamp` is the broker's time if the topic uses append time, else -1."""

    base_offset: int
    log_start: int
    timestamp: int = APPEND_TIME_UNUSED


class Pending:
    """One append that was accepted and has no response yet."""

    __slots__ = (
        "data",
        "future",
        "headers",
        "oldest",
        "records",
        "sequence",
        "size",
        "timestamp",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        admitted: Admitted,
        future: "asyncio.Future[AppendResult]",
    ) -> None:
        self.topic_partition = topic_partition
        self.data = admitted.data
        self.headers = admitted.headers
        self.future = future
        self.timestamp = admitted.timestamp
        self.oldest = admitted.oldest
        self.size = len(admitted.data)
        self.records = sum(header.last_offset_delta + 1 for _, header in admitted.headers)
        self.sequence = sequence_of(admitted.headers[0][1])

    def refuse(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # marks it as retrieved: asyncio logs no warning if the caller is gone


class FlushBuffer:
    """Appends that will be flushed together."""

    __slots__ = ("appends", "bytes", "opened_at")

    def __init__(self, opened_at: float) -> None:
        self.appends: dict[TopicPartition, list[Pending]] = {}
        self.bytes = 0
        self.opened_at = opened_at

    def add(self, pending: Pending) -> None:
        self.appends.setdefault(pending.topic_partition, []).append(pending)
        self.bytes += pending.size

    def take_partition(self, topic_partition: TopicPartition) -> list[Pending]:
        """Remove and return one partition's appends, because an earlier flush of the partition failed."""
        taken = self.appends.pop(topic_partition, [])
        self.bytes -= sum(pending.size for pending in taken)
        return taken

    def split(self, topic_partitions: AbstractSet[TopicPartition]) -> "FlushBuffer":
        """Move some partitions into a new buffer."""
        part = FlushBuffer(self.opened_at)
        for topic_partition in [each for each in self.appends if each in topic_partitions]:
            part.appends[topic_partition] = self.appends.pop(topic_partition)
            part.bytes += sum(pending.size for pending in part.appends[topic_partition])
        self.bytes -= part.bytes
        return part


@dataclass(frozen=True, slots=True)
class Layout:
    """A flush ready to be written. Positions in `shares` are relative to the start of `parts`."""

    parts: list[Buffer]
    shares: list[AppendShare]
    length: int


def lay_out(buffer: FlushBuffer, epochs: dict[TopicPartition, int]) -> Layout:
    """One journal object: for each partition a frame, followed by its batches."""
    parts: list[Buffer] = []
    shares: list[AppendShare] = []
    position = 0
    for topic_partition, pendings in buffer.appends.items():
        share = _share(topic_partition, pendings, epochs[topic_partition], position + FRAME_BYTES)
        batches = sum(len(pending.headers) for pending in pendings)
        parts.append(pack_frame(topic_partition, batches, share.records, share.length))
        parts.extend(pending.data for pending in pendings)
        shares.append(share)
        position += FRAME_BYTES + share.length
    return Layout(parts, shares, position)


def lay_out_inline(buffer: FlushBuffer, epochs: dict[TopicPartition, int]) -> list[AppendShare]:
    """The same flush as rows: each share carries its own bytes."""
    return [
        _share(
            topic_partition,
            pendings,
            epochs[topic_partition],
            0,
            inline=b"".join([pending.data for pending in pendings]),
        )
        for topic_partition, pendings in buffer.appends.items()
    ]


def sequence_of(header: BatchHeader) -> SequencedBatch | None:
    """The producer and sequence numbers of this batch if its producer is idempotent, else None."""
    if header.producer_id < 0:
        return None
    return SequencedBatch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.newest_timestamp,
        header.is_transactional,
        -1,
    )


def _share(
    topic_partition: TopicPartition,
    pendings: list[Pending],
    epoch: int,
    position: int,
    inline: bytes | None = None,
) -> AppendShare:
    length = records = 0
    oldest, newest = 2**63 - 1, -1
    sequences = []
    for pending in pendings:
        for _, header in pending.headers:
            newest = max(newest, header.newest_timestamp)
            oldest = min(oldest, header.oldest_timestamp if pending.oldest is None else pending.oldest)
        if pending.sequence is not None:
            sequences.append(pending.sequence._replace(offset=records))
        length += pending.size
        records += pending.records
    index = _index(pendings) if length > INDEX_EVERY_BYTES else None
    return AppendShare(
        topic_partition, epoch, position, length, records, oldest, newest, index, inline, tuple(sequences)
    )


def _index(pendings: list[Pending]) -> bytes | None:
    batches = []
    position = offset = 0
    for pending in pendings:
        for start, header in pending.headers:
            batches.append((offset, position + start, header.newest_timestamp))
            offset += header.last_offset_delta + 1
        position += pending.size
    return pack_index(build_index(batches)) or None
