"""The JSON types of the HTTP interface, declared once: handlers, validation and the OpenAPI document all use them.

A byte string is a JSON string, or `{"base64": …}` if it must be exact. Null is distinct from an empty string.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from millpond.model.ids import TOPIC_NAME
from millpond.model.subscriptions import NAME_LENGTH_MAX

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

SUFFIX: Final = "Json"
"""Ends the names of the structs. The OpenAPI document leaves it out: `TopicJson` is published as `Topic`."""

Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Millis = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Offset = Annotated[int, Meta(ge=0, le=INT64_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
TopicName = Annotated[str, Meta(extra_json_schema={"pattern": f"^{TOPIC_NAME.pattern}$"})]
"""Only shown in the OpenAPI document: the engine's own check gives better error messages."""
Encoding = Literal["text", "base64"]
Shown = Literal["auto", "text", "base64"]


class RequestStruct(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all types that clients send. Unknown field names are rejected, because they are mistakes."""


class Base64Json(RequestStruct, frozen=True):
    """Bytes, exactly: standard base64 with padding."""

    base64: str


BytesJson = str | Base64Json | None


# -- topics ---------------------------------------------------------------------------------------------------


class NewTopicJson(RequestStruct, frozen=True):
    name: TopicName
    partitions: Count | UnsetType = UNSET
    configs: dict[str, str] = field(default_factory=dict)


class TopicChangesJson(RequestStruct, frozen=True):
    """A config that is null is reset to its default."""

    partitions: Count | UnsetType = UNSET
    configs: dict[str, str | None] = field(default_factory=dict)


class TopicJson(Struct, frozen=True):
    name: str
    id: str
    partitions: int
    created_at_ms: int
    configs: dict[str, str]


class CreatedTopicJson(TopicJson, frozen=True):
    """`note` says which setting decided the partition count, if the request did not."""

    note: str | UnsetType = UNSET


class TopicsJson(Struct, frozen=True):
    topics: list[TopicJson]


class PartitionJson(Struct, frozen=True):
    partition: int
    log_start: int
    end_offset: int
    size_bytes: int


class ConfigJson(Struct, frozen=True):
    value: str
    source: Literal["topic", "group", "broker", "default"]


class TopicDetailsJson(Struct, frozen=True):
    name: str
    id: str
    created_at_ms: int
    partitions: list[PartitionJson]
    configs: dict[str, ConfigJson]


# -- messages -------------------------------------------------------------------------------------------------


class NewHeaderJson(RequestStruct, frozen=True):
    name: str
    value: BytesJson


class NewMessageJson(RequestStruct, frozen=True):
    """A null value is a tombstone. `encoding` is the encoding of the plain strings of this message."""

    value: BytesJson
    key: BytesJson = None
    headers: list[NewHeaderJson] | dict[str, BytesJson] = field(default_factory=list)
    timestamp_ms: Millis | UnsetType = UNSET
    encoding: Encoding = "text"


class NewMessagesJson(RequestStruct, frozen=True):
    messages: Annotated[list[NewMessageJson], Meta(min_length=1)]


class ProducedJson(Struct, frozen=True):
    """`number` counts from 1: it is the offset plus one."""

    topic: str
    partition: int
    offset: int
    number: int


class PlaceJson(Struct, frozen=True):
    partition: int
    offset: int


class ProducedMessagesJson(Struct, frozen=True):
    messages: list[PlaceJson]


class MessageHeaderJson(Struct, frozen=True):
    name: str
    value: BytesJson


class MessageJson(Struct, frozen=True):
    """`encoding` is the encoding of plain strings; `{"base64": …}` is always base64."""

    partition: int
    offset: int
    number: int
    timestamp_ms: int
    key: BytesJson
    value: BytesJson
    headers: list[MessageHeaderJson]
    encoding: Encoding


class FetchedJson(Struct, frozen=True):
    """Continue at `next_offset`. `end_offset` is the offset of the next message that will become readable."""

    topic: str
    partition: int
    messages: list[MessageJson]
    next_offset: int
    log_start: int
    end_offset: int


# -- payloads -------------------------------------------------------------------------------------------------


class PayloadPlaceJson(Struct, frozen=True):
    """Send `headers` with the request, before `expires_at_ms`."""

    url: str
    method: Literal["GET", "PUT"]
    headers: dict[str, str]
    expires_at_ms: int


class StoredPayloadJson(Struct, frozen=True):
    """`reference` is the value of the `millpond-payload` header of the message."""

    topic: str
    id: str
    bytes: int
    reference: str


# -- subscriptions --------------------------------------------------------------------------------------------

ModeJson = Literal["shared", "key_shared", "exclusive", "failover", "multicast"]
ExhaustedJson = Literal["dead_letter", "block", "drop"]
SubscriptionName = Annotated[
    str, Meta(extra_json_schema={"pattern": f"^[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}$"})
]
ConsumerName = Annotated[str, Meta(min_length=1, max_length=200)]
AckIdsJson = Annotated[list[str], Meta(min_length=1, max_length=10_000)]
ReasonText = Annotated[str, Meta(max_length=4_000)]
AckResultJson = Literal["ok", "stale", "unknown", "not_owner"]


class NewSubscriptionConfigJson(RequestStruct, frozen=True):
    """Fields that are not set have their default, or keep their value. docs/reference/subscriptions.md has units and
    bounds."""

    mode: ModeJson | UnsetType = UNSET
    ack_timeout_ms: Millis | UnsetType = UNSET
    attempts_max: Count | UnsetType = UNSET
    on_exhausted: ExhaustedJson | UnsetType = UNSET
    dead_letter_topic: str | UnsetType = UNSET
    backoff_ms: Millis | UnsetType = UNSET
    backoff_max_ms: Millis | UnsetType = UNSET
    key_window: Count | UnsetType = UNSET
    leases_max: Count | UnsetType = UNSET


class StartPlaceJson(RequestStruct, frozen=True):
    """`value` is an offset, or a time in milliseconds since 1970."""

    at: Literal["earliest", "latest", "offset", "time"] = "earliest"
    value: Offset = 0


class NewSubscriptionJson(RequestStruct, frozen=True):
    name: SubscriptionName
    config: NewSubscriptionConfigJson = NewSubscriptionConfigJson()
    start: StartPlaceJson = StartPlaceJson()


class SubscriptionChangesJson(RequestStruct, frozen=True):
    config: NewSubscriptionConfigJson


class SubscriptionResetJson(RequestStruct, frozen=True):
    start: StartPlaceJson


class SubscriptionConfigJson(Struct, frozen=True):
    mode: ModeJson
    ack_timeout_ms: int
    attempts_max: int
    on_exhausted: ExhaustedJson
    dead_letter_topic: str
    backoff_ms: int
    backoff_max_ms: int
    key_window: int
    leases_max: int


class SubscriptionJson(Struct, frozen=True):
    topic: str
    name: str
    created_at_ms: int
    config: SubscriptionConfigJson


class SubscriptionsJson(Struct, frozen=True):
    subscriptions: list[SubscriptionJson]


class SubscriptionKeyJson(Struct, frozen=True):
    """A blocked key: its first message, how many messages wait behind it, and why. `until_ms` is 0 if only a
    consumer or an operator can unblock it."""

    key_hash: str
    offset: int
    waiting: int
    why: str
    consumer: str
    until_ms: int


class FailingMessageJson(Struct, frozen=True):
    """A message that has failed and is not settled: why its last deliveries failed (the oldest first), and what it
    waits for: `ready`, `leased`, `delayed` (until `until_ms`), `blocked` or `settling`."""

    offset: int
    attempts: int
    reasons: list[str]
    why: str
    until_ms: int


class SubscriptionPartitionJson(Struct, frozen=True):
    """Every offset below `floor` is settled. Deliveries in flight are known only if `at_work` is true. `failing` has
    the first failing messages, as last stored if `at_work` is false."""

    partition: int
    member: str
    floor: int
    end_offset: int
    backlog: int
    at_work: bool
    leased: int
    delayed: int
    tracked: int
    oldest_age_ms: int
    keys: list[SubscriptionKeyJson]
    failing: list[FailingMessageJson]


class SubscriptionConsumerJson(Struct, frozen=True):
    name: str
    credit: int
    leased: int
    queued: int
    acked: int
    paused: bool
    suspended: bool
    weight: float


class SubscriptionDetailsJson(Struct, frozen=True):
    topic: str
    name: str
    created_at_ms: int
    config: SubscriptionConfigJson
    partitions: list[SubscriptionPartitionJson]
    consumers: list[SubscriptionConsumerJson]
    dead_letter_topic: str
    dead_letters_waiting: int


class RedriveOrderJson(RequestStruct, frozen=True):
    """Without a number, all of them."""

    messages_max: Count | UnsetType = UNSET


class RedrivenJson(Struct, frozen=True):
    redriven: int


class UnblockedJson(Struct, frozen=True):
    unblocked: int


class PullJson(RequestStruct, frozen=True):
    """`consumer` is a name that only this consumer uses. A pull returns at least one available message, whatever its
    size."""

    consumer: ConsumerName
    messages_max: Count = 100
    bytes_max: Count = 1024 * 1024
    wait_ms: Millis = 0
    encoding: Shown = "auto"


class DeliveryJson(Struct, frozen=True):
    """A message and the id with which to acknowledge it. `retry_count` is the number of its failed deliveries."""

    ack_id: str
    partition: int
    offset: int
    number: int
    timestamp_ms: int
    age_ms: int
    retry_count: int
    key: BytesJson
    value: BytesJson
    headers: list[MessageHeaderJson]
    encoding: Encoding


class PulledDeliveriesJson(Struct, frozen=True):
    """`brokers` are the brokers that deliver the other partitions of the topic: a consumer of all partitions pulls
    from each of them and acknowledges each delivery at the broker that sent it. Empty if this broker owns all
    partitions."""

    topic: str
    subscription: str
    deliveries: list[DeliveryJson]
    brokers: list[str]


class AcksJson(RequestStruct, frozen=True):
    consumer: ConsumerName
    ack_ids: AckIdsJson


class NacksJson(RequestStruct, frozen=True):
    """Without a delay the messages are redelivered after the subscription's backoff. The reason says why they could
    not be processed; it is kept as one line of at most 500 bytes."""

    consumer: ConsumerName
    ack_ids: AckIdsJson
    delay_ms: Millis | UnsetType = UNSET
    reason: ReasonText = ""


class ExtensionsJson(RequestStruct, frozen=True):
    """New ack timeout of the deliveries, counted from now."""

    consumer: ConsumerName
    ack_ids: AckIdsJson
    extend_ms: Millis


class AnsweredIdJson(Struct, frozen=True):
    ack_id: str
    result: AckResultJson


class AnsweredJson(Struct, frozen=True):
    """`ok` is durable. `stale`: settled already, delivered again since, or of an earlier owner of the partition.
    `unknown`: this subscription never issued such an id."""

    results: list[AnsweredIdJson]


# -- groups ---------------------------------------------------------------------------------------------------


class GroupListingJson(Struct, frozen=True):
    """`type` is the protocol of its members, `classic` or `consumer` (KIP-848), or `share` (KIP-932)."""

    group: str
    state: str
    protocol_type: str
    type: str


class GroupListingsJson(Struct, frozen=True):
    groups: list[GroupListingJson]


class AssignedTopicJson(Struct, frozen=True):
    topic: str
    partitions: list[int]


class MemberJson(Struct, frozen=True):
    """`assigned` has the topics that the client may describe."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    assigned: list[AssignedTopicJson]


class GroupPartitionJson(Struct, frozen=True):
    """`offset` and `lag` are null if a member reads the partition and has not committed anything yet. Of a share group
    the offset is the first one that is not settled."""

    topic: str
    partition: int
    offset: int | None
    log_start: int
    end_offset: int
    lag: int | None
    metadata: str


class GroupJson(Struct, frozen=True):
    """`lag` is the sum over all partitions: null if one of them is unknown, or if there are none. `epoch` rises when
    members or their topics change; of a classic group it is the generation."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    type: str
    epoch: int
    members: list[MemberJson]
    partitions: list[GroupPartitionJson]
    lag: int | None


class PositionJson(RequestStruct, frozen=True):
    partition: PartitionNumber
    offset: Offset


class PositionsJson(RequestStruct, frozen=True):
    topic: str
    offsets: Annotated[list[PositionJson], Meta(min_length=1)]


# -- status ---------------------------------------------------------------------------------------------------


class StatusJson(Struct, frozen=True):
    status: Literal["ok"]


class ClusterBrokerJson(Struct, frozen=True):
    """A broker, and how much it owns. The remaining time of its lease is negative if the lease has expired."""

    node_id: int
    state: Literal["serving", "draining", "drained", "silent"]
    partitions: int
    coordinator_shards: int
    lease_ms: int
    listeners: dict[str, str]
    machine: str


class ClusterJson(Struct, frozen=True):
    """`version` counts changes of topics, brokers and owners; `unowned` are partitions without an owner."""

    version: int
    partitions: int
    unowned: int
    brokers: list[ClusterBrokerJson]


class IndexJson(Struct, frozen=True):
    """Addresses of the broker and paths of the interface."""

    name: str
    version: str
    listeners: dict[str, str]
    paths: list[str]


class ProblemJson(Struct, frozen=True):
    """Why a request was refused. `retriable`: the same request may succeed later."""

    code: str
    message: str
    retriable: bool
    details: dict[str, str | int | list[str]]
