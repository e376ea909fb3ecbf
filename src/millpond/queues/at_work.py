"""What is at work on this broker: which subscriptions, and which partitions of theirs it has taken.

A subscription is at work here while it has consumers here: each of its partitions that this broker owns has a
`PartitionQueue`, which takes the partition's state when it begins and leaves it behind when the last consumer goes.
As a service it looks around, once a second and whenever something happens. Lives on one event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, Final

from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import Transaction
from millpond.catalog.subscriptions import Loaded, Standing, Subscription, SubscriptionId
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
from millpond.queues.active import Active, Place
from millpond.queues.addressing import Addressing
from millpond.queues.feed import Feed
from millpond.queues.limits import QueueLimits
from millpond.queues.partition_queue import PartitionQueue
from millpond.queues.saver import Saver
from millpond.queues.stored import StoredSubscriptions

LOOK_EVERY_S: Final = 1.0
TAKEN_PER_COMMIT: Final = 250
"""Partitions that begin in one commit: others want to write, too."""
LAST_ANSWERS_S: Final = 0.25
"""How long a partition that is handed over goes on taking answers, if they do not end by themselves."""
LET_GO_S: Final = 2.0
"""How long a partition that is handed over waits for what was decided to be saved."""
STOP_S: Final = 5.0
"""How long a broker that stops waits for what was decided to be saved."""
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
        self._active: dict[Place, Active] = {}
        self._leaving: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_now = asyncio.Event()
        self.stopping = False
        metrics.leased.set_function(self._count_leased)
        metrics.consumers.set_function(self._count_consumers)
        metrics.full.set_function(self._count_full)

    # -- which ------------------------------------------------------------------------------------------------

    def all(self) -> list[Active]:
        return list(self._active.values())

    def of(self, subscription_id: SubscriptionId) -> list[Active]:
        """A subscription, or each of its members."""
        return [active for (found, _), active in self._active.items() if found == subscription_id]

    def join(self, subscription: Subscription, topic: Topic, member: str, addressing: Addressing) -> Active:
        """The one that is at work, or a new one."""
        new = Active(subscription, topic, member, addressing)
        return self._active.setdefault(new.place, new)

    def has(self, active: Active) -> bool:
        """Whether it has not ended meanwhile."""
        return self._active.get(active.place) is active

    def take_in(self, subscription: Subscription) -> None:
        """It was altered."""
        for active in self.of(subscription.id):
            active.take_in(subscription)

    def end(self, active: Active, error: MillpondError) -> None:
        self._active.pop(active.place, None)
        active.end(error)

    def _count_leased(self) -> int:
        return sum(queue.dispatcher.leased for active in self.all() for queue in active.open_queues())

    def _count_consumers(self) -> int:
        return sum(len(active.attachments) for active in self.all())

    def _count_full(self) -> int:
        return sum(queue.dispatcher.is_full for active in self.all() for queue in active.open_queues())

    # -- partitions begin -------------------------------------------------------------------------------------

    async def fill(self, active: Active) -> None:
        """Begin with partitions that are this broker's and not at work yet; attach whoever is not yet there. Whoever
        calls it has the subscription's turn."""
        now = self._now()
        active.remove_ended(now)
        standings = [
            Standing(active.subscription.id, active.member, number)
            for number in active.missing(now)
            if self._owns(TopicPartition(active.topic.id, number))
        ]
        for start in range(0, len(standings), TAKEN_PER_COMMIT):
            taken = await self._take(active, standings[start : start + TAKEN_PER_COMMIT])
            if self.stopping:
                raise Stopping
            for standing, loaded in taken.items():
                if self._owns(TopicPartition(active.topic.id, standing.partition)):  # still
                    self._begin(active, standing, loaded)
        active.connect()

    def _owns(self, where: TopicPartition) -> bool:
        if where in self._leaving:
            return False
        try:
            self._log.partition(where)
        except (NotOwner, UnknownPartition):
            return False
        return True

    async def _take(self, active: Active, standings: Sequence[Standing]) -> dict[Standing, Loaded]:
        """All in one commit; if one of them has moved away meanwhile, those that have not. One that somebody has taken
        since is theirs: what is loaded then is not what was taken."""
        subscription, topic = active.subscription, active.topic.name

        def take(tx: Transaction) -> list[int]:
            return [
                catalog.take(tx, subscription, standing, owner=self._session, topic=topic)
                for standing in standings
            ]

        try:
            epochs = await self._log.write(take)
        except (NotOwner, UnknownPartition):
            if len(standings) == 1:
                return {}
            taken = [await self._take(active, [standing]) for standing in standings]
            return {standing: loaded for each in taken for standing, loaded in each.items()}
        loaded = await self._log.read(lambda tx: [catalog.load(tx, each) for each in standings])
        taken_now = zip(standings, epochs, loaded, strict=True)
        return {
            standing: state
            for standing, epoch, state in taken_now
            if state is not None and state.epoch == epoch
        }

    def _begin(self, active: Active, standing: Standing, loaded: Loaded) -> None:
        queue = PartitionQueue(
            self._log,
            self._feed,
            active.subscription,
            standing,
            loaded,
            active.addressing,
            topic=active.topic.name,
            now=self._now,
            mark_dirty=self._saver.mark,
            limits=self._limits,
            metrics=self._metrics,
        )
        active.queues[standing.partition] = queue
        self.keep_task(queue.run())

    def keep_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside the rest; whoever stops waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical(
                "unexpected error in subscription task", exc_info=error, extra={"error": repr(error)}
            )
        self.look_again()

    # -- as a service -----------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Something has happened: look now."""
        self._look_now.set()

    async def run(self) -> None:
        """Notice partitions that came and went, altered subscriptions, and those that nobody uses any more."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._look_now.wait()
            self._look_now.clear()
            for active in self.all():
                try:
                    await self._look_at(active)
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
                except Exception as error:  # a bug in one must not end them all
                    logger.exception(
                        "unexpected error while updating subscription; will retry",
                        extra={
                            "topic": active.topic.name,
                            "subscription": active.subscription.name,
                            "error": repr(error),
                        },
                    )

    async def _look_at(self, active: Active) -> None:
        async with active.turn:
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
                self.take_in(found)
            active.topic = self._log.topics.named(active.topic.name)
            await self.fill(active)
            if self._now() - active.balanced_at >= self._limits.balance_ms:
                active.balance(self._now())

    async def _close_replaced(self, active: Active) -> None:
        """Those that another broker has reset: with nothing to save, they would not hear of it."""
        epochs = await self._log.read(lambda tx: catalog.epochs(tx, *active.place))
        active.close_replaced(epochs)

    def _leave_if_done(self, active: Active) -> None:
        if any(queue.dispatcher.is_dirty for queue in active.open_queues()):
            return
        active.close_queues(Stopping())
        del self._active[active.place]

    # -- partitions end ---------------------------------------------------------------------------------------

    async def let_go(self, wheres: Collection[TopicPartition]) -> None:
        """Deliver nothing more of these partitions, save what was decided, and send consumers to the next owner."""
        leaving = set(wheres)
        self._leaving |= leaving
        queues = [queue for active in self.all() for queue in active.open_queues() if queue.where in leaving]
        with _warning_of_unsaved(LET_GO_S):
            async with asyncio.timeout(LET_GO_S):
                await asyncio.gather(*map(_finish, queues))
        for queue in queues:
            queue.close(NotOwner())

    def keep(self, wheres: Collection[TopicPartition]) -> None:
        """They are given away, or after all are not."""
        self._leaving -= set(wheres)
        self.look_again()

    async def stop(self) -> None:
        """Begin nothing more, save what was decided, and end all partitions."""
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
    """Deliver nothing more, and close when nothing that was decided is unsaved: answers come while others are being
    saved, and whoever gave one is to hear what became of it."""
    for name in queue.consumers:
        queue.pause(name, paused=True)
    until = asyncio.get_running_loop().time() + LAST_ANSWERS_S
    with contextlib.suppress(MillpondError):
        while queue.dispatcher.is_dirty and asyncio.get_running_loop().time() < until:
            await queue.saved()
    queue.close(NotOwner())


@contextlib.contextmanager
def _warning_of_unsaved(timeout_s: float) -> Iterator[None]:
    """Of what could not be saved in time."""
    try:
        yield
    except TimeoutError:
        logger.warning(
            "acknowledgements not saved in time; messages will be redelivered",
            extra={"timeout_ms": int(timeout_s * 1000)},
        )
