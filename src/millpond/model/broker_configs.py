"""Kafka's names for configs of brokers, and those that apply without a restart.

Such a dynamic config belongs to one broker, or to every broker without its own. All other configs come from the
settings with which a broker was started.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from millpond.model import configs as topic_configs
from millpond.model.config_changes import ConfigPlan, CurrentConfigs, applied
from millpond.model.configs import (
    BOOLEAN,
    INT_MAX,
    ConfigDefinition,
    ConfigEffect,
    ConfigType,
    between,
)
from millpond.model.errors import InvalidConfig, InvalidRequest
from millpond.model.topics import PARTITIONS_MAX

AUTO_CREATE: Final = "auto.create.topics.enable"
DEFAULT_PARTITIONS: Final = "num.partitions"
CONNECTIONS_MAX: Final = "max.connections"
CONNECTIONS_DEFAULT: Final = 10_000

OF_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
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

TOPIC_DEFAULTS: Final[Mapping[str, str]] = {
    broker_name: name
    for name, broker_name in OF_TOPIC_CONFIGS.items()
    if topic_configs.DEFINITIONS[name].effect is ConfigEffect.HONOURED
}
"""The dynamic configs that are defaults of topic configs, with the name of that config."""

DYNAMIC: Final[Mapping[str, ConfigDefinition]] = {
    definition.name: definition
    for definition in (
        ConfigDefinition(
            AUTO_CREATE,
            ConfigType.BOOLEAN,
            "true",
            ConfigEffect.HONOURED,
            BOOLEAN,
            "Create a topic when a client asks for it.",
        ),
        ConfigDefinition(
            DEFAULT_PARTITIONS,
            ConfigType.INT,
            "1",
            ConfigEffect.HONOURED,
            between(1, PARTITIONS_MAX),
            "Partition count of a new topic, unless set.",
        ),
        ConfigDefinition(
            CONNECTIONS_MAX,
            ConfigType.INT,
            str(CONNECTIONS_DEFAULT),
            ConfigEffect.HONOURED,
            between(1, INT_MAX),
            "Maximum number of concurrent connections.",
        ),
        *(
            replace(topic_configs.DEFINITIONS[name], name=broker_name)
            for broker_name, name in TOPIC_DEFAULTS.items()
        ),
    )
}

SETTINGS: Final[Mapping[str, str]] = {
    "advertised.listeners": "kafka_advertise",
    "broker.id": "node_id",
    "group.consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval",
    "group.consumer.max.heartbeat.interval.ms": "group_consumer_heartbeat_interval_max",
    "group.consumer.max.session.timeout.ms": "group_consumer_session_timeout_max",
    "group.consumer.min.heartbeat.interval.ms": "group_consumer_heartbeat_interval_min",
    "group.consumer.min.session.timeout.ms": "group_consumer_session_timeout_min",
    "group.consumer.session.timeout.ms": "group_consumer_session_timeout",
    "group.initial.rebalance.delay.ms": "group_initial_rebalance_delay",
    "listeners": "kafka_listen",
    "log.cleaner.io.max.bytes.per.second": "compaction_bytes_per_second",
    "log.dirs": "storage",
    "max.connection.creation.rate": "connections_per_address_rate",
    "max.connections.per.ip": "connections_per_address_max",
    "node.id": "node_id",
    "offsets.retention.minutes": "offsets_retention",
    "transaction.max.timeout.ms": "transaction_timeout_max",
}
"""Kafka's configs that a setting of the broker decides when it starts."""


def altered(overrides: Mapping[str, str], plan: ConfigPlan, settings: Mapping[str, str]) -> dict[str, str]:
    """The dynamic configs of a broker after an alteration. Raises if it is not possible."""
    changes = plan(CurrentConfigs(DYNAMIC, overrides, settings))
    for name, value in changes.items():
        if value is not None or name not in overrides:
            _check(name, value)
    return applied(overrides, changes)


def topic_defaults(values: Mapping[str, str]) -> dict[str, str]:
    """Defaults of topic configs among configs of a broker, by the name of the topic config."""
    return {TOPIC_DEFAULTS[name]: value for name, value in values.items() if name in TOPIC_DEFAULTS}


def known(values: Mapping[str, str]) -> dict[str, str]:
    """Leaves out configs that a newer version has stored."""
    return {name: values[name] for name in DYNAMIC if name in values}


def _check(name: str, value: str | None) -> None:
    definition = DYNAMIC.get(name)
    if definition is None and name in SETTINGS:
        reason = f"{name!r} is a setting of the broker ({SETTINGS[name]}): change it in its settings file and restart"
        raise InvalidRequest(reason=reason)
    if definition is None and value is None:
        return  # kafka-reassign-partitions resets the rates of replication, which Kafka has
    if definition is None:
        reason = "it is not one of the broker configs that can be changed without a restart"
        raise InvalidConfig(key=name, value=value, reason=reason)
    if value is not None and (reason_against := definition.check(value)) is not None:
        raise InvalidConfig(key=name, value=value, reason=reason_against)
