"""Subscriptions of a topic: create, list, describe, alter, delete, reset; dead letters and blocked messages."""

from msgspec import UNSET, structs

from millpond.catalog import subscriptions as catalog
from millpond.frontends.web.handlers.topics import TopicPath
from millpond.frontends.web.operations import NO_BODY, HttpCall, NoParameters, json_body, operation
from millpond.frontends.web.rights import (
    DESCRIBE_TOPIC,
    READ_SUBSCRIPTION,
    READ_TOPIC,
    SUBSCRIPTION,
    WRITE_DEAD_LETTERS,
    WRITE_TOPIC,
)
from millpond.frontends.web.schemas import (
    FailingMessageJson,
    NewSubscriptionConfigJson,
    NewSubscriptionJson,
    RedrivenJson,
    RedriveOrderJson,
    RequestStruct,
    StartPlaceJson,
    SubscriptionChangesJson,
    SubscriptionConfigJson,
    SubscriptionConsumerJson,
    SubscriptionDetailsJson,
    SubscriptionJson,
    SubscriptionKeyJson,
    SubscriptionPartitionJson,
    SubscriptionResetJson,
    SubscriptionsJson,
    UnblockedJson,
)
from millpond.model.acls import AclOperation, ResourceType
from millpond.queues import PartitionStatus, StartAt, SubscriptionStart
from millpond.queues.dispatcher_state import NEVER
from millpond.security.requirements import SEPARATOR, Needs, Shows, needs

KEYS_MAX = 100
FAILING_MAX = 100


class SubscriptionPath(RequestStruct, frozen=True):
    topic: str
    subscription: str


@operation(
    "POST",
    "/topics/{topic}/subscriptions",
    rights=needs(
        READ_TOPIC,
        Needs(AclOperation.READ, ResourceType.GROUP, of=("path.topic", "body.name")),
        WRITE_DEAD_LETTERS,
    ),
    parameters=TopicPath,
    query=NoParameters,
    body=json_body(NewSubscriptionJson),
    returns={200: SubscriptionJson},
    error_statuses=(404, 409),
)
async def create_subscription(
    call: HttpCall[TopicPath, NoParameters, NewSubscriptionJson],
) -> SubscriptionJson:
    """Create a subscription on a topic. It starts at the earliest message unless `start` is set."""
    new, topic = call.body, call.path.topic
    queues = call.site.services.queues
    made = await queues.create(topic, new.name, _given(new.config), _start(new.start))
    return _subscription(topic, made)


@operation(
    "GET",
    "/topics/{topic}/subscriptions",
    rights=needs(DESCRIBE_TOPIC, Shows(AclOperation.DESCRIBE, ResourceType.GROUP)),
    parameters=TopicPath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: SubscriptionsJson},
    error_statuses=(404,),
)
async def list_subscriptions(call: HttpCall[TopicPath, NoParameters, None]) -> SubscriptionsJson:
    """List the subscriptions of a topic that the client may describe, by name."""
    topic = call.path.topic
    found = await call.site.services.queues.all_of(topic)
    return SubscriptionsJson(
        [
            _subscription(topic, each)
            for each in found
            if call.access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, f"{topic}{SEPARATOR}{each.name}")
        ]
    )


@operation(
    "GET",
    "/topics/{topic}/subscriptions/{subscription}",
    rights=needs(Needs(AclOperation.DESCRIBE, ResourceType.GROUP, of=SUBSCRIPTION), DESCRIBE_TOPIC),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: SubscriptionDetailsJson},
    error_statuses=(404,),
)
async def describe_subscription(
    call: HttpCall[SubscriptionPath, NoParameters, None],
) -> SubscriptionDetailsJson:
    """Describe a subscription: its config, what is settled and in flight in each partition, its consumers, which keys
    are blocked and why, and which messages have failed and why."""
    path = call.path
    found = await call.site.services.queues.describe(path.topic, path.subscription, KEYS_MAX, FAILING_MAX)
    shown = _subscription(found.topic, found.subscription)
    return SubscriptionDetailsJson(
        topic=shown.topic,
        name=shown.name,
        created_at_ms=shown.created_at_ms,
        config=shown.config,
        partitions=[_partition(each) for each in found.partitions],
        consumers=[
            SubscriptionConsumerJson(
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
    rights=needs(Needs(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, of=SUBSCRIPTION), WRITE_DEAD_LETTERS),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=json_body(SubscriptionChangesJson),
    returns={200: SubscriptionJson},
    error_statuses=(404, 409),
)
async def alter_subscription(
    call: HttpCall[SubscriptionPath, NoParameters, SubscriptionChangesJson],
) -> SubscriptionJson:
    """Change the given configs. Consumers stay attached. The mode cannot be changed."""
    path = call.path
    altered = await call.site.services.queues.alter(path.topic, path.subscription, _given(call.body.config))
    return _subscription(path.topic, altered)


@operation(
    "DELETE",
    "/topics/{topic}/subscriptions/{subscription}",
    rights=needs(Needs(AclOperation.DELETE, ResourceType.GROUP, of=SUBSCRIPTION)),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=NO_BODY,
    returns={204: None},
    error_statuses=(404,),
)
async def delete_subscription(call: HttpCall[SubscriptionPath, NoParameters, None]) -> None:
    """Delete a subscription and its progress. Its consumers are detached; messages and dead letters are kept."""
    await call.site.services.queues.delete(call.path.topic, call.path.subscription)


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/reset",
    rights=needs(READ_SUBSCRIPTION, READ_TOPIC),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=json_body(SubscriptionResetJson),
    returns={204: None},
    error_statuses=(404, 409),
)
async def reset_subscription(call: HttpCall[SubscriptionPath, NoParameters, SubscriptionResetJson]) -> None:
    """Move a subscription to another position. Deliveries in flight and retry counts are dropped; consumers stay
    attached and continue from the new position."""
    path, start = call.path, _start(call.body.start)
    await call.site.services.queues.reset(path.topic, path.subscription, start)


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/redrive",
    rights=needs(READ_SUBSCRIPTION, READ_TOPIC, WRITE_TOPIC),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=json_body(RedriveOrderJson),
    returns={200: RedrivenJson},
    error_statuses=(404, 409),
)
async def redrive_dead_letters(
    call: HttpCall[SubscriptionPath, NoParameters, RedriveOrderJson],
) -> RedrivenJson:
    """Send dead letters back to their topic, each of them once, for this subscription only."""
    path, most = call.path, call.body.messages_max
    queues = call.site.services.queues
    return RedrivenJson(await queues.redrive(path.topic, path.subscription, 0 if most is UNSET else most))


@operation(
    "POST",
    "/topics/{topic}/subscriptions/{subscription}/unblock",
    rights=needs(READ_SUBSCRIPTION, READ_TOPIC),
    parameters=SubscriptionPath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: UnblockedJson},
    error_statuses=(404,),
)
async def unblock_subscription(call: HttpCall[SubscriptionPath, NoParameters, None]) -> UnblockedJson:
    """Retry messages that are blocked after their last attempt, with a retry count of 0."""
    return UnblockedJson(await call.site.services.queues.unblock(call.path.topic, call.path.subscription))


def _given(config: NewSubscriptionConfigJson) -> dict[str, str | int]:
    return {name: value for name, value in structs.asdict(config).items() if value is not UNSET}


def _start(start: StartPlaceJson) -> SubscriptionStart:
    return SubscriptionStart(StartAt(start.at), start.value)


def _subscription(topic: str, found: catalog.StoredSubscription) -> SubscriptionJson:
    config = SubscriptionConfigJson(**found.config.to_json())
    return SubscriptionJson(topic, found.name, found.created_at, config)


def _partition(found: PartitionStatus) -> SubscriptionPartitionJson:
    return SubscriptionPartitionJson(
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
            SubscriptionKeyJson(
                key_hash=f"{each.key:016x}",
                offset=each.offset,
                waiting=each.waiting,
                why=each.why,
                consumer=each.consumer,
                until_ms=0 if each.until >= NEVER else each.until,
            )
            for each in found.keys
        ],
        failing=[
            FailingMessageJson(each.offset, each.attempts, list(each.reasons), each.why, each.until)
            for each in found.failing
        ],
    )
