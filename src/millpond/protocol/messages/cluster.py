"""DescribeLogDirs (35) and DescribeCluster (60): administrative requests about brokers."""

from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN
from millpond.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@struct
class DescribableLogDirTopic(Struct):
    topic: String
    partitions: list[Int32]


@request(key=35, versions="1-4", flexible="2+")
class DescribeLogDirsRequest(Request):
    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool = field(default=False)


@struct
class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult(Struct):
    error_code: Int16 = field(default=0)
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field("4+", default=-1)
    usable_bytes: Int64 = field("4+", default=-1)


@response(to=DescribeLogDirsRequest)
class DescribeLogDirsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("3+", default=0)
    results: list[DescribeLogDirsResult]


@request(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request):
    include_cluster_authorized_operations: Bool = field(default=False)
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


@struct
class DescribeClusterBroker(Struct):
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
    is_fenced: Bool = field("2+", default=False)


@response(to=DescribeClusterRequest)
class DescribeClusterResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=OPERATIONS_UNKNOWN)
