"""Converts subscriptions and their state to protobuf messages. A message number is an offset plus one."""

from millpond.catalog.subscriptions import StoredSubscription
from millpond.queues import ConsumerStatus, PartitionStatus, SubscriptionStatus
from millpond.queues.dispatcher_results import FailingMessage, KeyStatus
from millpond.queues.dispatcher_state import NEVER
from millpond.stubs import queue_pb2 as pb


def config_text(subscription: StoredSubscription) -> dict[str, str]:
    return {name: str(value) for name, value in subscription.config.to_json().items()}


def subscription_of(topic: str, found: StoredSubscription) -> pb.Subscription:
    return pb.Subscription(
        topic=topic, name=found.name, config=config_text(found), created_at_ms=found.created_at
    )


def subscription_state(found: SubscriptionStatus) -> pb.SubscriptionState:
    return pb.SubscriptionState(
        subscription=subscription_of(found.topic, found.subscription),
        partitions=[_partition(each) for each in found.partitions],
        consumers=[_consumer(each) for each in found.consumers],
        dead_letter_topic=found.dead_letter_topic,
        dead_letters_waiting=found.dead_letters_waiting,
    )


def _partition(each: PartitionStatus) -> pb.PartitionState:
    return pb.PartitionState(
        partition=each.partition,
        member=each.member,
        floor=each.floor + 1,
        next=each.end_offset + 1,
        backlog=each.backlog,
        at_work=each.at_work,
        leased=each.leased,
        delayed=each.delayed,
        tracked=each.tracked,
        oldest_unsettled_age_ms=each.oldest_age_ms,
        keys=[_key(key) for key in each.keys],
        failing=[_failing(message) for message in each.failing],
    )


def _failing(message: FailingMessage) -> pb.FailingMessage:
    return pb.FailingMessage(
        number=message.offset + 1,
        attempts=message.attempts,
        reasons=message.reasons,
        why=message.why,
        until_ms=message.until,
    )


def _key(key: KeyStatus) -> pb.KeyState:
    """A key that waits for an operator has no `until_ms`."""
    return pb.KeyState(
        key_hash=f"{key.key:016x}",
        number=key.offset + 1,
        waiting=key.waiting,
        why=key.why,
        consumer=key.consumer,
        until_ms=key.until if 0 <= key.until < NEVER else 0,
    )


def _consumer(each: ConsumerStatus) -> pb.ConsumerState:
    return pb.ConsumerState(
        name=each.name,
        credit=max(each.credit, 0),
        leased=each.leased,
        queued=each.queued,
        acked=each.acked,
        paused=each.paused,
        suspended=each.suspended,
        weight=each.weight,
    )
