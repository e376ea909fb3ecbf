"""ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69): members of the consumer protocol (KIP-848)."""

from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN
from millpond.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
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


@struct
class HeartbeatTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request):
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = field(default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = field(default=None)


@struct
class HeartbeatAssignment(Struct):
    topic_partitions: list[HeartbeatTopicPartitions]


@response(to=ConsumerGroupHeartbeatRequest)
class ConsumerGroupHeartbeatResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: HeartbeatAssignment | None = field(default=None)


@request(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request):
    group_ids: list[String]
    include_authorized_operations: Bool = field(default=False)


@struct
class DescribedAssignedTopic(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class DescribedAssignment(Struct):
    topic_partitions: list[DescribedAssignedTopic]


@struct
class DescribedConsumerMember(Struct):
    member_id: String
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(default=None)
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Int8 = field("1+", default=-1)


@struct
class DescribedConsumerGroup(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[DescribedConsumerMember]
    authorized_operations: Int32 = field(default=OPERATIONS_UNKNOWN)


@response(to=ConsumerGroupDescribeRequest)
class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribedConsumerGroup]
