"""Metadata (3), v0-13: returns brokers, topics and partition leaders.

Null topics, or an empty list in v0, request all topics. An unknown topic is created if the client allows it
(always before v4) and the broker allows it. From v10 topics have ids; from v12 they can be requested by id. A
topic that is requested twice is returned once.

Topics that the client may not describe are left out of the list of all, and refused when it asks for them, whether or
not they exist. Creating needs CREATE on the cluster or the topic.

`__consumer_offsets` is listed as an internal topic, because tools expect it: it has 50 partitions, no records, and
cannot be written.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.internal_topics import CONSUMER_OFFSETS_TOPIC, all_topics, find_internal
from millpond.frontends.kafka.leaders import Leaders
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC
from millpond.frontends.kafka.throttling import MutationQuota
from millpond.frontends.kafka.turns import Turns
from millpond.model.acls import ResourceType
from millpond.model.errors import MillpondError, NotAuthorized, TopicExists, UnknownTopic
from millpond.model.ids import TopicId, check_topic_name
from millpond.model.topics import Topic
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.metadata import (
    OPERATIONS_UNKNOWN,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BY_ID_SINCE = 12
NO_NODE = -1
NEVER = MetadataRequest.versions.last + 1


@handles(MetadataRequest, rights=(DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC))
async def metadata(call: KafkaCall, request: MetadataRequest) -> MetadataResponse:
    node = call.services.node
    quota = MutationQuota(call, strict_since=NEVER)
    turns = Turns()
    topics = await _topics(call, request, quota, turns)
    if request.include_topic_authorized_operations:
        async for topic in turns.over(topics):
            if topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = call.operations(ResourceType.TOPIC, topic.name or "")
    asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        throttle_time_ms=quota.throttle_time_ms,
        brokers=[
            MetadataResponseBroker(node_id=each.id, host=each.host, port=each.port) for each in call.nodes()
        ],
        cluster_id=call.services.cluster_id,
        controller_id=node.id,
        topics=topics,
        cluster_authorized_operations=call.cluster_operations() if asked else OPERATIONS_UNKNOWN,
    )


async def _topics(
    call: KafkaCall, request: MetadataRequest, quota: MutationQuota, turns: Turns
) -> list[MetadataResponseTopic]:
    if request.topics is None or (call.version == 0 and not request.topics):
        return [
            await _described(call, topic, turns)
            async for topic in turns.over(all_topics(call.log.topics))
            if call.allows(DESCRIBE_TOPIC, topic.name)
        ]
    await call.ensure_known(
        DESCRIBE_TOPIC,
        (each.name or None for each in request.topics),
        (each.topic_id for each in request.topics),
    )
    may_create = (
        quota
        if request.allow_auto_topic_creation and call.services.broker_configs.auto_create_topics
        else None
    )
    asked = {(each.name, bytes(each.topic_id)): each for each in request.topics}
    return [await _asked(call, each, may_create, turns) async for each in turns.over(asked.values())]


async def _asked(
    call: KafkaCall, asked: MetadataRequestTopic, may_create: MutationQuota | None, turns: Turns
) -> MetadataResponseTopic:
    if asked.name is None or asked.topic_id != NO_UUID:
        return await _by_id(call, asked, turns)
    try:
        call.require(DESCRIBE_TOPIC, asked.name)
        topic = find_internal(call.log.topics, asked.name)
        topic = topic or await _find_or_create(call, asked.name, may_create)
        return await _described(call, topic, turns)
    except MillpondError as error:
        return MetadataResponseTopic(error_code=code_of(error), name=asked.name, partitions=[])


async def _by_id(call: KafkaCall, asked: MetadataRequestTopic, turns: Turns) -> MetadataResponseTopic:
    if asked.topic_id == NO_UUID or call.version < BY_ID_SINCE:
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST,
            name=asked.name or "",
            topic_id=asked.topic_id,
            partitions=[],
        )
    try:
        if (internal := find_internal(call.log.topics, None, asked.topic_id)) is not None:
            call.require(DESCRIBE_TOPIC, internal.name)
            return await _described(call, internal, turns)
        call.require_topic(DESCRIBE_TOPIC, "", asked.topic_id, by_id=True)
        return await _described(call, call.log.topics.with_id(TopicId(asked.topic_id)), turns)
    except (UnknownTopic, NotAuthorized) as error:
        is_unknown = isinstance(error, UnknownTopic)
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown else code_of(error)
        return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id, partitions=[])


async def _find_or_create(call: KafkaCall, name: str, may_create: MutationQuota | None) -> Topic:
    """`may_create` is the quota that counts the partitions of a new topic; None if none is created."""
    try:
        return call.log.topics.named(name)
    except UnknownTopic:
        check_topic_name(name)
        if may_create is None:
            raise
    if not call.allows(CREATE_CLUSTER):
        call.require(CREATE_TOPIC, name)
    try:
        call.log.topics.check_new(name)
        may_create.charge(call.services.broker_configs.default_partitions)
        return await call.services.topic_changes.create(
            call.access, name, call.services.broker_configs.default_partitions
        )
    except TopicExists:  # another request created it first, perhaps in another process
        await call.log.refresh()
        return call.log.topics.named(name)


async def _described(call: KafkaCall, topic: Topic, turns: Turns) -> MetadataResponseTopic:
    leaders = Leaders(call)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic is CONSUMER_OFFSETS_TOPIC,
        partitions=[
            _partition(call, leaders, topic, number) async for number in turns.over(range(topic.partitions))
        ],
    )


def _partition(call: KafkaCall, leaders: Leaders, topic: Topic, number: int) -> MetadataResponsePartition:
    leader = leaders.of_topic(topic, number)
    if leader is None:
        return MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=NO_NODE,
            replica_nodes=[call.services.node.id],
            isr_nodes=[],
        )
    return MetadataResponsePartition(
        partition_index=number,
        leader_id=leader.node_id,
        leader_epoch=leader.epoch,
        replica_nodes=[leader.node_id],
        isr_nodes=[leader.node_id],
    )
