"""One partition as its owner sees it: its row, tail, producers and transactions. Changes only between awaits."""

import asyncio
from typing import NamedTuple

from millpond.catalog import producers, transactions
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.transactions import PartitionTransactions
from millpond.log.buffer import AppendResult
from millpond.log.ongoing import ABORTED_MAX, Ongoing
from millpond.log.producers import Sequences
from millpond.log.tail import Tail
from millpond.log.threads import ReadCatalog
from millpond.model.ids import TopicPartition
from millpond.model.producers import SequencedBatch


class Seen(NamedTuple):
    """What the catalog has said of a partition: it may only go on from there."""

    epoch: int
    end_offset: int

    def is_ahead_of(self, row: PartitionRow) -> bool:
        return row.epoch < self.epoch or (row.epoch == self.epoch and row.end_offset < self.end_offset)

    def __str__(self) -> str:
        return f"{self.epoch} and {self.end_offset}"


class Partition:
    __slots__ = (
        "end_offset",
        "epoch",
        "fenced",
        "halted",
        "leaving",
        "loading",
        "log_start",
        "ongoing",
        "sequences",
        "tail",
        "turn",
        "turns",
        "where",
    )

    def __init__(self, row: PartitionRow) -> None:
        self.where: TopicPartition = row.where
        self.epoch = row.epoch
        self.log_start = row.log_start
        self.end_offset = row.end_offset
        self.tail = Tail()
        self.sequences: Sequences[AppendResult] = Sequences()
        self.loading = asyncio.Lock()
        """Held while the producers' sequences are read: readers' threads answer in any order."""
        self.ongoing = Ongoing()
        self.fenced = False
        self.leaving = False
        """Being handed over: what was accepted is finished, nothing more is taken."""
        self.halted = False
        """The catalog has forgotten what it had said: nobody may write here before somebody has looked."""
        self.turn = asyncio.Lock()
        """Held where an append may take long before it joins a buffer: the next must not overtake it."""
        self.turns = 0
        """Appends that hold `turn` or wait for it. While there are any, every other append waits behind them: the lock
        itself is free for a moment when it passes from one to the next."""

    @property
    def seen(self) -> Seen:
        return Seen(self.epoch, self.end_offset)

    def observe(self, row: PartitionRow, owner: str) -> bool:
        """Take in what the catalog says; True if the log has grown behind our back."""
        self.fenced = row.owner != owner or row.epoch != self.epoch
        self.log_start = max(self.log_start, row.log_start)
        return self.grow(row.end_offset, row.end_offset)

    def grow(self, start: int, end: int) -> bool:
        """The log ends at `end` now; what was below `start` and is new here was written by somebody else. False
        if that is no news."""
        if start > self.end_offset:
            self.ongoing.need(start)
        grown = end > self.end_offset
        self.end_offset = max(self.end_offset, end)
        return grown

    def holds_in_tail(self, offset: int) -> bool:
        start = self.tail.start
        return start is not None and start <= offset < self.end_offset and self.tail.ends_at(self.end_offset)

    # -- what only the catalog knows --------------------------------------------------------------------------

    async def learn_of(self, batch: SequencedBatch, read: ReadCatalog) -> None:
        """Ask the catalog for what must be known to judge this batch, if it is not known yet."""
        if self.sequences.stale:
            await self._load_sequences(read)
        if batch.transactional and not self.ongoing.includes(batch.producer_id, batch.producer_epoch):
            await self.ongoing.look_again(lambda: self._read_transactions(read))

    async def refresh_transactions(self, read: ReadCatalog) -> None:
        await self.ongoing.refresh(lambda: self._read_transactions(read))

    async def _load_sequences(self, read: ReadCatalog) -> None:
        """Read the catalog's view of the partition's producers. Nothing of theirs is on its way meanwhile, since
        whoever comes waits for this too; who comes first goes on first."""
        async with self.loading:
            while self.sequences.stale:
                states = await read(lambda tx: producers.load(tx, self.where))
                if self.sequences.stale:
                    self.sequences.load(states)

    async def _read_transactions(self, read: ReadCatalog) -> PartitionTransactions:
        return await read(lambda tx: transactions.of_partition(tx, self.where, aborted_max=ABORTED_MAX))
