"""A batch with fewer records: the same place in the log, the same producer, the same bytes for each record kept.

Offset deltas count from the base offset and timestamp deltas from the base timestamp, so both stay, and kept records
are copied without being encoded anew. Count, length, newest timestamp and CRC change with what is left. Kafka's
cleaner does the same, but for encoding the records again.
"""

from millpond.records import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, Buffer, Codec, compress
from millpond.records.batch import CODEC_MASK, HEADER, LENGTH_END, seal


def with_records(header: BatchHeader, kept: int, records: Buffer, newest_timestamp: int) -> bytearray:
    """The batch with only these records (plain bytes), packed with the codec it had."""
    changed = header._replace(
        max_timestamp=header.max_timestamp if header.has_append_time else newest_timestamp, record_count=kept
    )
    return _sealed(changed, compress(header.codec, records))


def emptied(header: BatchHeader) -> bytearray:
    """The batch without any records: it holds a place, so that readers come past its offsets. It has no time."""
    changed = header._replace(
        attributes=header.attributes & ~CODEC_MASK | Codec.NONE,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return _sealed(changed, b"")


def _sealed(header: BatchHeader, payload: bytes) -> bytearray:
    out = bytearray(HEADER.pack(*header._replace(batch_length=HEADER_SIZE + len(payload) - LENGTH_END)))
    out += payload
    seal(out, 0, len(out))
    return out
