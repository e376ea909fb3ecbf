"""Kafka's RecordBatch v2 over bytes: check, stamp, build, read. Pure: no I/O, no clock."""

from millpond.model.buffers import Buffer
from millpond.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    check_crc,
    read_header,
    set_max_timestamp,
    stamp,
    stamp_run,
    validate,
    walk,
    with_append_time,
)
from millpond.records.builder import build_batch, build_control_batch, encoded_size_max
from millpond.records.compression import Codec, compress, decompress
from millpond.records.crc import crc32c
from millpond.records.markers import ControlMarker, MarkerKind
from millpond.records.reader import iter_records, read_marker
from millpond.records.recompression import recompress
from millpond.records.record import NO_OFFSET, NO_TIMESTAMP, Header, Record
from millpond.records.times import RecordTimes, each_time, read_times

__all__ = [
    "HEADER_SIZE",
    "NO_OFFSET",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Buffer",
    "Codec",
    "ControlMarker",
    "Header",
    "MarkerKind",
    "Record",
    "RecordTimes",
    "build_batch",
    "build_control_batch",
    "check_crc",
    "compress",
    "crc32c",
    "decompress",
    "each_time",
    "encoded_size_max",
    "iter_records",
    "read_header",
    "read_marker",
    "read_times",
    "recompress",
    "set_max_timestamp",
    "stamp",
    "stamp_run",
    "validate",
    "walk",
    "with_append_time",
]
