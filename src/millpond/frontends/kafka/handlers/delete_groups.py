"""DeleteGroups (42), v0-2: deletes groups without members, and their offsets. Share groups lose their positions."""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DELETE_GROUP
from millpond.model.errors import MillpondError
from millpond.protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@handles(DeleteGroupsRequest, rights=(DELETE_GROUP,))
async def delete_groups(call: KafkaCall, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[await _one(call, group_id) for group_id in request.groups_names])


async def _one(call: KafkaCall, group_id: str) -> DeletableGroupResult:
    try:
        call.require(DELETE_GROUP, group_id)
        await call.share_groups.delete_group(group_id)
    except MillpondError as error:
        return DeletableGroupResult(group_id=group_id, error_code=coordinator_code_of(error))
    return DeletableGroupResult(group_id=group_id)
