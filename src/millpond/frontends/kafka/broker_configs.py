"""The broker's configs under the names that Kafka's tools expect, with their current values.

Dynamic configs can be altered while the broker runs. All others are read-only: they come from Millpond's settings,
which have different names.
"""

from collections.abc import Iterator
from typing import Final

from millpond.frontends.kafka.call import Services
from millpond.frontends.kafka.configs import (
    ConfigEntry,
    ConfigSource,
    Synonym,
    broker_synonyms,
    documentation_of,
    static_synonyms,
)
from millpond.frontends.kafka.limits import KafkaLimits
from millpond.groups import GroupLimits
from millpond.log import TransactionLimits
from millpond.model.broker_configs import DYNAMIC, OF_TOPIC_CONFIGS
from millpond.model.configs import DEFINITIONS, ConfigType
from millpond.topology import BrokerConfigs

LOG_DIR: Final = "object-store"
"""The value of the log directory: all brokers share one store, and no broker has its own directory in it."""
MINUTE_MS: Final = 60_000

_KAFKA = KafkaLimits()
_GROUPS = GroupLimits()
_TRANSACTIONS = TransactionLimits()


def broker_entries(services: Services) -> list[ConfigEntry]:
    """All configs of this broker."""
    found = (
        *(*_identity(services), *_limits(services), *_groups(services)),
        *(*_dynamic(services), *_without_effect()),
    )
    return sorted(found, key=lambda entry: entry.name)


def every_broker_entries(broker: BrokerConfigs) -> list[ConfigEntry]:
    """The dynamic configs that are set for every broker."""
    return [
        ConfigEntry(
            name,
            value,
            DYNAMIC[name].kind,
            documentation_of(DYNAMIC[name]),
            (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),),
            read_only=False,
        )
        for name, value in sorted(broker.every.items())
    ]


def _identity(services: Services) -> Iterator[ConfigEntry]:
    node = services.node
    yield _given("node.id", ConfigType.INT, node.id, "Id of this broker.")
    yield _given("broker.id", ConfigType.INT, node.id, "Id of this broker.")
    yield _given(
        "advertised.listeners",
        ConfigType.LIST,
        f"PLAINTEXT://{node.host}:{node.port}",
        "Address that clients should connect to.",
    )
    yield _given(
        "listeners",
        ConfigType.LIST,
        f"PLAINTEXT://{services.listener}",
        "Address on which the broker listens.",
    )
    yield _given("log.dirs", ConfigType.LIST, LOG_DIR, "One name for the store, which all brokers share.")


def _limits(services: Services) -> Iterator[ConfigEntry]:
    limits = services.limits
    yield _set("delete.topic.enable", ConfigType.BOOLEAN, "true", "true", "Allow topics to be deleted.")
    yield _set(
        "default.replication.factor", ConfigType.INT, 1, 1, "Replicas of a topic; the store keeps the copies."
    )
    yield _set(
        "connections.max.idle.ms",
        ConfigType.LONG,
        limits.idle_ms,
        _KAFKA.idle_ms,
        "Time after which an idle connection is closed.",
    )
    yield _set(
        "socket.request.max.bytes",
        ConfigType.INT,
        limits.frame_bytes_max,
        _KAFKA.frame_bytes_max,
        "Maximum size of a request.",
    )
    yield _set(
        "fetch.max.bytes",
        ConfigType.INT,
        limits.fetch_bytes_max,
        _KAFKA.fetch_bytes_max,
        "Maximum size of a fetch response.",
    )
    yield _set(
        "transaction.max.timeout.ms",
        ConfigType.INT,
        services.transaction_limits.timeout_max_ms,
        _TRANSACTIONS.timeout_max_ms,
        "Maximum transaction timeout that a producer may request.",
    )


def _groups(services: Services) -> Iterator[ConfigEntry]:
    limits = services.group_limits
    yield _set(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        limits.initial_rebalance_delay_ms,
        _GROUPS.initial_rebalance_delay_ms,
        "Time for which a new group waits for more members.",
    )
    yield _set(
        "group.min.session.timeout.ms",
        ConfigType.INT,
        limits.session_timeout_min_ms,
        _GROUPS.session_timeout_min_ms,
        "Minimum session timeout of a member.",
    )
    yield _set(
        "group.max.session.timeout.ms",
        ConfigType.INT,
        limits.session_timeout_max_ms,
        _GROUPS.session_timeout_max_ms,
        "Maximum session timeout of a member.",
    )
    yield _set(
        "group.max.size",
        ConfigType.INT,
        limits.members_max,
        _GROUPS.members_max,
        "Maximum number of members of a group.",
    )
    yield _set(
        "offset.metadata.max.bytes",
        ConfigType.INT,
        limits.offset_metadata_bytes_max,
        _GROUPS.offset_metadata_bytes_max,
        "Maximum size of the metadata of a committed offset.",
    )
    yield _set(
        "offsets.retention.minutes",
        ConfigType.INT,
        limits.offsets_retention_ms // MINUTE_MS,
        _GROUPS.offsets_retention_ms // MINUTE_MS,
        "Time for which the committed offsets of a group without members are kept.",
    )


def _dynamic(services: Services) -> Iterator[ConfigEntry]:
    broker = services.broker_configs
    for name, definition in DYNAMIC.items():
        synonyms = broker_synonyms(definition, broker)
        yield ConfigEntry(
            name, broker.value(name), definition.kind, documentation_of(definition), synonyms, read_only=False
        )


def _without_effect() -> Iterator[ConfigEntry]:
    """Defaults of topic configs that have no effect here."""
    for topic_config, name in OF_TOPIC_CONFIGS.items():
        if name not in DYNAMIC:
            definition = DEFINITIONS[topic_config]
            yield _set(
                name, definition.kind, definition.default, definition.default, documentation_of(definition)
            )


def _given(name: str, kind: ConfigType, value: object, meaning: str) -> ConfigEntry:
    """A config whose value is specific to each broker and has no default."""
    synonym = Synonym(name, str(value), ConfigSource.STATIC_BROKER_CONFIG)
    return ConfigEntry(name, str(value), kind, meaning, (synonym,), read_only=True)


def _set(name: str, kind: ConfigType, value: object, default: object, meaning: str) -> ConfigEntry:
    """A config with a default that the settings may override."""
    synonyms = static_synonyms(name, str(value), str(default))
    return ConfigEntry(name, str(value), kind, meaning, synonyms, read_only=True)
