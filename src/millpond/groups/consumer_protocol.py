"""Parses the bytes of Kafka's consumer protocol: subscribed topics, and the partitions that the leader assigned.

The format is a version, then the topics, then fields that later versions added. The bytes are untrusted: a client may
send anything.
"""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of Kafka's consumers. Other types (Connect, schema registries) have other formats."""

VERSION_AND_COUNT: Final = struct.Struct(">hi")
LENGTH: Final = struct.Struct(">h")
COUNT: Final = struct.Struct(">i")


def subscribed_topics(metadatas: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None if the bytes of one member cannot be parsed."""
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


def assigned_partitions(assignments: Iterable[bytes]) -> set[tuple[str, int]]:
    """The partitions of all members together, by topic. An assignment that cannot be parsed adds none."""
    found: set[tuple[str, int]] = set()
    for assignment in assignments:
        try:
            found.update(_read_assignment(assignment))
        except (struct.error, UnicodeDecodeError, ValueError):
            continue
    return found


def _read_assignment(assignment: bytes) -> set[tuple[str, int]]:
    _, topics = VERSION_AND_COUNT.unpack_from(assignment)
    found: set[tuple[str, int]] = set()
    position = VERSION_AND_COUNT.size
    for _ in range(topics):
        (length,) = LENGTH.unpack_from(assignment, position)
        start, position = position + LENGTH.size, position + LENGTH.size + length
        if length < 0:
            raise ValueError("a name of negative length")
        name = assignment[start:position].decode()
        (count,) = COUNT.unpack_from(assignment, position)
        numbers = struct.unpack_from(f">{count}i", assignment, position + COUNT.size)
        position += COUNT.size * (1 + count)
        found.update((name, number) for number in numbers)
    return found
