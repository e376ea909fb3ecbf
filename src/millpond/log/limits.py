"""Every number that bounds the log engine, with its default."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogLimits:
    flush_bytes: int = 8 * MIB
    """A flush is sealed at this size; on object stores it is also the size of a journal object."""
    flush_delay_ms: int = 250
    """How long an object store's flush waits for company. Local stores do not wait."""
    uploads_max: int = 4
    """Object stores: flushes being uploaded at the same time."""
    inline_bytes_max: int = 16 * KIB
    """Flushes up to this size ride in the catalog."""
    inline_bytes_per_second: int = 4 * MIB
    """What the catalog takes of them; past it, flushes go to the store."""
    inline_bytes_kept_max: int = 64 * MIB
    """What of them may be there and not yet merged into objects; past it, flushes go to the store."""
    buffer_bytes_max: int = 64 * MIB
    """Bytes accepted and not yet answered; past it, producers wait."""
    buffer_wait_ms: int = 30_000
    """How long a producer waits for room before it is refused."""
    refuse_ms: int = 200
    """After store or catalog failed a flush, appends are refused at once for this long."""
    tail_bytes_max: int = 64 * MIB
    """Newest batches kept in memory, all partitions together."""
    cache_bytes_max: int = 128 * MIB
    """Batches read back from the store and kept, all partitions together."""
    read_bytes: int = 2 * MIB
    """How much a lagging reader's store read asks for at least, if the extent has it; and how far ahead of a reader
    that goes on is read."""
    gather_bytes_max: int = 256 * MIB
    """What all fetches together may be bringing from the store at a time; past it they wait for each other."""
    read_threads: int = 4
    """Threads that read the store for lagging readers."""
    catalog_threads: int = 2
    """Threads that read the catalog. Their own: a slow store must not hold up groups and producers."""
    batch_threads: int = 2
    """Threads that look into batches on their way in."""
    extents_per_read: int = 64
    """Rows of the catalog one read looks at."""
    decompressed_bytes_max: int = 64 * MIB
    """What one batch may expand to where the engine must look inside."""
    foreign_check_ms: int = 100
    """How often the writer thread asks whether another process has committed."""
