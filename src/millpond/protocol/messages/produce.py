"""Produce (0): appends record batches. Requests name topics up to v12 and use topic ids from v13.

Versions 0 to 2 used older record formats and have no codec. librdkafka compresses only if they are advertised.
"""

from millpond.protocol.messages.nodes import CurrentLeader, NodeEndpoint
from millpond.protocol.schema import (
    NO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
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
class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


@struct
class TopicProduceData(Struct):
    name: String = field("0-12", default="")
    topic_id: Uuid = field("13+", default=NO_UUID)
    partition_data: list[PartitionProduceData]


@request(key=0, versions="3-13", flexible="9+")
class ProduceRequest(Request):
    transactional_id: String | None = field(default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: String | None = field(default=None)


@struct
class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16 = field(default=0)
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", factory=list)
    error_message: String | None = field("8+", default=None)
    current_leader: CurrentLeader | None = field("10+", tag=0, default=None)


@struct
class TopicProduceResponse(Struct):
    name: String = field("0-12", default="")
    topic_id: Uuid = field("13+", default=NO_UUID)
    partition_responses: list[PartitionProduceResponse]


@response(to=ProduceRequest)
class ProduceResponse(Response):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0, factory=list)
