"""Deletes the oldest records of a partition: moves its log start, and removes the extents below it."""

from millpond.catalog import extents, partitions, transactions
from millpond.catalog.database import CatalogTransaction
from millpond.log.partition import LogPartition
from millpond.model.clock import Clock
from millpond.model.errors import ExtentsChanged, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.topology import ChangesInFlight, WriteCatalog

EVERYTHING = -1
REMOVED_PER_STEP = 1_000
"""Maximum number of extents that one transaction removes; the next transaction continues."""


class RecordDeletion:
    def __init__(self, write: WriteCatalog, in_flight: ChangesInFlight, clock: Clock) -> None:
        self._write = write
        self._in_flight = in_flight
        self._clock = clock

    async def delete_below(self, partition: LogPartition, offset: int, bytes_seen: int) -> int:
        """See `Log.delete_records`."""
        wanted = partition.end_offset if offset == EVERYTHING else offset
        if wanted < 0:
            raise OffsetOutOfRange(
                offset=offset, log_start=partition.log_start, end_offset=partition.end_offset
            )
        return await self._in_flight.complete(self._delete_below(partition, wanted, bytes_seen))

    async def _delete_below(self, partition: LogPartition, offset: int, bytes_seen: int) -> int:
        topic_partition = partition.topic_partition
        log_start: int = await self._write(lambda tx: _advance(tx, topic_partition, offset, bytes_seen))
        partition.log_start = max(partition.log_start, log_start)

        def remove(tx: CatalogTransaction) -> int:
            return _remove_below(tx, topic_partition, log_start, now_ms=self._clock.now_ms())

        while await self._write(remove, own_commit=True) == REMOVED_PER_STEP:
            pass
        return log_start


def _advance(tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, bytes_seen: int) -> int:
    """Advancing the log start locks the partition's row, so the size that is read afterwards stays valid."""
    log_start = partitions.advance_log_start(tx, topic_partition, offset)
    if bytes_seen and partitions.read(tx, topic_partition).bytes < bytes_seen:
        raise ExtentsChanged
    return log_start


def _remove_below(
    tx: CatalogTransaction, topic_partition: TopicPartition, offset: int, *, now_ms: int
) -> int:
    """The log start in memory has already moved, so no reader below it can still ask for aborted transactions."""
    removed = extents.remove_below(tx, topic_partition, offset, limit=REMOVED_PER_STEP, now_ms=now_ms)
    transactions.forget_aborted(tx, topic_partition, offset)
    return removed
