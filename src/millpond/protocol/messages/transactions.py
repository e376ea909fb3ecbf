"""InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), TxnOffsetCommit (28): idempotent
and transactional producers. Only Kafka brokers send AddPartitionsToTxn v4 and later; clients stop at v3."""

from millpond.protocol.schema import (
    Bool,
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


@request(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Request):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)


@response(to=InitProducerIdRequest)
class InitProducerIdResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16


@struct
class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)
    topics: list[AddPartitionsToTxnTopic]


@request(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+", factory=list)
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", factory=list)


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16 = field(default=0)


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


@response(to=AddPartitionsToTxnRequest)
class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", factory=list)


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@response(to=AddOffsetsToTxnRequest)
class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


@request(key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@response(to=EndTxnRequest)
class EndTxnResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field("5+", default=-1)
    producer_epoch: Int16 = field("5+", default=-1)


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("2+", default=-1)
    committed_metadata: String | None


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


@request(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Request):
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


@response(to=TxnOffsetCommitRequest)
class TxnOffsetCommitResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponseTopic]
