"""Converts messages from and to their HTTP forms: raw `key:value`, binary with headers, and JSON. Pure functions.

A message is returned byte for byte as it was received, or it is refused. Only the encoding `text`, which is
for human readers, is lossy.
"""

import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from millpond.frontends.web.schemas import (
    Base64Json,
    BytesJson,
    Encoding,
    MessageHeaderJson,
    MessageJson,
    NewHeaderJson,
    NewMessageJson,
    NewMessagesJson,
    Shown,
)
from millpond.model.errors import InvalidRequest
from millpond.records import NO_TIMESTAMP, Header, Record

T = TypeVar("T")
RawHeaders = Sequence[tuple[bytes, bytes]]

KEY: Final = b"x-millpond-key"
KEY_BASE64: Final = b"x-millpond-key-base64"
TIMESTAMP: Final = b"x-millpond-timestamp"
OFFSET: Final = b"x-millpond-offset"
LEFT_OUT: Final = b"x-millpond-left-out"
HEADER_PREFIX: Final = b"x-millpond-header-"
TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
PRINTABLE: Final = re.compile(rb"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
"""Values that a header can carry and all clients read alike: no surrounding spaces, no control characters."""
WHOLE_NUMBER: Final = re.compile(rb"[0-9]{1,18}")

BASE64_PIECE: Final = 1024 * 1024
"""Characters decoded at a time. Python switches threads only between pieces."""
BYTES_PIECE: Final = BASE64_PIECE // 4 * 3

ONE_STEP_BYTES_MAX: Final = 128 * 1024
"""JSON up to this size is decoded in one step. In larger bodies messages are counted first and then decoded
one by one."""
SCAN_PIECE: Final = 64 * 1024
"""Bytes scanned in one step."""
SPACE: Final = rb"[ \t\r\n]{0,1000}"
BATCH_OPENING: Final = re.compile(
    SPACE + rb"\{" + SPACE + rb'"messages"' + SPACE + rb":" + SPACE + rb"\[" + SPACE
)
BATCH_COMMA: Final = re.compile(SPACE + rb"," + SPACE)
BATCH_CLOSING: Final = re.compile(SPACE + rb"\]" + SPACE + rb"\}" + SPACE)
JSON_PART: Final = re.compile(rb'["{}\[\]]')
"""The start of a string, or the start or end of an object or a list."""
STRING_PIECE: Final = re.compile(rb'(?:[^"\\]|\\.)[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""The content of a string: complete escapes, up to the end of the string or of the piece."""

JSON_LOOKING: Final = re.compile(rb'[ \t\r\n]*+["{\[]')
"""A body that starts like a JSON object, list or string."""

_NEW_MESSAGE: Final = msgspec.json.Decoder(NewMessageJson)
_NEW_MESSAGES: Final = msgspec.json.Decoder(NewMessagesJson)


# -- requests -------------------------------------------------------------------------------------------------


def raw_record(body: bytes) -> Record:
    """Everything before the first colon is the key; without a colon there is no key. A body that looks like
    JSON is a value without a key, because its first colon separates a name from a value."""
    if JSON_LOOKING.match(body):
        return Record(value=body)
    key, colon, value = body.partition(b":")
    return Record(value=value, key=key) if colon else Record(value=body)


def binary_record(headers: RawHeaders, body: bytes) -> Record:
    """The body is the value; the key, the timestamp and the message's headers are in the request's headers."""
    return Record(
        value=body,
        key=_key_of(headers),
        headers=tuple(
            (name.removeprefix(HEADER_PREFIX).decode("ascii"), value)
            for name, value in headers
            if name.startswith(HEADER_PREFIX)
        ),
        timestamp=_timestamp_of(headers),
    )


def json_records(
    body: bytes, check_count: Callable[[int], None], parts_max: int
) -> tuple[list[Record], bool]:
    """Returns the messages of a JSON body and whether it is a batch. `check_count` rejects too many messages;
    `parts_max` limits the parts of one message."""
    if len(body) <= ONE_STEP_BYTES_MAX:
        return _decode_in_one_step(body)
    opening = BATCH_OPENING.match(body)
    if opening is None:
        _end_of_message(body, 0, parts_max)
        return [record_of(decode_json(_NEW_MESSAGE, body))], False
    slices = _message_slices(body, opening.end(), check_count, parts_max)
    return [record_of(decode_json(_NEW_MESSAGE, body[message_slice])) for message_slice in slices], True


def _decode_in_one_step(body: bytes) -> tuple[list[Record], bool]:
    try:
        return [record_of(decode_json(_NEW_MESSAGE, body))], False
    except InvalidRequest:
        if b'"messages"' not in body:
            raise
    return [record_of(message) for message in decode_json(_NEW_MESSAGES, body).messages], True


def _message_slices(
    body: bytes, start: int, check_count: Callable[[int], None], parts_max: int
) -> list[slice]:
    """Find the positions of the messages in a batch. The search stops at the maximum message count."""
    slices: list[slice] = []
    while True:
        check_count(len(slices) + 1)
        end = _end_of_message(body, start, parts_max)
        slices.append(slice(start, end))
        comma = BATCH_COMMA.match(body, end)
        if comma is None:
            break
        start = comma.end()
    if BATCH_CLOSING.fullmatch(body, end) is None:
        raise InvalidRequest(reason=f"the JSON cannot be taken: no end of the messages at byte {end}")
    return slices


def _end_of_message(body: bytes, start: int, parts_max: int) -> int:
    """The position after the object that starts here. Decoding checks later whether its content is valid."""
    depth = 0
    for _ in range(parts_max):
        part = JSON_PART.search(body, start, start + SCAN_PIECE)
        if part is None:
            start += SCAN_PIECE
        elif part[0] == b'"':
            start = _end_of_string(body, part.end())
        else:
            start = part.end()
            depth += 1 if part[0] in b"{[" else -1
        if part is not None and depth <= 0:
            return start
        if start >= len(body):
            raise InvalidRequest(reason="the JSON cannot be taken: a message does not end")
    raise InvalidRequest(reason=f"a JSON message has more than {parts_max} parts, such as headers")


def _end_of_string(body: bytes, start: int) -> int:
    """The position after the closing quote; an unterminated string ends with the body."""
    quote = body.find(b'"', start)
    if quote >= 0 and body.find(b"\\", start, quote) < 0:
        return quote + 1
    while inside := STRING_PIECE.match(body, start, start + SCAN_PIECE):
        start = inside.end()
        if body.startswith(b'"', start):
            return start + 1
    return len(body)


def record_of(message: NewMessageJson) -> Record:
    given = message.timestamp_ms
    return Record(
        value=bytes_of(message.value, message.encoding),
        key=bytes_of(message.key, message.encoding),
        headers=tuple(_headers_of(message.headers, message.encoding)),
        timestamp=NO_TIMESTAMP if given is msgspec.UNSET else given,
    )


def bytes_of(given: BytesJson, encoding: Encoding) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, Base64Json):
        return from_base64(given.base64)
    return given.encode() if encoding == "text" else from_base64(given)


def decode_json(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(reason=f"the JSON cannot be taken: {error}") from error


def from_base64(text: str) -> bytes:
    try:
        if len(text) <= BASE64_PIECE:
            return binascii.a2b_base64(text, strict_mode=True)
        return b"".join(_decoded_pieces(text))
    except ValueError as error:
        raise InvalidRequest(reason=f"it is not base64: {error}") from error


def to_base64(data: bytes) -> str:
    if len(data) <= BYTES_PIECE:
        return binascii.b2a_base64(data, newline=False).decode("ascii")
    pieces = (data[start : start + BYTES_PIECE] for start in range(0, len(data), BYTES_PIECE))
    return "".join(binascii.b2a_base64(piece, newline=False).decode("ascii") for piece in pieces)


def _decoded_pieces(text: str) -> Iterable[bytes]:
    for start in range(0, len(text), BASE64_PIECE):
        piece = text[start : start + BASE64_PIECE]
        if start + BASE64_PIECE < len(text) and "=" in piece:
            raise ValueError("padding in the middle")
        yield binascii.a2b_base64(piece, strict_mode=True)


def _headers_of(given: list[NewHeaderJson] | dict[str, BytesJson], encoding: Encoding) -> Iterable[Header]:
    if isinstance(given, dict):
        return ((name, bytes_of(value, encoding)) for name, value in given.items())
    return ((each.name, bytes_of(each.value, encoding)) for each in given)


def _key_of(headers: RawHeaders) -> bytes | None:
    keys = [value for name, value in headers if name == KEY]
    keys += [_header_base64(value) for name, value in headers if name == KEY_BASE64]
    if len(keys) > 1:
        raise InvalidRequest(reason="a message has one key, in X-Millpond-Key or in X-Millpond-Key-Base64")
    return keys[0] if keys else None


def _header_base64(value: bytes) -> bytes:
    return from_base64(value.decode("latin-1"))


def _timestamp_of(headers: RawHeaders) -> int:
    given = [value for name, value in headers if name == TIMESTAMP]
    if not given:
        return NO_TIMESTAMP
    if len(given) > 1 or WHOLE_NUMBER.fullmatch(given[0]) is None:
        raise InvalidRequest(reason="X-Millpond-Timestamp is one number of milliseconds since 1970")
    return int(given[0])


# -- responses ------------------------------------------------------------------------------------------------


def message_of(partition: int, record: Record, shown: Shown) -> MessageJson:
    return MessageJson(
        partition=partition,
        offset=record.offset,
        number=record.offset + 1,
        timestamp_ms=record.timestamp,
        key=encoded_as(record.key, shown),
        value=encoded_as(record.value, shown),
        headers=[MessageHeaderJson(name, encoded_as(value, shown)) for name, value in record.headers],
        encoding="base64" if shown == "base64" else "text",
    )


def encoded_as(data: bytes | None, shown: Shown) -> BytesJson:
    """`auto` returns text if the bytes are UTF-8, and marked base64 if not; `text` always returns text."""
    if data is None:
        return None
    if shown == "base64":
        return to_base64(data)
    if shown == "text":
        return data.decode(errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Base64Json(to_base64(data))


def headers_of(record: Record, value_bytes_max: int) -> list[tuple[bytes, bytes]]:
    """Everything in a message except its value, as response headers. `X-Millpond-Left-Out` names what no
    header can carry."""
    found = [(OFFSET, b"%d" % record.offset), (TIMESTAMP, b"%d" % record.timestamp)]
    left_out = []
    if record.key is not None:
        if len(record.key) > value_bytes_max:
            left_out.append(b"key")
        elif PRINTABLE.fullmatch(record.key):
            found.append((KEY, record.key))
        else:
            found.append((KEY_BASE64, binascii.b2a_base64(record.key, newline=False)))
    carried = _headers_that_fit(record.headers, value_bytes_max)
    if len(carried) < len(record.headers):
        left_out.append(b"headers")
    found += carried
    if left_out:
        found.append((LEFT_OUT, b", ".join(left_out)))
    return found


def _headers_that_fit(headers: Sequence[Header], bytes_max: int) -> list[tuple[bytes, bytes]]:
    """The headers that fit within the limit together; clients would refuse a response with more."""
    found = []
    for name, value in headers:
        named = name.encode(errors="replace")
        if value is None or not TOKEN.fullmatch(named) or not PRINTABLE.fullmatch(value):
            continue
        bytes_max -= len(named) + len(value)
        if bytes_max >= 0:
            found.append((HEADER_PREFIX + named, value))
    return found


def size_of(records: Iterable[tuple[int, Record]]) -> int:
    """The approximate size of the data to encode."""
    return sum(
        len(record.value or b"") + len(record.key or b"") + _headers_size(record) for _, record in records
    )


def _headers_size(record: Record) -> int:
    return sum(len(name) + len(value or b"") for name, value in record.headers)


# -- parameters -----------------------------------------------------------------------------------------------


def convert_parameters(given: Mapping[str, str], wanted: type[T], what: str) -> T:
    """Convert the strings of a path or a query to the declared numbers and choices."""
    try:
        return msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(reason=f"in the {what}: {error}") from error
