"""DescribeProducers (61), DescribeTransactions (65), ListTransactions (66): producers and transactions, as tools see
them."""

from millpond.protocol.schema import (
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
class DescribeProducersTopic(Struct):
    name: String
    partition_indexes: list[Int32]


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest(Request):
    topics: list[DescribeProducersTopic]


@struct
class DescribedProducer(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)


@struct
class DescribeProducersPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    active_producers: list[DescribedProducer]


@struct
class DescribeProducersTopicResult(Struct):
    name: String
    partitions: list[DescribeProducersPartitionResult]


@response(to=DescribeProducersRequest)
class DescribeProducersResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribeProducersTopicResult]


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request):
    transactional_ids: list[String]


@struct
class TransactionDescriptionTopic(Struct):
    topic: String
    partitions: list[Int32]


@struct
class TransactionDescription(Struct):
    error_code: Int16 = field(default=0)
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TransactionDescriptionTopic]


@response(to=DescribeTransactionsRequest)
class DescribeTransactionsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[TransactionDescription]


@request(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request):
    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", default=None)


@struct
class ListedTransaction(Struct):
    transactional_id: String
    producer_id: Int64
    transaction_state: String


@response(to=ListTransactionsRequest)
class ListTransactionsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: list[String] = field(factory=list)
    transaction_states: list[ListedTransaction]
