"""OffsetFetch (9), v1-10: returns the committed offsets of groups.

A request has one group up to v7, several from v8. Null topics (v2) request all partitions that have an
offset. A partition without one has offset -1, leader epoch -1 and no metadata; this is not an error, even if
the partition does not exist. A client that requires stable offsets (v7) gets a retriable error while an open
transaction may still change them. An error of the whole group is reported for each partition in v1, once up
to v7, and with its group from v8. From v9 a member of the consumer protocol names its epoch, and gets
STALE_MEMBER_EPOCH if that has passed. Requests use topic ids from v10. Topics that the client may not describe are
left out of the list of all, and refused when it asks for them.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.groups import CommitSender, CommittedOffsets
from millpond.model.errors import MillpondError, NotAuthorized, UnknownTopic
from millpond.model.ids import TopicId, TopicPartition
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_SINCE = 2
BATCHED_SINCE = 8
BY_ID_SINCE = 10
NO_OFFSET = -1


class RequestedTopic(NamedTuple):
    """A topic of a request or a response, with its id if the topic exists."""

    name: str
    topic_id: bytes
    known_id: TopicId | None
    partitions: Sequence[int]


@handles(OffsetFetchRequest, rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def offset_fetch(call: KafkaCall, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version >= BATCHED_SINCE:
        groups = [await _group(call, group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    return await _one_group(call, request)


async def _one_group(call: KafkaCall, request: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = request.topics
    asked = None if topics is None else [_named(call, each.name, each.partition_indexes) for each in topics]
    try:
        call.require(DESCRIBE_GROUP, request.group_id)
        found = await call.groups.committed_offsets(request.group_id)
    except MillpondError as error:
        return _refused(call, asked or [], _group_code(error))
    responses = [
        OffsetFetchResponseTopic(
            name=each.name, partitions=await _partitions(call, each, found, request.require_stable)
        )
        for each in (_all(call, found) if asked is None else asked)
    ]
    return OffsetFetchResponse(topics=responses)


def _refused(call: KafkaCall, asked: Iterable[RequestedTopic], code: ErrorCode) -> OffsetFetchResponse:
    if call.version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=each.name, partitions=[_without_offset(number, code) for number in each.partitions]
            )
            for each in asked
        ]
    )


async def _group(
    call: KafkaCall, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        call.require(DESCRIBE_GROUP, group.group_id)
        member = CommitSender(group.member_id or "", group.member_epoch)
        found = await call.groups.committed_offsets(group.group_id, member)
    except MillpondError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=_group_code(error))
    asked = _all(call, found) if group.topics is None else _asked(call, group)
    responses = [
        OffsetFetchResponseTopics(
            name=each.name,
            topic_id=each.topic_id,
            partitions=await _partitions(call, each, found, require_stable),
        )
        for each in asked
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=responses)


def _asked(call: KafkaCall, group: OffsetFetchRequestGroup) -> list[RequestedTopic]:
    topics = group.topics or []
    if call.version < BY_ID_SINCE:
        return [_named(call, each.name, each.partition_indexes) for each in topics]
    return [_with_id(call, each.topic_id, each.partition_indexes) for each in topics]


def _named(call: KafkaCall, name: str, partitions: Sequence[int]) -> RequestedTopic:
    try:
        topic_id = call.log.topics.named(name).id
    except UnknownTopic:
        return RequestedTopic(name, NO_UUID, None, partitions)
    return RequestedTopic(name, topic_id, topic_id, partitions)


def _with_id(call: KafkaCall, topic_id: bytes, partitions: Sequence[int]) -> RequestedTopic:
    try:
        known_id = call.log.topics.with_id(TopicId(topic_id)).id
    except UnknownTopic:
        return RequestedTopic("", topic_id, None, partitions)
    return RequestedTopic("", topic_id, known_id, partitions)


def _all(call: KafkaCall, found: CommittedOffsets) -> list[RequestedTopic]:
    asked = []
    for topic_id, topic_partitions in groupby(
        sorted(found.offsets), key=lambda topic_partition: topic_partition.topic_id
    ):
        try:
            name = call.log.topics.with_id(topic_id).name
        except UnknownTopic:  # the topic has just been deleted, and its offsets are about to be removed
            continue
        if not call.allows(DESCRIBE_TOPIC, name):
            continue
        asked.append(
            RequestedTopic(
                name, topic_id, topic_id, [topic_partition.partition for topic_partition in topic_partitions]
            )
        )
    return asked


async def _partitions(
    call: KafkaCall, asked: RequestedTopic, found: CommittedOffsets, require_stable: bool
) -> list[OffsetFetchResponsePartition]:
    by_id = call.version >= BY_ID_SINCE
    try:
        call.require_topic(DESCRIBE_TOPIC, asked.name, asked.topic_id, by_id=by_id)
    except NotAuthorized as error:
        return [_without_offset(number, code_of(error)) for number in asked.partitions]
    if asked.known_id is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.NONE
        return [_without_offset(number, code) for number in asked.partitions]
    topic_id, turns = asked.known_id, Turns()
    return [
        _partition(TopicPartition(topic_id, number), found, require_stable)
        async for number in turns.over(asked.partitions)
    ]


def _partition(
    topic_partition: TopicPartition, found: CommittedOffsets, require_stable: bool
) -> OffsetFetchResponsePartition:
    if require_stable and topic_partition in found.unstable:
        return _without_offset(topic_partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    offset = found.offsets.get(topic_partition)
    if offset is None:
        return _without_offset(topic_partition.partition, ErrorCode.NONE)
    return OffsetFetchResponsePartition(
        partition_index=topic_partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _without_offset(number: int, code: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _group_code(error: MillpondError) -> ErrorCode:
    """Older consumers know only one code in this response that makes them retry."""
    code = coordinator_code_of(error)
    return ErrorCode.NOT_COORDINATOR if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else code
