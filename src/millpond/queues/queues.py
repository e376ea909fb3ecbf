"""The door to subscriptions: make, alter, describe and delete them, and attach consumers. Lives on one event loop.

A subscription is at work here while it has consumers here: each of its partitions that this broker owns has a
`PartitionQueue`, which takes the partition's state when it begins and leaves it behind when the last consumer goes.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from millpond.catalog import exclusivity, partitions
from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import Transaction
from millpond.catalog.schema import read_meta
from millpond.catalog.subscriptions import EVERYBODY, Loaded, Standing, Subscription, SubscriptionId
from millpond.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import (
    InvalidSubscription,
    MillpondError,
    NotOwner,
    Stopping,
    SubscriptionBusy,
    SubscriptionReplaced,
    UnknownConsumer,
    UnknownPartition,
    UnknownSubscription,
    UnknownTopic,
)
from millpond.model.ids import Session, TopicPartition
from millpond.model.subscriptions import Mode, check_name, config_from
from millpond.model.topics import Topic
from millpond.observability.metrics import QueueMetrics
from millpond.queues.ackids import AckIds
from millpond.queues.attachment import Attachment
from millpond.queues.bodies import CopyBody, nothing_to_copy
from millpond.queues.committing import Committed, commit
from millpond.queues.deadletters import DeadLetters, check_topic
from millpond.queues.deadletters import topic_of as dead_letter_topic_of
from millpond.queues.describing import (
    PartitionStanding,
    SubscriptionStanding,
    consumer_standings,
    partition_standings,
    read_stored,
)
from millpond.queues.feed import Feed
from millpond.queues.limits import QueueLimits
from millpond.queues.partition_queue import PartitionQueue
from millpond.queues.redriving import redrive
from millpond.queues.saver import Saver
from millpond.records import Buffer

LOOK_EVERY_S: Final = 1.0
BEGIN_AGAIN_MS: Final = 1_000
"""How long a partition rests that an error has ended: one that cannot be read is not to be taken all the time."""
TAKEN_PER_COMMIT: Final = 250
"""Partitions that begin in one commit: others want to write, too."""
LAST_ANSWERS_S: Final = 0.25
"""How long a partition that is handed over goes on taking answers, if they do not end by themselves."""
LET_GO_S: Final = 2.0
"""How long a partition that is handed over waits for what was decided to be saved."""
STOP_S: Final = 5.0
"""How long a broker that stops waits for what was decided to be saved."""
logger = logging.getLogger(__name__)


class StartAt(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription begins: `value` is an offset or a time in milliseconds."""

    at: StartAt = StartAt.EARLIEST
    value: int = 0


EARLIEST: Final = Start()
Place = tuple[SubscriptionId, str]


@dataclass(slots=True)
class Active:
    """A subscription at work, or one member of it."""

    subscription: Subscription
    topic: Topic
    member: str
    queues: dict[int, PartitionQueue] = field(default_factory=dict)
    attachments: dict[str, Attachment] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    rests_until: dict[int, int] = field(default_factory=dict)
    """Partitions that ended because of an error."""
    balanced_at: int = 0


class Queues:
    def __init__(
        self,
        log: Log,
        session: Session,
        *,
        clock: Clock,
        limits: QueueLimits,
        metrics: QueueMetrics,
        copy_body: CopyBody = nothing_to_copy,
    ) -> None:
        self._log = log
        self._session = session
        self._clock = clock
        self._limits = limits
        self._began = clock.now_ms() - clock.monotonic_ms()
        self._feed = Feed(log, limits)
        self._copy_body = copy_body
        self.dead_letters = DeadLetters(log, limits, copy_body)
        self._saver = Saver(log, limits, self.dead_letters.wake, metrics)
        self._metrics = metrics
        self._active: dict[Place, Active] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._secret = b""
        self._look_now = asyncio.Event()
        self._redriving = asyncio.Lock()
        self._stopping = False
        self._leaving: set[TopicPartition] = set()
        metrics.leased.set_function(self._count_leased)
        metrics.consumers.set_function(self._count_consumers)

    def now(self) -> int:
        """Wall time at the start, and what has passed since: it does not jump."""
        return self._began + self._clock.monotonic_ms()

    # -- administration ---------------------------------------------------------------------------------------

    async def create(
        self, topic: str, name: str, values: Mapping[str, Any] | None = None, start: Start = EARLIEST
    ) -> Subscription:
        check_name(name)
        config = config_from(values or {})
        known = await self._log.topic(topic)
        check_topic(config, topic, name)
        if len(await self.all_of(topic)) >= self._limits.subscriptions_max:
            raise InvalidSubscription(reason=f"topic {topic!r} has {self._limits.subscriptions_max} already")
        timed = await self._times(known, start)
        now_ms = self._clock.now_ms()

        def create(tx: Transaction) -> None:
            floors = _floors(tx, known, start, timed)
            catalog.create(tx, known.id, name, config, floors, topic=topic, now_ms=now_ms)

        await self._log.write(create)
        return await self.find(topic, name)

    async def find(self, topic: str, name: str) -> Subscription:
        known = await self._log.topic(topic)
        return await self._log.read(lambda tx: catalog.find(tx, known.id, name, topic=topic))

    async def all_of(self, topic: str) -> list[Subscription]:
        known = await self._log.topic(topic)
        return await self._log.read(lambda tx: catalog.of_topic(tx, known.id))

    async def all(self) -> list[tuple[str, Subscription]]:
        """With the names of their topics."""
        found = await self._log.read(catalog.all_subscriptions)
        topics = self._log.topics
        return [
            (topics.with_id(each.topic_id).name, each) for each in found if topics.knows_id(each.topic_id)
        ]

    async def alter(self, topic: str, name: str, values: Mapping[str, Any]) -> Subscription:
        subscription = await self.find(topic, name)
        config = config_from(values, subscription.config)
        if config.mode is not subscription.config.mode:
            raise InvalidSubscription(reason="the mode cannot be altered; make another subscription")
        check_topic(config, topic, name)
        await self._log.write(lambda tx: catalog.alter(tx, subscription, config))
        altered = await self.find(topic, name)
        self._take_in(altered)
        return altered

    async def delete(self, topic: str, name: str) -> None:
        subscription = await self.find(topic, name)
        await self._log.write(lambda tx: catalog.delete(tx, subscription))
        gone = UnknownSubscription(topic=topic, subscription=name)
        for active in self._of(subscription.id):
            self._end(active, gone)

    async def reset(self, topic: str, name: str, start: Start) -> None:
        """Begin anew, for all members. What is on its way is forgotten; consumers go on from the new place."""
        subscription = await self.find(topic, name)
        known = await self._log.topic(topic)
        timed = await self._times(known, start)

        def reset(tx: Transaction) -> None:
            members = {member for member, _ in catalog.floors(tx, subscription.id)}
            catalog.reset(tx, subscription, _floors(tx, known, start, timed), members)

        await self._log.write(reset)
        for active in self._of(subscription.id):
            for queue in list(active.queues.values()):
                queue.close(SubscriptionReplaced(subscription=name))
        self._look_now.set()

    async def unblock(self, topic: str, name: str) -> int:
        """Let blocked messages go again. Of partitions that are at work here; how many there were."""
        subscription = await self.find(topic, name)
        freed = 0
        for active in self._of(subscription.id):
            for queue in active.queues.values():
                freed += queue.dispatcher.unblock()
                queue.wake()
        return freed

    async def redrive(self, topic: str, name: str, messages_max: int = 0) -> int:
        """Send dead letters back to this subscription. How many there were."""
        subscription = await self.find(topic, name)
        async with self._redriving:
            return await redrive(
                self._log,
                self._feed,
                subscription,
                self._log.topics.named(topic),
                messages_max,
                self._clock.now_ms(),
                self._copy_body,
            )

    async def describe(self, topic: str, name: str, keys_max: int = 10) -> SubscriptionStanding:
        subscription = await self.find(topic, name)
        stored = await self._log.read(lambda tx: read_stored(tx, subscription))
        queues = [
            queue
            for active in self._of(subscription.id)
            for queue in active.queues.values()
            if queue.closed is None
        ]
        at_work = {(queue.standing.member, queue.standing.partition): queue for queue in queues}
        standings = partition_standings(stored, at_work, keys_max)
        return SubscriptionStanding(
            subscription,
            topic,
            [await self._with_age(each, subscription) for each in standings],
            consumer_standings(queues),
            dead_letter_topic_of(subscription, topic),
            stored.dead_letters_waiting,
        )

    async def _with_age(self, standing: PartitionStanding, subscription: Subscription) -> PartitionStanding:
        """How old the first message is that is not settled, where this broker can tell."""
        if not standing.at_work or standing.backlog <= 0:
            return standing
        where = TopicPartition(subscription.topic_id, standing.partition)
        try:
            piece = await self._feed.read(where, standing.floor)
        except MillpondError:
            return standing
        if not piece.records:
            return standing
        return replace(standing, oldest_age_ms=max(0, self._clock.now_ms() - piece.records[0].timestamp))

    async def floors(self, subscription: Subscription) -> dict[tuple[str, int], int]:
        return await self._log.read(lambda tx: catalog.floors(tx, subscription.id))

    def at_work(self, subscription_id: SubscriptionId) -> list[Active]:
        """What of a subscription is at work here."""
        return self._of(subscription_id)

    # -- consumers --------------------------------------------------------------------------------------------

    async def attach(self, topic: str, name: str, consumer: str) -> Attachment:
        """One more consumer. One of the same name that is there already is taken to be gone."""
        if self._stopping:
            raise Stopping
        if not consumer or len(consumer) > 200:
            raise InvalidSubscription(reason="a consumer needs a name of 1 to 200 characters")
        subscription = await self.find(topic, name)
        member = EVERYBODY
        if subscription.config.mode is Mode.MULTICAST:
            member = consumer
            await self._check_members(subscription, member)
        place = (subscription.id, member)
        active = self._active.setdefault(place, Active(subscription, self._log.topics.named(topic), member))
        async with active.turn:
            if self._active.get(place) is not active:  # it was left alone while this one waited for its turn
                return await self.attach(topic, name, consumer)
            self._check_room(active, consumer)
            if consumer in active.attachments:
                self._detach(active, consumer, SubscriptionReplaced(subscription=name), graceful=False)
            token = secrets.token_hex(8)
            if subscription.config.mode is Mode.EXCLUSIVE:
                await self._log.write(
                    lambda tx: exclusivity.hold(tx, subscription, self._session, consumer, token)
                )
            attachment = Attachment(
                subscription,
                topic,
                consumer,
                member,
                AckIds(await self._read_secret(), subscription.id, member),
                self._look_now.set,
                token,
            )
            active.attachments[consumer] = attachment
            try:
                await self._fill(active)
            except BaseException:
                self._detach(active, consumer, Stopping(), graceful=True)
                raise
        return attachment

    def detach(self, attachment: Attachment, *, graceful: bool = True) -> None:
        for active in self._of(attachment.subscription.id):
            if active.attachments.get(attachment.name) is attachment:
                self._detach(active, attachment.name, Stopping(), graceful=graceful)
        self._look_now.set()

    async def commit(
        self,
        topic: str,
        name: str,
        consumer: str,
        acks: Sequence[bytes],
        appends: Mapping[TopicPartition, Buffer],
    ) -> Committed:
        """Acknowledge what a consumer holds and append batches, all of it or nothing."""
        subscription = await self.find(topic, name)
        for active in self._of(subscription.id):
            attachment = active.attachments.get(consumer)
            if attachment is not None:
                return await commit(self._log, attachment, acks, appends)
        raise UnknownConsumer(subscription=name, consumer=consumer)

    def _detach(self, active: Active, name: str, error: MillpondError, *, graceful: bool) -> None:
        attachment = active.attachments.pop(name, None)
        if attachment is None:
            return
        for queue in active.queues.values():
            queue.detach(name, graceful=graceful)
        attachment.queues = {}
        attachment.end(error)
        if attachment.subscription.config.mode is Mode.EXCLUSIVE:
            self._keep_task(self._release(attachment))

    async def _release(self, attachment: Attachment) -> None:
        """If it cannot be told, it is when the next consumer comes here, or this broker goes."""
        subscription, token = attachment.subscription, attachment.token
        with contextlib.suppress(MillpondError):
            await self._log.write(lambda tx: exclusivity.release(tx, subscription, self._session, token))

    async def _check_members(self, subscription: Subscription, member: str) -> None:
        """Each of them has a state that stays."""
        members = {name for name, _ in await self.floors(subscription)} - {EVERYBODY}
        if member not in members and len(members) >= self._limits.consumers_max:
            reason = f"{self._limits.consumers_max} consumers have a state of their own in it"
            raise SubscriptionBusy(subscription=subscription.name, reason=reason)

    def _check_room(self, active: Active, consumer: str) -> None:
        others = [name for name in active.attachments if name != consumer]
        name = active.subscription.name
        if active.subscription.config.mode is Mode.EXCLUSIVE and others:
            raise SubscriptionBusy(subscription=name, reason=f"it is exclusive, and {others[0]!r} has it")
        if len(others) >= self._limits.consumers_max:
            raise SubscriptionBusy(subscription=name, reason=f"it has {self._limits.consumers_max} consumers")

    async def _fill(self, active: Active) -> None:
        """Begin with partitions that are this broker's and not at work yet; attach whoever is not yet there."""
        self._remove_ended(active)
        now = self.now()
        missing = [number for number in range(active.topic.partitions) if number not in active.queues]
        standings = [
            Standing(active.subscription.id, active.member, number)
            for number in missing
            if active.rests_until.get(number, 0) <= now
            and self._owns(TopicPartition(active.topic.id, number))
        ]
        for start in range(0, len(standings), TAKEN_PER_COMMIT):
            taken = await self._take(active, standings[start : start + TAKEN_PER_COMMIT])
            if self._stopping:
                raise Stopping
            for standing, loaded in taken.items():
                if self._owns(TopicPartition(active.topic.id, standing.partition)):  # still
                    self._begin(active, standing, loaded)
        for number, queue in active.queues.items():
            for attachment in active.attachments.values():
                if attachment.queues.get(number) is not queue:
                    attachment.queues[number] = queue
                    queue.attach(attachment.name, attachment, attachment.purse)
                    queue.pause(attachment.name, paused=attachment.paused)

    def _remove_ended(self, active: Active) -> None:
        active.rests_until = {
            number: until for number, until in active.rests_until.items() if until > self.now()
        }
        for number, queue in list(active.queues.items()):
            if queue.closed is not None:
                del active.queues[number]
                if not isinstance(queue.closed, NotOwner | SubscriptionReplaced):
                    active.rests_until[number] = self.now() + BEGIN_AGAIN_MS

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
            topic=active.topic.name,
            now=self.now,
            mark_dirty=self._saver.mark,
            limits=self._limits,
            metrics=self._metrics,
        )
        active.queues[standing.partition] = queue
        self._keep_task(queue.run())

    def _keep_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_queue_ended)

    def _on_queue_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("a subscription's partition ended in a way nobody foresaw", exc_info=error)
        self._look_now.set()

    # -- as a service -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Notice partitions that came and went, altered subscriptions, and those that nobody uses any more."""
        async with asyncio.TaskGroup() as services:
            services.create_task(self.dead_letters.run())
            services.create_task(self._look_around())

    async def _look_around(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._look_now.wait()
            except TimeoutError:
                pass
            self._look_now.clear()
            for place, active in list(self._active.items()):
                try:
                    await self._look_at(place, active)
                except (UnknownTopic, UnknownSubscription) as error:
                    self._end(active, error)
                except MillpondError as error:
                    logger.warning("subscription %r waits: %s", active.subscription.name, error)
                except Exception:  # a bug in one must not end them all
                    logger.exception("subscription %r was not looked at", active.subscription.name)

    async def _look_at(self, place: Place, active: Active) -> None:
        async with active.turn:
            if self._active.get(place) is not active:  # it has ended meanwhile
                return
            if not active.attachments:
                self._leave_if_done(place, active)
                return
            found = await self.find(active.topic.name, active.subscription.name)
            if found.id != active.subscription.id:
                raise UnknownSubscription(topic=active.topic.name, subscription=found.name)
            if found.version != active.subscription.version:
                await self._close_replaced(active)
                self._take_in(found)
            active.topic = self._log.topics.named(active.topic.name)
            await self._fill(active)
            if self.now() - active.balanced_at >= self._limits.balance_ms:
                active.balanced_at = self.now()
                for queue in active.queues.values():
                    if queue.dispatcher.balance():
                        queue.wake()

    async def _close_replaced(self, active: Active) -> None:
        """Those that another broker has reset: with nothing to save, they would not hear of it."""
        name, subscription_id = active.subscription.name, active.subscription.id
        epochs = await self._log.read(lambda tx: catalog.epochs(tx, subscription_id, active.member))
        for number, queue in list(active.queues.items()):
            if epochs.get(number) != queue.dispatcher.epoch:
                queue.close(SubscriptionReplaced(subscription=name))

    def _leave_if_done(self, place: Place, active: Active) -> None:
        if any(queue.closed is None and queue.dispatcher.is_dirty for queue in active.queues.values()):
            return
        for queue in list(active.queues.values()):
            queue.close(Stopping())
        del self._active[place]

    async def let_go(self, wheres: Collection[TopicPartition]) -> None:
        """Deliver nothing more of these partitions, save what was decided, and send consumers to the next owner."""
        leaving = set(wheres)
        self._leaving |= leaving
        queues = [
            queue
            for active in self._active.values()
            for queue in active.queues.values()
            if queue.where in leaving and queue.closed is None
        ]
        try:
            async with asyncio.timeout(LET_GO_S):
                await asyncio.gather(*map(_finish, queues))
        except TimeoutError:
            logger.warning("some acknowledgements could not be saved; their messages will be delivered again")
        for queue in queues:
            queue.close(NotOwner())

    def keep(self, wheres: Collection[TopicPartition]) -> None:
        """They are given away, or after all are not."""
        self._leaving -= set(wheres)
        self._look_now.set()

    async def stop(self) -> None:
        """Consumers are let go in order: what they hold is not charged. What was decided is saved."""
        self._stopping = True
        for active in list(self._active.values()):
            for name in list(active.attachments):
                self._detach(active, name, Stopping(), graceful=True)
            for queue in active.queues.values():
                if queue.closed is None and queue.dispatcher.is_dirty:
                    self._saver.mark(queue)
        try:
            async with asyncio.timeout(STOP_S):
                await self._saver.drain()
        except TimeoutError:
            logger.warning("some acknowledgements could not be saved; their messages will be delivered again")
        for active in self._active.values():
            for queue in active.queues.values():
                queue.close(Stopping())
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- inside -----------------------------------------------------------------------------------------------

    def _count_leased(self) -> int:
        queues = [queue for active in list(self._active.values()) for queue in list(active.queues.values())]
        return sum(queue.dispatcher.leased for queue in queues if queue.closed is None)

    def _count_consumers(self) -> int:
        return sum(len(active.attachments) for active in list(self._active.values()))

    def _of(self, subscription_id: SubscriptionId) -> list[Active]:
        return [active for (found, _), active in self._active.items() if found == subscription_id]

    def _take_in(self, subscription: Subscription) -> None:
        """A config that was altered holds from now on."""
        for active in self._of(subscription.id):
            active.subscription = subscription
            for queue in active.queues.values():
                queue.subscription = subscription
                queue.dispatcher.config = subscription.config
                queue.wake()

    def _end(self, active: Active, error: MillpondError) -> None:
        self._active.pop((active.subscription.id, active.member), None)
        for queue in active.queues.values():
            queue.close(error)
        for attachment in active.attachments.values():
            attachment.end(error)

    async def _read_secret(self) -> bytes:
        if not self._secret:
            text = await self._log.read(lambda tx: read_meta(tx, "ack_secret"))
            self._secret = bytes.fromhex(text)
        return self._secret

    async def _times(self, topic: Topic, start: Start) -> dict[int, int]:
        """Where the time lies in each partition, if it is a time that is asked for."""
        if start.at is not StartAt.TIME:
            return {}
        rows = await self._log.read(lambda tx: partitions.of_topic(tx, topic.id))
        return {row.where.partition: await self._log.offset_stored_at(row, start.value) for row in rows}


def _floors(tx: Transaction, topic: Topic, start: Start, timed: Mapping[int, int]) -> dict[int, int]:
    """Where each partition begins: within what the log has now."""
    floors: dict[int, int] = {}
    for row in partitions.of_topic(tx, topic.id):
        wanted = {
            StartAt.EARLIEST: row.log_start,
            StartAt.LATEST: row.end_offset,
            StartAt.OFFSET: start.value,
            StartAt.TIME: timed.get(row.where.partition, row.end_offset),
        }[start.at]
        floors[row.where.partition] = min(max(wanted, row.log_start), row.end_offset)
    return floors


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
