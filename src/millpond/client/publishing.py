"""Messages as publishers describe them: a topic, a key, a body, attributes, and a delivery time."""

from collections.abc import Mapping
from datetime import datetime

from millpond.client import arguments
from millpond.client.message import NO_HEADERS, MessageHeaders, record_of
from millpond.model.errors import InvalidRecord
from millpond.model.subscriptions import DELAY, DELIVER_AT, RESERVED_HEADERS
from millpond.records import Header, Record

Attributes = Mapping[str, bytes | str | None]
"""By name. Text is sent as UTF-8."""


def headers_of(
    attributes: Attributes | None, deliver_at: datetime | int | None = None, delay: float | None = None
) -> MessageHeaders:
    """Headers for the attributes, and for the earliest delivery time: a time (a datetime, or milliseconds
    since 1970), or a number of seconds after the message is published."""
    if attributes is None and deliver_at is None and delay is None:
        return NO_HEADERS
    headers: list[Header] = []
    for name, value in ({} if attributes is None else _checked(attributes)).items():
        if name.startswith(RESERVED_HEADERS):
            raise InvalidRecord(
                reason=f"attribute {name!r}: names that begin with {RESERVED_HEADERS} are reserved"
            )
        headers.append((name, value.encode() if isinstance(value, str) else value))
    if deliver_at is not None and delay is not None:
        raise ValueError("a message is delivered at a time or after a delay, not both")
    if deliver_at is not None:
        headers.append((DELIVER_AT, str(arguments.moment("deliver_at", deliver_at)).encode()))
    if delay is not None:
        headers.append((DELAY, str(int(arguments.seconds("delay", delay) * 1000)).encode()))
    return headers


def _checked(attributes: Attributes) -> Attributes:
    arguments.configs("attributes", attributes, (bytes, str, bytearray, memoryview, type(None)))
    return attributes


def published_record(value: bytes | None, key: bytes | None, headers: MessageHeaders) -> Record:
    """A record whose timestamp is set when it is sent."""
    return record_of(value, key, headers, None)
