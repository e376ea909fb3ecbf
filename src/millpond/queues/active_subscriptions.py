"""Active subscriptions of this broker, and the partitions it serves for them.

A subscription is active here while it has consumers here. Each of its partitions that this broker owns has a
`PartitionQueue`, which loads the partition's state when it starts. The queue closes after the last consumer has
detached and its state is saved. The service loop checks every subscription once a second, and immediately after an
event. Lives on one event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, Final

from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import Loaded, StateKey, StoredSubscription, SubscriptionId
from millpond.log import Log
from millpond.model.errors import (
    MillpondError,
    NotOwner,
    Stopping,
    UnknownPartition,
    UnknownSubscription,
    UnknownTopic,
)
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import Topic
from millpond.observability.metrics import QueueMetrics
from millpond.queues.active_subscription import Active, ActiveKey
from millpond.queues.addressing import Addressing
from millpond.queues.feed import Feed
from millpond.queues.limits import QueueLimits
from millpond.queues.partition_queue import PartitionQueue
from millpond.queues.saver import Saver
from millpond.queues.stored_subscriptions import StoredSubscriptions

CHECK_EVERY_S: Final = 1.0
PARTITIONS_PER_COMMIT: Final = 250
"""Partitions that start in one commit. The limit leaves room for other writers."""
FINAL_ACKS_S: Final = 0.25
"""During a handover, how long a partition keeps accepting acknowledgements while unsaved ones remain."""
HANDOVER_SAVE_S: Final = 2.0
"""During a handover, how long to wait for acknowledgements to be saved."""
STOP_S: Final = 5.0
"""During shutdown, how long to wait for acknowledgements to be saved."""
logger = logging.getLogger(__name__)


class AtWork:
    def __init__(
        self,
        log: Log,
        session: Session,
        stored: StoredSubscriptions,
        feed: Feed,
        saver: Saver,
        *,
        now: Callable[[], int],
        limits: QueueLimits,
        metrics: QueueMetrics,
    ) -> None:
        self._log = log
        self._session = session
        self._stored = stored
        self._feed = feed
        self._saver = saver
        self._now = now
        self._limits = limits
        self._metrics = metrics
        self._active: dict[ActiveKey, Active] = {}
        self._leaving: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._check_requested = asyncio.Event()
        self.stopping = False
        metrics.leased.set_function(self._count_leased)
        metrics.consumers.set_function(self._count_consumers)
        metrics.full.set_function(self._count_full)

    # -- lookup -----------------------------------------------------------------------------------------------

    def all(self) -> list[Active]:
        return list(self._active.values())

    def of(self, subscription_id: SubscriptionId) -> list[Active]:
        """The active subscription, or each of its active members."""
        return [active for (found, _), active in self._active.items() if found == subscription_id]

    def join(
        self, subscription: StoredSubscription, topic: Topic, member: str, addressing: Addressing
    ) -> Active:
        """Returns the active subscription or member; creates it if there is none."""
        new = Active(subscription, topic, member, addressing)
        return self._active.setdefault(new.key, new)

    def has(self, active: Active) -> bool:
        """Whether this instance is still active."""
        return self._active.get(active.key) is active

    def apply(self, subscription: StoredSubscription) -> None:
        """Apply an altered subscription config."""
        for active in self.of(subscription.id):
            active.apply(subscription)

    def end(self, active: Active, error: MillpondError) -> None:
        self._active.pop(active.key, None)
        active.end(error)

    def _count_leased(self) -> int:
        return sum(queue.dispatcher.leased for active in self.all() for queue in active.open_queues())

    def _count_consumers(self) -> int:
        return sum(len(active.attachments) for active in self.all())

    def _count_full(self) -> int:
        return sum(queue.dispatcher.is_full for active in self.all() for queue in active.open_queues())

    # -- starting partitions ----------------------------------------------------------------------------------

    async def start_partitions(self, active: Active) -> None:
        """Start the partitions that this broker owns and that are not active yet, and attach consumers to them. The
        caller must hold the subscription's `lock`."""
        now = self._now()
        active.remove_ended(now)
        state_keys = [
            StateKey(active.subscription.id, active.member, number)
            for number in active.missing(now)
            if self._owns(TopicPartition(active.topic.id, number))
        ]
        for start in range(0, len(state_keys), PARTITIONS_PER_COMMIT):
            taken = await self._take(active, state_keys[start : start + PARTITIONS_PER_COMMIT])
            if self.stopping:
                raise Stopping
            for state_key, loaded in taken.items():
                if self._owns(
                    TopicPartition(active.topic.id, state_key.partition)
                ):  # it may have moved since
                    self._begin(active, state_key, loaded)
        active.connect()

    def _owns(self, topic_partition: TopicPartition) -> bool:
        if topic_partition in self._leaving:
            return False
        try:
            self._log.partition(topic_partition)
        except (NotOwner, UnknownPartition):
            return False
        return True

    async def _take(self, active: Active, state_keys: Sequence[StateKey]) -> dict[StateKey, Loaded]:
        """Take the partitions in one commit and load their state. If one of them has moved to another broker, take each
        in a separate commit and skip those that moved. A partition that another broker took between `take` and `load`
        is skipped, because its loaded epoch differs from the one taken here."""
        subscription, topic = active.subscription, active.topic.name

        def take(tx: CatalogTransaction) -> list[int]:
            return [
                catalog.take(tx, subscription, state_key, owner=self._session, topic=topic)
                for state_key in state_keys
            ]

        try:
            epochs = await self._log.write(take)
        except (NotOwner, UnknownPartition):
            if len(state_keys) == 1:
                return {}
            taken = [await self._take(active, [state_key]) for state_key in state_keys]
            return {state_key: loaded for each in taken for state_key, loaded in each.items()}
        loaded = await self._log.read(lambda tx: [catalog.load(tx, each) for each in state_keys])
        taken_now = zip(state_keys, epochs, loaded, strict=True)
        return {
            state_key: state
            for state_key, epoch, state in taken_now
            if state is not None and state.epoch == epoch
        }

    def _begin(self, active: Active, state_key: StateKey, loaded: Loaded) -> None:
        queue = PartitionQueue(
            self._log,
            self._feed,
            active.subscription,
            state_key,
            loaded,
            active.addressing,
            topic=active.topic.name,
            now=self._now,
            mark_dirty=self._saver.mark,
            limits=self._limits,
            metrics=self._metrics,
        )
        active.queues[state_key.partition] = queue
        self.start_task(queue.run())

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task; `stop` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("unexpected error in subscription task", exc_info=error, extra={"error": error})
        self.check_now()

    # -- service loop -----------------------------------------------------------------------------------------

    def check_now(self) -> None:
        """Run the next check immediately."""
        self._check_requested.set()

    async def run(self) -> None:
        """Detect partitions that were gained or lost, altered subscriptions, and subscriptions without consumers."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_EVERY_S):
                    await self._check_requested.wait()
            self._check_requested.clear()
            for active in self.all():
                try:
                    await self._update(active)
                except (UnknownTopic, UnknownSubscription) as error:
                    self.end(active, error)
                except MillpondError as error:
                    logger.warning(
                        "updating subscription failed; will retry",
                        extra={
                            "topic": active.topic.name,
                            "subscription": active.subscription.name,
                            "error": str(error),
                        },
                    )
                except Exception as error:  # a bug in one subscription must not stop the others
                    logger.exception(
                        "unexpected error while updating subscription; will retry",
                        extra={
                            "topic": active.topic.name,
                            "subscription": active.subscription.name,
                            "error": error,
                        },
                    )

    async def _update(self, active: Active) -> None:
        async with active.lock:
            if not self.has(active):
                return
            if not active.attachments:
                self._leave_if_done(active)
                return
            found = await self._stored.find(active.topic.name, active.subscription.name)
            if found.id != active.subscription.id:
                raise UnknownSubscription(topic=active.topic.name, subscription=found.name)
            if found.version != active.subscription.version:
                await self._close_replaced(active)
                self.apply(found)
            active.topic = self._log.topics.named(active.topic.name)
            await self.start_partitions(active)
            if self._now() - active.balanced_at >= self._limits.balance_ms:
                active.balance(self._now())

    async def _close_replaced(self, active: Active) -> None:
        """Close queues of partitions that another broker has reset. Without unsaved changes they would not notice."""
        epochs = await self._log.read(lambda tx: catalog.epochs(tx, *active.key))
        active.close_replaced(epochs)

    def _leave_if_done(self, active: Active) -> None:
        if any(queue.dispatcher.is_dirty for queue in active.open_queues()):
            return
        active.close_queues(Stopping())
        del self._active[active.key]

    # -- closing partitions -----------------------------------------------------------------------------------

    async def prepare_handover(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Stop delivery from these partitions, save acknowledgements, and send consumers to the next owner."""
        leaving = set(topic_partitions)
        self._leaving |= leaving
        queues = [
            queue
            for active in self.all()
            for queue in active.open_queues()
            if queue.topic_partition in leaving
        ]
        with _warning_of_unsaved(HANDOVER_SAVE_S):
            async with asyncio.timeout(HANDOVER_SAVE_S):
                await asyncio.gather(*map(_finish, queues))
        for queue in queues:
            queue.close(NotOwner())

    def end_handover(self, topic_partitions: Collection[TopicPartition]) -> None:
        """The handover of these partitions has completed or failed; owned partitions may start again."""
        self._leaving -= set(topic_partitions)
        self.check_now()

    async def stop(self) -> None:
        """Start no more partitions, save acknowledgements, and close all queues."""
        self.stopping = True
        for active in self.all():
            for queue in active.open_queues():
                if queue.dispatcher.is_dirty:
                    self._saver.mark(queue)
        with _warning_of_unsaved(STOP_S):
            async with asyncio.timeout(STOP_S):
                await self._saver.drain()
        for active in self.all():
            active.close_queues(Stopping())
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _finish(queue: PartitionQueue) -> None:
    """Stop delivery, and close the queue once nothing is unsaved. Acknowledgements may arrive while others are being
    saved, and each of them needs a response, so this saves repeatedly for up to `FINAL_ACKS_S`."""
    for name in queue.consumers:
        queue.pause(name, paused=True)
    until = asyncio.get_running_loop().time() + FINAL_ACKS_S
    with contextlib.suppress(MillpondError):
        while queue.dispatcher.is_dirty and asyncio.get_running_loop().time() < until:
            await queue.saved()
    queue.close(NotOwner())


@contextlib.contextmanager
def _warning_of_unsaved(timeout_s: float) -> Iterator[None]:
    """Log a warning if acknowledgements could not be saved in time."""
    try:
        yield
    except TimeoutError:
        logger.warning(
            "acknowledgements not saved in time; messages will be redelivered",
            extra={"timeout_ms": int(timeout_s * 1000)},
        )
