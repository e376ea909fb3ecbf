"""The JSON of the HTTP face, declared once: handlers, checks and the OpenAPI document all use these types.

A byte string is a JSON string, or `{"base64": …}` where it must be exact; null is null, which is not empty.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from millpond.model.ids import TOPIC_NAME

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Millis = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Offset = Annotated[int, Meta(ge=0, le=INT64_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
TopicName = Annotated[str, Meta(extra_json_schema={"pattern": f"^{TOPIC_NAME.pattern}$"})]
"""Shown in the document only: what is wrong with a name, the engine says best."""
Encoding = Literal["text", "base64"]
Shown = Literal["auto", "text", "base64"]


class Given(Struct, frozen=True, forbid_unknown_fields=True):
    """What clients send: a name nobody knows is a mistake, and it is better to say so."""


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
    """A config that is null goes back to its default."""

    partitions: Count | UnsetType = UNSET
    configs: dict[str, str | None] = field(default_factory=dict)


class Topic(Struct, frozen=True):
    name: str
    id: str
    partitions: int
    created_at_ms: int
    configs: dict[str, str]


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
    """A null value is a tombstone. `encoding` says how plain strings of this message are to be read."""

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
    """`encoding` says how plain strings are to be read; `{"base64": …}` is always base64."""

    partition: int
    offset: int
    number: int
    timestamp_ms: int
    key: Bytes
    value: Bytes
    headers: list[MessageHeader]
    encoding: Encoding


class Fetched(Struct, frozen=True):
    """Go on at `next_offset`. `end_offset` is where the next message that can be read will be."""

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
    log_start: int
    end_offset: int


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
    topic: str
    partition: int
    offset: int
    log_start: int
    end_offset: int
    lag: int
    metadata: str


class Group(Struct, frozen=True):
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[Member]
    partitions: list[GroupPartition]
    lag: int


class Position(Given, frozen=True):
    partition: PartitionNumber
    offset: Offset


class Positions(Given, frozen=True):
    topic: str
    offsets: Annotated[list[Position], Meta(min_length=1)]


# -- status ---------------------------------------------------------------------------------------------------


class Status(Struct, frozen=True):
    status: Literal["ok"]


class Index(Struct, frozen=True):
    """Where things are."""

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
