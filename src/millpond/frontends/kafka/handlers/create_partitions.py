"""CreatePartitions (37), v0-3: adds partitions to topics. `count` is the new total and must be higher than
the current one.

Every topic gets a row in the response. A manual assignment must have one entry for each added partition and
is otherwise ignored. `validate_only` checks and adds nothing. Beyond the quota of its client, a request of v3 gets
error 89.
"""

from collections import Counter

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, code_and_message
from millpond.frontends.kafka.internal_topics import check_not_internal
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import ALTER_TOPIC
from millpond.frontends.kafka.throttling import MutationQuota
from millpond.model.errors import InvalidPartitionCount, InvalidRequest
from millpond.model.topics import check_partition_count
from millpond.protocol import ErrorCode
from millpond.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA_SINCE = 3


@handles(CreatePartitionsRequest, rights=(ALTER_TOPIC,))
async def create_partitions(call: KafkaCall, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    await call.ensure_known(ALTER_TOPIC, (topic.name for topic in request.topics))
    times = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    quota = None if request.validate_only else MutationQuota(call, strict_since=STRICT_QUOTA_SINCE)
    results = [
        await _one(call, topic, is_repeated=times[name] > 1, quota=quota) for name, topic in asked.items()
    ]
    return CreatePartitionsResponse(
        throttle_time_ms=quota.throttle_time_ms if quota is not None else 0, results=results
    )


async def _one(
    call: KafkaCall, asked: CreatePartitionsTopic, *, is_repeated: bool, quota: MutationQuota | None
) -> CreatePartitionsTopicResult:
    """Without a quota the request is only checked."""
    try:
        call.require(ALTER_TOPIC, asked.name)
        if is_repeated:
            raise InvalidRequest(reason="the topic is named more than once")
        check_not_internal(call.log.topics, asked.name)
        present = call.log.topics.named(asked.name).partitions
        _check(asked, present)
        if quota is not None:
            quota.charge(asked.count - present)
            await call.services.topic_changes.add_partitions(call.access, asked.name, asked.count)
    except REFUSALS as error:
        code, message = code_and_message(error)
        return CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=message)
    return CreatePartitionsTopicResult(name=asked.name)


def _check(asked: CreatePartitionsTopic, present: int) -> None:
    if asked.count <= present:
        reason = f"it has {present}, and partitions can only be added"
        raise InvalidPartitionCount(partitions=asked.count, reason=reason)
    check_partition_count(asked.count)
    if asked.assignments is not None and len(asked.assignments) != asked.count - present:
        message = f"{asked.count - present} partitions are added, and {len(asked.assignments)} are assigned."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if any(not assigned.broker_ids for assigned in asked.assignments or ()):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned to no broker.")
