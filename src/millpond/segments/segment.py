"""Segment objects: one partition's batches over a longer range, written by merging and compaction.

A segment is frame, payload, footer. The footer holds sections (today the sparse index), a table of them, and
a trailer that ends the object with its length, checksums and magic. So a segment can be verified by itself,
and registered again in a catalog that has lost it. Specified in `docs/formats/objects.md`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptObject
from millpond.model.extents import Extent, IndexEntry
from millpond.model.ids import TopicPartition
from millpond.records.crc import crc32c
from millpond.segments.frame import FRAME_BYTES, Frame, pack_frame, read_frame
from millpond.segments.index import pack_index, unpack_index

MAGIC = b"MPSG"
VERSION = 1

_ENTRY = struct.Struct(">HHQI")
_BODY = struct.Struct(">BBHiqqII")
_SEAL = struct.Struct(">I4s")
TRAILER_BYTES = _BODY.size + _SEAL.size


class SectionKind(IntEnum):
    """What a section of the footer holds. A reader skips unknown kinds."""

    SPARSE_INDEX = 1
    KEY_HASHES = 2
    """Reserved: 64-bit hashes of the records' keys, one per record. Not written yet."""


@dataclass(frozen=True, slots=True)
class Footer:
    """The description of a segment beyond its frame. `length` is the size of the footer itself."""

    epoch: int
    min_timestamp: int
    max_timestamp: int
    payload_crc: int
    length: int
    index: tuple[IndexEntry, ...]


def write_segment(
    topic_partition: TopicPartition,
    base_offset: int,
    end_offset: int,
    payload: Sequence[Buffer],
    *,
    batches: int,
    records: int,
    epoch: int,
    min_timestamp: int,
    max_timestamp: int,
    index: tuple[IndexEntry, ...] = (),
) -> list[Buffer]:
    """The parts of a segment object, to be stored in this order. The payload's buffers are not copied.

    The payload's batches must already be stamped; the payload starts `FRAME_BYTES` into the object.
    """
    length = sum(len(part) for part in payload)
    frame = pack_frame(
        topic_partition,
        batches,
        records,
        length,
        base_offset=base_offset,
        end_offset=end_offset,
        stamped=True,
    )
    sections = [(SectionKind.SPARSE_INDEX, pack_index(index))] if index else []
    footer = _pack_footer(sections, epoch, min_timestamp, max_timestamp, _crc_of(payload))
    return [frame, *payload, footer]


def footer_length(trailer: Buffer, object_size: int, key: str = "?") -> int:
    """The size of the object's footer, read from the last `TRAILER_BYTES` of the object."""
    position = object_size - TRAILER_BYTES
    if len(trailer) != TRAILER_BYTES or position < FRAME_BYTES:
        raise CorruptObject(key=key, position=0, reason="the object is too short to be a segment")
    *_, length = _BODY.unpack_from(trailer)
    _, magic = _SEAL.unpack_from(trailer, _BODY.size)
    if magic != MAGIC:
        raise CorruptObject(key=key, position=position, reason="the object does not end as a segment does")
    if not TRAILER_BYTES <= length <= object_size - FRAME_BYTES:
        raise CorruptObject(key=key, position=position, reason=f"a footer of {length} bytes cannot be")
    return int(length)


def read_footer(footer: Buffer, key: str = "?") -> Footer:
    """Parse the footer from exactly its bytes (see `footer_length`); raises `CorruptObject` if they are invalid."""
    view = memoryview(footer)
    trailer = len(view) - TRAILER_BYTES
    if trailer < 0:
        raise _damaged(key, "the footer is too short")
    crc, magic = _SEAL.unpack_from(view, len(view) - _SEAL.size)
    if magic != MAGIC or crc32c(view[: -_SEAL.size]) != crc:
        raise _damaged(key, "the footer's checksum does not match")
    version, _, count, epoch, min_timestamp, max_timestamp, payload_crc, length = _BODY.unpack_from(
        view, trailer
    )
    if version != VERSION or length != len(view):
        raise _damaged(key, f"footer version {version} of {length} bytes is not known")
    index = unpack_index(_section(view[:trailer], count, SectionKind.SPARSE_INDEX, key), key)
    return Footer(epoch, min_timestamp, max_timestamp, payload_crc, length, index)


def rebuild_extent(key: str, object_size: int, frame: Frame, footer: Footer) -> Extent:
    """The catalog row that a segment describes; raises `CorruptObject` if frame, footer and size do not match."""
    if FRAME_BYTES + frame.length + footer.length != object_size:
        raise CorruptObject(key=key, position=0, reason="frame, payload and footer do not fill the object")
    if not frame.stamped or not 0 <= frame.base_offset < frame.end_offset:
        raise CorruptObject(key=key, position=0, reason="the frame carries no offsets")
    return Extent(
        topic_partition=frame.topic_partition,
        base_offset=frame.base_offset,
        end_offset=frame.end_offset,
        epoch=footer.epoch,
        position=FRAME_BYTES,
        length=frame.length,
        records=frame.records,
        min_timestamp=footer.min_timestamp,
        max_timestamp=footer.max_timestamp,
        stamped=True,
        key=key,
        inline=None,
        index=footer.index,
    )


def check_segment(data: Buffer, key: str = "?") -> Extent:
    """Check every byte of a whole segment object; returns the extent to register."""
    view = memoryview(data)
    footer_start = len(view) - footer_length(view[-TRAILER_BYTES:], len(view), key)
    footer = read_footer(view[footer_start:], key)
    extent = rebuild_extent(key, len(view), read_frame(view, 0, key), footer)
    if crc32c(view[FRAME_BYTES:footer_start]) != footer.payload_crc:
        raise CorruptObject(key=key, position=FRAME_BYTES, reason="the payload's checksum does not match")
    return extent


def _pack_footer(
    sections: Sequence[tuple[SectionKind, bytes]],
    epoch: int,
    min_timestamp: int,
    max_timestamp: int,
    payload_crc: int,
) -> bytes:
    table, contents, position = [], [], 0
    for kind, content in sections:
        table.append(_ENTRY.pack(kind, 0, position, len(content)))
        contents.append(content)
        position += len(content)
    front = b"".join((*contents, *table))
    body = _BODY.pack(
        VERSION,
        0,
        len(sections),
        epoch,
        min_timestamp,
        max_timestamp,
        payload_crc,
        len(front) + TRAILER_BYTES,
    )
    return front + body + _SEAL.pack(crc32c(body, crc32c(front)), MAGIC)


def _section(front: memoryview, count: int, wanted: SectionKind, key: str) -> memoryview:
    """The bytes of the section of this kind; empty if there is none."""
    table = len(front) - count * _ENTRY.size
    if table < 0:
        raise _damaged(key, "the section table does not fit")
    for kind, _, position, length in _ENTRY.iter_unpack(front[table:]):
        if position + length > table:
            raise _damaged(key, "a section lies outside the footer")
        if kind == wanted:
            return front[position : position + length]
    return front[:0]


def _crc_of(parts: Sequence[Buffer]) -> int:
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return crc


def _damaged(key: str, reason: str) -> CorruptObject:
    return CorruptObject(key=key, position=0, reason=reason)
