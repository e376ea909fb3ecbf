from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LookRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LookResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ("cluster_id", "topology", "brokers", "unowned", "partitions")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    topology: int
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    unowned: int
    partitions: int
    def __init__(self, cluster_id: _Optional[str] = ..., topology: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., unowned: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class Broker(_message.Message):
    __slots__ = ("node_id", "session", "listeners", "machine", "draining", "partitions", "coordinator_shards", "lease_ms", "answering")
    class ListenersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_SHARDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    ANSWERING_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    session: str
    listeners: _containers.ScalarMap[str, str]
    machine: str
    draining: bool
    partitions: int
    coordinator_shards: int
    lease_ms: int
    answering: bool
    def __init__(self, node_id: _Optional[int] = ..., session: _Optional[str] = ..., listeners: _Optional[_Mapping[str, str]] = ..., machine: _Optional[str] = ..., draining: _Optional[bool] = ..., partitions: _Optional[int] = ..., coordinator_shards: _Optional[int] = ..., lease_ms: _Optional[int] = ..., answering: _Optional[bool] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("node_id", "undo")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    undo: bool
    def __init__(self, node_id: _Optional[int] = ..., undo: _Optional[bool] = ...) -> None: ...

class RebalanceRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
