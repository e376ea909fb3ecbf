"""Subscriptions of a topic: create, list, describe, alter, delete, reset; dead letters and blocked messages."""

from msgspec import UNSET, structs

from millpond.catalog import subscriptions as catalog
from millpond.frontends.web.handlers.topics import TopicPath
from millpond.frontends.web.operations import NO_BODY, Call, Nothing, json_body, operation
from millpond.frontends.web.schemas import (
    Given,
    NewSubscription,
    NewSubscriptionConfig,
    Redriven,
    RedriveOrder,
    StartPlace,
    Subscription,
    SubscriptionChanges,
    SubscriptionConfig,
    SubscriptionConsumer,
    SubscriptionDetails,
    SubscriptionKey,
    SubscriptionPartition,
    SubscriptionReset,
    Subscriptions,
    Unblocked,
)
from millpond.queues import PartitionStanding, Start, StartAt
from millpond.queues.tracked import FAR

KEYS_MAX = 100


class SubscriptionPath(Given, frozen=True):
    topic: str
    subscription: str


@operation(
    "POST",
    "/topics/{topic}/subscriptions",
    parameters=TopicPath,
    query=Nothing,
    body=json_body(NewSubscription),
    gives={200: Subscription},
    refuses=(404, 409),
)
async def create_subscription(call: Call[TopicPath, Nothing, NewSubscription]) -> Subscription:
    """Create a subscription on a topic. It starts at the earliest message unless `start` is set."""
    new, topic = call.body, call.path.topic
    queues = call.site.services.queues
    made = await queues.create(topic, new.name, _given(new.config), _start(new.start))
    return _subscription(topic, made)


@operation(
    "GET",
    "/topics/{topic}/subscriptions",
    parameters=TopicPath,
    query=Nothing,
    body=NO_BODY,
    gives={200: Subscriptions},
    refuses=(404,),
)
async def list_subscriptions(call: Call[TopicPath, Nothing, None]) -> Subscriptions:
    """List the subscriptions of a topic, by name."""
    found = await call.site.services.queues.all_of(call.path.topic)
    return Subscriptions([_subscription(call.path.topic, each) for each in found])


@operation(
    "GET",
    "/topics/{topic}/subscriptions/{subscription}",
    parameters=SubscriptionPath,
    query=Nothing,
    body=NO_BODY,
    gives={200: SubscriptionDetails},
    refuses=(404,),
)
async def describe_subscription(call: Call[SubscriptionPath, Nothing, None]) -> SubscriptionDetails:
    """Describe a subscription: its config, what is settled and in flight in each partition, its consumers, and which
    keys are blocked and why."""
    found = await call.site.services.queues.describe(call.path.topic, call.path.subscription, KEYS_MAX)
    shown = _subscription(found.topic, found.subscription)
    return SubscriptionDetails(
        topic=shown.topic,
        name=shown.name,
        created_at_ms=shown.created_at_ms,
        config=shown.config,
        partitions=[_partition(each) for each in found.partitions],
        consumers=[
            SubscriptionConsumer(
                each.name,
                each.credit,
                each.leased,
                each.queued,
                each.acked,
                each.paused,
                each.suspended,
                each.weight,
            )
            for each in found.consumers
        ],
        dead_letter_topic=found.dead_letter_topic,
        dead_letters_waiting=found.dead_letters_waiting,
    )


@operation(
    "PATCH",
    "/topics/{topic}/subscriptions/{subscription}",
    parameters=SubscriptionPath,
    query=Nothing,
    body=json_body(SubscriptionChanges),
    gives={200: Subscription},
    refuses=(404, 409),
)
async def alter_subscription(call: Call[SubscriptionPath, Nothing, SubscriptionChanges]) -> Subscription:
    """Change the given configs. Consumers stay attached. The mode cannot be changed."""
    path = call.path
    altered = await call.site.services.queues.alter(path.topic, path.subscription, _given(call.body.config))
    return _subscription(path.topic, altered)


@operation(
    "DELETE",
    "/topics/{topic}/subscriptions/{subscription}",
    parameters=SubscriptionPath,
    query=Nothing,
    body=NO_BODY,
    gives={204: None},
    refuses=(404,),
)
async def delete_subscription(call: Call[SubscriptionPath, Nothing, None]) -> None:
    """Delete a subscription and its progress. Its consumers are detached; messages and dead letters are kept."""
    await call.site.services.queues.delete(call.path.topic, call.path.subscription)


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/reset",
    parameters=SubscriptionPath,
    query=Nothing,
    body=json_body(SubscriptionReset),
    gives={204: None},
    refuses=(404, 409),
)
async def reset_subscription(call: Call[SubscriptionPath, Nothing, SubscriptionReset]) -> None:
    """Move a subscription to another position. Deliveries in flight and retry counts are dropped; consumers stay
    attached and continue from the new position."""
    path, start = call.path, _start(call.body.start)
    await call.site.services.queues.reset(path.topic, path.subscription, start)


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/redrive",
    parameters=SubscriptionPath,
    query=Nothing,
    body=json_body(RedriveOrder),
    gives={200: Redriven},
    refuses=(404, 409),
)
async def redrive_dead_letters(call: Call[SubscriptionPath, Nothing, RedriveOrder]) -> Redriven:
    """Send dead letters back to their topic, each of them once, for this subscription only."""
    path, most = call.path, call.body.messages_max
    queues = call.site.services.queues
    return Redriven(await queues.redrive(path.topic, path.subscription, 0 if most is UNSET else most))


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/unblock",
    parameters=SubscriptionPath,
    query=Nothing,
    body=NO_BODY,
    gives={200: Unblocked},
    refuses=(404,),
)
async def unblock_subscription(call: Call[SubscriptionPath, Nothing, None]) -> Unblocked:
    """Retry messages that are blocked after their last attempt, with a retry count of 0."""
    return Unblocked(await call.site.services.queues.unblock(call.path.topic, call.path.subscription))


def _given(config: NewSubscriptionConfig) -> dict[str, str | int]:
    return {name: value for name, value in structs.asdict(config).items() if value is not UNSET}


def _start(place: StartPlace) -> Start:
    return Start(StartAt(place.at), place.value)


def _subscription(topic: str, found: catalog.Subscription) -> Subscription:
    config = SubscriptionConfig(**found.config.to_json())
    return Subscription(topic, found.name, found.created_at, config)


def _partition(found: PartitionStanding) -> SubscriptionPartition:
    return SubscriptionPartition(
        partition=found.partition,
        member=found.member,
        floor=found.floor,
        end_offset=found.end_offset,
        backlog=found.backlog,
        at_work=found.at_work,
        leased=found.leased,
        delayed=found.delayed,
        tracked=found.tracked,
        oldest_age_ms=found.oldest_age_ms,
        keys=[
            SubscriptionKey(
                key_hash=f"{each.key:016x}",
                offset=each.offset,
                waiting=each.waiting,
                why=each.why,
                consumer=each.consumer,
                until_ms=0 if each.until >= FAR else each.until,
            )
            for each in found.keys
        ],
    )
