"""Checks of the arguments of public calls: only this module decides what the client library accepts.

A wrong argument is refused at the call that passes it, before anything is queued or sent, so it cannot fail other
messages. A value of the wrong type is a `TypeError`, a value outside its range an `InvalidArgument` (a
`ValueError`); both name the argument and what is expected. bool is not an int. Topic names and records have their
own errors (`InvalidTopicName`, `InvalidRecord`). A `read_from` of the wrong type is an `InvalidArgument`, too.
"""

import math
import operator
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from millpond.model.addresses import parse_addresses
from millpond.model.errors import InvalidArgument, InvalidRecord
from millpond.model.ids import check_topic_name
from millpond.model.principals import Principal
from millpond.records import Header

UINT32_MAX: Final = 2**32 - 1
INT64_MAX: Final = 2**63 - 1
OFFSET_MAX: Final = INT64_MAX - 1
"""Its message number, which is one more, is INT64_MAX."""
TIMESTAMP_MS_MAX: Final = 2**62
SECONDS_MAX: Final = threading.TIMEOUT_MAX
SHOWN_MAX: Final = 200
"""Characters of a wrong value that an error message shows."""
HIDDEN: Final = "(hidden)"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
POSITIONS: Final = "a message number from 1 on, numbers by partition, 'earliest', 'latest' or a datetime"

Start = Literal["earliest", "latest"] | int | datetime | dict[int, int]
"""A checked position, in message numbers."""

Checked = TypeVar("Checked")
T = TypeVar("T")


def optional(check: Callable[[str, object], Checked], name: str, value: object) -> Checked | None:
    """For arguments that may be None."""
    return None if value is None else check(name, value)


# -- plain values ------------------------------------------------------------------------------------------------------


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, "str", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise out_of_range(name, value, "valid Unicode") from error
    return value


def any_text(name: str, value: object) -> str:
    """Text that need not be valid Unicode."""
    if not isinstance(value, str):
        raise _wrong_type(name, "str", value)
    return value


def label(name: str, value: object) -> str:
    """Text that is not empty: a name."""
    if not text(name, value):
        raise out_of_range(name, value, "a name, which is not empty")
    return str(value)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type(name, "bool", value)
    return value


def integer(name: str, value: object, least: int = 0, most: int = INT64_MAX) -> int:
    """An int, or a value that converts to one without loss, such as numpy's integers."""
    found = _index(name, value)
    if not least <= found <= most:
        raise out_of_range(name, found, f"an integer from {least} to {most}")
    return found


def count(name: str, value: object) -> int:
    """An integer of at least 1."""
    return integer(name, value, 1)


def number(name: str, value: object) -> int:
    """An integer whose range depends on the topic: a partition that does not exist is an `UnknownPartition`."""
    return _index(name, value)


def seconds(name: str, value: object) -> float:
    """A duration that may be 0."""
    found = real(name, value)
    if not 0 <= found <= SECONDS_MAX:
        raise out_of_range(name, value, "seconds, 0 or more")
    return found


def optional_seconds(name: str, value: object) -> float | None:
    """How long to wait; None and infinity set no limit."""
    return None if value is None or value == math.inf else seconds(name, value)


def timeout(name: str, value: object) -> float:
    """A duration that is long enough for an attempt, that is, more than 0."""
    found = real(name, value)
    if not 0 < found <= SECONDS_MAX:
        raise out_of_range(name, value, "seconds, more than 0")
    return found


def real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, "a number of seconds (int or float)", value)
    if value != value:
        raise out_of_range(name, value, "a number of seconds")
    return value


def choice(name: str, value: object, choices: Mapping[str, T]) -> T:
    if not isinstance(value, str):
        raise _wrong_type(name, "str", value)
    if value not in choices:
        raise out_of_range(name, value, f"one of {', '.join(choices)}")
    return choices[value]


def function(name: str, value: object) -> None:
    if not callable(value):
        raise _wrong_type(name, "a function", value)


def instance(name: str, value: object, kind: type[Checked]) -> Checked:
    if not isinstance(value, kind):
        raise _wrong_type(name, kind.__name__.removeprefix("Base"), value)
    return value


def instances(name: str, value: object, kind: type[Checked]) -> list[Checked]:
    """A sequence that is not empty."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _wrong_type(name, f"a list of {kind.__name__}", value)
    if not value:
        raise out_of_range(name, value, f"at least one {kind.__name__}")
    return [instance(f"each of {name}", each, kind) for each in value]


def path(name: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise _wrong_type(name, "str or Path", value)
    return Path(value)


# -- users and secrets -------------------------------------------------------------------------------------------------


def username(name: str, value: object) -> str:
    """A user's name, as an `authorization` header can carry it."""
    found = label(name, value)
    if ":" in found or not found.isprintable():
        raise out_of_range(name, value, "a user name, which has no colon and no control character")
    return found


def principal(name: str, value: object) -> str:
    """A kind and a name, written as `User:alice`."""
    found = label(name, value)
    try:
        return str(Principal.parse(found))
    except ValueError:
        raise out_of_range(name, value, "a principal, such as User:alice") from None


def password(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, "str", value)
    if not value or not _is_unicode(value):
        raise secret_refused(name, "a password, which is not empty and valid Unicode")
    return value


def token(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, "str", value)
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise secret_refused(name, "a token, which is printable ASCII without spaces")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- where to connect, and to what -------------------------------------------------------------------------------------


def addresses(name: str, value: object) -> list[str]:
    """The addresses to try first."""
    given = [value] if isinstance(value, str) else value
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise _wrong_type(name, "str (host:port) or a list of them", value)
    found = [each for part in given for each in _addresses_in(name, part)]
    if not found:
        raise out_of_range(name, value, "at least one host:port")
    return found


def _addresses_in(name: str, value: object) -> list[str]:
    if not isinstance(value, str):
        raise _wrong_type(name, "str (host:port) or a list of them", value)
    try:
        return parse_addresses(value)
    except ValueError as error:
        raise out_of_range(name, value, str(error)) from error


def topic(name: str, value: object) -> str:
    """A legal topic name (else `InvalidTopicName`)."""
    if not isinstance(value, str):
        raise _wrong_type(name, "str", value)
    return check_topic_name(value)


def topics(name: str, value: object) -> tuple[str, ...]:
    """A topic name, or a sequence of different ones."""
    if isinstance(value, str):
        return (topic(name, value),)
    if isinstance(value, bytes) or not isinstance(value, Sequence):
        raise _wrong_type(name, "a str or a list of them", value)
    found = tuple(topic(f"each of {name}", each) for each in value)
    if not found or len(set(found)) < len(found):
        raise out_of_range(name, value, "at least one topic, and none twice")
    return found


def one_topic(topic_of_call: object, topic_of_client: str | None) -> str:
    """The topic that a call names, else the one that its client was created with."""
    if topic_of_call is not None:
        return topic("topic", topic_of_call)
    if topic_of_client is None:
        raise out_of_range("topic", None, "a topic, because the client was created without one")
    return topic_of_client


# -- messages ----------------------------------------------------------------------------------------------------------


def content(name: str, value: object) -> bytes | None:
    """Bytes or None. Text is refused: it has an encoding, and only the application knows which."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name} must be bytes, not {type(value).__name__}: encode it, e.g. text.encode()")


def buffer(name: str, value: object) -> None:
    """Bytes that are sent unchanged: they may be large, and are not copied."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{name} must be bytes, not {type(value).__name__}")


def values(name: str, value: object) -> Iterable[object]:
    """An iterable of contents. A single content is a mistake: each of its bytes would become a message."""
    if isinstance(value, bytes | bytearray | memoryview | str | Mapping) or not isinstance(value, Iterable):
        raise _wrong_type(name, "an iterable of bytes, such as a list,", value)
    return value


def headers(name: str, value: object) -> tuple[Header, ...]:
    """By name, or (name, value) pairs."""
    pairs: object = value.items() if isinstance(value, Mapping) else value
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise _wrong_type(name, "a mapping of names to bytes, or (name, bytes) pairs,", value)
    return tuple(_header(name, each) for each in pairs)


def _header(name: str, pair: object) -> Header:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"{name} must hold (name, bytes) pairs, not {pair!r:.80}")
    key, value = pair
    if not isinstance(key, str):
        raise _wrong_type(f"the name of a header in {name}", "str", key)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecord(reason=f"header name {key!r} is not valid Unicode") from error
    return key, content(f"header {key!r}", value)


def timestamp(name: str, value: object) -> int:
    """Milliseconds since 1970."""
    if type(value) is not int:
        value = _index(name, value, ": milliseconds since 1970, e.g. int(time.time() * 1000)")
    if not 0 <= value <= TIMESTAMP_MS_MAX:
        raise InvalidRecord(reason=f"{name}={value}: expected milliseconds since 1970, 0 or more")
    return value


def moment(name: str, value: object) -> int:
    """A datetime or milliseconds since 1970, as milliseconds."""
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    return timestamp(name, value)


# -- configs and positions ---------------------------------------------------------------------------------------------


def configs(name: str, value: object, kinds: Collection[type] = (str,)) -> None:
    """Values by name. `kinds` are the types that a value may have."""
    if not isinstance(value, Mapping):
        raise _wrong_type(name, "a mapping of names to values", value)
    for key, each in value.items():
        text(f"a name in {name}", key)
        if isinstance(each, bool) or not isinstance(each, tuple(kinds)):
            expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
            raise _wrong_type(f"{name}[{key!r}]", expected, each)


def start(read_from: object, offset: object) -> Start:
    """Where to begin, in message numbers. `read_from` counts from 1 and may be a name or a time; `offset` counts from
    0, as Kafka does. Without both it is the earliest message."""
    if offset is None:
        return EARLIEST if read_from is None else _read_from(read_from)
    if read_from is not None:
        raise out_of_range("offset", offset, f"no read_from beside it, but read_from is {read_from!r:.80}")
    if isinstance(offset, Mapping):
        offsets = by_partition("offset", offset, 0, OFFSET_MAX)
        return {each: number + 1 for each, number in offsets.items()}
    return integer("offset", offset, 0, OFFSET_MAX) + 1


def starts(topics: Sequence[str], read_from: object, offset: object) -> dict[str, Start]:
    """The same for a client of several topics. A mapping has positions by topic, and leaves out the topics that it does
    not name; any other position holds for all topics."""
    if offset is not None and read_from is not None:
        start(read_from, offset)
    name, given = ("offset", offset) if offset is not None else ("read_from", read_from)
    if not isinstance(given, Mapping):
        return dict.fromkeys(topics, start(read_from, offset))
    for each in given:
        if each not in topics:
            raise out_of_range(name, given, f"positions by topic, of {', '.join(topics)}")
    return {each: start(**{"read_from": None, "offset": None, name: at}) for each, at in given.items()}


def given_start(read_from: object, offset: object) -> None:
    """For a call that has no default."""
    if read_from is None and offset is None:
        raise out_of_range("read_from", None, f"{POSITIONS}; or an offset")


def required_start(read_from: object, offset: object) -> Start:
    given_start(read_from, offset)
    return start(read_from, offset)


def simple_start(read_from: object, offset: object) -> Literal["earliest", "latest"] | int | datetime:
    """The same for a call that has one position for all partitions."""
    for name, value in (("read_from", read_from), ("offset", offset)):
        if isinstance(value, Mapping):
            raise out_of_range(name, value, "one position for all partitions")
    found = start(read_from, offset)
    assert not isinstance(found, Mapping), "checked above"
    return found


def _read_from(value: object) -> Start:
    if isinstance(value, Mapping):
        return by_partition("read_from", value, 1)
    if value == EARLIEST:
        return EARLIEST
    if value == LATEST:
        return LATEST
    if isinstance(value, datetime):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise out_of_range("read_from", value, POSITIONS)
    return integer("read_from", value, 1)


def by_partition(name: str, value: object, least: int, most: int = INT64_MAX) -> dict[int, int]:
    """Positions by partition, from `least` to `most`."""
    if not isinstance(value, Mapping):
        raise _wrong_type(name, "a mapping of partitions to positions", value)
    return {
        integer(f"a partition in {name}", partition, 0, UINT32_MAX): integer(
            f"{name}[{partition!r}]", each, least, most
        )
        for partition, each in value.items()
    }


# -- errors ------------------------------------------------------------------------------------------------------------


def _index(name: str, value: object, hint: str = "") -> int:
    if type(value) is int:
        return value
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]  # raises TypeError for other types
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}{hint}") from None


def _wrong_type(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {_with_article(expected)}, not {type(value).__name__}")


def _with_article(expected: str) -> str:
    return expected if " " in expected else f"a {expected}"


def secret_refused(name: str, expected: str) -> InvalidArgument:
    """Like `out_of_range`, without the value."""
    return InvalidArgument(argument=name, value=HIDDEN, expected=expected)


def out_of_range(name: str, value: object, expected: str) -> InvalidArgument:
    return InvalidArgument(argument=name, value=f"{value!r:.{SHOWN_MAX}}", expected=expected)
