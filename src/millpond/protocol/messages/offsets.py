"""ListOffsets (2) and OffsetForLeaderEpoch (23): start and end offsets of a partition, and offset lookup by time."""

from millpond.protocol.schema import (
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
class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field("4+", default=-1)
    timestamp: Int64


@struct
class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


@request(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest(Request):
    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field("10+", default=0)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


@response(to=ListOffsetsRequest)
class ListOffsetsResponse(Response):
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: list[ListOffsetsTopicResponse]


@struct
class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic(Struct):
    topic: String
    partitions: list[OffsetForLeaderPartition]


@request(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request):
    replica_id: Int32 = field("3+", default=-2)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset(Struct):
    error_code: Int16 = field(default=0)
    partition: Int32
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: String
    partitions: list[EpochEndOffset]


@response(to=OffsetForLeaderEpochRequest)
class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[OffsetForLeaderTopicResult]
