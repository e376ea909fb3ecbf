"""Topic configs as Kafka's tools see them: a value, its source, and the other sources that could set it.

`synonyms` start with the value in effect. A topic config may correspond to a broker config with a different name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from millpond.model.configs import DEFINITIONS, ConfigDefinition, ConfigEffect, ConfigType
from millpond.model.topics import Topic


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


CONFIG_TYPES: Final[Mapping[ConfigType, int]] = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
}
WITHOUT_EFFECT: Final = "It is kept and reported, and has no effect here."

BROKER_NAMES: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Kafka's name for the broker-level default of a topic config."""


class Synonym(NamedTuple):
    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str
    kind: ConfigType
    documentation: str
    synonyms: tuple[Synonym, ...]
    read_only: bool

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


def topic_entries(topic: Topic) -> list[ConfigEntry]:
    """Every config of a topic, whether set or default."""
    values = topic.describe_config()
    return [
        ConfigEntry(
            name=name,
            value=values[name].value,
            kind=definition.kind,
            documentation=documentation_of(definition),
            synonyms=(*_own(topic, name), *broker_synonyms(definition, topic.broker_defaults)),
            read_only=False,
        )
        for name, definition in DEFINITIONS.items()
    ]


def broker_synonyms(definition: ConfigDefinition, broker_defaults: Mapping[str, str]) -> tuple[Synonym, ...]:
    """The broker's setting, if it differs from the default, followed by the default."""
    name = BROKER_NAMES.get(definition.name)
    if name is None:
        return ()
    default = Synonym(name, definition.default, ConfigSource.DEFAULT_CONFIG)
    value = broker_defaults.get(definition.name, definition.default)
    if value == definition.default:
        return (default,)
    return Synonym(name, value, ConfigSource.STATIC_BROKER_CONFIG), default


def documentation_of(definition: ConfigDefinition) -> str:
    if definition.effect is ConfigEffect.HONOURED:
        return definition.meaning
    return f"{definition.meaning} {WITHOUT_EFFECT}"


def _own(topic: Topic, name: str) -> tuple[Synonym, ...]:
    if name not in topic.overrides:
        return ()
    return (Synonym(name, topic.overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG),)
