"""Every number that bounds the log engine, with its default."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogLimits:
    flush_bytes: int = 8 * MIB
    """A flush is sealed at this size; on object stores it is also the size of a journal object."""
    flush_delay_ms: int = 250
    """How long a flush to an object store waits for more appends. Local stores do not wait."""
    uploads_max: int = 4
    """Object stores: maximum number of concurrent uploads."""
    inline_bytes_max: int = 16 * KIB
    """Flushes up to this size are stored inline in the catalog."""
    inline_bytes_per_second: int = 4 * MIB
    """Maximum rate of inline bytes; above it, flushes go to the store."""
    inline_bytes_kept_max: int = 64 * MIB
    """Maximum number of inline bytes not yet merged into objects; above it, flushes go to the store."""
    buffer_bytes_max: int = 64 * MIB
    """Maximum number of bytes accepted and not yet acknowledged; above it, producers wait."""
    buffer_wait_ms: int = 30_000
    """How long a producer waits for buffer space before its append is refused."""
    refuse_ms: int = 200
    """After the store or the catalog failed a flush, appends are refused immediately for this long."""
    tail_bytes_max: int = 64 * MIB
    """Maximum size of the tail cache, which holds the newest batches of all partitions."""
    cache_bytes_max: int = 128 * MIB
    """Maximum size of the read cache, which holds batches read from the store, for all partitions."""
    read_bytes: int = 2 * MIB
    """Minimum number of bytes that a store read for a lagging reader requests, if the extent has them; also
    how far the fetcher reads ahead of a reader that continues."""
    gather_bytes_max: int = 256 * MIB
    """Maximum number of bytes that all fetches together may read from the store at a time; above it, they queue."""
    read_threads: int = 4
    """Threads that read the store for lagging readers."""
    catalog_threads: int = 2
    """Threads that read the catalog. They are separate, because a slow store must not delay groups and
    producers."""
    batch_threads: int = 2
    """Threads that read the records of incoming batches."""
    extents_per_read: int = 64
    """Maximum number of catalog rows per read."""
    decompressed_bytes_max: int = 64 * MIB
    """Maximum decompressed size of a batch whose records the engine must read."""
    foreign_check_ms: int = 100
    """How often the writer thread checks whether another process has committed."""
