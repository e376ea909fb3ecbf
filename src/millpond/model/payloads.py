"""Payloads by reference: their ids, and the header by which a message refers to a body in the store.

An id is a UUIDv7 (RFC 9562, 5.7): its first 48 bits are the milliseconds at which it was created. Every
decision by age rests on that time, so ids too far from the broker's clock are refused.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from millpond.model.errors import InvalidPayload

HEADER: Final = "millpond-payload"
PAYLOAD_BYTES_MAX: Final = 5 * 2**30
"""The limit of one PUT to S3."""
AHEAD_MS_MAX: Final = 3_600_000
"""How far the time in an id may be ahead of the broker's clock."""
TEXT_SHOWN_MAX: Final = 100

_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_REFERENCE: Final = re.compile(
    r"(?P<id>[0-9a-f-]{36});bytes=(?P<bytes>[1-9][0-9]{0,12});crc32c=(?P<crc32c>[0-9a-f]{8})"
)

Randomness = Callable[[int], bytes]
"""Returns this many random bytes."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A message's reference to its body: `<id>;bytes=<n>;crc32c=<8 hex digits>` in the header `millpond-payload`."""

    id: UUID
    bytes: int
    crc32c: int

    def __str__(self) -> str:
        return f"{self.id};bytes={self.bytes};crc32c={self.crc32c:08x}"


def new_payload_id(now_ms: int, random: Randomness = os.urandom) -> UUID:
    """48 bits of time, 4 of version, 2 of variant, and 74 random bits."""
    drawn = int.from_bytes(random(10))
    high, low = (drawn >> 62) & 0xFFF, drawn & (2**62 - 1)
    return UUID(int=now_ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)


def created_at_ms(payload_id: UUID) -> int:
    return payload_id.int >> 80


def parse_payload_id(text: str) -> UUID:
    if _ID.fullmatch(text) is None:
        raise InvalidPayload(payload=text[:TEXT_SHOWN_MAX], reason="it is no UUIDv7 in lower case")
    return UUID(text)


def parse_reference(value: bytes | None) -> Reference:
    text = (value or b"").decode("ascii", errors="replace")
    found = _REFERENCE.fullmatch(text)
    if found is None:
        reason = "a reference is written <id>;bytes=<n>;crc32c=<8 hex digits>"
        raise InvalidPayload(payload=text[:TEXT_SHOWN_MAX], reason=reason)
    reference = Reference(parse_payload_id(found["id"]), int(found["bytes"]), int(found["crc32c"], 16))
    if reference.bytes > PAYLOAD_BYTES_MAX:
        raise InvalidPayload(payload=str(reference.id), reason=f"it has more than {PAYLOAD_BYTES_MAX} bytes")
    return reference


def referred_to(headers: Iterable[tuple[str, bytes | None]]) -> set[UUID]:
    """The ids in the headers of a stored message, regardless of who wrote them. A value that is not an id is
    ignored."""
    values = (value for name, value in headers if name == HEADER and value is not None)
    texts = (value[:36].decode("ascii", errors="replace").lower() for value in values)
    return {UUID(text) for text in texts if _ID.fullmatch(text) is not None}


def check_age(payload_id: UUID, now_ms: int, age_ms_max: int) -> None:
    """Refuse an id that was created too long ago to be used for the first time, or by a clock that is ahead."""
    ahead_ms = created_at_ms(payload_id) - now_ms
    if -ahead_ms > age_ms_max:
        reason = f"it was made {-ahead_ms} ms ago by the broker's clock, and {age_ms_max} ms are allowed"
        raise InvalidPayload(payload=str(payload_id), reason=reason)
    if ahead_ms > AHEAD_MS_MAX:
        reason = f"it was made {ahead_ms} ms ahead of the broker's clock, and {AHEAD_MS_MAX} ms are allowed"
        raise InvalidPayload(payload=str(payload_id), reason=reason)
