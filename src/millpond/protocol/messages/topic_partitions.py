"""DescribeTopicPartitions (75): partitions of topics, in parts. A cursor names the partition to continue with."""

from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN
from millpond.protocol.schema import (
    NO_UUID,
    Bool,
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
class DescribeTopicPartitionsTopic(Struct):
    name: String


@struct
class PartitionCursor(Struct):
    topic_name: String
    partition_index: Int32


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request):
    topics: list[DescribeTopicPartitionsTopic]
    response_partition_limit: Int32 = field(default=2000)
    cursor: PartitionCursor | None = field(default=None)


@struct
class DescribedTopicPartition(Struct):
    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    last_known_elr: list[Int32] | None = field(default=None)
    offline_replicas: list[Int32] = field(factory=list)


@struct
class DescribedTopicPartitions(Struct):
    error_code: Int16 = field(default=0)
    name: String | None
    topic_id: Uuid = field(default=NO_UUID)
    is_internal: Bool = field(default=False)
    partitions: list[DescribedTopicPartition]
    topic_authorized_operations: Int32 = field(default=OPERATIONS_UNKNOWN)


@response(to=DescribeTopicPartitionsRequest)
class DescribeTopicPartitionsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribedTopicPartitions]
    next_cursor: PartitionCursor | None = field(default=None)
