"""The subscriptions that are active on this broker, and the partitions it serves for them.

A subscription is active here while it has consumers here; of a multicast subscription, each consumer is a member that
is active separately. Each of its partitions that this broker owns has a `PartitionQueue`, which starts with the
partition's stored state. The queue closes after the last consumer has detached and its state is saved. The service loop
checks every subscription once a second, and immediately after an event. Used on one event loop.
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
    SubscriptionReplaced,
    UnknownPartition,
    UnknownSubscription,
    UnknownTopic,
)
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import Topic
from millpond.observability.metrics import QueueMetrics
from millpond.queues.active_subscription import ActiveKey, ActiveSubscription
from millpond.queues.addressing import Addressing
from millpond.queues.feed import Feed
from millpond.queues.limits import QueueLimits
from millpond.queues.partition_queue import PartitionQueue
from millpond.queues.saver import Saver
from millpond.queues.stored_subscriptions import StoredSubscriptions

CHECK_EVERY_S: Final = 1.0
PARTITIONS_PER_COMMIT: Final = 250
"""Maximum number of partitions that start in one commit. The limit leaves room for other writers."""
FINAL_ACKS_S: Final = 0.25
"""During a handover, how long a partition keeps accepting acknowledgements while unsaved ones remain."""
HANDOVER_SAVE_S: Final = 2.0
"""During a handover, how long to wait for acknowledgements to be saved."""
STOP_S: Final = 5.0
"""During shutdown, how long to wait for acknowledgements to be saved."""
logger = logging.getLogger(__name__)


class ActiveSubscriptions:
    """The subscriptions that this broker works on. Starting, ending and handing over exclude each other, so they
    are one class with more than 20 methods."""

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
        self._active: dict[ActiveKey, ActiveSubscription] = {}
        self._in_handover: set[TopicPartition] = set()
        """They are not started again before their handover has ended."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._check_requested = asyncio.Event()
        self.stopping = False
        metrics.leased.set_function(self._count_leased)
        metrics.consumers.set_function(self._count_consumers)
        metrics.full.set_function(self._count_full)

    # -- lookup -----------------------------------------------------------------------------------------------

    def all(self) -> list[ActiveSubscription]:
        return list(self._active.values())

    def of(self, subscription_id: SubscriptionId) -> list[ActiveSubscription]:
        """The active subscription, or all its active members; empty if it is not active here."""
        return [active for (found, _), active in self._active.items() if found == subscription_id]

    def join(
        self, subscription: StoredSubscription, topic: Topic, member: str, addressing: Addressing
    ) -> ActiveSubscription:
        """Returns the active subscription or member; makes it active if it is not."""
        new = ActiveSubscription(subscription, topic, member, addressing)
        return self._active.setdefault(new.key, new)

    def is_active(self, active: ActiveSubscription) -> bool:
        """Whether this object is still the active one."""
        return self._active.get(active.key) is active

    def apply(self, subscription: StoredSubscription) -> None:
        """Apply an altered subscription config."""
        for active in self.of(subscription.id):
            active.apply(subscription)

    def end(self, active: ActiveSubscription, error: MillpondError) -> None:
        self._active.pop(active.key, None)
        active.end(error)

    def _count_leased(self) -> int:
        return sum(queue.dispatcher.leased for active in self.all() for queue in active.open_queues())

    def _count_consumers(self) -> int:
        return sum(len(active.attachments) for active in self.all())

    def _count_full(self) -> int:
        return sum(queue.dispatcher.is_full for active in self.all() for queue in active.open_queues())

    # -- starting partitions ----------------------------------------------------------------------------------

    async def start_partitions(self, active: ActiveSubscription) -> None:
        """Start the queues of partitions that this broker owns and that have none yet, and attach consumers to them.
        The caller must hold the subscription's `lock`."""
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
                # It may have moved to another broker meanwhile.
                if self._owns(TopicPartition(active.topic.id, state_key.partition)):
                    self._start_queue(active, state_key, loaded)
        active.connect()

    def _owns(self, topic_partition: TopicPartition) -> bool:
        if topic_partition in self._in_handover:
            return False
        try:
            self._log.partition(topic_partition)
        except (NotOwner, UnknownPartition):
            return False
        return True

    async def _take(
        self, active: ActiveSubscription, state_keys: Sequence[StateKey]
    ) -> dict[StateKey, Loaded]:
        """Take ownership of the partitions' state in one commit, which raises their epochs, and load it. If one of the
        partitions has moved to another broker, take each in a separate commit and skip those that moved. Skip also a
        partition whose loaded epoch is higher: another broker has taken it between `take` and `load`."""
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
        taken_rows = zip(state_keys, epochs, loaded, strict=True)
        return {
            state_key: state
            for state_key, epoch, state in taken_rows
            if state is not None and state.epoch == epoch
        }

    def _start_queue(self, active: ActiveSubscription, state_key: StateKey, loaded: Loaded) -> None:
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
        """Make the service loop check immediately."""
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

    async def _update(self, active: ActiveSubscription) -> None:
        async with active.lock:
            if not self.is_active(active):
                return
            if not active.attachments:
                self._deactivate_if_saved(active)
                return
            found = await self._stored.find(active.topic.name, active.subscription.name)
            if found.id != active.subscription.id:
                raise UnknownSubscription(topic=active.topic.name, subscription=found.name)
            if found.version != active.subscription.version:
                await self._close_replaced(active)
            if found.config.mode is not active.subscription.config.mode:  # only a share group's can change
                active.close_queues(SubscriptionReplaced(subscription=found.name))
            if found != active.subscription:
                self.apply(found)
            active.topic = self._log.topics.named(active.topic.name)
            await self.start_partitions(active)
            if self._now() - active.balanced_at >= self._limits.balance_ms:
                active.balance(self._now())

    async def _close_replaced(self, active: ActiveSubscription) -> None:
        """Close queues of partitions whose state another broker has reset. A queue without unsaved changes would not
        find out by itself."""
        epochs = await self._log.read(lambda tx: catalog.epochs(tx, *active.key))
        active.close_replaced(epochs)

    def _deactivate_if_saved(self, active: ActiveSubscription) -> None:
        """End a subscription without consumers, once all its state is saved."""
        if any(queue.dispatcher.is_dirty for queue in active.open_queues()):
            return
        active.close_queues(Stopping())
        del self._active[active.key]

    # -- closing partitions -----------------------------------------------------------------------------------

    async def prepare_handover(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Stop delivery from these partitions, save acknowledgements, and detach consumers with `NotOwner`."""
        partitions = set(topic_partitions)
        self._in_handover |= partitions
        queues = [
            queue
            for active in self.all()
            for queue in active.open_queues()
            if queue.topic_partition in partitions
        ]
        with _warn_if_unsaved(HANDOVER_SAVE_S):
            async with asyncio.timeout(HANDOVER_SAVE_S):
                await asyncio.gather(*map(_finish, queues))
        for queue in queues:
            queue.close(NotOwner())

    def end_handover(self, topic_partitions: Collection[TopicPartition]) -> None:
        """The handover has completed or failed: those of the partitions that this broker still owns may start again."""
        self._in_handover -= set(topic_partitions)
        self.check_now()

    async def stop(self) -> None:
        """Start no more partitions, save acknowledgements, and close all queues."""
        self.stopping = True
        for active in self.all():
            for queue in active.open_queues():
                if queue.dispatcher.is_dirty:
                    self._saver.mark(queue)
        with _warn_if_unsaved(STOP_S):
            async with asyncio.timeout(STOP_S):
                await self._saver.drain()
        for active in self.all():
            active.close_queues(Stopping())
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _finish(queue: PartitionQueue) -> None:
    """Stop delivery, save all changes, and close the queue. Acknowledgements may arrive while others are being saved,
    and each of them needs a response, so this saves repeatedly for up to `FINAL_ACKS_S`."""
    for name in queue.deliverer.consumers:
        queue.deliverer.pause(name, paused=True)
    until = asyncio.get_running_loop().time() + FINAL_ACKS_S
    with contextlib.suppress(MillpondError):
        while queue.dispatcher.is_dirty and asyncio.get_running_loop().time() < until:
            await queue.saves.when_saved()
    queue.close(NotOwner())


@contextlib.contextmanager
def _warn_if_unsaved(timeout_s: float) -> Iterator[None]:
    """Log a warning if acknowledgements could not be saved in time."""
    try:
        yield
    except TimeoutError:
        logger.warning(
            "acknowledgements not saved in time; messages will be redelivered",
            extra={"timeout_ms": int(timeout_s * 1000)},
        )
