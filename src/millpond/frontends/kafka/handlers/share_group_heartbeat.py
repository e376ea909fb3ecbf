"""ShareGroupHeartbeat (76), v1: a member of a share group (KIP-932) joins, reports that it is alive, learns which
partitions it is to read, or leaves.

Member epoch 0 joins and -1 leaves. The client creates its member id. A response without an assignment means that the
member keeps what it has. Before a member receives an assignment, the group has a position in each topic of it. So the
first response has one, where Kafka's coordinator first initializes positions and assigns with a later heartbeat.

A group of another type gets GROUP_ID_NOT_FOUND. A member of a group that does not exist gets UNKNOWN_MEMBER_ID and
joins again.
"""

from collections import defaultdict
from collections.abc import Iterable

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_TOPIC, READ_GROUP
from millpond.groups import ShareHeartbeat
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicId, TopicPartition
from millpond.protocol.messages.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareHeartbeatAssignment,
    ShareHeartbeatTopicPartitions,
)


@handles(ShareGroupHeartbeatRequest, rights=(READ_GROUP, DESCRIBE_TOPIC))
async def share_group_heartbeat(
    call: KafkaCall, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    try:
        return await _response(call, request)
    except MillpondError as error:
        return ShareGroupHeartbeatResponse(error_code=coordinator_code_of(error), error_message=str(error))


async def _response(call: KafkaCall, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    call.require(READ_GROUP, request.group_id)
    names = request.subscribed_topic_names
    for name in names or ():
        call.require(DESCRIBE_TOPIC, name)
    heartbeat = ShareHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=call.client_id,
        client_host=f"/{call.client_host}",  # the form in which Java prints addresses and tools show them
        rack_id=request.rack_id,
        topic_names=None if names is None else tuple(names),
    )
    response = await call.share_groups.heartbeat(request.group_id, heartbeat)
    return ShareGroupHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=None if response.assignment is None else _assignment(response.assignment),
    )


def _assignment(partitions: Iterable[TopicPartition]) -> ShareHeartbeatAssignment:
    by_topic: defaultdict[TopicId, list[int]] = defaultdict(list)
    for topic_id, number in partitions:
        by_topic[topic_id].append(number)
    return ShareHeartbeatAssignment(
        topic_partitions=[
            ShareHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic.items()
        ]
    )
