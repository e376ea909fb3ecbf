"""Packs one flush of a task: rows become batches, and batches become the bytes of a journal object, with a
frame before each partition's batches."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millpond.catalog.appends import FOREIGN, AppendShare
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.records import HEADER_SIZE, Buffer, Codec, compress, crc32c
from millpond.records.batch import APPEND_TIME_BIT, CRC_START, HEADER, LENGTH_END, MAGIC
from millpond.segments.frame import FRAME_BYTES, pack_frame
from millpond.segments.index import build_index, pack_index
from millpond.spark.kernels import encode as kernel
from millpond.spark.kernels.encode import Batches, TopicLanes
from millpond.spark.sink.columns import number_topics, read_rows
from millpond.spark.sink.row_errors import allowed_timestamps, refusal, too_large
from millpond.spark.sink.topics import TopicNumbers

BATCH_BYTES: Final = 128 * 1024
"""Target size of batches: large enough to compress well, small enough to be useful entry points for readers.
A larger record gets its own batch."""
TOPIC_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_CRC_FIELD: Final = slice(17, 21)
_NO_EPOCH = _NO_PRODUCER = _NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class Packed:
    """The bytes to append to the store, and their shares, with positions relative to the start of these
    bytes."""

    parts: list[Buffer]
    shares: list[AppendShare]


class _Batch(NamedTuple):
    """One row of the kernel's `Batches`."""

    lane: int
    start: int
    end: int
    records: int
    base_timestamp: int
    min_timestamp: int
    max_timestamp: int


class Packer:
    """Packs one flush after another. Rows without a key go round-robin, starting at `round_robin`."""

    def __init__(
        self, topics: TopicNumbers, *, codec: Codec, topic: str | None, round_robin: int = 0
    ) -> None:
        self._topics = topics
        self._codec = codec
        self._topic = topic
        self._round_robin = round_robin

    def pack(self, table: pa.Table, *, now_ms: int) -> Packed:
        """Raises an error that names the topic if a row is invalid."""
        numbers = self._numbers(table)
        topics = self._topics.known
        rows = read_rows(table, topic=numbers, now_ms=now_ms)
        rows = rows._replace(timestamp=allowed_timestamps(rows, topics, now_ms))
        lanes = _lanes(topics)
        lane, self._round_robin, bad, problem = kernel.choose(rows, lanes, self._round_robin)
        if problem != kernel.OK:
            raise refusal(problem, topics[int(numbers[bad])], int(rows.partition[bad]))
        return self._journal(kernel.encode(rows, lane, lanes), topics, lanes)

    def _numbers(self, table: pa.Table) -> NDArray[np.int32]:
        if self._topic is None:
            return number_topics(table, self._topics.number_of)
        return np.full(table.num_rows, self._topics.number_of(self._topic), dtype=np.int32)

    def _journal(self, batches: Batches, topics: Sequence[Topic], lanes: TopicLanes) -> Packed:
        view = batches.data.data
        columns = [column.tolist() for column in batches[1:]]
        packed = Packed([], [])
        position = 0
        for lane, group in groupby(map(_Batch._make, zip(*columns, strict=True)), key=itemgetter(0)):
            number = int(np.searchsorted(lanes.first, lane, side="right")) - 1
            topic_partition = TopicPartition(topics[number].id, lane - int(lanes.first[number]))
            of_lane = list(group)
            parts, sizes = _seal_all(of_lane, view, topics[number], self._codec_of(topics[number]))
            share = _share(topic_partition, of_lane, sizes, position + FRAME_BYTES)
            packed.parts.append(pack_frame(topic_partition, len(of_lane), share.records, share.length))
            packed.parts.extend(parts)
            packed.shares.append(share)
            position += FRAME_BYTES + share.length
        return packed

    def _codec_of(self, topic: Topic) -> Codec:
        return TOPIC_CODECS.get(topic.config().compression, self._codec)


def placed_at(shares: Sequence[AppendShare], position: int) -> list[AppendShare]:
    """The shares of a flush that was appended at this position of its object."""
    return [dataclasses.replace(share, position=share.position + position) for share in shares]


def _lanes(topics: Sequence[Topic]) -> TopicLanes:
    configs = [topic.config() for topic in topics]
    partitions = np.array([topic.partitions for topic in topics], dtype=np.int64)
    return TopicLanes(
        first=np.concatenate([[0], np.cumsum(partitions)[:-1]]).astype(np.int64),
        partitions=partitions,
        needs_key=np.array([config.compacted for config in configs], dtype=np.bool_),
        batch_bytes=np.array([min(BATCH_BYTES, c.max_message_bytes) for c in configs], dtype=np.int64),
    )


def _seal_all(
    batches: Sequence[_Batch], view: memoryview, topic: Topic, codec: Codec
) -> tuple[list[Buffer], list[int]]:
    """The bytes of one partition's batches with their headers filled in, and the size of each batch."""
    config = topic.config()
    flags = APPEND_TIME_BIT if config.append_time else 0
    if codec is Codec.NONE:
        for batch in batches:
            _seal(
                view[batch.start : batch.start + HEADER_SIZE],
                batch,
                flags,
                view[batch.start + HEADER_SIZE : batch.end],
            )
        parts: list[Buffer] = [view[batches[0].start : batches[-1].end]]
        sizes = [batch.end - batch.start for batch in batches]
    else:
        sealed = [
            _compressed(batch, flags, view[batch.start + HEADER_SIZE : batch.end], codec) for batch in batches
        ]
        parts = [part for pair in sealed for part in pair]
        sizes = [HEADER_SIZE + len(payload) for _, payload in sealed]
    if max(sizes) > config.max_message_bytes:
        raise too_large(topic, max(sizes))
    return parts, sizes


def _compressed(batch: _Batch, flags: int, plain: memoryview, codec: Codec) -> tuple[bytearray, Buffer]:
    """Header and payload. A payload that would not become smaller stays uncompressed, so that no batch
    exceeds its limit."""
    packed = compress(codec, plain)
    payload, used = (packed, codec) if len(packed) < len(plain) else (plain, Codec.NONE)
    header = bytearray(HEADER_SIZE)
    _seal(header, batch, flags | used, payload)
    return header, payload


def _seal(header: bytearray | memoryview, batch: _Batch, attributes: int, payload: Buffer) -> None:
    HEADER.pack_into(
        header,
        0,
        0,  # the offset, which the catalog assigns
        HEADER_SIZE + len(payload) - LENGTH_END,
        _NO_EPOCH,
        MAGIC,
        0,  # the CRC, filled in last
        attributes,
        batch.records - 1,
        batch.base_timestamp,
        batch.max_timestamp,
        _NO_PRODUCER,
        -1,
        _NO_SEQUENCE,
        batch.records,
    )
    header[_CRC_FIELD] = crc32c(payload, crc32c(header[CRC_START:])).to_bytes(4, "big")


def _share(
    topic_partition: TopicPartition, batches: Sequence[_Batch], sizes: Sequence[int], position: int
) -> AppendShare:
    entries = []
    offset = at = 0
    for batch, size in zip(batches, sizes, strict=True):
        entries.append((offset, at, batch.max_timestamp))
        offset += batch.records
        at += size
    oldest = min(batch.min_timestamp for batch in batches)
    newest = max(batch.max_timestamp for batch in batches)
    index = pack_index(build_index(entries)) or None
    return AppendShare(topic_partition, FOREIGN, position, at, offset, oldest, newest, index)
