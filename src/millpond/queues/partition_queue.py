"""One active partition of a subscription: a dispatcher, the log it reads from, and the consumers it delivers to.

Four objects share the work. `Dispatcher` decides, `ReadAhead` reads, `Deliverer` delivers to consumers and applies what
they send, and `PartitionSaves` knows what is to be saved. This module has what is left: one task that calls them in
turn and then waits, and the end of all. Acknowledgements and credit change the dispatcher immediately and wake the
task. State changes only between awaits.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from millpond.catalog.subscriptions import Loaded, StateKey, StoredSubscription
from millpond.log import Log
from millpond.model.errors import Defect, MillpondError, Unavailable
from millpond.observability.metrics import QueueMetrics
from millpond.queues.addressing import Addressing
from millpond.queues.deliverer import Deliverer
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_results import Retry
from millpond.queues.feed import Feed
from millpond.queues.limits import QueueLimits
from millpond.queues.partition_saves import PartitionSaves
from millpond.queues.read_ahead import ReadAhead
from millpond.queues.subscribed_partition import SubscribedPartition

READ_RETRY_S = 0.5
ALARM_MS_MAX = 3_600_000
"""The longest sleep. Later events are checked again in between."""
logger = logging.getLogger(__name__)


class PartitionQueue:
    """Consumers use `deliverer`, acknowledgements `dispatcher`, savers `saves`. After `close`, `closed` has the reason,
    and the task ends."""

    def __init__(
        self,
        log: Log,
        feed: Feed,
        subscription: StoredSubscription,
        state_key: StateKey,
        loaded: Loaded,
        addressing: Addressing,
        *,
        topic: str,
        now: Callable[[], int],
        mark_dirty: "Callable[[PartitionQueue], None]",
        limits: QueueLimits,
        metrics: QueueMetrics,
    ) -> None:
        self.state_key = state_key
        self.topic = topic
        self._log = log
        self.closed: MillpondError | None = None
        self._partition = SubscribedPartition(subscription, state_key, topic)
        self.topic_partition = self._partition.topic_partition
        self.dispatcher = Dispatcher(
            subscription.config,
            epoch=loaded.epoch,
            floor=loaded.floor,
            chunks=loaded.chunks,
            retries={offset: Retry(*retry) for offset, retry in loaded.retries.items()},
            log_start=self._log_start(),
            tracked_max=limits.tracked_max,
            reasons=limits.reasons,
        )
        self._now = now
        self._mark_dirty = partial(mark_dirty, self)
        self._is_full = False
        self._woken = asyncio.Event()
        self._wake_on_growth = True
        """Whether growth of the log wakes the task."""
        self._read_ahead = ReadAhead(
            feed, self._partition, self.dispatcher, addressing, limits=limits, metrics=metrics
        )
        self.deliverer = Deliverer(
            self.dispatcher,
            self._read_ahead,
            state_key.partition,
            now=now,
            log_start=self._log_start,
            wake=self.wake,
            limits=limits,
            metrics=metrics,
        )
        self.saves = PartitionSaves(
            self._partition,
            self.dispatcher,
            self._read_ahead,
            now=now,
            mark_dirty=self._mark_dirty,
            wake=self.wake,
            metrics=metrics,
        )

    @property
    def subscription(self) -> StoredSubscription:
        return self._partition.subscription

    def alter(self, subscription: StoredSubscription) -> None:
        """Apply an altered config from now on."""
        self._partition.subscription = subscription
        self.dispatcher.config = subscription.config
        self.wake()

    def wake(self) -> None:
        self._woken.set()

    def close(self, error: MillpondError) -> None:
        """Stop delivery and detach consumers. Acknowledgements that are not saved fail with `error`."""
        if self.closed is not None:
            return
        self.closed = error
        self.saves.close(error)
        self.deliverer.close(error)
        self.wake()

    # -- the task ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until the queue is closed: the partition moved, the subscription was replaced, or an error occurred."""
        stop_listening = self._log.waiters.listen(self.topic_partition, self._on_growth)
        try:
            while self.closed is None:
                await self._guarded_round()
        finally:
            stop_listening()

    async def _guarded_round(self) -> None:
        try:
            await self._round()
        except Unavailable as error:
            logger.warning(
                "reading for subscription failed; will retry",
                extra={
                    "topic": self.topic,
                    "subscription": self.subscription.name,
                    "partition": self.topic_partition.partition,
                    "error": str(error),
                },
            )
            await asyncio.sleep(READ_RETRY_S)
        except MillpondError as error:
            self.close(error)
        except Exception as error:  # a bug must detach the consumers, not leave them waiting
            logger.exception(
                "unexpected error in subscription; detaching consumers",
                extra={
                    "topic": self.topic,
                    "subscription": self.subscription.name,
                    "partition": self.topic_partition.partition,
                    "error": error,
                },
            )
            self.close(Defect(reason=repr(error)))

    async def _round(self) -> None:
        self._woken.clear()
        self._wake_on_growth = False
        now = self._now()
        self._read_ahead.forget_below(self._log_start())
        await self.deliverer.deliver_due(now)
        if self.dispatcher.is_dirty:
            self._mark_dirty()
        self.deliverer.notify_unserved()
        self._warn_if_full()
        if self._woken.is_set():
            return
        if (start := self.dispatcher.schedule.retrack_from) is not None:
            await self._read_ahead.retrack(start)
            return
        if self._wants_more and self._read_ahead.paused_until() <= now:
            self._wake_on_growth = True
            is_at_end = self.dispatcher.frontier >= self._log.partition(self.topic_partition).end_offset
            if not is_at_end and await self._read_ahead.read_more():
                return
        await self._wait()

    def _warn_if_full(self) -> None:
        """Log a warning once when delivery stops because too much is unsettled, so that operators find the reason."""
        was_full, self._is_full = self._is_full, self.dispatcher.is_full
        if self._is_full and not was_full:
            logger.warning(
                "too many unacknowledged messages; reading ahead paused",
                extra={
                    "topic": self.topic,
                    "subscription": self.subscription.name,
                    "partition": self.topic_partition.partition,
                    "messages": self.dispatcher.tracked,
                    "offset": self.dispatcher.settled.floor,
                },
            )

    async def _wait(self) -> None:
        """Until a consumer sends something, a timer is due, or the log has grown."""
        due = self.dispatcher.next_event()
        if self._wants_more and (paused_until := self._read_ahead.paused_until()) > self._now():
            due = paused_until if due is None else min(due, paused_until)
        alarm = None
        if due is not None:
            delay_ms = min(max(due - self._now(), 1), ALARM_MS_MAX)
            alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self.wake)
        try:
            await self._woken.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    def _log_start(self) -> int:
        return self._log.partition(self.topic_partition).log_start

    @property
    def _wants_more(self) -> bool:
        return self.dispatcher.wants_more or self.deliverer.wants_more

    def _on_growth(self) -> None:
        if self._wake_on_growth:
            self.wake()
