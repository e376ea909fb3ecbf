"""Consumer groups: list, describe with lag, set offsets, delete."""

from millpond.frontends.web.operations import NO_BODY, HttpCall, NoParameters, json_body, operation
from millpond.frontends.web.schemas import (
    AssignedTopicJson,
    GroupJson,
    GroupListingJson,
    GroupListingsJson,
    GroupPartitionJson,
    MemberJson,
    PositionsJson,
    RequestStruct,
)
from millpond.model.acls import AclOperation, ResourceType
from millpond.model.errors import InvalidRequest
from millpond.security.requirements import Needs, Shows, needs


class GroupPath(RequestStruct, frozen=True):
    group: str


@operation(
    "GET",
    "/groups",
    rights=needs(Shows(AclOperation.DESCRIBE, ResourceType.GROUP)),
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: GroupListingsJson},
)
async def list_groups(call: HttpCall[NoParameters, NoParameters, None]) -> GroupListingsJson:
    """List the groups that have or had members, or have offsets, and that the client may describe."""
    found = await call.site.services.administration.groups(call.access)
    return GroupListingsJson(
        [GroupListingJson(each.group_id, each.state, each.protocol_type, each.type) for each in found]
    )


@operation(
    "GET",
    "/groups/{group}",
    rights=needs(Needs(AclOperation.DESCRIBE, ResourceType.GROUP, of="path.group")),
    parameters=GroupPath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: GroupJson},
    error_statuses=(404,),
    redirects=True,
)
async def describe_group(call: HttpCall[GroupPath, NoParameters, None]) -> GroupJson:
    """Describe a group: its members, committed offsets and lag."""
    found = await call.site.services.administration.describe_group(call.path.group, call.access)
    return GroupJson(
        group=found.group.group_id,
        state=found.group.state,
        protocol_type=found.group.protocol_type,
        protocol=found.group.protocol,
        type=found.type,
        epoch=found.epoch,
        members=[
            MemberJson(
                each.member_id,
                each.client_id,
                each.client_host,
                each.instance_id,
                [
                    AssignedTopicJson(topic, numbers)
                    for topic, numbers in found.assigned.get(each.member_id, {}).items()
                ],
            )
            for each in found.group.members
        ],
        partitions=[
            GroupPartitionJson(
                topic=each.topic,
                partition=each.partition,
                offset=each.offset,
                log_start=each.log_start,
                end_offset=each.end_offset,
                lag=each.lag,
                metadata=each.metadata,
            )
            for each in found.partitions
        ],
        lag=found.lag,
    )


@operation(
    "PUT",
    "/groups/{group}/offsets",
    rights=needs(
        Needs(AclOperation.READ, ResourceType.GROUP, of="path.group"),
        Needs(AclOperation.READ, ResourceType.TOPIC, of="body.topic"),
    ),
    parameters=GroupPath,
    query=NoParameters,
    body=json_body(PositionsJson),
    returns={204: None},
    error_statuses=(404, 409),
    redirects=True,
)
async def commit_offsets(call: HttpCall[GroupPath, NoParameters, PositionsJson]) -> None:
    """Set the position of a group without members in a topic: the offset of the next message, by partition."""
    offsets = {each.partition: each.offset for each in call.body.offsets}
    if len(offsets) < len(call.body.offsets):
        raise InvalidRequest(reason="a partition is there twice")
    await call.site.services.administration.commit(call.path.group, call.body.topic, offsets)


@operation(
    "DELETE",
    "/groups/{group}",
    rights=needs(Needs(AclOperation.DELETE, ResourceType.GROUP, of="path.group")),
    parameters=GroupPath,
    query=NoParameters,
    body=NO_BODY,
    returns={204: None},
    error_statuses=(404, 409),
    redirects=True,
)
async def delete_group(call: HttpCall[GroupPath, NoParameters, None]) -> None:
    """Delete a group without members, and its offsets."""
    await call.site.services.administration.delete_group(call.path.group)
