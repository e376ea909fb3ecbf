"""Metadata (3): brokers, topics and partition leaders. Null topics, or an empty list in v0, request all topics."""

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

OPERATIONS_UNKNOWN = -0x8000_0000
"""Stands for a set of authorized operations that the client did not request."""


@struct
class MetadataRequestTopic(Struct):
    topic_id: Uuid = field("10+", default=NO_UUID)
    name: String | None = field(nullable="10+")


@request(key=3, versions="0-13", flexible="9+")
class MetadataRequest(Request):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


@struct
class MetadataResponseBroker(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field("1+", default=None)


@struct
class MetadataResponsePartition(Struct):
    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field("7+", default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field("5+", factory=list)


@struct
class MetadataResponseTopic(Struct):
    error_code: Int16 = field(default=0)
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field("10+", default=NO_UUID)
    is_internal: Bool = field("1+", default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=OPERATIONS_UNKNOWN)


@response(to=MetadataRequest)
class MetadataResponse(Response):
    throttle_time_ms: Int32 = field("3+", default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field("2+", default=None)
    controller_id: Int32 = field("1+", default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=OPERATIONS_UNKNOWN)
    error_code: Int16 = field("13+", default=0)
