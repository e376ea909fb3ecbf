"""ListGroups (16), v0-5: lists the groups that this broker coordinates. Filters by state (v4) and type (v5, "classic",
"consumer" or "share") ignore case.

A client that may describe the cluster gets all of them, others those that they may describe."""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from millpond.model.errors import MillpondError
from millpond.protocol.messages.group_admin import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest, rights=(DESCRIBE_CLUSTER, DESCRIBE_GROUP))
async def list_groups(call: KafkaCall, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        found = await call.groups.list_groups()
    except MillpondError as error:
        return ListGroupsResponse(error_code=coordinator_code_of(error), groups=[])
    sees_all = call.allows(DESCRIBE_CLUSTER)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in found
            if (not states or group.state.lower() in states)
            and (not types or group.type in types)
            and (sees_all or call.allows(DESCRIBE_GROUP, group.group_id))
        ]
    )
