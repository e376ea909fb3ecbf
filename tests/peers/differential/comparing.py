"""Two sets of observations side by side, as paths to single values, so that a difference can be named."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

NOT_COMPARED = "message"
"""Sentences are ours; codes are Kafka's."""

ABSENT = "(absent)"


class Difference(NamedTuple):
    path: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.path}: Kafka {self.kafka!r}, Millpond {self.ours!r}"


def differences(kafka: Mapping[str, Any], ours: Mapping[str, Any]) -> list[Difference]:
    """One per place where the two do not say the same."""
    theirs, mine = dict(_leaves(kafka)), dict(_leaves(ours))
    paths = sorted(theirs.keys() | mine.keys())
    pairs = (Difference(path, theirs.get(path, ABSENT), mine.get(path, ABSENT)) for path in paths)
    return [each for each in pairs if each.kafka != each.ours]


def explained(difference: Difference, expected: Mapping[str, str]) -> bool:
    return any(_is_meant(difference, pattern) for pattern in expected)


def _is_meant(difference: Difference, pattern: str) -> bool:
    """A pattern that ends in `(absent)` is only for what Millpond has not; values that both have must be the same."""
    absent = difference.ours == ABSENT and fnmatchcase(f"{difference.path} {ABSENT}", pattern)
    return absent or fnmatchcase(difference.path, pattern)


def unused(expected: Mapping[str, str], found: list[Difference]) -> list[str]:
    """Explanations of differences that are no more: to be taken out."""
    return [pattern for pattern in expected if not any(_is_meant(each, pattern) for each in found)]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            if key != NOT_COMPARED:
                yield from _leaves(each, f"{path}/{key}" if path else key)
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}/{number}")
    else:
        yield path, value
