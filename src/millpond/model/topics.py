"""A topic as the engine sees it, and its effective config values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from millpond.model.config_changes import ConfigPlan, CurrentConfigs, applied
from millpond.model.configs import (
    DEFINITIONS,
    MAX_MESSAGE_BYTES,
    PAYLOAD,
    TAKES_PAYLOADS,
    check_change,
    check_configs,
)
from millpond.model.errors import InvalidPartitionCount
from millpond.model.ids import TopicId

NO_TOPIC_ID: Final = TopicId(b"")
"""The id of a topic that is planned and does not exist yet."""
PARTITIONS_MAX: Final = 10_000
"""Per topic. A higher number is probably a mistake, and each partition costs a row."""


class ConfigOrigin(StrEnum):
    """The source of a config value, most specific first."""

    TOPIC = "topic"
    GROUP = "group"
    BROKER = "broker"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    value: str
    source: ConfigOrigin


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The honoured configs of one topic, as plain values."""

    retention_ms: int
    retention_bytes: int
    compacted: bool
    deleted_by_age: bool
    max_message_bytes: int
    append_time: bool
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    compression: str
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    delete_retention_ms: int
    payloads: bool
    """Whether bodies may be in the store, with a reference in the message."""


@dataclass(frozen=True, slots=True)
class Topic:
    id: TopicId
    name: str
    partitions: int
    created_at: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    broker_defaults: Mapping[str, str] = field(default_factory=dict)

    def describe_config(self) -> Mapping[str, ConfigValue]:
        """Every config with its value and the source of that value."""
        return MappingProxyType({name: self._value(name) for name in DEFINITIONS})

    def config(self) -> TopicConfig:
        policies = [word.strip() for word in self._text("cleanup.policy").split(",")]
        return TopicConfig(
            retention_ms=self._number("retention.ms"),
            retention_bytes=self._number("retention.bytes"),
            compacted="compact" in policies,
            deleted_by_age="delete" in policies,
            max_message_bytes=self._number(MAX_MESSAGE_BYTES),
            append_time=self._text("message.timestamp.type") == "LogAppendTime",
            timestamp_after_max_ms=self._number("message.timestamp.after.max.ms"),
            timestamp_before_max_ms=self._number("message.timestamp.before.max.ms"),
            compression=self._text("compression.type"),
            min_compaction_lag_ms=self._number("min.compaction.lag.ms"),
            max_compaction_lag_ms=self._number("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=float(self._text("min.cleanable.dirty.ratio")),
            delete_retention_ms=self._number("delete.retention.ms"),
            payloads=self._text(PAYLOAD) in TAKES_PAYLOADS,
        )

    def _value(self, name: str) -> ConfigValue:
        if name in self.overrides:
            return ConfigValue(self.overrides[name], ConfigOrigin.TOPIC)
        if name in self.broker_defaults:
            return ConfigValue(self.broker_defaults[name], ConfigOrigin.BROKER)
        return ConfigValue(DEFINITIONS[name].default, ConfigOrigin.DEFAULT)

    def _text(self, name: str) -> str:
        return self._value(name).value

    def _number(self, name: str) -> int:
        return int(self._text(name))


def altered(
    overrides: Mapping[str, str], plan: ConfigPlan, broker_defaults: Mapping[str, str]
) -> dict[str, str]:
    """The configs of an existing topic after an alteration. Raises if it is not possible."""
    changes = plan(CurrentConfigs(DEFINITIONS, overrides, broker_defaults))
    check_configs({name: value for name, value in changes.items() if value is not None})
    after = applied(overrides, changes)
    check_change(overrides, after)
    return after


def check_partition_count(partitions: int) -> int:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidPartitionCount(
            partitions=partitions, reason=f"the count must lie between 1 and {PARTITIONS_MAX}"
        )
    return partitions
