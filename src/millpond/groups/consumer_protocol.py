"""Reads and writes the bytes of Kafka's consumer protocol: what a member subscribes to and owns, and the partitions
that the leader assigned.

The format is a version, then the topics, then fields that later versions added. The bytes are untrusted: a client may
send anything.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of Kafka's consumers. Other types (Connect, schema registries) have other formats."""

VERSION: Final = struct.Struct(">h")
LENGTH: Final = struct.Struct(">h")
COUNT: Final = struct.Struct(">i")
NO_BYTES: Final = -1
"""The length of bytes, or of a text, that are null."""
NamedPartitions = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """What a member tells about itself when it joins. `owned` are the partitions that it has not given up, `generation`
    the one in which it owned them, -1 if it does not tell."""

    topics: frozenset[str]
    owned: NamedPartitions = frozenset()
    rack_id: str | None = None
    generation: int = -1


@dataclass(frozen=True, slots=True)
class AssignedPartitions:
    partitions: NamedPartitions
    has_user_data: bool = False
    """The leader's assignor has added something that only the members' assignors can read."""


def read_metadata(metadata: bytes) -> MemberMetadata | None:
    """None if the bytes cannot be parsed."""
    try:
        reader = _FieldReader(metadata)
        version = reader.number(VERSION)
        topics = frozenset(reader.text() for _ in range(reader.count()))
        reader.skip_bytes()
        if version < 1 or not reader.has_more():  # some clients leave the later fields out
            return MemberMetadata(topics)
        owned = reader.partitions()
        generation = reader.number(COUNT) if version >= 2 else -1
        rack_id = reader.nullable_text() if version >= 3 else None
        return MemberMetadata(topics, owned, rack_id, generation)
    except (struct.error, ValueError):
        return None


def read_assignment(assignment: bytes) -> AssignedPartitions | None:
    """None if the bytes cannot be parsed. A member without an assignment has empty bytes."""
    if not assignment:
        return AssignedPartitions(frozenset())
    try:
        reader = _FieldReader(assignment)
        reader.number(VERSION)
        return AssignedPartitions(reader.partitions(), reader.has_user_data())
    except (struct.error, ValueError):
        return None


def write_assignment(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Version 0, which all clients read: later versions have the same fields."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for name, number in sorted(partitions):
        by_topic[name].append(number)
    written = [VERSION.pack(0), COUNT.pack(len(by_topic))]
    for name, numbers in by_topic.items():
        text = name.encode()
        written += [
            LENGTH.pack(len(text)),
            text,
            struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers),
        ]
    return b"".join([*written, COUNT.pack(NO_BYTES)])


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
    """Some clients send a version whose fields they leave out: only the topics are read."""
    try:
        reader = _FieldReader(metadata)
        reader.number(VERSION)
        return {reader.text() for _ in range(reader.count())}
    except (struct.error, ValueError):
        return None


def assigned_partitions(assignments: Iterable[bytes]) -> set[tuple[str, int]]:
    """The partitions of all members together, by topic. An assignment that cannot be parsed adds none."""
    found: set[tuple[str, int]] = set()
    for assignment in assignments:
        assigned = read_assignment(assignment)
        if assigned is not None:
            found |= assigned.partitions
    return found


class _FieldReader:
    """Reads fields one after the other. Raises `struct.error` or `ValueError` for bytes that are no such field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def has_more(self) -> bool:
        return self._position < len(self._data)

    def number(self, form: struct.Struct) -> int:
        (number,) = form.unpack_from(self._data, self._position)
        self._position += form.size
        return int(number)

    def count(self) -> int:
        """Of elements that take two bytes or more each."""
        count = self.number(COUNT)
        if not 0 <= count <= len(self._data) // LENGTH.size:
            raise ValueError("a list longer than the data")
        return count

    def text(self) -> str:
        return self._take(self.number(LENGTH)).decode()

    def nullable_text(self) -> str | None:
        length = self.number(LENGTH)
        return None if length == NO_BYTES else self._take(length).decode()

    def skip_bytes(self) -> None:
        length = self.number(COUNT)
        if length != NO_BYTES:
            self._take(length)

    def has_user_data(self) -> bool:
        """Whether anything but null or empty bytes follows."""
        return self._data[self._position :] not in (b"", COUNT.pack(NO_BYTES), COUNT.pack(0))

    def partitions(self) -> NamedPartitions:
        found: set[tuple[str, int]] = set()
        for _ in range(self.count()):
            name, count = self.text(), self.count()
            numbers = struct.unpack_from(f">{count}i", self._data, self._position)
            self._position += COUNT.size * count
            found.update((name, number) for number in numbers)
        return frozenset(found)

    def _take(self, length: int) -> bytes:
        start, self._position = self._position, self._position + length
        if length < 0 or self._position > len(self._data):
            raise ValueError("a field beyond the end of the data")
        return self._data[start : self._position]
