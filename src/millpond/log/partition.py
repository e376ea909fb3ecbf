"""One partition as its owner sees it: row, tail, producers and transactions. State changes only between awaits."""

import asyncio

from millpond.catalog import producers, transactions
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.transactions import PartitionTransactions
from millpond.log.buffer import AppendResult
from millpond.log.open_transactions import ABORTED_MAX, OpenTransactions
from millpond.log.producers import Sequences
from millpond.log.tail import Tail
from millpond.model.ids import TopicPartition
from millpond.model.producers import SequencedBatch
from millpond.topology import ReadCatalog, Seen


class LogPartition:
    __slots__ = (
        "append_lock",
        "end_offset",
        "epoch",
        "fenced",
        "halted",
        "in_handover",
        "loading",
        "log_start",
        "open_transactions",
        "queued_appends",
        "sequences",
        "tail",
        "topic_partition",
    )

    def __init__(self, row: PartitionRow) -> None:
        self.topic_partition: TopicPartition = row.topic_partition
        self.epoch = row.epoch
        self.log_start = row.log_start
        self.end_offset = row.end_offset
        self.tail = Tail()
        self.sequences: Sequences[AppendResult] = Sequences()
        self.loading = asyncio.Lock()
        """Held while the producers' sequences are read: reads on threads finish in any order."""
        self.open_transactions = OpenTransactions()
        self.fenced = False
        """Whether this broker must not serve it: another broker owns it, or it was dropped or halted here."""
        self.in_handover = False
        """Whether it is being handed over: accepted appends are completed, new ones are refused."""
        self.halted = False
        """The catalog has lost state that it had committed: no writes until an operator intervenes."""
        self.append_lock = asyncio.Lock()
        """Held while an append may take long before it joins a buffer: the next append must not overtake it."""
        self.queued_appends = 0
        """Appends that hold `append_lock` or wait for it. While there are any, every other append queues behind
        them, because the lock itself is free for a moment when it passes from one append to the next."""

    @property
    def seen(self) -> Seen:
        return Seen(self.epoch, self.end_offset)

    def observe(self, row: PartitionRow, owner: str) -> bool:
        """Apply the catalog's row; returns True if another writer has appended."""
        self.fenced = row.owner != owner or row.epoch != self.epoch
        self.log_start = max(self.log_start, row.log_start)
        return self.grow(row.end_offset, row.end_offset)

    def grow(self, start: int, end: int) -> bool:
        """Move the log's end to `end`. New offsets below `start` were written by another writer. Returns
        False if the end was already there."""
        if start > self.end_offset:
            self.open_transactions.need(start)
        grown = end > self.end_offset
        self.end_offset = max(self.end_offset, end)
        return grown

    def holds_in_tail(self, offset: int) -> bool:
        start = self.tail.start
        return start is not None and start <= offset < self.end_offset and self.tail.ends_at(self.end_offset)

    # -- reads from the catalog -------------------------------------------------------------------------------

    async def load_state_for(self, batch: SequencedBatch, read: ReadCatalog) -> None:
        """Read from the catalog what is needed to check this batch, unless it is known already."""
        if self.sequences.stale:
            await self._load_sequences(read)
        if batch.transactional and not self.open_transactions.includes(
            batch.producer_id, batch.producer_epoch
        ):
            await self.open_transactions.reload(lambda: self._read_transactions(read))

    async def refresh_transactions(self, read: ReadCatalog) -> None:
        await self.open_transactions.refresh(lambda: self._read_transactions(read))

    async def _load_sequences(self, read: ReadCatalog) -> None:
        """Read the state of the partition's producers from the catalog. No batch of theirs is in flight
        during the read, because each one waits for it; they continue in the order of arrival."""
        async with self.loading:
            while self.sequences.stale:
                states = await read(lambda tx: producers.load(tx, self.topic_partition))
                if self.sequences.stale:
                    self.sequences.load(states)

    async def _read_transactions(self, read: ReadCatalog) -> PartitionTransactions:
        return await read(
            lambda tx: transactions.of_partition(tx, self.topic_partition, aborted_max=ABORTED_MAX)
        )
