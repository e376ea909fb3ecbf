"""The bytes before a message: the frame length and the request or response header.

Requests have header v1, or v2 (with tagged fields) if the message version is flexible. Responses have header
v0, or v1 if it is flexible. Two exceptions: `client_id` keeps its two-byte length in v2, so that a header can
be read that far before its version is known; and the ApiVersions response always has header v0 (KIP-511).
"""

import struct
from typing import NamedTuple

from millpond.model.buffers import Buffer
from millpond.model.errors import MalformedMessage
from millpond.protocol.codec import Encoded, encode
from millpond.protocol.messages import REQUESTS
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.primitives import refuse_length, skip_tags, text_bytes
from millpond.protocol.schema import Request, Response

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's own limit for a request (`socket.request.max.bytes`)."""

_CONTROLLED_SHUTDOWN = 7
_LENGTH = struct.Struct(">i")
_FIXED = struct.Struct(">hhi")  # key, version, correlation id
_SHORT = struct.Struct(">h")
_RESPONSE = struct.Struct(">ii")  # frame length, correlation id


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def frame_length(prefix: Buffer, limit: int = FRAME_BYTES_MAX) -> int:
    """The number of bytes that follow the four bytes of `prefix`. Rejects bad lengths before any memory is
    allocated."""
    (length,) = _LENGTH.unpack(prefix)
    if 0 <= length <= limit:
        return int(length)
    raise MalformedMessage(
        reason=f"a frame of {length} bytes, where {limit} are allowed{_hint(bytes(prefix))}"
    )


def _hint(prefix: bytes) -> str:
    """Guess the protocol of a client that connected to the wrong port, for the log message."""
    if prefix[0] == 0x16:
        return "; it looks like TLS, which this listener does not support"
    if prefix in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return "; it looks like HTTP"
    if prefix.isascii() and (text := prefix.decode()).isprintable():
        return f"; it begins with the text {text!r}"
    return ""


def request_header_version(api_key: int, api_version: int) -> int:
    """Unknown keys use v1: the fields read from the header are the same in every version."""
    if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    kind = REQUESTS.get(api_key)
    return 2 if kind is not None and api_version in kind.flexible else 1


def response_header_version(api_key: int, api_version: int) -> int:
    kind = REQUESTS.get(api_key)
    return 1 if kind is not None and kind is not ApiVersionsRequest and api_version in kind.flexible else 0


def read_request_header(data: Buffer) -> tuple[RequestHeader, int]:
    """Returns the header of a frame (without its length prefix) and the position of the body. Does not check
    whether the key and version are supported: a client's first ApiVersions may have any version and still
    needs a response."""
    try:
        api_key, api_version, correlation_id = _FIXED.unpack_from(data)
        header_version = request_header_version(api_key, api_version)
        client_id, position = _client_id(data) if header_version > 0 else (None, _FIXED.size)
        if header_version == 2:
            position, _ = skip_tags(data, position)
    except (struct.error, IndexError):
        raise MalformedMessage(reason="the request header is cut short") from None
    except UnicodeDecodeError:
        raise MalformedMessage(reason="the client id is not UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _client_id(data: Buffer) -> tuple[str | None, int]:
    (size,) = _SHORT.unpack_from(data, _FIXED.size)
    start = _FIXED.size + _SHORT.size
    if size == -1:
        return None, start
    if not 0 <= size <= len(data) - start:
        refuse_length("client_id", size, len(data) - start)
    return str(data[start : start + size], "utf-8"), start + size


def read_response_header(data: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """Returns the correlation id and the position of the body."""
    try:
        (correlation_id,) = _LENGTH.unpack_from(data)
        position = _LENGTH.size
        if response_header_version(api_key, api_version) == 1:
            position, _ = skip_tags(data, position)
    except (struct.error, IndexError):
        raise MalformedMessage(reason="the response header is cut short") from None
    return int(correlation_id), position


def encode_request(message: Request, version: int, correlation_id: int, client_id: str | None) -> Encoded:
    """Encode a complete frame: length, header, body."""
    client = b"" if client_id is None else text_bytes(client_id)
    size = _SHORT.pack(-1 if client_id is None else len(client))
    head = _LENGTH.pack(0) + _FIXED.pack(message.api_key, version, correlation_id) + size + client
    if request_header_version(message.api_key, version) == 2:
        head += b"\0"
    return _framed(encode(message, version, head))


def encode_response(message: Response, version: int, correlation_id: int) -> Encoded:
    """Encode a complete frame: length, header, body."""
    head = _RESPONSE.pack(0, correlation_id)
    if response_header_version(message.api_key, version) == 1:
        head += b"\0"
    return _framed(encode(message, version, head))


def _framed(encoded: Encoded) -> Encoded:
    first = encoded.buffers[0]
    assert isinstance(first, bytearray), "the head is ours to write to"
    _LENGTH.pack_into(first, 0, encoded.size - LENGTH_BYTES)
    return encoded
