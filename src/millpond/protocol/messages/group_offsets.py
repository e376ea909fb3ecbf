"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47): the committed offsets of a group.

OffsetFetch covers one group up to v7 and several from v8. Null topics mean all topics. OffsetCommit and
OffsetFetch use topic ids from v10.
"""

from millpond.protocol.schema import (
    NO_UUID,
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


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("6+", default=-1)
    committed_metadata: String | None


@struct
class OffsetCommitRequestTopic(Struct):
    name: String = field("0-9", default="")
    topic_id: Uuid = field("10+", default=NO_UUID)
    partitions: list[OffsetCommitRequestPartition]


@request(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest(Request):
    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String = field(default="")
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)


@struct
class OffsetCommitResponseTopic(Struct):
    name: String = field("0-9", default="")
    topic_id: Uuid = field("10+", default=NO_UUID)
    partitions: list[OffsetCommitResponsePartition]


@response(to=OffsetCommitRequest)
class OffsetCommitResponse(Response):
    throttle_time_ms: Int32 = field("3+", default=0)
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetFetchRequestTopic(Struct):
    """A topic of the single group, up to v7."""

    name: String
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestTopics(Struct):
    """A topic of one of several groups, from v8."""

    name: String = field("8-9", default="")
    topic_id: Uuid = field("10+", default=NO_UUID)
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup(Struct):
    group_id: String
    member_id: String | None = field("9+", default=None)
    member_epoch: Int32 = field("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None


@request(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest(Request):
    group_id: String = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7", default=None)
    groups: list[OffsetFetchRequestGroup] = field("8+", factory=list)
    require_stable: Bool = field("7+", default=False)


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("5+", default=-1)
    metadata: String | None
    error_code: Int16 = field(default=0)


@struct
class OffsetFetchResponseTopic(Struct):
    name: String
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponseTopics(Struct):
    name: String = field("8-9", default="")
    topic_id: Uuid = field("10+", default=NO_UUID)
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = field(default=0)


@response(to=OffsetFetchRequest)
class OffsetFetchResponse(Response):
    throttle_time_ms: Int32 = field("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field("0-7", factory=list)
    error_code: Int16 = field("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field("8+", factory=list)


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic(Struct):
    name: String
    partitions: list[OffsetDeleteRequestPartition]


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Request):
    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)


@struct
class OffsetDeleteResponseTopic(Struct):
    name: String
    partitions: list[OffsetDeleteResponsePartition]


@response(to=OffsetDeleteRequest)
class OffsetDeleteResponse(Response):
    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)
    topics: list[OffsetDeleteResponseTopic]
