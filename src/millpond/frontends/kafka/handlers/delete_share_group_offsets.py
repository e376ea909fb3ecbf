"""DeleteShareGroupOffsets (92), v0: a share group without members forgets its positions in topics.

A member that subscribes to such a topic again begins as `share.auto.offset.reset` says. A topic in which the group has
no position gets UNKNOWN_TOPIC_OR_PARTITION.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DELETE_GROUP, READ_TOPIC
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicId
from millpond.protocol import NO_UUID
from millpond.protocol.messages.share_groups import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


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
    names = list(dict.fromkeys(each.topic_name for each in request.topics))
    outcomes: dict[str, MillpondError | TopicId] = {}
    for name in names:
        try:
            call.require(READ_TOPIC, name)
        except MillpondError as error:
            outcomes[name] = error
    allowed = [name for name in names if name not in outcomes]
    await call.ensure_known(READ_TOPIC, allowed)
    outcomes |= await call.share_groups.forget(request.group_id, allowed)
    return DeleteShareGroupOffsetsResponse(responses=[_topic(name, outcomes[name]) for name in names])


def _topic(name: str, outcome: MillpondError | TopicId) -> DeleteShareGroupOffsetsResponseTopic:
    if isinstance(outcome, MillpondError):
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=NO_UUID, error_code=code_of(outcome), error_message=str(outcome)
        )
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=outcome)
