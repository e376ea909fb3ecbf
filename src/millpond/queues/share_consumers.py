"""The members of share groups that receive messages from this broker (KIP-932).

A member is a consumer of its group's subscription in each of its topics, attached to the partitions that it names.
It asks for messages with `acquire`, and keeps their locks until it acknowledges them, the time of a lock ends, or
the member is released. Releasing charges a delivery, as in Kafka. Lives on the event loop; state changes only between
awaits.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millpond.log import Log
from millpond.model.errors import MillpondError, NotOwner, UnknownSubscription
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.share_groups import ShareGroupConfig, subscription_name
from millpond.queues.attachment import Acquiring, Attachment
from millpond.queues.deliverer import NOTHING, Acquired
from millpond.queues.dispatcher_results import QueueDelivery
from millpond.queues.partition_queue import PartitionQueue
from millpond.queues.queues import Queues
from millpond.queues.share_acks import AckRange, AckRefusal, refusal, settle
from millpond.queues.share_config import ShareConfigOf


class MemberName(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True)
class ReceivingMember:
    attachments: dict[TopicId, Attachment] = field(default_factory=dict)
    acquiring: dict[TopicId, Acquiring] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is attached to topics."""
    waiting: set[asyncio.Event] = field(default_factory=set)
    """Set when messages may have become available."""
    is_released: bool = False

    def on_available(self) -> None:
        for event in self.waiting:
            event.set()

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue | None:
        topic_id, number = topic_partition
        attachment = self.attachments.get(topic_id)
        queue = None if attachment is None else attachment.queues.get(number)
        return queue if queue is not None and queue.closed is None else None


class ShareConsumers:
    def __init__(self, queues: Queues, log: Log, share_config_of: ShareConfigOf) -> None:
        self._queues = queues
        self._log = log
        self._share_config_of = share_config_of
        self._members: dict[MemberName, ReceivingMember] = {}

    def config(self, group_id: str) -> ShareGroupConfig:
        return self._share_config_of(group_id)

    # -- members ----------------------------------------------------------------------------------------------

    async def attach(
        self, name: MemberName, topic_partitions: Iterable[TopicPartition]
    ) -> Collection[TopicId]:
        """Attach a member to these partitions. Returns the topics in which its group has no subscription."""
        member = self._members.setdefault(name, ReceivingMember())
        wanted: defaultdict[TopicId, set[int]] = defaultdict(set)
        for topic_id, number in topic_partitions:
            wanted[topic_id].add(number)
        if all(self._is_attached(member, topic_id, numbers) for topic_id, numbers in wanted.items()):
            return ()
        without = []
        async with member.lock:
            for topic_id, numbers in wanted.items():
                try:
                    await self._attach(name, member, topic_id, numbers)
                except UnknownSubscription:
                    without.append(topic_id)
        return without

    def pause(self, name: MemberName, topic_partitions: Iterable[TopicPartition]) -> None:
        """The member asks for no more messages of these partitions. It keeps their locks, but no keys; it is not
        attached again if their queues restart, which ends the locks."""
        member = self._members.get(name)
        if member is None:
            return
        for topic_id, number in topic_partitions:
            if (acquiring := member.acquiring.get(topic_id)) is not None:
                acquiring.partitions.discard(number)
        self._pause(name, topic_partitions, paused=True)

    def begin_session(self, name: MemberName, topic_partitions: Collection[TopicPartition]) -> None:
        """The member has a new session, of these partitions: pause the others, and wake requests of the former one."""
        member = self._members.get(name)
        if member is not None:
            attached = [
                TopicPartition(topic_id, number)
                for topic_id, acquiring in member.acquiring.items()
                for number in acquiring.partitions
            ]
            self.pause(name, set(attached).difference(topic_partitions))
            member.on_available()

    def resume(self, name: MemberName, topic_partitions: Iterable[TopicPartition]) -> None:
        """The member asks for messages of these partitions again."""
        self._pause(name, topic_partitions, paused=False)

    def release(self, name: MemberName) -> None:
        """Release the locks of a member that is gone. Each of its deliveries counts."""
        member = self._members.pop(name, None)
        if member is not None:
            member.is_released = True
            for attachment in member.attachments.values():
                self._queues.detach(attachment, graceful=False)
            member.on_available()

    # -- messages ---------------------------------------------------------------------------------------------

    def acquire(
        self, name: MemberName, topic_partition: TopicPartition, messages_max: int, bytes_max: int
    ) -> Acquired:
        """Lock messages for a member."""
        queue = self._queue(name, topic_partition)
        return NOTHING if queue is None else queue.deliverer.acquire(name.member_id, messages_max, bytes_max)

    def epoch(self, name: MemberName, topic_partition: TopicPartition) -> int | None:
        """That of the partition's queue. Deliveries of an earlier epoch have ended, though their tokens may recur."""
        queue = self._queue(name, topic_partition)
        return None if queue is None else queue.dispatcher.epoch

    def still_held(
        self,
        name: MemberName,
        topic_partition: TopicPartition,
        epoch: int | None,
        deliveries: Iterable[QueueDelivery],
    ) -> list[QueueDelivery]:
        """Those of these deliveries, made in that epoch, whose locks have not ended since."""
        queue = self._queue(name, topic_partition)
        if queue is None or queue.dispatcher.epoch != epoch:
            return []
        return [each for each in deliveries if queue.dispatcher.is_leased(each)]

    def restore(
        self, name: MemberName, topic_partition: TopicPartition, deliveries: Sequence[QueueDelivery]
    ) -> None:
        """Undo deliveries that did not reach the member. They do not count."""
        queue = self._queue(name, topic_partition)
        if queue is not None:
            for delivery in reversed(deliveries):
                queue.dispatcher.restore(delivery)
            member = queue.dispatcher.consumers.by_name.get(name.member_id)
            if member is not None:
                member.consumer_credit.clear()
            queue.wake()

    def acknowledge(
        self, name: MemberName, topic_partition: TopicPartition, ranges: Sequence[AckRange]
    ) -> "AckRefusal | asyncio.Future[None]":
        """Apply well-formed acknowledgements, all or none. The future is done when they are durable; it fails if the
        partition has moved before."""
        queue = self._queue(name, topic_partition)
        if queue is None:
            return AckRefusal.NOT_ACQUIRED
        allowed = self._share_config_of(name.group_id).renew_allowed
        end = self._log.partition(topic_partition).end_offset
        refused = refusal(queue.dispatcher, name.member_id, ranges, end_offset=end, renew_allowed=allowed)
        if refused is not None:
            return refused
        settle(queue.dispatcher, name.member_id, ranges, self._queues.now())
        saved = queue.saves.when_saved()
        queue.wake()
        return saved

    @contextlib.contextmanager
    def waiting(
        self, name: MemberName, topic_partitions: Collection[TopicPartition]
    ) -> Iterator[asyncio.Event]:
        """An event that is set when messages may have become available to a member after `acquire` found none."""
        event, member = asyncio.Event(), self._members.get(name)
        if member is not None:
            member.waiting.add(event)
        try:
            yield event
        finally:
            if member is not None:
                member.waiting.discard(event)
                for each in topic_partitions if not member.waiting else ():
                    if (queue := member.queue(each)) is not None:
                        queue.deliverer.stop_waiting(name.member_id)

    # -- internals --------------------------------------------------------------------------------------------

    def _queue(self, name: MemberName, topic_partition: TopicPartition) -> PartitionQueue | None:
        member = self._members.get(name)
        return None if member is None else member.queue(topic_partition)

    def _is_attached(self, member: ReceivingMember, topic_id: TopicId, numbers: Collection[int]) -> bool:
        attachment = member.attachments.get(topic_id)
        if attachment is None or attachment.ended is not None:
            return False
        return member.acquiring[topic_id].partitions.issuperset(numbers)

    async def _attach(
        self, name: MemberName, member: ReceivingMember, topic_id: TopicId, numbers: Collection[int]
    ) -> None:
        attachment = member.attachments.get(topic_id)
        if attachment is not None and attachment.ended is None:
            member.acquiring[topic_id].partitions.update(numbers)
            self._queues.connect(attachment)
            return
        member.attachments.pop(topic_id, None)
        topic = self._log.topics.with_id(topic_id)
        acquiring = Acquiring(set(numbers), member.on_available)
        attached = await self._queues.attach(
            topic.name, subscription_name(name.group_id), name.member_id, acquiring
        )
        if attached.subscription.share_group != name.group_id or member.is_released:
            self._queues.detach(attached)
            raise UnknownSubscription(topic=topic.name, subscription=attached.subscription.name)
        member.attachments[topic_id] = attached
        member.acquiring[topic_id] = acquiring

    def _pause(self, name: MemberName, topic_partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        for each in topic_partitions:
            queue = self._queue(name, each)
            consumer = None if queue is None else queue.dispatcher.consumers.by_name.get(name.member_id)
            if queue is not None and consumer is not None and consumer.paused is not paused:
                queue.deliverer.pause(name.member_id, paused=paused)
                if paused:
                    queue.deliverer.stop_waiting(name.member_id)


async def all_saved(futures: Sequence["asyncio.Future[None]"]) -> list[MillpondError | None]:
    """Wait for acknowledgements; why each of them failed, or None."""
    results = await asyncio.gather(*futures, return_exceptions=True)
    return [_why(each) for each in results]


def _why(result: BaseException | None) -> MillpondError | None:
    if result is None or isinstance(result, MillpondError):
        return result
    if isinstance(result, asyncio.CancelledError):
        return NotOwner()
    raise result
