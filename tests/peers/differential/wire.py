"""Requests over one socket, as bytes: what no client library would send can be sent too."""

import dataclasses
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

from millpond.protocol import ErrorCode, Request, WireMessage, decode, encode_request, read_response_header
from millpond.protocol.schema import Response

ANSWER_SECONDS_MAX = 10.0
CLIENT_ID = "probe"
CORRELATION_ID = 7

CLOSED = "the connection was closed"
SILENT = "no answer"

_DROPPED = frozenset(("throttle_time_ms", "topic_authorized_operations", "cluster_authorized_operations"))
_DROPPED_TOO = frozenset(("authorized_operations",))
_MASKED = frozenset(("topic_id", "cluster_id", "host", "client_host", "log_dir", "member_metadata"))
_IDENTITIES = frozenset(("member_id", "leader", "client_id"))
_NUMBERS = frozenset(
    (
        *("port", "node_id", "leader_id", "controller_id", "producer_id", "log_append_time_ms", "session_id"),
        *("broker_id", "partition_size", "total_bytes", "usable_bytes"),
    )
)
_FROM_ZERO = frozenset(
    ("leader_epoch", "producer_id", "committed_leader_epoch", "node_id", "leader_id", "broker_id")
)
_NODE_LISTS = frozenset(("replica_nodes", "isr_nodes"))


M = TypeVar("M", bound=WireMessage)


class Wire:
    """One connection. A request is answered before the next is sent."""

    def __init__(self, address: str, source: str = "") -> None:
        """`source` is the address of this machine from which it connects."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection(
            (host, int(port)), ANSWER_SECONDS_MAX, (source, 0) if source else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, message: Request, version: int) -> Any:
        """The decoded answer, or a sentence that says why there is none."""
        self.send(message, version)
        answer = self.receive()
        if isinstance(answer, str):
            return answer
        return self.read(type(message), version, answer)

    def send(self, message: Request, version: int) -> None:
        self.write(b"".join(encode_request(message, version, CORRELATION_ID, CLIENT_ID).buffers))

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def raw(self, key: int, version: int, body: bytes, flexible: bool = False) -> bytes | str:
        """A request that no codec would write."""
        client = CLIENT_ID.encode()
        head = struct.pack(">hhih", key, version, CORRELATION_ID, len(client)) + client
        frame = head + (b"\0" if flexible else b"") + body
        self.write(struct.pack(">i", len(frame)) + frame)
        return self.receive()

    def receive(self, seconds: float = ANSWER_SECONDS_MAX) -> bytes | str:
        """A frame without its length."""
        self._socket.settimeout(seconds)
        try:
            (length,) = struct.unpack(">i", self._exactly(4))
            return self._exactly(length)
        except TimeoutError:
            return SILENT
        except (ConnectionError, EOFError):
            return CLOSED

    def read(self, kind: type[Request], version: int, answer: bytes) -> Response:
        correlation, position = read_response_header(answer, kind.api_key, version)
        assert correlation == CORRELATION_ID
        return decode(kind.response, version, answer, position)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


def make(kind: type[M], *values: Any, **named: Any) -> M:
    """A message, whose first fields may go without their names."""
    names = [each.name for each in dataclasses.fields(kind)]
    return kind(**dict(zip(names, values, strict=False)), **named)


def plain(value: Any, name: str = "") -> Any:
    """An answer as JSON can hold it, with what must differ between two brokers masked: ids, addresses, sizes."""
    if isinstance(value, WireMessage) or dataclasses.is_dataclass(value):
        fields = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
        kept = ((key, each) for key, each in fields if key not in _DROPPED | _DROPPED_TOO)
        return {_label(key): plain(each, key) for key, each in kept}
    if isinstance(value, Mapping):
        return {str(key): plain(each, str(key)) for key, each in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value), name)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{len(value)} nodes" if name in _NODE_LISTS else _listed(value, name)
    return _scalar(value, name)


def _listed(values: Sequence[Any], name: str) -> list[Any]:
    """In one order: that of topics, partitions and members in an answer means nothing."""
    told = [plain(each, name) for each in values]
    return sorted(told, key=lambda each: json.dumps(each, sort_keys=True)) if _are_messages(told) else told


def _are_messages(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(each, dict) for each in values)


def _label(key: str) -> str:
    return "message" if key.endswith("error_message") else key


def _bytes(value: bytes, name: str) -> str:
    if name in _MASKED:
        return "given" if any(value) else "none"
    return value.hex() if len(value) <= 64 else f"{len(value)} bytes"


def _scalar(value: Any, name: str) -> Any:
    if name.endswith("error_code") and isinstance(value, int):
        return error_name(value)
    if name in _MASKED | _IDENTITIES and isinstance(value, str):
        return "given" if value else value
    if name in _NUMBERS and isinstance(value, int) and value > 0:
        return "given"
    if name in _FROM_ZERO and isinstance(value, int) and value >= 0:
        return "given"
    return value


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
