"""Offsets as Spark stores them: `{"orders":{"0":23,"1":7}}`, by topic and partition, in the format and order
of its Kafka source.

A checkpoint holds nothing else, so a checkpoint of the Kafka source can be continued here, and vice versa. -2
is the earliest offset and -1 the latest; -1 also occurs in the first position of a stream (see `stream`).
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from millpond.model.errors import InvalidSettings

EARLIEST: Final = -2
LATEST: Final = -1
OFFSET_MAX: Final = 2**63 - 1


class NamedPartition(NamedTuple):
    """A partition by its topic's name, as in options and checkpoints. Sorts in Spark's order."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[NamedPartition, int]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """As plain values, which Spark stores as JSON."""
    shaped: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        shaped.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[
            topic_partition
        ]
    return shaped


def from_json(shaped: Any, *, lowest: int = LATEST) -> dict[NamedPartition, int]:
    """Raises `ValueError` if the value has another shape."""
    offsets: dict[NamedPartition, int] = {}
    for topic, partitions in _mapping(shaped).items():
        for partition, offset in _mapping(partitions).items():
            if type(offset) is not int or not lowest <= offset <= OFFSET_MAX:
                raise ValueError(f"{topic}-{partition} cannot be {offset!r}")
            offsets[NamedPartition(topic, _partition(partition))] = offset
    return offsets


def read_offsets(name: str, text: str, *, lowest: int) -> dict[NamedPartition, int]:
    """Parse the value of an option. Raises `InvalidSettings` that names the option."""
    try:
        return from_json(json.loads(text), lowest=lowest)
    except ValueError as error:
        raise _refused(name, text, '{"topic":{"0":23,"1":-2}}', error) from error


def read_assignment(name: str, text: str) -> tuple[NamedPartition, ...]:
    """`{"topic":[0,1]}`."""
    try:
        found = [
            NamedPartition(topic, _number(number))
            for topic, numbers in _mapping(json.loads(text)).items()
            for number in _numbers(numbers)
        ]
    except ValueError as error:
        raise _refused(name, text, '{"topic":[0,1]}', error) from error
    if not found:
        raise _refused(name, text, '{"topic":[0,1]}', ValueError("it names no partition"))
    return tuple(sorted(set(found)))


def _refused(name: str, text: str, example: str, error: ValueError) -> InvalidSettings:
    reason = f"write JSON such as {example} ({error})"
    return InvalidSettings(
        f"Option {name} cannot be {text!r}: {reason}.", name=name, value=text, reason=reason
    )


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")  # ValueError also for a wrong type
    return value


def _numbers(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a partition")
    return value


def _partition(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a partition")
    return int(text)
