"""The JSON types of the HTTP interface, declared once: handlers, validation and the OpenAPI document all use them.

A byte string is a JSON string, or `{"base64": …}` if it must be exact. Null is distinct from an empty string.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from millpond.model.ids import TOPIC_NAME
from millpond.model.subscriptions import NAME_LENGTH_MAX

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Millis = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Offset = Annotated[int, Meta(ge=0, le=INT64_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
TopicName = Annotated[str, Meta(extra_json_schema={"pattern": f"^{TOPIC_NAME.pattern}$"})]
"""Only shown in the OpenAPI document: the engine's own check gives better error messages."""
Encoding = Literal["text", "base64"]
Shown = Literal["auto", "text", "base64"]


class Given(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all types that clients send. Unknown field names are rejected, because they are mistakes."""


class Base64(Given, frozen=True):
    """Bytes, exactly: standard base64 with padding."""

    base64: str


Bytes = str | Base64 | None


# -- topics ---------------------------------------------------------------------------------------------------


class NewTopic(Given, frozen=True):
    name: TopicName
    partitions: Count | UnsetType = UNSET
    configs: dict[str, str] = field(default_factory=dict)


class TopicChanges(Given, frozen=True):
    """A config that is null is reset to its default."""

    partitions: Count | UnsetType = UNSET
    configs: dict[str, str | None] = field(default_factory=dict)


class Topic(Struct, frozen=True):
    name: str
    id: str
    partitions: int
    created_at_ms: int
    configs: dict[str, str]


class CreatedTopic(Topic, frozen=True):
    """`note` says which setting decided the partition count, if the request did not."""

    note: str | UnsetType = UNSET


class Topics(Struct, frozen=True):
    topics: list[Topic]


class Partition(Struct, frozen=True):
    partition: int
    log_start: int
    end_offset: int
    size_bytes: int


class Config(Struct, frozen=True):
    value: str
    source: Literal["topic", "broker", "default"]


class TopicDetails(Struct, frozen=True):
    name: str
    id: str
    created_at_ms: int
    partitions: list[Partition]
    configs: dict[str, Config]


# -- messages -------------------------------------------------------------------------------------------------


class NewHeader(Given, frozen=True):
    name: str
    value: Bytes


class NewMessage(Given, frozen=True):
    """A null value is a tombstone. `encoding` is the encoding of the plain strings of this message."""

    value: Bytes
    key: Bytes = None
    headers: list[NewHeader] | dict[str, Bytes] = field(default_factory=list)
    timestamp_ms: Millis | UnsetType = UNSET
    encoding: Encoding = "text"


class NewMessages(Given, frozen=True):
    messages: Annotated[list[NewMessage], Meta(min_length=1)]


class Produced(Struct, frozen=True):
    """`number` counts from 1: it is the offset plus one."""

    topic: str
    partition: int
    offset: int
    number: int


class Place(Struct, frozen=True):
    partition: int
    offset: int


class ProducedMessages(Struct, frozen=True):
    messages: list[Place]


class MessageHeader(Struct, frozen=True):
    name: str
    value: Bytes


class Message(Struct, frozen=True):
    """`encoding` is the encoding of plain strings; `{"base64": …}` is always base64."""

    partition: int
    offset: int
    number: int
    timestamp_ms: int
    key: Bytes
    value: Bytes
    headers: list[MessageHeader]
    encoding: Encoding


class Fetched(Struct, frozen=True):
    """Continue at `next_offset`. `end_offset` is the offset of the next message that will become readable."""

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
    log_start: int
    end_offset: int


# -- payloads -------------------------------------------------------------------------------------------------


class PayloadPlace(Struct, frozen=True):
    """Send `headers` with the request, before `expires_at_ms`."""

    url: str
    method: Literal["GET", "PUT"]
    headers: dict[str, str]
    expires_at_ms: int


class StoredPayload(Struct, frozen=True):
    """`reference` is the value of the `millpond-payload` header of the message."""

    topic: str
    id: str
    bytes: int
    reference: str


# -- subscriptions --------------------------------------------------------------------------------------------

Mode = Literal["shared", "key_shared", "exclusive", "failover", "multicast"]
Exhausted = Literal["dead_letter", "block", "drop"]
SubscriptionName = Annotated[
    str, Meta(extra_json_schema={"pattern": f"^[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}$"})
]
ConsumerName = Annotated[str, Meta(min_length=1, max_length=200)]
AckIds = Annotated[list[str], Meta(min_length=1, max_length=10_000)]
Result = Literal["ok", "stale", "unknown", "not_owner"]


class NewSubscriptionConfig(Given, frozen=True):
    """Fields that are not set have their default, or keep their value. docs/reference/subscriptions.md has units and
    bounds."""

    mode: Mode | UnsetType = UNSET
    ack_timeout_ms: Millis | UnsetType = UNSET
    attempts_max: Count | UnsetType = UNSET
    on_exhausted: Exhausted | UnsetType = UNSET
    dead_letter_topic: str | UnsetType = UNSET
    backoff_ms: Millis | UnsetType = UNSET
    backoff_max_ms: Millis | UnsetType = UNSET
    key_window: Count | UnsetType = UNSET
    leases_max: Count | UnsetType = UNSET


class StartPlace(Given, frozen=True):
    """`value` is an offset, or a time in milliseconds since 1970."""

    at: Literal["earliest", "latest", "offset", "time"] = "earliest"
    value: Offset = 0


class NewSubscription(Given, frozen=True):
    name: SubscriptionName
    config: NewSubscriptionConfig = NewSubscriptionConfig()
    start: StartPlace = StartPlace()


class SubscriptionChanges(Given, frozen=True):
    config: NewSubscriptionConfig


class SubscriptionReset(Given, frozen=True):
    start: StartPlace


class SubscriptionConfig(Struct, frozen=True):
    mode: Mode
    ack_timeout_ms: int
    attempts_max: int
    on_exhausted: Exhausted
    dead_letter_topic: str
    backoff_ms: int
    backoff_max_ms: int
    key_window: int
    leases_max: int


class Subscription(Struct, frozen=True):
    topic: str
    name: str
    created_at_ms: int
    config: SubscriptionConfig


class Subscriptions(Struct, frozen=True):
    subscriptions: list[Subscription]


class SubscriptionKey(Struct, frozen=True):
    """A blocked key: its first message, how many messages wait behind it, and why. `until_ms` is 0 if only a
    consumer or an operator can unblock it."""

    key_hash: str
    offset: int
    waiting: int
    why: str
    consumer: str
    until_ms: int


class SubscriptionPartition(Struct, frozen=True):
    """Every offset below `floor` is settled. Deliveries in flight are known only if `at_work` is true."""

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
    keys: list[SubscriptionKey]


class SubscriptionConsumer(Struct, frozen=True):
    name: str
    credit: int
    leased: int
    queued: int
    acked: int
    paused: bool
    suspended: bool
    weight: float


class SubscriptionDetails(Struct, frozen=True):
    topic: str
    name: str
    created_at_ms: int
    config: SubscriptionConfig
    partitions: list[SubscriptionPartition]
    consumers: list[SubscriptionConsumer]
    dead_letter_topic: str
    dead_letters_waiting: int


class RedriveOrder(Given, frozen=True):
    """Without a number, all of them."""

    messages_max: Count | UnsetType = UNSET


class Redriven(Struct, frozen=True):
    redriven: int


class Unblocked(Struct, frozen=True):
    unblocked: int


class Pull(Given, frozen=True):
    """`consumer` is a name that only this consumer uses. A pull returns at least one available message, whatever its
    size."""

    consumer: ConsumerName
    messages_max: Count = 100
    bytes_max: Count = 1024 * 1024
    wait_ms: Millis = 0
    encoding: Shown = "auto"


class Delivery(Struct, frozen=True):
    """A message and the id with which to acknowledge it. `retry_count` is the number of its failed deliveries."""

    ack_id: str
    partition: int
    offset: int
    number: int
    timestamp_ms: int
    age_ms: int
    retry_count: int
    key: Bytes
    value: Bytes
    headers: list[MessageHeader]
    encoding: Encoding


class PulledDeliveries(Struct, frozen=True):
    """`brokers` are the brokers that deliver the other partitions of the topic: a consumer of all partitions pulls
    from each of them and acknowledges each delivery at the broker that sent it. Empty if this broker owns all
    partitions."""

    topic: str
    subscription: str
    deliveries: list[Delivery]
    brokers: list[str]


class Acks(Given, frozen=True):
    consumer: ConsumerName
    ack_ids: AckIds


class Nacks(Given, frozen=True):
    """Without a delay the messages are redelivered after the subscription's backoff."""

    consumer: ConsumerName
    ack_ids: AckIds
    delay_ms: Millis | UnsetType = UNSET


class Extensions(Given, frozen=True):
    """New ack timeout of the deliveries, counted from now."""

    consumer: ConsumerName
    ack_ids: AckIds
    extend_ms: Millis


class AnsweredId(Struct, frozen=True):
    ack_id: str
    result: Result


class Answered(Struct, frozen=True):
    """`ok` is durable. `stale`: settled already, delivered again since, or of an earlier owner of the partition.
    `unknown`: this subscription never issued such an id."""

    results: list[AnsweredId]


# -- groups ---------------------------------------------------------------------------------------------------


class GroupListing(Struct, frozen=True):
    group: str
    state: str
    protocol_type: str


class GroupListings(Struct, frozen=True):
    groups: list[GroupListing]


class Member(Struct, frozen=True):
    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None


class GroupPartition(Struct, frozen=True):
    """`offset` and `lag` are null if a member reads the partition and has not committed anything yet."""

    topic: str
    partition: int
    offset: int | None
    log_start: int
    end_offset: int
    lag: int | None
    metadata: str


class Group(Struct, frozen=True):
    """`lag` is the sum over all partitions: null if one of them is unknown, or if there are none."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[Member]
    partitions: list[GroupPartition]
    lag: int | None


class Position(Given, frozen=True):
    partition: PartitionNumber
    offset: Offset


class Positions(Given, frozen=True):
    topic: str
    offsets: Annotated[list[Position], Meta(min_length=1)]


# -- status ---------------------------------------------------------------------------------------------------


class Status(Struct, frozen=True):
    status: Literal["ok"]


class ClusterBroker(Struct, frozen=True):
    """A broker, and how much it owns. The remaining time of its lease is negative if the lease has expired."""

    node_id: int
    state: Literal["serving", "draining", "drained", "silent"]
    partitions: int
    coordinator_shards: int
    lease_ms: int
    listeners: dict[str, str]
    machine: str


class Cluster(Struct, frozen=True):
    """`version` counts changes of topics, brokers and owners; `unowned` are partitions without an owner."""

    version: int
    partitions: int
    unowned: int
    brokers: list[ClusterBroker]


class Index(Struct, frozen=True):
    """Addresses of the broker and paths of the interface."""

    name: str
    version: str
    listeners: dict[str, str]
    paths: list[str]


class Problem(Struct, frozen=True):
    """Why a request was refused. `retriable`: the same request may succeed later."""

    code: str
    message: str
    retriable: bool
    details: dict[str, str | int | list[str]]
