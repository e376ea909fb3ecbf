"""A batch with fewer records: the same offsets, the same producer, the same bytes for each record kept.

Offset deltas are relative to the base offset and timestamp deltas to the base timestamp. Both stay, so kept
records are copied without encoding them again. Count, length, newest timestamp and CRC change with the
remaining records. Kafka's cleaner does the same, except that it encodes the records again.
"""

from millpond.records import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, Buffer, Codec, compress
from millpond.records.batch import CODEC_MASK, HEADER, LENGTH_END, seal


def with_records(header: BatchHeader, kept: int, records: Buffer, newest_timestamp: int) -> bytearray:
    """The batch with only these records (uncompressed bytes), compressed with its original codec."""
    changed = header._replace(
        max_timestamp=header.max_timestamp if header.has_append_time else newest_timestamp, record_count=kept
    )
    return _sealed(changed, compress(header.codec, records))


def emptied(header: BatchHeader) -> bytearray:
    """The batch without any records: it stays so that readers get past its offsets. It has no timestamp."""
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
