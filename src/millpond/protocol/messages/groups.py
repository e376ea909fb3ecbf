"""FindCoordinator (10), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14): group membership."""

from millpond.protocol.schema import (
    Bool,
    Bytes,
    Int8,
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


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request):
    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", factory=list)


@struct
class Coordinator(Struct):
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@response(to=FindCoordinatorRequest)
class FindCoordinatorResponse(Response):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default=None)
    node_id: Int32 = field("0-3", default=-1)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=-1)
    coordinators: list[Coordinator] = field("4+", factory=list)


@struct
class JoinGroupRequestProtocol(Struct):
    name: String
    metadata: Bytes


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1)
    member_id: String
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field("8+", default=None)


@struct
class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = field("5+", default=None)
    metadata: Bytes


@response(to=JoinGroupRequest)
class JoinGroupResponse(Response):
    throttle_time_ms: Int32 = field("2+", default=0)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Bool = field("9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)


@response(to=HeartbeatRequest)
class HeartbeatResponse(Response):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field(default=0)


@struct
class MemberIdentity(Struct):
    member_id: String
    group_instance_id: String | None = field(default=None)
    reason: String | None = field("5+", default=None)


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request):
    group_id: String
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", factory=list)


@struct
class MemberResponse(Struct):
    member_id: String
    group_instance_id: String | None = field(default=None)
    error_code: Int16 = field(default=0)


@response(to=LeaveGroupRequest)
class LeaveGroupResponse(Response):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field(default=0)
    members: list[MemberResponse] = field("3+", factory=list)


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignments: list[SyncGroupRequestAssignment]


@response(to=SyncGroupRequest)
class SyncGroupResponse(Response):
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field(default=0)
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignment: Bytes
