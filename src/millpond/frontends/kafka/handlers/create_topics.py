"""CreateTopics (19), v2-7: creates topics independently: an error for one topic does not affect the others.

-1 partitions means the broker's default. Any replication factor is accepted and 1 is reported: the store
keeps the copies. A manual assignment only determines the number of partitions. `validate_only` checks and
creates nothing. The response contains all configs from v5 and the topic's id from v7. Beyond the quota of
its client, a request of v6 or later gets error 89.

A client needs CREATE on the cluster or the topic, and sees the configs with DESCRIBE_CONFIGS on the topic.
"""

from collections import Counter
from collections.abc import Mapping

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.configs import ConfigEntry, topic_entries
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, code_and_message
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS
from millpond.frontends.kafka.throttling import MutationQuota
from millpond.model.configs import check_configs, completed
from millpond.model.errors import InvalidConfig, InvalidPartitionCount, InvalidRequest
from millpond.model.ids import TopicId
from millpond.model.topics import Topic, check_partition_count
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

DEFAULT = -1
REPLICAS = 1
STRICT_QUOTA_SINCE = 6


@handles(CreateTopicsRequest, rights=(CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS))
async def create_topics(call: KafkaCall, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    quota = None if request.validate_only else MutationQuota(call, strict_since=STRICT_QUOTA_SINCE)
    results = [
        await _one(call, topic, is_repeated=times[name] > 1, quota=quota) for name, topic in asked.items()
    ]
    return CreateTopicsResponse(
        throttle_time_ms=quota.throttle_time_ms if quota is not None else 0, topics=results
    )


async def _one(
    call: KafkaCall, asked: CreatableTopic, *, is_repeated: bool, quota: MutationQuota | None
) -> CreatableTopicResult:
    """Without a quota the topic is only checked."""
    try:
        if not call.allows(CREATE_CLUSTER):
            call.require(CREATE_TOPIC, asked.name)
        if is_repeated:
            raise InvalidRequest(reason="the topic is named more than once")
        topic = _planned(call, asked)
        if quota is not None:
            quota.charge(topic.partitions)
            topic = await call.services.topic_changes.create(
                call.access, topic.name, topic.partitions, topic.overrides
            )
    except REFUSALS as error:
        code, message = code_and_message(error)
        return CreatableTopicResult(name=asked.name, error_code=code, error_message=message, configs=None)
    if not call.allows(DESCRIBE_TOPIC_CONFIGS, topic.name):
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(name=topic.name, topic_id=topic.id, topic_config_error_code=hidden)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        num_partitions=topic.partitions,
        replication_factor=REPLICAS,
        configs=[_config(entry) for entry in topic_entries(topic, call.services.broker_configs)],
    )


def _planned(call: KafkaCall, asked: CreatableTopic) -> Topic:
    """The topic to create, after all checks that are possible without creating it."""
    call.log.topics.check_new(asked.name)
    partitions = _partitions(asked, call.services.broker_configs.default_partitions)
    return Topic(
        id=TopicId(NO_UUID),
        name=asked.name,
        partitions=check_partition_count(partitions),
        created_at=call.services.clock.now_ms(),
        overrides=_overrides(asked),
        broker_defaults=call.log.topics.broker_defaults,
    )


def _partitions(asked: CreatableTopic, default: int) -> int:
    if asked.assignments:
        if (asked.num_partitions, asked.replication_factor) != (DEFAULT, DEFAULT):
            reason = "with a manual assignment partitions and replication factor must be -1"
            raise InvalidRequest(reason=reason)
        return _assigned(asked.assignments)
    if asked.replication_factor < DEFAULT or asked.replication_factor == 0:
        message = "The replication factor must be positive, or -1 for the default."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if asked.num_partitions < DEFAULT:
        raise InvalidPartitionCount(partitions=asked.num_partitions, reason="only -1 asks for the default")
    return default if asked.num_partitions == DEFAULT else asked.num_partitions


def _assigned(assignments: list[CreatableReplicaAssignment]) -> int:
    numbers = sorted(each.partition_index for each in assignments)
    if numbers != list(range(len(numbers))):
        message = "The assigned partitions must be numbered from 0 without gaps or repeats."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if not all(each.broker_ids for each in assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned to no broker.")
    return len(numbers)


def _overrides(asked: CreatableTopic) -> Mapping[str, str]:
    overrides = {}
    for config in asked.configs:
        if config.value is None:
            raise InvalidConfig(key=config.name, value=None, reason="there must be a value")
        overrides[config.name] = config.value
    check_configs(overrides)
    return completed(overrides)


def _config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
    )
