"""The configs of a share group: names, bounds and defaults, which are Kafka's.

Two differ from Kafka: dead letters always have the whole message, and the default dead-letter topic is that of a
subscription. The key order is Millpond's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millpond.model.configs import BOOLEAN, ConfigDefinition, ConfigEffect, ConfigType, between, one_of
from millpond.model.errors import InvalidTopicName
from millpond.model.ids import check_topic_name
from millpond.model.share_groups import EARLIEST, LATEST, ShareGroupConfig, ShareIsolation, duration_of_start

SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
PARTITION_LOCKS_MAX: Final = "share.partition.max.record.locks"
RENEW_ENABLE: Final = "share.renew.acknowledge.enable"
AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
ISOLATION_LEVEL: Final = "share.isolation.level"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
COPY_RECORD: Final = "errors.deadletterqueue.copy.record.enable"
KEY_ORDER: Final = "millpond.share.key.order"


@dataclass(frozen=True, slots=True)
class BoundedNumber:
    """A default, and the bounds of what groups may have instead."""

    value: int
    low: int
    high: int

    def within(self, value: int) -> int:
        return max(self.low, min(value, self.high))


@dataclass(frozen=True, slots=True)
class ShareGroupConfigBounds:
    session_timeout_ms: BoundedNumber = field(default=BoundedNumber(45_000, 45_000, 60_000))
    heartbeat_interval_ms: BoundedNumber = field(default=BoundedNumber(5_000, 5_000, 15_000))
    record_lock_ms: BoundedNumber = field(default=BoundedNumber(30_000, 15_000, 60_000))
    delivery_count_limit: BoundedNumber = field(default=BoundedNumber(5, 2, 10))
    partition_locks_max: BoundedNumber = field(default=BoundedNumber(2_000, 100, 4_000))


NUMBERS: Final[Mapping[str, tuple[str, str]]] = {
    SHARE_SESSION_TIMEOUT: (
        "session_timeout_ms",
        "Time after which a member of a share group that sends no heartbeat is removed.",
    ),
    SHARE_HEARTBEAT_INTERVAL: (
        "heartbeat_interval_ms",
        "Interval at which members of a share group send heartbeats.",
    ),
    RECORD_LOCK_DURATION: (
        "record_lock_ms",
        "Time that a member of a share group has to acknowledge a message, before others receive it.",
    ),
    DELIVERY_COUNT_LIMIT: (
        "delivery_count_limit",
        "Maximum number of deliveries of a message to a share group; after that it becomes a dead letter.",
    ),
    PARTITION_LOCKS_MAX: (
        "partition_locks_max",
        "Maximum number of messages of a partition that the members of a share group process at a time.",
    ),
}
"""The field of `ShareGroupConfig` that each config sets, and its meaning."""

KAFKAS_SHARE_DEFAULTS: Final[Mapping[str, str]] = {
    **{
        name: str(getattr(ShareGroupConfigBounds(), attribute).value)
        for name, (attribute, _) in NUMBERS.items()
    },
    RENEW_ENABLE: "true",
    AUTO_OFFSET_RESET: LATEST,
    ISOLATION_LEVEL: ShareIsolation.READ_UNCOMMITTED.value,
    DEAD_LETTER_TOPIC: "",
    COPY_RECORD: "true",
    KEY_ORDER: "false",
}
"""Except `errors.deadletterqueue.copy.record.enable`, which is false in Kafka."""
SHARE_BROKER_NAMES: Final[Mapping[str, str]] = {name: f"group.{name}" for name in NUMBERS}
"""Kafka's name for the broker-level default of a config."""


def share_definitions(bounds: ShareGroupConfigBounds) -> list[ConfigDefinition]:
    return [
        *(
            _number(name, getattr(bounds, attribute), meaning)
            for name, (attribute, meaning) in NUMBERS.items()
        ),
        _honoured(
            RENEW_ENABLE,
            ConfigType.BOOLEAN,
            "Whether members of a share group may renew the time that they have for a message.",
        ),
        _honoured(
            AUTO_OFFSET_RESET,
            ConfigType.STRING,
            "Where a share group begins in a topic that it has not read: `latest`, `earliest`, or "
            "`by_duration:PnDTnHnMnS` before now. Partitions that are added later are read from their start.",
        ),
        _honoured(
            ISOLATION_LEVEL,
            ConfigType.STRING,
            "Whether a share group receives messages of open and aborted transactions (`read_uncommitted`), or not "
            "(`read_committed`).",
        ),
        _honoured(
            DEAD_LETTER_TOPIC,
            ConfigType.STRING,
            "Topic for messages that a share group has rejected or received too often; created when it is first "
            "needed. Empty: one for each topic, which `millpond subscription describe` shows.",
        ),
        _honoured(
            COPY_RECORD,
            ConfigType.BOOLEAN,
            "Whether a dead letter of a share group has the whole message. Only `true` is possible; Kafka's default is "
            "`false`.",
        ),
        _honoured(
            KEY_ORDER,
            ConfigType.BOOLEAN,
            "Whether a share group receives the messages of a key one after the other. Can be altered only while the "
            "group has no members.",
        ),
    ]


def effective_share_config(overrides: Mapping[str, str], bounds: ShareGroupConfigBounds) -> ShareGroupConfig:
    """The values in effect. A stored number that is outside of the bounds is replaced by the nearest bound."""
    values = {**KAFKAS_SHARE_DEFAULTS, **overrides}
    numbers = {
        attribute: _effective(getattr(bounds, attribute), overrides.get(name))
        for name, (attribute, _) in NUMBERS.items()
    }
    return ShareGroupConfig(
        **numbers,
        renew_allowed=values[RENEW_ENABLE] == "true",
        start=values[AUTO_OFFSET_RESET],
        isolation=ShareIsolation(values[ISOLATION_LEVEL]),
        dead_letter_topic=values[DEAD_LETTER_TOPIC],
        key_order=values[KEY_ORDER] == "true",
    )


def _effective(number: BoundedNumber, override: str | None) -> int:
    return number.within(number.value if override is None else int(override))


def _number(name: str, number: BoundedNumber, meaning: str) -> ConfigDefinition:
    check = between(number.low, number.high)
    return ConfigDefinition(name, ConfigType.INT, str(number.value), ConfigEffect.HONOURED, check, meaning)


def _honoured(name: str, kind: ConfigType, meaning: str) -> ConfigDefinition:
    return ConfigDefinition(
        name, kind, KAFKAS_SHARE_DEFAULTS[name], ConfigEffect.HONOURED, CHECKS[name], meaning
    )


def _start(value: str) -> str | None:
    if value in (LATEST, EARLIEST):
        return None
    try:
        duration_of_start(value)
    except ValueError:
        return f"it must be {LATEST}, {EARLIEST}, or by_duration: and a duration such as P1DT2H"
    return None


def _dead_letter_topic(value: str) -> str | None:
    if value.startswith("__"):
        return "it must not begin with '__'"
    try:
        if value:
            check_topic_name(value)
    except InvalidTopicName as error:
        return str(error)
    return None


def _only_true(value: str) -> str | None:
    if value == "false":
        return "dead letters always have the whole message"
    return BOOLEAN(value)


CHECKS: Final = {
    RENEW_ENABLE: BOOLEAN,
    AUTO_OFFSET_RESET: _start,
    ISOLATION_LEVEL: one_of(*ShareIsolation),
    DEAD_LETTER_TOPIC: _dead_letter_topic,
    COPY_RECORD: _only_true,
    KEY_ORDER: BOOLEAN,
}
