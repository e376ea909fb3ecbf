"""What one subscription partition saves next, and which callers wait for it.

The `Saver`, or a transaction, holds `lock`, calls `begin`, writes what it returns, and calls `end`. Until then `begin`
returns the same save again, so that a failed write is retried unchanged.
"""

import asyncio
from collections.abc import Callable

from millpond.catalog.subscriptions import DeadLetter, StateSave
from millpond.model.errors import MillpondError
from millpond.observability.metrics import QueueMetrics
from millpond.queues.deadletters import letter_of
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_results import StateChanges
from millpond.queues.read_ahead import ReadAhead
from millpond.queues.save_lock import SaveLock
from millpond.queues.subscribed_partition import SubscribedPartition


class PartitionSaves:
    """Lives on the event loop; state changes only between awaits. `mark_dirty` asks for a save of this partition,
    `wake` lets its task look for messages that a save has released."""

    def __init__(
        self,
        partition: SubscribedPartition,
        dispatcher: Dispatcher,
        read_ahead: ReadAhead,
        *,
        now: Callable[[], int],
        mark_dirty: Callable[[], None],
        wake: Callable[[], None],
        metrics: QueueMetrics,
    ) -> None:
        self.lock = SaveLock()
        """Held while state of this partition is being saved."""
        self._partition = partition
        self._dispatcher = dispatcher
        self._read_ahead = read_ahead
        self._now = now
        self._mark_dirty = mark_dirty
        self._wake = wake
        self._metrics = metrics
        self._closed: MillpondError | None = None
        self._save: StateSave | None = None
        self._changes: StateChanges | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._saving: list[asyncio.Future[None]] = []

    def when_saved(self) -> "asyncio.Future[None]":
        """A future that is done when every change made so far is durable. It fails if the partition closes first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed is not None:
            future.set_exception(self._closed.copy())
        elif not self._dispatcher.is_dirty:
            future.set_result(None)
        else:
            self._waiting.append(future)
            self._mark_dirty()  # now, not in the next round: the current one may be reading
            self._wake()
        return future

    @property
    def has_unsaved(self) -> bool:
        return self._save is not None or self._dispatcher.is_dirty

    @property
    def needs_letters(self) -> bool:
        """Whether dead letters must be read before the changes can be saved. This begins the changes, so the caller
        must save them."""
        if self._closed is not None or self._save is not None:
            return False
        changes = self._begin_changes()
        return changes is not None and any(not dead.dropped for dead in changes.dead)

    async def begin(self) -> StateSave | None:
        """What is to be saved; the same object again until `end`. None if there is nothing, or the partition is
        closed."""
        if self._closed is not None:
            return None
        if self._save is None:
            changes = self._begin_changes()
            if changes is not None:
                letters = await self._letters(changes)
                self._save = StateSave(
                    self._partition.state_key,
                    self._partition.subscription.topic_id,
                    self._dispatcher.epoch,
                    changes.settled.floor,
                    changes.settled.chunks,
                    changes.settled.removed,
                    changes.retries,
                    changes.forgotten,
                    letters,
                )
        return self._save

    def end(self) -> None:
        """What `begin` returned is durable."""
        changes, self._changes, self._save = self._changes, None, None
        if changes is not None and changes.messages:
            dropped = sum(each.dropped for each in changes.dead)
            self._metrics.acked.inc(len(changes.messages) - len(changes.dead))
            self._metrics.dead.inc(len(changes.dead) - dropped)
            self._metrics.dropped.inc(dropped)
        self._dispatcher.committed()
        if not self._dispatcher.is_dirty:  # then futures added since also waited for this save
            self._saving, self._waiting = [*self._saving, *self._waiting], []
        for future in self._saving:
            if not future.done():
                future.set_result(None)
        self._saving = []
        self._wake()

    def close(self, error: MillpondError) -> None:
        """Save nothing more. Callers that wait receive `error`."""
        self._closed = error
        for future in [*self._saving, *self._waiting]:
            if not future.done():
                future.set_exception(error.copy())
                future.exception()
        self._saving, self._waiting = [], []

    def _begin_changes(self) -> StateChanges | None:
        """Begin the next changes; all futures that wait now wait for these. If the last changes were not saved, they
        are returned again, and their futures stay."""
        changes = self._dispatcher.begin_commit()
        if changes is not None and changes is not self._changes:
            self._changes = changes
            self._saving, self._waiting = self._waiting, []
        return changes

    async def _letters(self, changes: StateChanges) -> list[DeadLetter]:
        partition = self._partition
        letters: list[DeadLetter] = []
        dead_offsets = [dead.offset for dead in changes.dead if not dead.dropped]
        records = await self._read_ahead.read_again(dead_offsets) if dead_offsets else {}
        for dead in changes.dead:
            if dead.dropped:
                continue
            record = records.get(dead.offset)
            if record is not None:
                letters.append(
                    letter_of(
                        record,
                        dead,
                        partition.state_key,
                        partition.subscription,
                        partition.topic,
                        self._now(),
                    )
                )
        return letters
