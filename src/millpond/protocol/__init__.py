"""Kafka's wire protocol: the messages, their versions and their encoding. Pure code: no sockets, no handlers.

`messages/` declares each message once for all versions; `codec` compiles a decoder and an encoder per version.
"""

from millpond.protocol.codec import Encoded, decode, encode
from millpond.protocol.errors import ErrorCode
from millpond.protocol.headers import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    RequestHeader,
    encode_request,
    encode_response,
    frame_length,
    read_request_header,
    read_response_header,
    request_header_version,
    response_header_version,
)
from millpond.protocol.messages import REQUESTS
from millpond.protocol.schema import NO_UUID, Request, Response, Versions, WireMessage

__all__ = [
    "FRAME_BYTES_MAX",
    "LENGTH_BYTES",
    "NO_UUID",
    "REQUESTS",
    "Encoded",
    "ErrorCode",
    "Request",
    "RequestHeader",
    "Response",
    "Versions",
    "WireMessage",
    "decode",
    "encode",
    "encode_request",
    "encode_response",
    "frame_length",
    "read_request_header",
    "read_response_header",
    "request_header_version",
    "response_header_version",
]
