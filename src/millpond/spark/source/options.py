"""Parses the options of the source: Spark's names for its Kafka source, with their precedence and checks, and
our own.

Pure: nothing is looked up here. Options that would tune a Kafka consumer are accepted and have no effect.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from millpond.model.errors import InvalidSettings
from millpond.model.units import parse_bytes, parse_duration_ms
from millpond.spark.place import STORAGE_PREFIX, Place
from millpond.spark.source.offsets import (
    EARLIEST,
    LATEST,
    NamedPartition,
    Offsets,
    read_assignment,
    read_offsets,
)

DELAY_DEFAULT: Final = "15m"
GROUP_PREFIX: Final = "group:"
KAFKA_PREFIX: Final = "kafka."

NAMES: Final = (
    "path",
    "catalog",
    "storage",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitOffsetsToGroup",
    "kafka.isolation.level",
)
WITHOUT_EFFECT: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
REFUSED: Final = {
    "kafka.auto.offset.reset": "say where to start with startingOffsets",
    "kafka.key.deserializer": "keys are bytes here; decode them with DataFrame operations",
    "kafka.value.deserializer": "values are bytes here; decode them with DataFrame operations",
    "kafka.enable.auto.commit": "positions are in the checkpoint; commitOffsetsToGroup shows them as a group's",
    "kafka.interceptor.classes": "records are given as they are stored",
}
"""Kafka options that Spark's source refuses too, because they would have no effect."""
SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


class Isolation(StrEnum):
    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


class Unmatched(StrEnum):
    """What to do with a partition that has no record at or after a starting time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Exactly one of the fields is set."""

    assigned: tuple[NamedPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class ReadBoundary:
    """Where to start or end. `option` is the option's name for messages; exactly one of the other fields is
    set."""

    option: str
    all_partitions: int | None = None
    """`EARLIEST` or `LATEST`."""
    offsets: Offsets | None = None
    time_ms: int | None = None
    ago_ms: int | None = None
    times: Offsets | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    place: Place
    subscription: TopicSelection
    starting: ReadBoundary | None
    ending: ReadBoundary | None
    unmatched: Unmatched
    isolation: Isolation
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    records_per_partition_max: int | None
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_max_ms: int
    bytes_per_trigger_max: int | None
    group: str | None

    @property
    def committed_only(self) -> bool:
        return self.isolation is Isolation.COMMITTED


def refused(name: str, value: str, reason: str) -> InvalidSettings:
    return InvalidSettings(
        f"Option {name} cannot be {value!r}: {reason}.", name=name, value=value, reason=reason
    )


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises `InvalidSettings` that names the option."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    reader = _Reader(options)
    minimum, maximum = reader.count("minOffsetsPerTrigger"), reader.count("maxOffsetsPerTrigger")
    if minimum and maximum and minimum > maximum:
        raise refused("minOffsetsPerTrigger", str(minimum), f"maxOffsetsPerTrigger is only {maximum}")
    return SourceOptions(
        place=Place.from_options(options),
        subscription=_subscription(options),
        starting=_boundary(options, STARTING),
        ending=_boundary(options, ENDING),
        unmatched=Unmatched(
            reader.choice("startingOffsetsByTimestampStrategy", [each.value for each in Unmatched])
        ),
        isolation=Isolation(reader.choice("kafka.isolation.level", [each.value for each in Isolation])),
        fail_on_data_loss=reader.flag("failOnDataLoss", True),
        include_headers=reader.flag("includeHeaders", False),
        min_partitions=reader.count("minPartitions"),
        records_per_partition_max=reader.count("maxRecordsPerPartition"),
        offsets_per_trigger_max=maximum,
        offsets_per_trigger_min=minimum,
        trigger_delay_max_ms=reader.duration_ms("maxTriggerDelay", DELAY_DEFAULT),
        bytes_per_trigger_max=reader.size("maxBytesPerTrigger"),
        group=options.get("commitoffsetstogroup") or None,
    )


def check_batch(options: SourceOptions) -> None:
    """Check that a batch goes forward, and starts at a position that is known when it is planned."""
    _check_never(options.starting, LATEST, "a batch cannot start at the latest offset")
    _check_never(options.ending, EARLIEST, "a batch cannot end at the earliest offset")
    if options.ending is not None and options.ending.group is not None:
        raise refused(
            options.ending.option, f"{GROUP_PREFIX}{options.ending.group}", "a group only says where to start"
        )
    if options.group is not None:
        raise refused(
            "commitOffsetsToGroup", options.group, "a batch has no progress to commit; a stream has"
        )
    if options.starting is not None and options.ending is not None:
        _check_forward(options.ending.option, options.starting.offsets, options.ending.offsets)
        _check_forward(options.ending.option, options.starting.times, options.ending.times)


def check_stream(options: SourceOptions) -> None:
    if options.ending is not None:
        raise refused(
            options.ending.option, "…", "a stream has no end; trigger(availableNow=True) stops at today's"
        )


def _check_never(boundary: ReadBoundary | None, wrong: int, reason: str) -> None:
    if boundary is None:
        return
    word = "latest" if wrong == LATEST else "earliest"
    if boundary.all_partitions == wrong:
        raise refused(boundary.option, word, reason)
    for topic_partition, offset in (boundary.offsets or {}).items():
        if offset == wrong:
            raise refused(boundary.option, f"{topic_partition}: {offset}", reason)


def _check_forward(option: str, first: Offsets | None, last: Offsets | None) -> None:
    if first is None or last is None:
        return
    if first.keys() != last.keys():
        only = ", ".join(map(str, sorted(first.keys() ^ last.keys())))
        raise refused(option, only, "start and end must name the same partitions")
    for topic_partition, start in first.items():
        if 0 <= last[topic_partition] < start:
            raise refused(
                option, f"{topic_partition}: {last[topic_partition]}", f"that is below its start, {start}"
            )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*NAMES, *WITHOUT_EFFECT)}
    for name, value in given.items():
        lower = name.lower()
        if lower in REFUSED:
            raise refused(name, value, REFUSED[lower])
        if lower not in known and not lower.startswith((KAFKA_PREFIX, STORAGE_PREFIX)):
            near = [known[each] for each in get_close_matches(lower, known, n=3, cutoff=0.6)]
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise InvalidSettings(
                f"There is no option {name!r}{meant}", name=name, value=value, reason="it is not known"
            )


def _subscription(options: Mapping[str, str]) -> TopicSelection:
    given = [name for name in SUBSCRIPTIONS if name.lower() in options]
    if len(given) != 1:
        count = "none" if not given else " and ".join(given)
        raise refused(
            "subscribe", count, "exactly one of assign, subscribe and subscribePattern says what to read"
        )
    name, value = given[0], options[given[0].lower()].strip()
    if name == "assign":
        return TopicSelection(assigned=read_assignment(name, value))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
        if not topics:
            raise refused(name, value, "it names no topic")
        return TopicSelection(topics=topics)
    return TopicSelection(pattern=_pattern(name, value))


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise refused(name, value, f"it is not a regular expression: {error}") from error
    if not value:
        raise refused(name, value, "it is empty")
    return value


def _boundary(options: Mapping[str, str], names: tuple[str, str, str]) -> ReadBoundary | None:
    """The first of the three options that is set applies, as in Spark."""
    time_name, times_name, offsets_name = names
    if (text := options.get(time_name.lower())) is not None:
        return _time_boundary(time_name, text.strip())
    if (text := options.get(times_name.lower())) is not None:
        return ReadBoundary(times_name, times=read_offsets(times_name, text.strip(), lowest=0))
    if (text := options.get(offsets_name.lower())) is not None:
        return _offset_boundary(offsets_name, text.strip())
    return None


def _time_boundary(name: str, text: str) -> ReadBoundary:
    if text.isdecimal():
        return ReadBoundary(name, time_ms=int(text))
    try:
        if not text.startswith("-"):
            raise ValueError
        return ReadBoundary(name, ago_ms=parse_duration_ms(text[1:]))
    except ValueError:
        reason = "write milliseconds since 1970, or a time before now such as -10m"
        raise refused(name, text, reason) from None


def _offset_boundary(name: str, text: str) -> ReadBoundary:
    if text.lower() in ("earliest", "latest"):
        return ReadBoundary(name, all_partitions=EARLIEST if text.lower() == "earliest" else LATEST)
    if text.lower().startswith(GROUP_PREFIX) and len(text) > len(GROUP_PREFIX):
        return ReadBoundary(name, group=text[len(GROUP_PREFIX) :])
    return ReadBoundary(name, offsets=read_offsets(name, text, lowest=EARLIEST))


class _Reader:
    """Reads single values and checks them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def flag(self, name: str, default: bool) -> bool:
        text = self._options.get(name.lower(), str(default)).strip().lower()
        if text not in ("true", "false"):
            raise refused(name, text, "it is either true or false")
        return text == "true"

    def count(self, name: str) -> int | None:
        text = self._options.get(name.lower())
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < 1:
            raise refused(name, text, "it must be a number of at least 1")
        return int(text)

    def choice(self, name: str, allowed: list[str]) -> str:
        """The first allowed value is the default."""
        text = self._options.get(name.lower(), allowed[0]).strip().lower()
        if text not in allowed:
            raise refused(name, text, f"it is either {' or '.join(allowed)}")
        return text

    def duration_ms(self, name: str, default: str) -> int:
        text = self._options.get(name.lower(), default).strip()
        if text.isdecimal():
            return int(text)
        try:
            return parse_duration_ms(re.sub(r"min$", "m", text))
        except ValueError as error:
            raise refused(name, text, str(error)) from None

    def size(self, name: str) -> int | None:
        text = self._options.get(name.lower())
        if text is None:
            return None
        try:
            size = parse_bytes(text)
        except ValueError as error:
            raise refused(name, text, str(error)) from None
        if size < 1:
            raise refused(name, text, "it must be at least one byte")
        return size
