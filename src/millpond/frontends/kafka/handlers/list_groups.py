"""ListGroups (16), v0-5: lists the groups that this broker coordinates. Filters by state (v4) and type (v5)
ignore case."""

from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.model.errors import MillpondError
from millpond.protocol.messages.group_admin import ListedGroup, ListGroupsRequest, ListGroupsResponse

TYPE: Final = "classic"
"""The type of groups whose members assign partitions themselves. No other type is supported."""


@handles(ListGroupsRequest)
async def list_groups(call: KafkaCall, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and TYPE not in types:
        return ListGroupsResponse(groups=[])
    try:
        found = await call.groups.list_groups()
    except MillpondError as error:
        return ListGroupsResponse(error_code=coordinator_code_of(error), groups=[])
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=TYPE,
            )
            for group in found
            if not states or group.state.lower() in states
        ]
    )
