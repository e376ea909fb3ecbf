from millpond.stubs import log_pb2 as _log_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_UNSPECIFIED: _ClassVar[Answer]
    ANSWER_OK: _ClassVar[Answer]
    ANSWER_STALE: _ClassVar[Answer]
    ANSWER_UNKNOWN: _ClassVar[Answer]
    ANSWER_NOT_OWNER: _ClassVar[Answer]
ANSWER_UNSPECIFIED: Answer
ANSWER_OK: Answer
ANSWER_STALE: Answer
ANSWER_UNKNOWN: Answer
ANSWER_NOT_OWNER: Answer

class Subscription(_message.Message):
    __slots__ = ("topic", "name", "config", "created_at_ms")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    config: _containers.ScalarMap[str, str]
    created_at_ms: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ..., created_at_ms: _Optional[int] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("at", "value")
    class At(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EARLIEST: _ClassVar[Start.At]
        LATEST: _ClassVar[Start.At]
        NUMBER: _ClassVar[Start.At]
        TIME: _ClassVar[Start.At]
    EARLIEST: Start.At
    LATEST: Start.At
    NUMBER: Start.At
    TIME: Start.At
    AT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    at: Start.At
    value: int
    def __init__(self, at: _Optional[_Union[Start.At, str]] = ..., value: _Optional[int] = ...) -> None: ...

class CreateSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name", "config", "start")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    config: _containers.ScalarMap[str, str]
    start: Start
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ..., start: _Optional[_Union[Start, _Mapping]] = ...) -> None: ...

class AlterSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    config: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSubscriptionsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions",)
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ...) -> None: ...

class DescribeSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name", "keys_max", "failing_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEYS_MAX_FIELD_NUMBER: _ClassVar[int]
    FAILING_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    keys_max: int
    failing_max: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., keys_max: _Optional[int] = ..., failing_max: _Optional[int] = ...) -> None: ...

class SubscriptionState(_message.Message):
    __slots__ = ("subscription", "partitions", "consumers", "dead_letter_topic", "dead_letters_waiting")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_WAITING_FIELD_NUMBER: _ClassVar[int]
    subscription: Subscription
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionState]
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerState]
    dead_letter_topic: str
    dead_letters_waiting: int
    def __init__(self, subscription: _Optional[_Union[Subscription, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionState, _Mapping]]] = ..., consumers: _Optional[_Iterable[_Union[ConsumerState, _Mapping]]] = ..., dead_letter_topic: _Optional[str] = ..., dead_letters_waiting: _Optional[int] = ...) -> None: ...

class PartitionState(_message.Message):
    __slots__ = ("partition", "member", "floor", "next", "backlog", "at_work", "leased", "delayed", "tracked", "oldest_unsettled_age_ms", "keys", "failing")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    AT_WORK_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNSETTLED_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    partition: int
    member: str
    floor: int
    next: int
    backlog: int
    at_work: bool
    leased: int
    delayed: int
    tracked: int
    oldest_unsettled_age_ms: int
    keys: _containers.RepeatedCompositeFieldContainer[KeyState]
    failing: _containers.RepeatedCompositeFieldContainer[FailingMessage]
    def __init__(self, partition: _Optional[int] = ..., member: _Optional[str] = ..., floor: _Optional[int] = ..., next: _Optional[int] = ..., backlog: _Optional[int] = ..., at_work: _Optional[bool] = ..., leased: _Optional[int] = ..., delayed: _Optional[int] = ..., tracked: _Optional[int] = ..., oldest_unsettled_age_ms: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[KeyState, _Mapping]]] = ..., failing: _Optional[_Iterable[_Union[FailingMessage, _Mapping]]] = ...) -> None: ...

class FailingMessage(_message.Message):
    __slots__ = ("number", "attempts", "reasons", "why", "until_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    attempts: int
    reasons: _containers.RepeatedScalarFieldContainer[str]
    why: str
    until_ms: int
    def __init__(self, number: _Optional[int] = ..., attempts: _Optional[int] = ..., reasons: _Optional[_Iterable[str]] = ..., why: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class KeyState(_message.Message):
    __slots__ = ("key_hash", "number", "waiting", "why", "consumer", "until_ms")
    KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    key_hash: str
    number: int
    waiting: int
    why: str
    consumer: str
    until_ms: int
    def __init__(self, key_hash: _Optional[str] = ..., number: _Optional[int] = ..., waiting: _Optional[int] = ..., why: _Optional[str] = ..., consumer: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ConsumerState(_message.Message):
    __slots__ = ("name", "credit", "leased", "queued", "acked", "paused", "suspended", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    credit: int
    leased: int
    queued: int
    acked: int
    paused: bool
    suspended: bool
    weight: float
    def __init__(self, name: _Optional[str] = ..., credit: _Optional[int] = ..., leased: _Optional[int] = ..., queued: _Optional[int] = ..., acked: _Optional[int] = ..., paused: _Optional[bool] = ..., suspended: _Optional[bool] = ..., weight: _Optional[float] = ...) -> None: ...

class ResetSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "name", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    start: Start
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., start: _Optional[_Union[Start, _Mapping]] = ...) -> None: ...

class ResetSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RedriveDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "name", "messages_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    messages_max: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., messages_max: _Optional[int] = ...) -> None: ...

class RedriveDeadLettersResponse(_message.Message):
    __slots__ = ("redriven",)
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    redriven: int
    def __init__(self, redriven: _Optional[int] = ...) -> None: ...

class UnblockRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class UnblockResponse(_message.Message):
    __slots__ = ("unblocked",)
    UNBLOCKED_FIELD_NUMBER: _ClassVar[int]
    unblocked: int
    def __init__(self, unblocked: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("attach", "credit", "answers", "flow", "detach")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    attach: Attach
    credit: Credit
    answers: Answers
    flow: Flow
    detach: Detach
    def __init__(self, attach: _Optional[_Union[Attach, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., answers: _Optional[_Union[Answers, _Mapping]] = ..., flow: _Optional[_Union[Flow, _Mapping]] = ..., detach: _Optional[_Union[Detach, _Mapping]] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("topic", "subscription", "consumer", "value_bytes_max", "metadata_only")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    METADATA_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    consumer: str
    value_bytes_max: int
    metadata_only: bool
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer: _Optional[str] = ..., value_bytes_max: _Optional[int] = ..., metadata_only: _Optional[bool] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("messages", "bytes")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    bytes: int
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Answers(_message.Message):
    __slots__ = ("request", "acks", "cumulative", "nacks", "nack_delay_ms", "extends", "extend_ms", "nack_reasons")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    NACKS_FIELD_NUMBER: _ClassVar[int]
    NACK_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    EXTENDS_FIELD_NUMBER: _ClassVar[int]
    EXTEND_MS_FIELD_NUMBER: _ClassVar[int]
    NACK_REASONS_FIELD_NUMBER: _ClassVar[int]
    request: int
    acks: _containers.RepeatedScalarFieldContainer[bytes]
    cumulative: bool
    nacks: _containers.RepeatedScalarFieldContainer[bytes]
    nack_delay_ms: int
    extends: _containers.RepeatedScalarFieldContainer[bytes]
    extend_ms: int
    nack_reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request: _Optional[int] = ..., acks: _Optional[_Iterable[bytes]] = ..., cumulative: _Optional[bool] = ..., nacks: _Optional[_Iterable[bytes]] = ..., nack_delay_ms: _Optional[int] = ..., extends: _Optional[_Iterable[bytes]] = ..., extend_ms: _Optional[int] = ..., nack_reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class Flow(_message.Message):
    __slots__ = ("paused",)
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    def __init__(self, paused: _Optional[bool] = ...) -> None: ...

class Detach(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("attached", "deliveries", "results", "revoked", "lost")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    deliveries: Deliveries
    results: _containers.RepeatedCompositeFieldContainer[Results]
    revoked: Revoked
    lost: PartitionLost
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping]] = ..., deliveries: _Optional[_Union[Deliveries, _Mapping]] = ..., results: _Optional[_Iterable[_Union[Results, _Mapping]]] = ..., revoked: _Optional[_Union[Revoked, _Mapping]] = ..., lost: _Optional[_Union[PartitionLost, _Mapping]] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("brokers", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedScalarFieldContainer[str]
    config: _containers.ScalarMap[str, str]
    def __init__(self, brokers: _Optional[_Iterable[str]] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Deliveries(_message.Message):
    __slots__ = ("partition", "epoch", "deliveries")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    partition: int
    epoch: int
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, partition: _Optional[int] = ..., epoch: _Optional[int] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("ack_id", "number", "key", "value", "headers", "timestamp_ms", "retry_count", "value_omitted")
    ACK_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    VALUE_OMITTED_FIELD_NUMBER: _ClassVar[int]
    ack_id: bytes
    number: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[_log_pb2.Header]
    timestamp_ms: int
    retry_count: int
    value_omitted: bool
    def __init__(self, ack_id: _Optional[bytes] = ..., number: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[_log_pb2.Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., retry_count: _Optional[int] = ..., value_omitted: _Optional[bool] = ...) -> None: ...

class Results(_message.Message):
    __slots__ = ("request", "answers")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    request: int
    answers: _containers.RepeatedScalarFieldContainer[Answer]
    def __init__(self, request: _Optional[int] = ..., answers: _Optional[_Iterable[_Union[Answer, str]]] = ...) -> None: ...

class Revoked(_message.Message):
    __slots__ = ("partition", "ack_ids")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    ack_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, partition: _Optional[int] = ..., ack_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PartitionLost(_message.Message):
    __slots__ = ("partition", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: int
    error: _log_pb2.Error
    def __init__(self, partition: _Optional[int] = ..., error: _Optional[_Union[_log_pb2.Error, _Mapping]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("topic", "subscription", "consumer", "acks", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    consumer: str
    acks: _containers.RepeatedScalarFieldContainer[bytes]
    messages: _containers.RepeatedCompositeFieldContainer[Appended]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer: _Optional[str] = ..., acks: _Optional[_Iterable[bytes]] = ..., messages: _Optional[_Iterable[_Union[Appended, _Mapping]]] = ...) -> None: ...

class Appended(_message.Message):
    __slots__ = ("topic", "partition", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    message: _log_pb2.NewMessage
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., message: _Optional[_Union[_log_pb2.NewMessage, _Mapping]] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("answers", "numbers", "partitions")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedScalarFieldContainer[Answer]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, str]]] = ..., numbers: _Optional[_Iterable[int]] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...
