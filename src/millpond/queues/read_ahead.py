"""Reads the messages of one subscription partition ahead of their delivery, and holds them in memory until then.

The dispatcher receives an entry for each message; the message itself is held here, up to `held_bytes_max`. A message
that is not held is read again when it is delivered, or when it becomes a dead letter.
"""

from collections.abc import Sequence

from millpond.model.subscriptions import SubscriptionMode
from millpond.observability.metrics import QueueMetrics
from millpond.queues.addressing import Addressing
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_state import LogEntry
from millpond.queues.feed import Feed, FeedChunk, FoundMessage, entries_of
from millpond.queues.limits import QueueLimits
from millpond.queues.subscribed_partition import SubscribedPartition
from millpond.records import Record


class ReadAhead:
    """Only the task of the partition reads ahead; `read_again` may run at the same time. State changes only between
    awaits."""

    def __init__(
        self,
        feed: Feed,
        partition: SubscribedPartition,
        dispatcher: Dispatcher,
        addressing: Addressing,
        *,
        limits: QueueLimits,
        metrics: QueueMetrics,
    ) -> None:
        self.held: dict[int, FoundMessage] = {}
        """Messages in memory, by offset. Other classes look them up; only `take` removes one for them."""
        self.delivered_at = 0
        """The time of the latest delivery."""
        self._feed = feed
        self._partition = partition
        self._dispatcher = dispatcher
        self._addressing = addressing
        self._limits = limits
        self._metrics = metrics
        self._held_bytes = 0
        self._held_from = -1
        """The floor at the last `_forget_settled`: no held message was below it then."""

    def paused_until(self) -> int:
        """Until when reading ahead pauses. While many tracked messages wait, messages further on would only have to be
        read twice."""
        is_crowded = self._dispatcher.tracked * 4 >= self._limits.tracked_max
        return self.delivered_at + self._limits.look_further_ms if is_crowded else 0

    def forget_below(self, log_start: int) -> bool:
        """Tell the dispatcher where the log starts, and count the messages that are gone from it unsettled. Returns
        whether there may be any."""
        dispatcher = self._dispatcher
        frontier, tracked = dispatcher.frontier, dispatcher.tracked
        if not dispatcher.forget_below(log_start):
            return False
        if gone := tracked - dispatcher.tracked + max(log_start - frontier, 0):
            self._metrics.voided.inc(gone)
        return True

    async def read_more(self) -> bool:
        """Read and index the messages from the frontier on, as far as one read goes. Returns False if there are
        none."""
        dispatcher = self._dispatcher
        subscription = self._partition.subscription
        if subscription.share_group and subscription.config.mode is SubscriptionMode.SHARED:
            piece = await self._feed.read_runs(
                self._partition.topic_partition,
                dispatcher.frontier,
                read_committed=subscription.read_committed,
            )
        else:
            piece = await self._read(dispatcher.frontier)
        if piece.next_offset <= dispatcher.frontier:
            return False
        self.forget_below(piece.log_start)
        found = self._entries(piece.records)
        self._hold(found)
        entries = [entry for _, entry in found]
        for first, last, size in piece.plain:
            entries += [LogEntry(offset, None, size) for offset in range(first, last + 1)]
        if found and piece.plain:
            entries.sort()
        dispatcher.index(entries, piece.next_offset)
        return True

    async def retrack(self, start: int) -> None:
        """Read again from `start`, for keys of which too many messages were tracked to track all."""
        dispatcher, end = self._dispatcher, self._dispatcher.frontier
        piece = await self._read(start)
        reached = piece.next_offset if piece.next_offset > start else end
        found = self._entries(piece.records)
        held, settled = self.held, dispatcher.settled
        self._hold([each for each in found if each[1].offset not in held and each[1].offset not in settled])
        dispatcher.retrack([entry for _, entry in found], start, min(reached, end))

    async def read_again(self, offsets: Sequence[int]) -> dict[int, Record]:
        """The messages at these offsets, from the log; without those that no longer exist. Messages that are close
        together share a read."""
        wanted, found, done = set(offsets), {}, -1
        for offset in sorted(wanted):
            if offset >= done:
                piece = await self._read(offset)
                found.update({each.offset: each for each in piece.records if each.offset in wanted})
                done = piece.next_offset
        return found

    def take(self, offset: int) -> Record | None:
        """Stop holding a message and return it; None if it is not held."""
        held = self.held.pop(offset, None)
        if held is None:
            return None
        record, entry = held
        self._held_bytes -= entry.size
        return record

    async def _read(self, offset: int) -> FeedChunk:
        partition = self._partition
        read = self._feed.read if partition.subscription.read_committed else self._feed.read_uncommitted
        return await read(partition.topic_partition, offset)

    def _entries(self, records: Sequence[Record]) -> list[FoundMessage]:
        name, config = self._partition.subscription.name, self._partition.subscription.config
        return entries_of(records, config, name, self._addressing, delay_ms_max=self._limits.delay_ms_max)

    def _hold(self, found: Sequence[FoundMessage]) -> None:
        if self._partition.subscription.share_group:  # its members receive the stored batches
            return
        limit, held = self._limits.held_bytes_max, self.held
        for each in found:
            offset, _, size, _ = each[1]
            if self._held_bytes + size > limit:
                self._forget_settled()
            if self._held_bytes + size <= limit:
                held[offset] = each
                self._held_bytes += size

    def _forget_settled(self) -> None:
        """Drop held messages below the floor. It scans everything that is held, so only after the floor has moved."""
        floor = self._dispatcher.settled.floor
        if floor == self._held_from:
            return
        self._held_from = floor
        for offset in [each for each in self.held if each < floor]:
            self.take(offset)
