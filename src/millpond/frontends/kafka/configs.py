"""Configs as Kafka's tools see them: a value, its source, and the other sources that could set it.

`synonyms` start with the value in effect. A topic config may correspond to a broker config with a different name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from millpond.model.broker_configs import OF_TOPIC_CONFIGS
from millpond.model.configs import DEFINITIONS, ConfigDefinition, ConfigEffect, ConfigType
from millpond.model.group_configs import BROKER_NAMES as GROUP_NAMES
from millpond.model.group_configs import KAFKAS_DEFAULTS
from millpond.model.topics import Topic
from millpond.service import ConfigAdministration
from millpond.topology import BrokerConfigs


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


CONFIG_TYPES: Final[Mapping[ConfigType, int]] = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
}
WITHOUT_EFFECT: Final = "It is kept and reported, and has no effect here."


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


def topic_entries(topic: Topic, broker: BrokerConfigs) -> list[ConfigEntry]:
    """Every config of a topic, whether set or default."""
    values = topic.describe_config()
    return [
        ConfigEntry(
            name=name,
            value=values[name].value,
            kind=definition.kind,
            documentation=documentation_of(definition),
            synonyms=(*_own(topic, name), *_broker_defaults(definition, broker)),
            read_only=False,
        )
        for name, definition in DEFINITIONS.items()
    ]


def group_entries(groups: ConfigAdministration, group_id: str) -> list[ConfigEntry]:
    """Every config of a group, whether set or default."""
    overrides = groups.group_overrides(group_id)
    return [
        ConfigEntry(
            name=name,
            value=overrides.get(name, definition.default),
            kind=definition.kind,
            documentation=documentation_of(definition),
            synonyms=(
                *_set_here(name, overrides, ConfigSource.GROUP_CONFIG),
                *_group_default(definition),
            ),
            read_only=False,
        )
        for name, definition in groups.group_definitions.items()
    ]


def _group_default(definition: ConfigDefinition) -> tuple[Synonym, ...]:
    """The default of a group config, under its name as a config of brokers, if it has one there."""
    name = GROUP_NAMES.get(definition.name)
    if name is None:
        return ()
    return static_synonyms(name, definition.default, KAFKAS_DEFAULTS[definition.name])


def dynamic_synonyms(name: str, broker: BrokerConfigs) -> tuple[Synonym, ...]:
    """What is set for this broker, and what is set for every broker."""
    return (
        *_set_here(name, broker.own, ConfigSource.DYNAMIC_BROKER_CONFIG),
        *_set_here(name, broker.every, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )


def static_synonyms(name: str, value: str, default: str) -> tuple[Synonym, ...]:
    """The broker's setting, if it differs from the default, followed by the default."""
    last = Synonym(name, default, ConfigSource.DEFAULT_CONFIG)
    return (last,) if value == default else (Synonym(name, value, ConfigSource.STATIC_BROKER_CONFIG), last)


def broker_synonyms(definition: ConfigDefinition, broker: BrokerConfigs) -> tuple[Synonym, ...]:
    """All values of a dynamic config, the one in effect first."""
    name, default = definition.name, definition.default
    return *dynamic_synonyms(name, broker), *static_synonyms(
        name, broker.settings.get(name, default), default
    )


def _broker_defaults(definition: ConfigDefinition, broker: BrokerConfigs) -> tuple[Synonym, ...]:
    """The defaults of a topic config, under their names as configs of brokers."""
    name = OF_TOPIC_CONFIGS.get(definition.name)
    return broker_synonyms(replace(definition, name=name), broker) if name is not None else ()


def documentation_of(definition: ConfigDefinition) -> str:
    if definition.effect is ConfigEffect.HONOURED:
        return definition.meaning
    return f"{definition.meaning} {WITHOUT_EFFECT}"


def _own(topic: Topic, name: str) -> tuple[Synonym, ...]:
    return _set_here(name, topic.overrides, ConfigSource.DYNAMIC_TOPIC_CONFIG)


def _set_here(name: str, values: Mapping[str, str], source: ConfigSource) -> tuple[Synonym, ...]:
    return (Synonym(name, values[name], source),) if name in values else ()
