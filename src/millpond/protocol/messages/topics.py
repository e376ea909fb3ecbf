"""CreateTopics (19), DeleteTopics (20), DeleteRecords (21), CreatePartitions (37): administrative changes to
topics."""

from millpond.protocol.schema import (
    NO_UUID,
    Bool,
    Int8,
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


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig(Struct):
    name: String
    value: String | None


@struct
class CreatableTopic(Struct):
    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment] = field(factory=list)
    configs: list[CreatableTopicConfig] = field(factory=list)


@request(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60_000)
    validate_only: Bool = field(default=False)


@struct
class CreatableTopicConfigs(Struct):
    name: String
    value: String | None
    read_only: Bool = field(default=False)
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool = field(default=False)


@struct
class CreatableTopicResult(Struct):
    name: String
    topic_id: Uuid = field("7+", default=NO_UUID)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    topic_config_error_code: Int16 = field("5+", tag=0, default=0)
    num_partitions: Int32 = field("5+", default=-1)
    replication_factor: Int16 = field("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field("5+", factory=list)


@response(to=CreateTopicsRequest)
class CreateTopicsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[CreatableTopicResult]


@struct
class DeleteTopicState(Struct):
    """One topic to delete, given by name, or by id with a null name."""

    name: String | None = field(default=None)
    topic_id: Uuid = field(default=NO_UUID)


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request):
    topics: list[DeleteTopicState] = field("6+", factory=list)
    topic_names: list[String] = field("0-5", factory=list)
    timeout_ms: Int32


@struct
class DeletableTopicResult(Struct):
    name: String | None = field(nullable="6+")
    topic_id: Uuid = field("6+", default=NO_UUID)
    error_code: Int16 = field(default=0)
    error_message: String | None = field("5+", default=None)


@response(to=DeleteTopicsRequest)
class DeleteTopicsResponse(Response):
    throttle_time_ms: Int32 = field("1+", default=0)
    responses: list[DeletableTopicResult]


@struct
class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic(Struct):
    name: String
    partitions: list[DeleteRecordsPartition]


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = field(default=0)


@struct
class DeleteRecordsTopicResult(Struct):
    name: String
    partitions: list[DeleteRecordsPartitionResult]


@response(to=DeleteRecordsRequest)
class DeleteRecordsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsTopicResult]


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic(Struct):
    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = field(default=None)


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = field(default=False)


@struct
class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@response(to=CreatePartitionsRequest)
class CreatePartitionsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult]
