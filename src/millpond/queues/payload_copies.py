"""Copies bodies in the object store along with their messages: a message in another topic refers to a copy there."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from millpond.model.errors import InvalidPayload, PayloadsNotTaken, UnknownPayload, UnknownTopic
from millpond.model.payloads import HEADER, Reference, parse_reference
from millpond.records import Record

CopyBody = Callable[[str, str, str], Awaitable[UUID]]
"""Takes source topic, payload id and target topic; returns the id of the copy, which is the same after a retry. A copy
that no message refers to is garbage-collected later."""


async def nothing_to_copy(source: str, payload: str, target: str) -> UUID:
    """Used where payloads are not served."""
    del payload, target
    raise PayloadsNotTaken(topic=source)


def has_body(record: Record) -> bool:
    return any(name == HEADER for name, _ in record.headers)


async def with_bodies_in(target: str, source: str, records: Sequence[Record], copy: CopyBody) -> list[Record]:
    """The records, ready to be appended to `target`. A record whose body no longer exists keeps its old reference,
    which leads nowhere."""
    return [
        await _with_body(record, source, target, copy) if has_body(record) else record for record in records
    ]


async def _with_body(record: Record, source: str, target: str, copy: CopyBody) -> Record:
    value = next(value for name, value in record.headers if name == HEADER)
    try:
        before = parse_reference(value)
        after = Reference(await copy(source, str(before.id), target), before.bytes, before.crc32c)
    except (InvalidPayload, UnknownPayload, PayloadsNotTaken, UnknownTopic):
        return record
    kept = [header for header in record.headers if header[0] != HEADER]
    return record._replace(headers=(*kept, (HEADER, str(after).encode())))
