"""Topic configs: Kafka's names, their defaults, their allowed values, and whether Millpond acts on them.

`HONOURED` configs change what the engine does. `REPORTED` configs are checked, stored and reported, because Kafka's
tools and frameworks set them and expect to read them back; they have no effect here. Unknown names are refused.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from millpond.model.errors import InvalidConfig

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
DAY_MS: Final = 86_400_000
GIB: Final = 2**30
BATCH_BYTES_MAX: Final = 1_000_000_000
"""Fits one append of any store, including the flush around it."""
WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")

PAYLOAD: Final = "payload"
INLINE: Final = "inline"
BY_REFERENCE: Final = "reference"
LARGE_BY_REFERENCE: Final = "large"
TAKES_PAYLOADS: Final = frozenset({BY_REFERENCE, LARGE_BY_REFERENCE})
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
TIMESTAMP_TYPE: Final = "message.timestamp.type"
APPEND_TIME: Final = "LogAppendTime"

ValueCheck = Callable[[str], str | None]
"""Returns what is wrong with a value, or None."""


class ConfigEffect(StrEnum):
    HONOURED = "honoured"
    REPORTED = "reported"


class ConfigType(StrEnum):
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    name: str
    kind: ConfigType
    default: str
    effect: ConfigEffect
    check: ValueCheck
    meaning: str
    """A sentence for users."""


def between(low: int, high: int) -> ValueCheck:
    def check(value: str) -> str | None:
        if WHOLE_NUMBER.fullmatch(value) is None:
            return "it must be a whole number"
        return None if low <= int(value) <= high else f"it must lie between {low} and {high}"

    return check


def one_of(*choices: str) -> ValueCheck:
    return lambda value: None if value in choices else f"it must be one of {', '.join(choices)}"


def _some_of(*choices: str) -> ValueCheck:
    def check(value: str) -> str | None:
        given = [word.strip() for word in value.split(",")]
        return None if given and set(given) <= set(choices) else f"it must list some of {', '.join(choices)}"

    return check


def _fraction(value: str) -> str | None:
    try:
        return None if 0.0 <= float(value) <= 1.0 else "it must lie between 0 and 1"
    except ValueError:
        return "it must be a number"


def _anything(_: str) -> str | None:
    return None


def _honoured(
    name: str, kind: ConfigType, default: object, check: ValueCheck, meaning: str
) -> ConfigDefinition:
    return ConfigDefinition(name, kind, str(default), ConfigEffect.HONOURED, check, meaning)


def _reported(
    name: str, kind: ConfigType, default: object, check: ValueCheck, meaning: str
) -> ConfigDefinition:
    return ConfigDefinition(name, kind, str(default), ConfigEffect.REPORTED, check, meaning)


_CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
BOOLEAN: Final = one_of("true", "false")
_NATURAL = between(0, LONG_MAX)
_FROM_MINUS_ONE = between(-1, LONG_MAX)

DEFINITIONS: Final[Mapping[str, ConfigDefinition]] = {
    definition.name: definition
    for definition in (
        _honoured(
            "cleanup.policy",
            ConfigType.LIST,
            "delete",
            _some_of("delete", "compact"),
            "`delete` removes records by age and size; `compact` keeps the last record of each key, and requires keys.",
        ),
        _honoured(
            "compression.type",
            ConfigType.STRING,
            "producer",
            one_of(*_CODECS),
            "Codec with which batches are stored; `producer` keeps the codec of the producer.",
        ),
        _honoured(
            "delete.retention.ms",
            ConfigType.LONG,
            DAY_MS,
            _NATURAL,
            "Time for which compaction keeps a tombstone after the records that it deletes are removed.",
        ),
        _honoured(
            MAX_MESSAGE_BYTES,
            ConfigType.INT,
            1_048_588,
            between(0, BATCH_BYTES_MAX),
            "Maximum size of a batch.",
        ),
        _honoured(
            "message.timestamp.after.max.ms",
            ConfigType.LONG,
            3_600_000,
            _NATURAL,
            "Maximum time by which a record's timestamp may be ahead of the broker's clock.",
        ),
        _honoured(
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            one_of("CreateTime", "LogAppendTime"),
            "Timestamp of a record: that of its producer, or the time of its append.",
        ),
        _honoured(
            "min.compaction.lag.ms",
            ConfigType.LONG,
            0,
            _NATURAL,
            "Minimum time before a record is compacted.",
        ),
        _honoured(
            "payload",
            ConfigType.STRING,
            INLINE,
            one_of(INLINE, LARGE_BY_REFERENCE, BY_REFERENCE),
            "Where bodies are stored: `inline` in the messages, `reference` in the object store, `large` there if they "
            "are larger than half of `max.message.bytes`. Cannot be changed after the topic is created.",
        ),
        _honoured(
            "retention.bytes",
            ConfigType.LONG,
            -1,
            _FROM_MINUS_ONE,
            "Bytes kept of each partition; -1 keeps all.",
        ),
        _honoured(
            "retention.ms",
            ConfigType.LONG,
            7 * DAY_MS,
            _FROM_MINUS_ONE,
            "Time for which records are kept; -1 keeps them forever.",
        ),
        _reported(
            "compression.gzip.level",
            ConfigType.INT,
            -1,
            between(-1, 9),
            "Level of gzip, if the broker compresses.",
        ),
        _reported(
            "compression.lz4.level",
            ConfigType.INT,
            9,
            between(1, 17),
            "Level of LZ4, if the broker compresses.",
        ),
        _reported(
            "compression.zstd.level",
            ConfigType.INT,
            3,
            between(-131_072, 22),
            "Level of Zstandard, if the broker compresses.",
        ),
        _reported(
            "file.delete.delay.ms",
            ConfigType.LONG,
            60_000,
            _NATURAL,
            "Time before a removed segment file is deleted.",
        ),
        _reported(
            "flush.messages",
            ConfigType.LONG,
            LONG_MAX,
            between(1, LONG_MAX),
            "Number of records after which the log is synced to disk. Millpond syncs before each acknowledgement.",
        ),
        _reported(
            "flush.ms",
            ConfigType.LONG,
            LONG_MAX,
            _NATURAL,
            "Time after which the log is synced to disk. Millpond syncs before each acknowledgement.",
        ),
        _reported(
            "follower.replication.throttled.replicas",
            ConfigType.LIST,
            "",
            _anything,
            "Replicas whose followers are throttled.",
        ),
        _reported(
            "index.interval.bytes",
            ConfigType.INT,
            4096,
            between(0, INT_MAX),
            "Bytes between two entries of a segment's index.",
        ),
        _reported(
            "leader.replication.throttled.replicas",
            ConfigType.LIST,
            "",
            _anything,
            "Replicas whose leaders are throttled.",
        ),
        _reported(
            "local.retention.bytes",
            ConfigType.LONG,
            -2,
            between(-2, LONG_MAX),
            "Bytes kept on local disk beside a remote tier.",
        ),
        _reported(
            "local.retention.ms",
            ConfigType.LONG,
            -2,
            between(-2, LONG_MAX),
            "Time for which records are kept on local disk beside a remote tier.",
        ),
        _honoured(
            "max.compaction.lag.ms",
            ConfigType.LONG,
            LONG_MAX,
            between(1, LONG_MAX),
            "Maximum time before a record is compacted, however little of its log is dirty.",
        ),
        _honoured(
            "message.timestamp.before.max.ms",
            ConfigType.LONG,
            LONG_MAX,
            _NATURAL,
            "Maximum time by which a record's timestamp may be behind the broker's clock.",
        ),
        _honoured(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            "0.5",
            _fraction,
            "Share of a log that must be dirty (not compacted yet) before it is compacted.",
        ),
        _reported(
            "min.insync.replicas",
            ConfigType.INT,
            1,
            between(1, INT_MAX),
            "Replicas that must have a record before it is acknowledged. In Millpond the store keeps the copies.",
        ),
        _reported(
            "preallocate",
            ConfigType.BOOLEAN,
            "false",
            BOOLEAN,
            "Preallocate segment files.",
        ),
        _reported(
            "remote.log.copy.disable",
            ConfigType.BOOLEAN,
            "false",
            BOOLEAN,
            "Stop copying segments to the remote tier.",
        ),
        _reported(
            "remote.log.delete.on.disable",
            ConfigType.BOOLEAN,
            "false",
            BOOLEAN,
            "Delete the data of the remote tier when it is disabled.",
        ),
        _reported(
            "remote.storage.enable",
            ConfigType.BOOLEAN,
            "false",
            one_of("false"),
            "Copy segments to a remote tier. Millpond has none: there is only the store.",
        ),
        _reported("segment.bytes", ConfigType.INT, GIB, between(14, INT_MAX), "The size of a segment file."),
        _reported(
            "segment.index.bytes",
            ConfigType.INT,
            10_485_760,
            between(4, INT_MAX),
            "Size of a segment's index.",
        ),
        _reported(
            "segment.jitter.ms", ConfigType.LONG, 0, _NATURAL, "Maximum random reduction of `segment.ms`."
        ),
        _reported(
            "segment.ms",
            ConfigType.LONG,
            7 * DAY_MS,
            between(1, LONG_MAX),
            "Time after which a segment file is closed even if it is not full.",
        ),
        _reported(
            "unclean.leader.election.enable",
            ConfigType.BOOLEAN,
            "false",
            BOOLEAN,
            "Allow a replica that lags to become leader, which may lose records.",
        ),
    )
}


def check_config(key: str, value: str) -> None:
    definition = DEFINITIONS.get(key)
    if definition is None:
        raise InvalidConfig(key=key, value=value, reason="there is no such topic config")
    reason = definition.check(value)
    if reason is not None:
        raise InvalidConfig(key=key, value=value, reason=reason)


def check_configs(overrides: Mapping[str, str]) -> None:
    for key, value in overrides.items():
        check_config(key, value)
    _check_times_of_payloads(overrides, overrides.get(TIMESTAMP_TYPE, APPEND_TIME))


def completed(overrides: Mapping[str, str]) -> dict[str, str]:
    """The configs of a new topic, including implied ones. A topic with payloads by reference uses the append
    time as timestamp, because the broker's time decides when bodies expire."""
    implied = {TIMESTAMP_TYPE: APPEND_TIME} if overrides.get(PAYLOAD) in TAKES_PAYLOADS else {}
    return {**implied, **overrides}


def check_change(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse changes that are not possible once a topic exists."""
    if after.get(PAYLOAD, INLINE) != before.get(PAYLOAD, INLINE):
        reason = "it is chosen when a topic is made"
        raise InvalidConfig(key=PAYLOAD, value=after.get(PAYLOAD, INLINE), reason=reason)
    _check_times_of_payloads(after, after.get(TIMESTAMP_TYPE, DEFINITIONS[TIMESTAMP_TYPE].default))


def _check_times_of_payloads(overrides: Mapping[str, str], timestamp_type: str) -> None:
    payload = overrides.get(PAYLOAD)
    if payload in TAKES_PAYLOADS and timestamp_type != APPEND_TIME:
        reason = f"{PAYLOAD}={payload} needs {APPEND_TIME}, by which bodies are kept and collected"
        raise InvalidConfig(key=TIMESTAMP_TYPE, value=timestamp_type, reason=reason)
