"""The one thing the coordinator reads of what consumers say: the topics they subscribed to.

Kafka's consumer protocol: a version, then the topics, then what later versions added. Whoever sent it may have
sent anything.
"""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of Kafka's consumers. Others (Connect, schema registries) say what they like."""

VERSION_AND_COUNT: Final = struct.Struct(">hi")
LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadatas: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together, or None if one cannot be read."""
    found: set[str] = set()
    for metadata in metadatas:
        topics = _topics(metadata)
        if topics is None:
            return None
        found |= topics
    return frozenset(found)


def _topics(metadata: bytes) -> set[str] | None:
    try:
        _, count = VERSION_AND_COUNT.unpack_from(metadata)
        if not 0 <= count <= len(metadata) // LENGTH.size:
            return None
        return _read_names(metadata, count)
    except (struct.error, UnicodeDecodeError):
        return None


def _read_names(metadata: bytes, count: int) -> set[str] | None:
    position, names = VERSION_AND_COUNT.size, set()
    for _ in range(count):
        (length,) = LENGTH.unpack_from(metadata, position)
        start, position = position + LENGTH.size, position + LENGTH.size + length
        if length < 0 or position > len(metadata):
            return None
        names.add(metadata[start:position].decode())
    return names
