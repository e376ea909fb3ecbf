"""DeleteTopics (20), v1-6: deletes topics by name, from v6 also by id. The name of a deleted topic can be
used again immediately. Beyond the quota of its client, a request of v5 or later gets error 89."""

from collections import Counter
from collections.abc import Iterator

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, code_and_message, code_of
from millpond.frontends.kafka.internal_topics import check_not_internal
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DELETE_TOPIC
from millpond.frontends.kafka.throttling import MutationQuota
from millpond.model.errors import InvalidRequest, NotAuthorized, UnknownTopic
from millpond.model.ids import TopicId
from millpond.model.topics import Topic
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

STATES_SINCE = 6
STRICT_QUOTA_SINCE = 5

TopicKey = tuple[str | None, bytes]


@handles(DeleteTopicsRequest, rights=(DELETE_TOPIC,))
async def delete_topics(call: KafkaCall, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted = list(_asked(call, request))
    await call.ensure_known(DELETE_TOPIC, (name for name, _ in wanted), (topic_id for _, topic_id in wanted))
    asked = [_one_key(call, name, topic_id) for name, topic_id in wanted]
    times = Counter(asked)
    quota = MutationQuota(call, strict_since=STRICT_QUOTA_SINCE)
    results = [await _one(call, name, topic_id, times[name, topic_id], quota) for name, topic_id in times]
    return DeleteTopicsResponse(throttle_time_ms=quota.throttle_time_ms, responses=results)


def _one_key(call: KafkaCall, name: str | None, topic_id: bytes) -> TopicKey:
    """Normalizes the key, so that a topic given once by name and once by id counts as a duplicate. A client without
    the right does not learn the name that belongs to an id."""
    if name is not None or topic_id == NO_UUID or not call.log.topics.knows_id(TopicId(topic_id)):
        return name, topic_id
    known = call.log.topics.with_id(TopicId(topic_id)).name
    return (known, NO_UUID) if call.allows(DELETE_TOPIC, known) else (name, topic_id)


def _asked(call: KafkaCall, request: DeleteTopicsRequest) -> Iterator[TopicKey]:
    if call.version >= STATES_SINCE:
        yield from (_key(state) for state in request.topics)
    else:
        yield from ((name, NO_UUID) for name in request.topic_names)


def _key(state: DeleteTopicState) -> TopicKey:
    return state.name, bytes(state.topic_id)


async def _one(
    call: KafkaCall, name: str | None, topic_id: bytes, times: int, quota: MutationQuota
) -> DeletableTopicResult:
    try:
        topic = _found(call, name, topic_id, times)
        quota.charge(topic.partitions)
        await call.services.topic_changes.delete(call.access, topic.name)
    except REFUSALS as error:
        code, message = code_and_message(error)
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
    return DeletableTopicResult(name=topic.name, topic_id=topic.id)


def _found(call: KafkaCall, name: str | None, topic_id: bytes, times: int) -> Topic:
    if name is None and topic_id == NO_UUID:
        raise InvalidRequest(reason="neither a topic's name nor its id is given")
    if name is not None and topic_id != NO_UUID:
        raise InvalidRequest(reason="a topic goes by its name or its id, not by both")
    if times > 1:
        raise InvalidRequest(reason="the topic is named more than once")
    if name is not None:
        call.require(DELETE_TOPIC, name)
        check_not_internal(call.log.topics, name)
        return call.log.topics.named(name)
    try:
        topic = call.log.topics.with_id(TopicId(topic_id))
    except UnknownTopic as error:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, str(error)) from error
    try:
        call.require(DELETE_TOPIC, topic.name)
    except NotAuthorized as error:  # its message has the name
        raise KafkaError(code_of(error), "Access to the topic is denied.") from error
    return topic
