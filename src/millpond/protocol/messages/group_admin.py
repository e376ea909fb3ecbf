"""DescribeGroups (15), ListGroups (16), DeleteGroups (42): administrative requests about groups."""

from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN
from millpond.protocol.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@request(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request):
    groups: list[String]
    include_authorized_operations: Bool = field("3+", default=False)


@struct
class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: String | None = field("4+", default=None)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field("6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field("3+", default=OPERATIONS_UNKNOWN)


@response(to=DescribeGroupsRequest)
class DescribeGroupsResponse(Response):
    throttle_time_ms: Int32 = field("1+", default=0)
    groups: list[DescribedGroup]


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request):
    states_filter: list[String] = field("4+", factory=list)
    types_filter: list[String] = field("5+", factory=list)


@struct
class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = field("4+", default="")
    group_type: String = field("5+", default="")


@response(to=ListGroupsRequest)
class ListGroupsResponse(Response):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field(default=0)
    groups: list[ListedGroup]


@request(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Request):
    groups_names: list[String]


@struct
class DeletableGroupResult(Struct):
    group_id: String
    error_code: Int16 = field(default=0)


@response(to=DeleteGroupsRequest)
class DeleteGroupsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult]
