"""Fetch (1): reads record batches. Requests name topics up to v12 and use topic ids from v13; sessions start at v7.

The records of a response are a list of buffers: the batches as the log stores them.
"""

from millpond.protocol.messages.nodes import CurrentLeader, NodeEndpoint
from millpond.protocol.schema import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    RecordParts,
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
class ReplicaState(Struct):
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field("9+", default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field("17+", tag=0, default=NO_UUID)
    high_watermark: Int64 = field("18+", tag=1, default=0x7FFF_FFFF_FFFF_FFFF)


@struct
class FetchTopic(Struct):
    topic: String = field("0-12", default="")
    topic_id: Uuid = field("13+", default=NO_UUID)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic(Struct):
    topic: String = field("7-12", default="")
    topic_id: Uuid = field("13+", default=NO_UUID)
    partitions: list[Int32]


@request(key=1, versions="4-18", flexible="12+")
class FetchRequest(Request):
    cluster_id: String | None = field("12+", tag=0, default=None)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState | None = field("15+", tag=1, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFF_FFFF)
    isolation_level: Int8 = field(default=0)
    session_id: Int32 = field("7+", default=0)
    session_epoch: Int32 = field("7+", default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", factory=list)
    rack_id: String = field("11+", default="")


@struct
class EpochEnd(Struct):
    """The end of the reader's last epoch, if its log has diverged."""

    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class SnapshotId(Struct):
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    diverging_epoch: EpochEnd | None = field("12+", tag=0, default=None)
    current_leader: CurrentLeader | None = field("12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = field("12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = field(default=None)
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: RecordParts | None


@struct
class FetchableTopicResponse(Struct):
    topic: String = field("0-12", default="")
    topic_id: Uuid = field("13+", default=NO_UUID)
    partitions: list[PartitionData]


@response(to=FetchRequest)
class FetchResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("7+", default=0)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0, factory=list)
