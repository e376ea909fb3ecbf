"""The configs of a group: names, bounds and defaults. A group need not exist to have configs.

Names and defaults are Kafka's. Kafka's broker configs set defaults and bounds; here the settings of a broker do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from millpond.model.config_changes import ConfigPlan, CurrentConfigs, applied, setting
from millpond.model.configs import ConfigDefinition, ConfigEffect, ConfigType, between
from millpond.model.errors import InvalidConfig
from millpond.model.share_group_configs import (
    KAFKAS_SHARE_DEFAULTS,
    SHARE_BROKER_NAMES,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    ShareGroupConfigBounds,
    effective_share_config,
    share_definitions,
)
from millpond.model.share_groups import ShareGroupConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class MigrationPolicy(StrEnum):
    """Which protocol a group with members may change to. Empty groups use the protocol of the next member."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    """From the classic protocol to the consumer protocol, when a member of that joins."""
    DOWNGRADE = "downgrade"
    """From the consumer protocol to the classic protocol, when only members of that are left."""
    DISABLED = "disabled"
    """Neither, and members of the classic protocol cannot join a group of the consumer protocol."""

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The values that apply to a group of the consumer protocol, or to a share group. Defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    """A member that sends no heartbeat for this long is removed."""
    heartbeat_interval_ms: int = 5_000
    """How often members send heartbeats."""
    share: ShareGroupConfig = field(default_factory=ShareGroupConfig)
    """The values that apply if it is a share group."""


@dataclass(frozen=True, slots=True)
class GroupConfigBounds:
    """The values that a group has without configs of its own, and the bounds of those that it may have."""

    session_timeout_ms: int = 45_000
    session_timeout_min_ms: int = 45_000
    session_timeout_max_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_min_ms: int = 5_000
    heartbeat_interval_max_ms: int = 15_000
    share: ShareGroupConfigBounds = field(default_factory=ShareGroupConfigBounds)


BOUNDS: Final = GroupConfigBounds()
KAFKAS_DEFAULTS: Final[Mapping[str, str]] = {
    HEARTBEAT_INTERVAL: str(BOUNDS.heartbeat_interval_ms),
    SESSION_TIMEOUT: str(BOUNDS.session_timeout_ms),
    **KAFKAS_SHARE_DEFAULTS,
}
BROKER_NAMES: Final[Mapping[str, str]] = {
    HEARTBEAT_INTERVAL: "group.consumer.heartbeat.interval.ms",
    SESSION_TIMEOUT: "group.consumer.session.timeout.ms",
    **SHARE_BROKER_NAMES,
}
"""Kafka's name for the broker-level default of a group config; some have none."""


class GroupConfigs:
    """The definitions of group configs within a broker's bounds, and what stored configs come to."""

    def __init__(self, bounds: GroupConfigBounds = BOUNDS) -> None:
        self._bounds = bounds
        self.definitions: Mapping[str, ConfigDefinition] = {
            each.name: each
            for each in (
                _heartbeat_interval(bounds),
                _session_timeout(bounds),
                *share_definitions(bounds.share),
            )
        }
        self.default = self.effective({})
        """The values of a group without configs of its own."""

    def check(self, overrides: Mapping[str, str]) -> None:
        """Raise `InvalidConfig` unless a group may have these configs together."""
        self.altered({}, setting(overrides))

    def altered(self, overrides: Mapping[str, str], plan: ConfigPlan) -> dict[str, str]:
        """The configs of a group after an alteration. Raises if it is not possible."""
        changes = plan(CurrentConfigs(self.definitions, overrides, {}))
        for name, value in changes.items():
            if value is not None or name not in overrides:
                self._check_one(name, value)
        after = applied(overrides, changes)
        self._check_together(after)
        return after

    def effective(self, overrides: Mapping[str, str]) -> GroupConfig:
        """The values in effect. A stored value that is outside of the bounds, because the settings have changed since,
        is replaced by the nearest bound."""
        bounds = self._bounds
        session_ms = int(overrides.get(SESSION_TIMEOUT, bounds.session_timeout_ms))
        interval_ms = int(overrides.get(HEARTBEAT_INTERVAL, bounds.heartbeat_interval_ms))
        return GroupConfig(
            _within(session_ms, bounds.session_timeout_min_ms, bounds.session_timeout_max_ms),
            _within(interval_ms, bounds.heartbeat_interval_min_ms, bounds.heartbeat_interval_max_ms),
            effective_share_config(overrides, bounds.share),
        )

    def _check_one(self, name: str, value: str | None) -> None:
        definition = self.definitions.get(name)
        if definition is None:
            raise InvalidConfig(key=name, value=value, reason="there is no such group config")
        if value is not None and (reason := definition.check(value)) is not None:
            raise InvalidConfig(key=name, value=value, reason=reason)

    def _check_together(self, overrides: Mapping[str, str]) -> None:
        config = self.effective(overrides)
        for interval, session, each in (
            (HEARTBEAT_INTERVAL, SESSION_TIMEOUT, config),
            (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT, config.share),
        ):
            if each.heartbeat_interval_ms >= each.session_timeout_ms:
                reason = f"it must be less than {session}, which is {each.session_timeout_ms}"
                raise InvalidConfig(key=interval, value=str(each.heartbeat_interval_ms), reason=reason)


def _session_timeout(bounds: GroupConfigBounds) -> ConfigDefinition:
    return ConfigDefinition(
        SESSION_TIMEOUT,
        ConfigType.INT,
        str(bounds.session_timeout_ms),
        ConfigEffect.HONOURED,
        between(bounds.session_timeout_min_ms, bounds.session_timeout_max_ms),
        "Time after which a member of the consumer protocol that sends no heartbeat is removed.",
    )


def _heartbeat_interval(bounds: GroupConfigBounds) -> ConfigDefinition:
    return ConfigDefinition(
        HEARTBEAT_INTERVAL,
        ConfigType.INT,
        str(bounds.heartbeat_interval_ms),
        ConfigEffect.HONOURED,
        between(bounds.heartbeat_interval_min_ms, bounds.heartbeat_interval_max_ms),
        "Interval at which members of the consumer protocol send heartbeats.",
    )


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))
