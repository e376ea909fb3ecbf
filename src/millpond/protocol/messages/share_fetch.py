"""ShareFetch (78), ShareAcknowledge (79): members of share groups receive and acknowledge messages (KIP-932).

The records of a response are a list of buffers: whole batches, of which the client uses only the acquired offsets.
"""

from millpond.protocol.messages.nodes import CurrentLeader, NodeEndpoint
from millpond.protocol.schema import (
    Bool,
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
class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]
    """One for the whole range, or one for each offset."""


@struct
class ShareFetchPartition(Struct):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class ShareFetchTopic(Struct):
    topic_id: Uuid
    partitions: list[ShareFetchPartition]


@struct
class ShareForgottenTopic(Struct):
    topic_id: Uuid
    partitions: list[Int32]


@request(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest(Request):
    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFF_FFFF)
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field("2+", default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[ShareFetchTopic]
    forgotten_topics_data: list[ShareForgottenTopic]


@struct
class AcquiredRecords(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class SharePartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    acknowledge_error_code: Int16 = field(default=0)
    acknowledge_error_message: String | None = field(default=None)
    current_leader: CurrentLeader = field(factory=CurrentLeader)
    records: RecordParts = field(factory=list)
    acquired_records: list[AcquiredRecords] = field(factory=list)


@struct
class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid
    partitions: list[SharePartitionData]


@response(to=ShareFetchRequest)
class ShareFetchResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field(default=0)
    responses: list[ShareFetchableTopicResponse] = field(factory=list)
    node_endpoints: list[NodeEndpoint] = field(factory=list)


@struct
class ShareAcknowledgePartition(Struct):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class ShareAcknowledgeTopic(Struct):
    topic_id: Uuid
    partitions: list[ShareAcknowledgePartition]


@request(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest(Request):
    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[ShareAcknowledgeTopic]


@struct
class ShareAcknowledgedPartition(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    current_leader: CurrentLeader = field(factory=CurrentLeader)


@struct
class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid
    partitions: list[ShareAcknowledgedPartition]


@response(to=ShareAcknowledgeRequest)
class ShareAcknowledgeResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = field(factory=list)
    node_endpoints: list[NodeEndpoint] = field(factory=list)
