"""What stands before a message: a length, then a request's or a response's header.

Requests have header v1, or v2 (with tagged fields) where the message is flexible; responses v0, or v1 where it is.
Two exceptions: `client_id` keeps its old two-byte length in v2, so that a header can be read up to there before its
version is known; and the answer to ApiVersions always has v0 (KIP-511).
"""

import struct
from typing import NamedTuple

from millpond.model.errors import MalformedMessage
from millpond.protocol.codec import Encoded, encode
from millpond.protocol.messages import REQUESTS
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.primitives import Buffer, refuse_length, skip_tags, text_bytes
from millpond.protocol.schema import Request, Response

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's own limit for a request (`socket.request.max.bytes`)."""

_CONTROLLED_SHUTDOWN = 7
_LENGTH = struct.Struct(">i")
_FIXED = struct.Struct(">hhi")  # key, version, correlation id
_SHORT = struct.Struct(">h")
_RESPONSE = struct.Struct(">ii")  # length of the frame, correlation id


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def frame_length(prefix: Buffer, limit: int = FRAME_BYTES_MAX) -> int:
    """How many bytes follow the four of `prefix`. Refused before anyone allocates for them."""
    (length,) = _LENGTH.unpack(prefix)
    if 0 <= length <= limit:
        return int(length)
    raise MalformedMessage(
        reason=f"a frame of {length} bytes, where {limit} are allowed{_hint(bytes(prefix))}"
    )


def _hint(prefix: bytes) -> str:
    """Whoever wrote to the wrong port will look for it in the log."""
    if prefix[0] == 0x16:
        return "; it looks like TLS, which is not spoken here"
    if prefix in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return "; it looks like HTTP"
    if prefix.isascii() and (text := prefix.decode()).isprintable():
        return f"; it begins with the text {text!r}"
    return ""


def request_header_version(api_key: int, api_version: int) -> int:
    """An unknown key has v1: what can be read of it is the same in every version."""
    if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    kind = REQUESTS.get(api_key)
    return 2 if kind is not None and api_version in kind.flexible else 1


def response_header_version(api_key: int, api_version: int) -> int:
    kind = REQUESTS.get(api_key)
    return 1 if kind is not None and kind is not ApiVersionsRequest and api_version in kind.flexible else 0


def read_request_header(data: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame (without its length) and where the body begins. Says nothing about whether the key and
    the version are supported: a client's first ApiVersions may be of any version, and still wants an answer."""
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
    """The correlation id and where the body begins."""
    try:
        (correlation_id,) = _LENGTH.unpack_from(data)
        position = _LENGTH.size
        if response_header_version(api_key, api_version) == 1:
            position, _ = skip_tags(data, position)
    except (struct.error, IndexError):
        raise MalformedMessage(reason="the response header is cut short") from None
    return int(correlation_id), position


def encode_request(message: Request, version: int, correlation_id: int, client_id: str | None) -> Encoded:
    """A whole frame: length, header, body."""
    client = b"" if client_id is None else text_bytes(client_id)
    size = _SHORT.pack(-1 if client_id is None else len(client))
    head = _LENGTH.pack(0) + _FIXED.pack(message.api_key, version, correlation_id) + size + client
    if request_header_version(message.api_key, version) == 2:
        head += b"\0"
    return _framed(encode(message, version, head))


def encode_response(message: Response, version: int, correlation_id: int) -> Encoded:
    """A whole frame: length, header, body."""
    head = _RESPONSE.pack(0, correlation_id)
    if response_header_version(message.api_key, version) == 1:
        head += b"\0"
    return _framed(encode(message, version, head))


def _framed(encoded: Encoded) -> Encoded:
    first = encoded.buffers[0]
    assert isinstance(first, bytearray), "the head is ours to write to"
    _LENGTH.pack_into(first, 0, encoded.size - LENGTH_BYTES)
    return encoded
