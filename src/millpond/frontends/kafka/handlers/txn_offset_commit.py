"""TxnOffsetCommit (28), v0-5: adds a group's offsets to a transaction; they are committed if the transaction
commits.

From v3 the member sends its generation, and a member that has lost its partitions is refused (KIP-447). Up to
v4 AddOffsetsToTxn must have opened the transaction; from v5 this request opens it (KIP-890). A fenced
producer gets error 47 in every version. Errors of the whole request are reported for each partition.
"""

from collections.abc import Iterable
from itertools import repeat

from millpond.catalog.groups import GroupOffset
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from millpond.groups import CommitSender
from millpond.log import TransactionalProducer
from millpond.model.errors import MillpondError, NotAuthorized, OffsetMetadataTooLarge
from millpond.protocol import ErrorCode
from millpond.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

OPENS_SINCE = 5


@handles(TxnOffsetCommitRequest, rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC))
async def txn_offset_commit(call: KafkaCall, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    try:
        call.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        call.require(READ_GROUP, request.group_id)
    except NotAuthorized as error:
        return _response(request, repeat(code_of(error)))
    asked = [each for topic in request.topics for each in _asked_of_topic(call, topic)]
    committed = iter(await _commit(call, request, [each for each in asked if isinstance(each, GroupOffset)]))
    codes = [next(committed) if isinstance(each, GroupOffset) else each for each in asked]
    return _response(request, codes)


def _response(request: TxnOffsetCommitRequest, codes: Iterable[ErrorCode]) -> TxnOffsetCommitResponse:
    following = iter(codes)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=next(following)
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _asked_of_topic(call: KafkaCall, topic: TxnOffsetCommitRequestTopic) -> list[GroupOffset | ErrorCode]:
    try:
        call.require(READ_TOPIC, topic.name)
    except NotAuthorized as error:
        return [code_of(error)] * len(topic.partitions)
    return [_asked(call, topic.name, part) for part in topic.partitions]


def _asked(call: KafkaCall, topic: str, part: TxnOffsetCommitRequestPartition) -> GroupOffset | ErrorCode:
    metadata = part.committed_metadata or ""
    try:
        topic_partition = call.log.topics.partition(topic, part.partition_index)
        limit = call.services.group_limits.offset_metadata_bytes_max
        if (size := len(metadata.encode())) > limit:
            raise OffsetMetadataTooLarge(size=size, limit=limit)
    except MillpondError as error:
        return coordinator_code_of(error)
    return GroupOffset(topic_partition, part.committed_offset, part.committed_leader_epoch, metadata)


async def _commit(
    call: KafkaCall, request: TxnOffsetCommitRequest, offsets: list[GroupOffset]
) -> list[ErrorCode]:
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    member = CommitSender(request.member_id, request.generation_id, request.group_instance_id)
    try:
        named = [each.topic_partition for each in offsets]
        errors = await call.groups.check_member(request.group_id, member, named)
        accepted = [each for each, error in zip(offsets, errors, strict=True) if error is None]
        if accepted:
            opens = call.version >= OPENS_SINCE
            await call.transactions.add_offsets(producer, request.group_id, accepted, opens=opens)
    except MillpondError as error:
        return [coordinator_code_of(error)] * len(offsets)
    return [ErrorCode.NONE if error is None else coordinator_code_of(error) for error in errors]
