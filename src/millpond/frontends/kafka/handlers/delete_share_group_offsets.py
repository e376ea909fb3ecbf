"""DeleteShareGroupOffsets (92), v0: a share group without members forgets its positions in topics.

A member that subscribes to such a topic again begins as `share.auto.offset.reset` says. A topic in which the group has
no position gets UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DELETE_GROUP, READ_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicId
from millpond.protocol import NO_UUID, ErrorCode
from millpond.protocol.messages.share_groups import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

NO_POSITION: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The group has no position in this topic.")
NOT_ALLOWED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The client may not read this topic.")


@handles(DeleteShareGroupOffsetsRequest, rights=(DELETE_GROUP, READ_TOPIC))
async def delete_share_group_offsets(
    call: KafkaCall, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    try:
        return await _response(call, request)
    except MillpondError as error:
        return DeleteShareGroupOffsetsResponse(
            error_code=coordinator_code_of(error), error_message=str(error), responses=[]
        )


async def _response(
    call: KafkaCall, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    call.require(DELETE_GROUP, request.group_id)
    turns = Turns()
    names = list(dict.fromkeys(each.topic_name for each in request.topics))
    allowed = [name async for name in turns.over(names) if call.allows(READ_TOPIC, name)]
    await call.ensure_known(READ_TOPIC, allowed)
    forgotten = await call.share_groups.forget(request.group_id, allowed)
    may_read = frozenset(allowed)
    return DeleteShareGroupOffsetsResponse(
        responses=[
            _topic(name, forgotten.get(name), is_allowed=name in may_read) async for name in turns.over(names)
        ]
    )


def _topic(name: str, topic_id: TopicId | None, *, is_allowed: bool) -> DeleteShareGroupOffsetsResponseTopic:
    if topic_id is not None:
        return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
    code, reason = NO_POSITION if is_allowed else NOT_ALLOWED
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=NO_UUID, error_code=code, error_message=reason
    )
