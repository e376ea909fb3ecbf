from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("number", "partition", "key", "value", "headers", "timestamp_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    partition: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    def __init__(self, number: _Optional[int] = ..., partition: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("topic", "partition", "messages", "batch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    messages: _containers.RepeatedCompositeFieldContainer[NewMessage]
    batch: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ..., batch: _Optional[bytes] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("numbers", "partitions")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, numbers: _Optional[_Iterable[int]] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ProduceStreamResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ProduceResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ProduceResult, _Mapping]]] = ...) -> None: ...

class ProduceResult(_message.Message):
    __slots__ = ("produced", "error")
    PRODUCED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    produced: ProduceResponse
    error: Error
    def __init__(self, produced: _Optional[_Union[ProduceResponse, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "reason", "message", "retriable", "retry_after_ms", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    retriable: bool
    retry_after_ms: int
    facts: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., retriable: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("partition", "read_from")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    READ_FROM_FIELD_NUMBER: _ClassVar[int]
    partition: int
    read_from: int
    def __init__(self, partition: _Optional[int] = ..., read_from: _Optional[int] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("topic", "positions", "messages_max", "bytes_max", "wait_ms", "strict", "uncommitted", "as_batches", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    AS_BATCHES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    messages_max: int
    bytes_max: int
    wait_ms: int
    strict: bool
    uncommitted: bool
    as_batches: bool
    topic_id: str
    def __init__(self, topic: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., messages_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., strict: _Optional[bool] = ..., uncommitted: _Optional[bool] = ..., as_batches: _Optional[bool] = ..., topic_id: _Optional[str] = ...) -> None: ...

class PollResponse(_message.Message):
    __slots__ = ("messages", "batches", "standings", "topic_id")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    STANDINGS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    standings: _containers.RepeatedCompositeFieldContainer[Standing]
    topic_id: str
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ..., standings: _Optional[_Iterable[_Union[Standing, _Mapping]]] = ..., topic_id: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("partition", "data")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    partition: int
    data: bytes
    def __init__(self, partition: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("partition", "read_from", "oldest", "next")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    READ_FROM_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    partition: int
    read_from: int
    oldest: int
    next: int
    def __init__(self, partition: _Optional[int] = ..., read_from: _Optional[int] = ..., oldest: _Optional[int] = ..., next: _Optional[int] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("topic", "positions", "messages_max", "bytes_max", "strict", "uncommitted", "as_batches", "until_end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    AS_BATCHES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    messages_max: int
    bytes_max: int
    strict: bool
    uncommitted: bool
    as_batches: bool
    until_end: bool
    def __init__(self, topic: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., messages_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., strict: _Optional[bool] = ..., uncommitted: _Optional[bool] = ..., as_batches: _Optional[bool] = ..., until_end: _Optional[bool] = ...) -> None: ...

class InitProducerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...
