"""A message as one line of JSON: printed by `consume --json`, read by `produce --input json`, and used by the
HTTP interface.

Bytes are a JSON string if they are UTF-8, and `{"base64": …}` if not. Null is null, which differs from empty.
"""

import binascii
from collections.abc import Iterable
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from millpond.client import Message
from millpond.model.errors import InvalidRecord
from millpond.records import Header


class Base64(Struct, frozen=True, forbid_unknown_fields=True):
    base64: str


LineBytes = str | Base64 | None


class NamedBytes(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: LineBytes


class MessageLine(Struct, frozen=True):
    partition: int
    offset: int
    number: int
    timestamp_ms: int
    key: LineBytes
    value: LineBytes
    headers: list[NamedBytes]
    encoding: Literal["text"] = "text"


class DeliveryLine(MessageLine, frozen=True):
    """From a subscription: also has the number of failed deliveries."""

    retry_count: int = 0


class NewMessageLine(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields that say where a message was stored are allowed and ignored: it gets a new offset."""

    value: LineBytes
    key: LineBytes = None
    headers: list[NamedBytes] | dict[str, LineBytes] = field(default_factory=list)
    timestamp_ms: int | None = None
    encoding: Literal["text", "base64"] = "text"
    topic: str = ""
    partition: int = 0
    offset: int = 0
    number: int = 0
    retry_count: int = 0


class ParsedMessage(Struct, frozen=True):
    """A message to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(NewMessageLine)


def to_line(message: Message) -> bytes:
    """Without the newline."""
    return _ENCODER.encode(MessageLine(*_parts(message)))


def delivery_line(message: Message, retry_count: int) -> bytes:
    return _ENCODER.encode(DeliveryLine(*_parts(message), retry_count=retry_count)) + b"\n"


def _parts(message: Message) -> tuple[int, int, int, int, LineBytes, LineBytes, list[NamedBytes]]:
    return (
        message.partition,
        message.number - 1,
        message.number,
        message.timestamp_ms,
        _shown(message.key),
        _shown(message.value),
        [NamedBytes(name, _shown(value)) for name, value in message.headers],
    )


def from_line(line: bytes) -> ParsedMessage:
    try:
        given = _DECODER.decode(line)
        return ParsedMessage(
            _bytes(given.value, given.encoding),
            _bytes(given.key, given.encoding),
            tuple((name, _bytes(value, given.encoding)) for name, value in _pairs(given.headers)),
            given.timestamp_ms if given.timestamp_ms != -1 else None,
        )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidRecord(reason=f"it is not the JSON of a message: {error}") from error


def _pairs(headers: list[NamedBytes] | dict[str, LineBytes]) -> Iterable[tuple[str, LineBytes]]:
    return headers.items() if isinstance(headers, dict) else ((each.name, each.value) for each in headers)


def _shown(data: bytes | None) -> LineBytes:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Base64(binascii.b2a_base64(data, newline=False).decode("ascii"))


def _bytes(given: LineBytes, encoding: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, Base64):
        return binascii.a2b_base64(given.base64, strict_mode=True)
    return binascii.a2b_base64(given, strict_mode=True) if encoding == "base64" else given.encode()
