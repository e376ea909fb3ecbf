"""Subscriptions as administrators see them, on an event loop: part of `AsyncAdmin`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from millpond.client import arguments
from millpond.client.calls import ADMIN, QUEUE, Connections
from millpond.model.errors import SubscriptionDiffers
from millpond.model.subscriptions import differences
from millpond.stubs import admin_pb2
from millpond.stubs import queue_pb2 as pb

NewSubscriptionStart = Literal["earliest", "latest"] | int | datetime
"""Where a subscription begins: at the oldest message, at the next new message, at a message number (in every
partition), or at the first message of a time."""
Configs = Mapping[str, object]
"""By name, as in docs/reference/subscriptions.md. Durations may be written `30s`."""
START_CODES: Final = {arguments.EARLIEST: pb.Start.EARLIEST, arguments.LATEST: pb.Start.LATEST}


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription and its settings."""

    topic: str
    name: str
    config: Mapping[str, str]
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    """A key that makes no progress, and why: its first message, how many messages wait, the consumer
    concerned, and until when."""

    key_hash: str
    number: int
    waiting: int
    why: str
    consumer: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class SubscriptionFailure:
    """A message that has failed and is not settled: why its last deliveries failed (the oldest first), and what it
    waits for: ready, leased, delayed (until `until_ms`), blocked or settling."""

    number: int
    attempts: int
    reasons: list[str]
    why: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class SubscriptionPartition:
    """Every message below `floor` is settled; `next` is the number that the next message will get. `leased`,
    `delayed` and `tracked` are known only if the partition is active (`at_work`)."""

    partition: int
    member: str
    floor: int
    next: int
    backlog: int
    at_work: bool
    leased: int
    delayed: int
    tracked: int
    oldest_age_ms: int
    """The age of the first message that is not settled, if the partition is active."""
    keys: list[SubscriptionKey]
    failing: list[SubscriptionFailure]
    """The first failing messages; as last stored if the partition is not active."""


@dataclass(frozen=True, slots=True)
class SubscriptionConsumer:
    """A consumer that is attached to a subscription: how many messages it may receive, holds and has acknowledged."""

    name: str
    credit: int
    leased: int
    queued: int
    acked: int
    paused: bool
    suspended: bool
    weight: float


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A subscription with its partitions, its consumers and its dead letters."""

    subscription: Subscription
    partitions: list[SubscriptionPartition]
    consumers: list[SubscriptionConsumer]
    dead_letter_topic: str
    dead_letters_waiting: int

    @property
    def backlog(self) -> int:
        """Messages that are not settled, over all partitions."""
        return sum(each.backlog for each in self.partitions)


class SubscriptionCalls:
    """A broker acts on a create, delete, reset or redrive request at most once, as `AsyncAdmin` says."""

    _connections: Connections

    async def create_subscription(
        self,
        topic: str,
        name: str,
        config: Configs | None = None,
        *,
        read_from: NewSubscriptionStart | None = None,
        offset: int | None = None,
    ) -> Subscription:
        """The topic must exist. The subscription begins at `read_from` (a message number, "earliest", which is the
        default, "latest", or a datetime) or at `offset`, which counts from 0, in every partition."""
        start = arguments.simple_start(read_from, offset)
        request = pb.CreateSubscriptionRequest(
            **_named(topic, name), config=config_texts("config", config), start=_start(start)
        )
        return _subscription(
            await self._connections.call_at_most_once(QUEUE, "CreateSubscription", request, pb.Subscription)
        )

    async def alter_subscription(self, topic: str, name: str, config: Configs) -> Subscription:
        """Change settings of a subscription. Settings that are not named stay unchanged."""
        request = pb.AlterSubscriptionRequest(**_named(topic, name), config=config_texts("config", config))
        return _subscription(
            await self._connections.call(QUEUE, "AlterSubscription", request, pb.Subscription)
        )

    async def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription and its state. The topic's messages stay."""
        request = pb.DeleteSubscriptionRequest(**_named(topic, name))
        await self._connections.call_at_most_once(
            QUEUE, "DeleteSubscription", request, pb.DeleteSubscriptionResponse
        )

    async def list_subscriptions(self, topic: str | None = None) -> list[Subscription]:
        """The subscriptions of one topic, or of all."""
        request = pb.ListSubscriptionsRequest(topic=arguments.optional(arguments.label, "topic", topic) or "")
        found = await self._connections.call(
            QUEUE, "ListSubscriptions", request, pb.ListSubscriptionsResponse
        )
        return [_subscription(each) for each in found.subscriptions]

    async def describe_subscription(
        self, topic: str, name: str, *, keys_max: int = 10, failing_max: int = 10
    ) -> SubscriptionState:
        """The state of a subscription, with the reasons why keys make no progress and why messages failed: of each
        partition at most `keys_max` keys and `failing_max` messages. Asks every broker that owns partitions of the
        topic."""
        keys_max = arguments.integer("keys_max", keys_max, 0, arguments.UINT32_MAX)
        failing_max = arguments.integer("failing_max", failing_max, 0, arguments.UINT32_MAX)
        request = pb.DescribeSubscriptionRequest(
            **_named(topic, name), keys_max=keys_max, failing_max=failing_max
        )
        responses = [
            await self._connections.call(
                QUEUE, "DescribeSubscription", request, pb.SubscriptionState, address=owner
            )
            for owner in await self._owners_of(topic)
        ]
        return _joined([_state(each) for each in responses])

    async def reset_subscription(
        self,
        topic: str,
        name: str,
        read_from: NewSubscriptionStart | None = None,
        *,
        offset: int | None = None,
    ) -> None:
        """Start again at another position, which is given as for a new subscription. Consumers stay attached, and
        continue from there."""
        named = _named(topic, name)
        arguments.required_start(read_from, offset)
        start = arguments.simple_start(read_from, offset)
        request = pb.ResetSubscriptionRequest(**named, start=_start(start))
        await self._connections.call_at_most_once(
            QUEUE, "ResetSubscription", request, pb.ResetSubscriptionResponse
        )

    async def redrive(self, topic: str, name: str, *, messages_max: int = 0) -> int:
        """Send dead letters back to this subscription: at most `messages_max`, or all of them if it is 0.
        Returns how many were sent back."""
        messages_max = arguments.integer("messages_max", messages_max, 0, arguments.UINT32_MAX)
        request = pb.RedriveDeadLettersRequest(**_named(topic, name), messages_max=messages_max)
        response = await self._connections.call_at_most_once(
            QUEUE, "RedriveDeadLetters", request, pb.RedriveDeadLettersResponse
        )
        return response.redriven

    async def unblock(self, topic: str, name: str) -> int:
        """Deliver messages again that were blocked after their last attempt. Returns how many there were."""
        request = pb.UnblockRequest(**_named(topic, name))
        responses = [
            await self._connections.call(QUEUE, "Unblock", request, pb.UnblockResponse, address=owner)
            for owner in await self._owners_of(topic)
        ]
        return sum(each.unblocked for each in responses)

    async def _owners_of(self, topic: str) -> list[str]:
        described = admin_pb2.DescribeTopicRequest(name=topic)
        found = await self._connections.call(ADMIN, "DescribeTopic", described, admin_pb2.TopicDescription)
        return sorted({each.owner or self._connections.address for each in found.partitions})


def config_texts(argument: str, config: Configs | None) -> dict[str, str]:
    given = {} if config is None else config
    arguments.configs(argument, given, (str, int))
    return {name: str(value) for name, value in given.items()}


def check_same(topic: str, name: str, wanted: Mapping[str, str], existing: Mapping[str, str]) -> None:
    """Raises `SubscriptionDiffers` if a setting in `wanted` has another value in the existing subscription."""
    found = differences(wanted, existing)
    if found:
        shown = [
            f"{key} (wanted {_shown(each[0])}, existing {_shown(each[1])})" for key, each in found.items()
        ]
        raise SubscriptionDiffers(topic=topic, subscription=name, difference=", ".join(shown))


def _shown(value: object) -> str:
    return str(value) or "''"


def _named(topic: str, name: str) -> dict[str, str]:
    return {"topic": arguments.label("topic", topic), "name": arguments.label("name", name)}


def _start(start: NewSubscriptionStart) -> pb.Start:
    if isinstance(start, datetime):
        return pb.Start(at=pb.Start.TIME, value=int(start.timestamp() * 1000))
    if isinstance(start, str):
        return pb.Start(at=START_CODES[start])
    return pb.Start(at=pb.Start.NUMBER, value=start)


def _subscription(found: pb.Subscription) -> Subscription:
    return Subscription(found.topic, found.name, dict(found.config), found.created_at_ms)


def _state(found: pb.SubscriptionState) -> SubscriptionState:
    return SubscriptionState(
        _subscription(found.subscription),
        [_partition(each) for each in found.partitions],
        [
            SubscriptionConsumer(
                *(each.name, each.credit, each.leased, each.queued, each.acked),
                *(each.paused, each.suspended, each.weight),
            )
            for each in found.consumers
        ],
        found.dead_letter_topic,
        found.dead_letters_waiting,
    )


def _joined(responses: list[SubscriptionState]) -> SubscriptionState:
    """Merges the responses of several brokers about one subscription. For a partition, the broker where it is
    active knows most."""
    if len(responses) == 1:
        return responses[0]
    partitions: dict[tuple[int, str], SubscriptionPartition] = {}
    consumers: dict[str, SubscriptionConsumer] = {}
    for response in responses:
        for partition in response.partitions:
            key = (partition.partition, partition.member)
            if key not in partitions or partition.at_work:
                partitions[key] = partition
        for consumer in response.consumers:
            known = consumers.get(consumer.name)
            consumers[consumer.name] = consumer if known is None else _both(known, consumer)
    return replace(
        responses[-1],
        partitions=[partitions[key] for key in sorted(partitions, key=lambda key: key[::-1])],
        consumers=[consumers[name] for name in sorted(consumers)],
    )


def _both(one: SubscriptionConsumer, other: SubscriptionConsumer) -> SubscriptionConsumer:
    return SubscriptionConsumer(
        one.name,
        one.credit + other.credit,
        one.leased + other.leased,
        one.queued + other.queued,
        one.acked + other.acked,
        one.paused and other.paused,
        one.suspended or other.suspended,
        min(one.weight, other.weight),
    )


def _partition(each: pb.PartitionState) -> SubscriptionPartition:
    return SubscriptionPartition(
        *(each.partition, each.member, each.floor, each.next, each.backlog),
        *(each.at_work, each.leased, each.delayed, each.tracked, each.oldest_unsettled_age_ms),
        [
            SubscriptionKey(key.key_hash, key.number, key.waiting, key.why, key.consumer, key.until_ms)
            for key in each.keys
        ],
        [
            SubscriptionFailure(
                message.number, message.attempts, list(message.reasons), message.why, message.until_ms
            )
            for message in each.failing
        ],
    )
