"""ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46): where partitions and their
leaders are."""

from millpond.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)

WAIT_MS = 60_000
"""Kafka's default for how long a client waits for the controller."""


@struct
class ElectionTopic(Struct):
    topic: String
    partitions: list[Int32]


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request):
    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[ElectionTopic] | None
    timeout_ms: Int32 = field(default=WAIT_MS)


@struct
class ElectionPartitionResult(Struct):
    partition_id: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@struct
class ElectionTopicResult(Struct):
    topic: String
    partition_result: list[ElectionPartitionResult]


@response(to=ElectLeadersRequest)
class ElectLeadersResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ElectionTopicResult]


@struct
class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = field(default=None)


@struct
class ReassignableTopic(Struct):
    name: String
    partitions: list[ReassignablePartition]


@request(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Request):
    timeout_ms: Int32 = field(default=WAIT_MS)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@struct
class ReassignableTopicResult(Struct):
    name: String
    partitions: list[ReassignablePartitionResult]


@response(to=AlterPartitionReassignmentsRequest)
class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: Bool = field("1+", default=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    responses: list[ReassignableTopicResult]


@struct
class ReassignmentsTopic(Struct):
    name: String
    partition_indexes: list[Int32]


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request):
    timeout_ms: Int32 = field(default=WAIT_MS)
    topics: list[ReassignmentsTopic] | None


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@struct
class OngoingTopicReassignment(Struct):
    name: String
    partitions: list[OngoingPartitionReassignment]


@response(to=ListPartitionReassignmentsRequest)
class ListPartitionReassignmentsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    topics: list[OngoingTopicReassignment]
