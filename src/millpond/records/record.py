"""One decoded record. Only the edges of the broker decode records: the hot path moves whole batches."""

from typing import NamedTuple

NO_TIMESTAMP = -1
NO_OFFSET = -1

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """A message. `offset` and `timestamp` are absolute, and -1 if they are not set."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
