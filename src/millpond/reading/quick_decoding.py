"""Decides where batches are decoded: small and uncompressed ones on the event loop, which is faster than a thread hop,
and all others on a thread, because they would block the loop."""

from collections.abc import Iterable

from millpond.records import BatchHeader, Codec


def decodes_quickly(headers: Iterable[BatchHeader], size: int, *, bytes_max: int, records_max: int) -> bool:
    """Whether batches of `size` bytes together can be decoded on the event loop. Compressed ones cannot: only
    decompressing shows their size. The headers are not read if there are too many bytes."""
    if size > bytes_max:
        return False
    records = 0
    for header in headers:
        if header.codec is not Codec.NONE:
            return False
        records += header.record_count
    return records <= records_max
