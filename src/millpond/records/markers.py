"""Transaction markers: the single record of a control batch, which tells how a producer's transaction ended."""

import struct
from enum import IntEnum
from typing import NamedTuple

from millpond.model.errors import CorruptBatch
from millpond.records.record import Record

VERSION = 0

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class MarkerKind(IntEnum):
    """How the transaction ended, as encoded in the marker's key."""

    ABORT = 0
    COMMIT = 1


class ControlMarker(NamedTuple):
    """The contents of a control batch: the outcome of its producer's transaction."""

    kind: MarkerKind
    coordinator_epoch: int


def marker_to_record(marker: ControlMarker, timestamp: int) -> Record:
    key = _KEY.pack(VERSION, marker.kind)
    return Record(_VALUE.pack(VERSION, marker.coordinator_epoch), key=key, timestamp=timestamp)


def marker_from_record(record: Record) -> ControlMarker:
    key, value = record.key or b"", record.value or b""
    # Later versions may add fields after these (KIP-98), so longer keys and values are accepted.
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise CorruptBatch(reason="a transaction marker is cut short")
    kind = _KEY.unpack_from(key)[1]
    if kind not in (MarkerKind.ABORT, MarkerKind.COMMIT):
        raise CorruptBatch(reason=f"transaction marker of type {kind}")
    return ControlMarker(MarkerKind(kind), _VALUE.unpack_from(value)[1])
