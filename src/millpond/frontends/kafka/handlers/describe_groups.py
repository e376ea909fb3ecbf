"""DescribeGroups (15), v0-6: returns state and members of groups.

Metadata and protocol are included while a group is stable. A group that does not exist, that uses the consumer
protocol, or that is a share group has the state "Dead"; from v6 it also gets an error. From v3 a client may ask for its
authorized operations.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_GROUP
from millpond.groups import Description, GroupPhase, ShareGroupDescription
from millpond.model.acls import ResourceType
from millpond.model.errors import MillpondError, UnknownGroup
from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

UNKNOWN_GROUP_SINCE = 6


@handles(DescribeGroupsRequest, rights=(DESCRIBE_GROUP,))
async def describe_groups(call: KafkaCall, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    described = [await _one(call, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = call.operations(ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=described)


async def _one(call: KafkaCall, group_id: str) -> DescribedGroup:
    try:
        call.require(DESCRIBE_GROUP, group_id)
        found = await call.groups.describe(group_id)
        if not isinstance(found, Description):
            kind = "share" if isinstance(found, ShareGroupDescription) else "consumer"
            message = f"Group {group_id!r} is a {kind} group; {kind.title()}GroupDescribe describes it."
            raise UnknownGroup(message, group=group_id)
        return _described(found)
    except UnknownGroup as error:
        known_error = call.version >= UNKNOWN_GROUP_SINCE
        code = coordinator_code_of(error) if known_error else ErrorCode.NONE
        return _without_members(group_id, GroupPhase.DEAD, code, str(error) if known_error else None)
    except MillpondError as error:
        return _without_members(group_id, "", coordinator_code_of(error), str(error))


def _without_members(group_id: str, state: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _described(group: Description) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol),
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
