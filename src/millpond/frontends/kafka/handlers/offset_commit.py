"""OffsetCommit (8), v2-10: commits a group's offsets; they are durable before the response is sent.

Members commit with their generation, those of the consumer protocol with their epoch; an epoch that has passed is
good for partitions that the member has had since then (KIP-1251). Generation -1 without a member id is a consumer that
assigns its own partitions, or an administrator. Errors of the whole group are reported for each partition. Requests
name topics up to v9 and use topic ids from v10. A commit to a group that does not exist gets GROUP_ID_NOT_FOUND from
v9, ILLEGAL_GENERATION before. Before v9 a member with a stale epoch gets UNSUPPORTED_VERSION.
"""

from collections.abc import Iterable
from itertools import repeat

from millpond.catalog.groups import GroupOffset
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_GROUP, READ_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.groups import CommitSender
from millpond.model.errors import MillpondError, NotAuthorized, StaleMemberEpoch, UnknownGroup, UnknownTopic
from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

UNKNOWN_GROUP_SINCE = 9
MEMBER_EPOCH_SINCE = 9
BY_ID_SINCE = 10


@handles(OffsetCommitRequest, rights=(READ_GROUP, READ_TOPIC))
async def offset_commit(call: KafkaCall, request: OffsetCommitRequest) -> OffsetCommitResponse:
    try:
        call.require(READ_GROUP, request.group_id)
    except NotAuthorized as error:
        return await _response(request, repeat(code_of(error)))
    turns = Turns()
    asked = [each for topic in request.topics for each in await _asked_of_topic(call, topic, turns)]
    await turns.next()
    committed = iter(await _commit(call, request, [e for e in asked if isinstance(e, GroupOffset)]))
    codes = [next(committed) if isinstance(each, GroupOffset) else each for each in asked]
    return await _response(request, codes)


async def _response(request: OffsetCommitRequest, codes: Iterable[ErrorCode]) -> OffsetCommitResponse:
    following, turns = iter(codes), Turns()
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=next(following)
                    )
                    async for part in turns.over(topic.partitions)
                ],
            )
            for topic in request.topics
        ]
    )


async def _asked_of_topic(
    call: KafkaCall, topic: OffsetCommitRequestTopic, turns: Turns
) -> list[GroupOffset | ErrorCode]:
    try:
        call.require_topic(READ_TOPIC, topic.name, topic.topic_id, by_id=call.version >= BY_ID_SINCE)
    except NotAuthorized as error:
        return [code_of(error)] * len(topic.partitions)
    return [_asked(call, topic, part) async for part in turns.over(topic.partitions)]


def _asked(
    call: KafkaCall, topic: OffsetCommitRequestTopic, part: OffsetCommitRequestPartition
) -> GroupOffset | ErrorCode:
    by_id = call.version >= BY_ID_SINCE
    try:
        topic_partition = call.topic_partition(topic.name, topic.topic_id, part.partition_index, by_id=by_id)
    except UnknownTopic as error:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else coordinator_code_of(error)
    except MillpondError as error:
        return coordinator_code_of(error)
    epoch, metadata = part.committed_leader_epoch, part.committed_metadata or ""
    return GroupOffset(topic_partition, part.committed_offset, epoch, metadata)


async def _commit(
    call: KafkaCall, request: OffsetCommitRequest, offsets: list[GroupOffset]
) -> list[ErrorCode]:
    if not offsets:
        return []
    member = CommitSender(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    try:
        errors = await call.groups.commit_offsets(request.group_id, offsets, member)
    except MillpondError as error:
        return [_group_code(call, error)] * len(offsets)
    return [ErrorCode.NONE if error is None else _group_code(call, error) for error in errors]


def _group_code(call: KafkaCall, error: MillpondError) -> ErrorCode:
    if isinstance(error, UnknownGroup) and call.version < UNKNOWN_GROUP_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    if isinstance(error, StaleMemberEpoch) and call.version < MEMBER_EPOCH_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    return coordinator_code_of(error)
