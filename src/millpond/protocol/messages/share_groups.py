"""ShareGroupHeartbeat (76), ShareGroupDescribe (77), and DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91),
DeleteShareGroupOffsets (92): members and administration of share groups (KIP-932)."""

from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN
from millpond.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    struct,
)


@request(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest(Request):
    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = field(default=None)
    subscribed_topic_names: list[String] | None = field(default=None)


@struct
class ShareHeartbeatTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


@struct
class ShareHeartbeatAssignment(Struct):
    topic_partitions: list[ShareHeartbeatTopicPartitions]


@response(to=ShareGroupHeartbeatRequest)
class ShareGroupHeartbeatResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: ShareHeartbeatAssignment | None = field(default=None)


@request(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest(Request):
    group_ids: list[String]
    include_authorized_operations: Bool = field(default=False)


@struct
class DescribedShareTopic(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class DescribedShareAssignment(Struct):
    topic_partitions: list[DescribedShareTopic]


@struct
class DescribedShareMember(Struct):
    member_id: String
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: DescribedShareAssignment


@struct
class DescribedShareGroup(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[DescribedShareMember]
    authorized_operations: Int32 = field(default=OPERATIONS_UNKNOWN)


@response(to=ShareGroupDescribeRequest)
class ShareGroupDescribeResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribedShareGroup]


@struct
class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: String
    partitions: list[Int32]


@struct
class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: String
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default=None)


@request(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest(Request):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = field("1+", default=-1)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: String
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: String
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@response(to=DescribeShareGroupOffsetsRequest)
class DescribeShareGroupOffsetsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@struct
class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: String
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@request(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest(Request):
    group_id: String
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: String
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@response(to=AlterShareGroupOffsetsRequest)
class AlterShareGroupOffsetsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic]


@struct
class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String


@request(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request):
    group_id: String
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String
    topic_id: Uuid
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@response(to=DeleteShareGroupOffsetsRequest)
class DeleteShareGroupOffsetsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic]
