"""The frame: 64 bytes before the bytes of every extent in an object, which describe what follows.

With frames an object can be verified by itself. A journal is frame and payload, repeated; its frames carry no
offsets, because the catalog assigns a journal's offsets after its bytes are durable. Specified in
`docs/formats/objects.md`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptObject
from millpond.model.ids import TopicId, TopicPartition
from millpond.records.crc import crc32c

MAGIC = b"MPEX"
VERSION = 1
STAMPED = 0x01
"""Flag: the batches carry their final offsets and leader epochs."""

NO_OFFSET = -1

_HEAD = struct.Struct(">4sBBH16siqqIIQ")
_FRAME = struct.Struct(_HEAD.format + "I")
FRAME_BYTES = _FRAME.size


class Frame(NamedTuple):
    """Describes the payload after the frame. A tuple, because a frozen dataclass costs 2 µs more per read."""

    topic_partition: TopicPartition
    base_offset: int
    end_offset: int
    batches: int
    records: int
    length: int
    stamped: bool


def pack_frame(
    topic_partition: TopicPartition,
    batches: int,
    records: int,
    length: int,
    *,
    base_offset: int = NO_OFFSET,
    end_offset: int = NO_OFFSET,
    stamped: bool = False,
) -> bytes:
    """The frame for a payload of `length` bytes. Offsets stay `NO_OFFSET` in journals."""
    topic_id, partition = topic_partition
    flags = STAMPED if stamped else 0
    head = _HEAD.pack(
        MAGIC, VERSION, flags, 0, topic_id, partition, base_offset, end_offset, batches, records, length
    )
    return head + crc32c(head).to_bytes(4, "big")


def read_frame(buffer: Buffer, position: int, key: str = "?") -> Frame:
    """The frame at `position` of `buffer`; raises `CorruptObject` unless it is complete and undamaged."""
    if position < 0 or len(buffer) - position < FRAME_BYTES:
        raise CorruptObject(key=key, position=position, reason="the object ends inside a frame")
    magic, version, flags, _, topic_id, partition, base, end, batches, records, length, crc = (
        _FRAME.unpack_from(buffer, position)
    )
    if magic != MAGIC:
        raise CorruptObject(key=key, position=position, reason="no frame starts here")
    if crc32c(buffer[position : position + _HEAD.size]) != crc:
        raise CorruptObject(key=key, position=position, reason="the frame's checksum does not match")
    if version != VERSION:
        raise CorruptObject(key=key, position=position, reason=f"frame version {version} is not known")
    topic_partition = TopicPartition(TopicId(topic_id), partition)
    return Frame(topic_partition, base, end, batches, records, length, bool(flags & STAMPED))


def walk_journal(buffer: Buffer, key: str = "?") -> Iterator[tuple[int, Frame]]:
    """Every (payload position, frame) of a journal, in order; raises `CorruptObject` at the first damage."""
    position = 0
    while position < len(buffer):
        frame = read_frame(buffer, position, key)
        payload = position + FRAME_BYTES
        position = payload + frame.length
        if position > len(buffer):
            raise CorruptObject(key=key, position=payload, reason="the object ends inside a payload")
        yield payload, frame
