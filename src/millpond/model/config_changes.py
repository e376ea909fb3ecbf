"""Alterations of configs, as functions of the configs that they find.

What a value is appended to, and what a replacement resets, is known only inside the transaction that stores the result.
So an alteration is passed down to it as a plan, and alterations by many clients at one time lose nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from millpond.model.configs import ConfigDefinition, ConfigType
from millpond.model.errors import InvalidConfig

ConfigChanges = Mapping[str, str | None]
"""New values by name; None resets a config to its default."""


class CurrentConfigs(NamedTuple):
    """The configs of one resource when it is altered."""

    definitions: Mapping[str, ConfigDefinition]
    overrides: Mapping[str, str]
    defaults: Mapping[str, str]
    """Values without an override, where they differ from the default of the definition."""

    def value(self, name: str) -> str:
        """The value in effect."""
        default = self.defaults.get(name, self.definitions[name].default)
        return self.overrides.get(name, default)


ConfigPlan = Callable[[CurrentConfigs], ConfigChanges]
"""Returns what to change, or raises. A pure function: it may be called again if its transaction is repeated."""


class ConfigOperation(IntEnum):
    """Kafka's operations on single configs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigAlteration(NamedTuple):
    name: str
    operation: ConfigOperation
    value: str = ""


def setting(changes: ConfigChanges) -> ConfigPlan:
    """Set and reset the named configs."""
    return lambda _: changes


def replacing(wanted: Mapping[str, str]) -> ConfigPlan:
    """Set the named configs and reset all others."""
    return lambda current: {**dict.fromkeys(current.overrides), **wanted}


def altering(alterations: Iterable[ConfigAlteration]) -> ConfigPlan:
    """Set or reset single configs, and append to lists or remove from them, starting from the value in effect."""
    wanted = tuple(alterations)
    return lambda current: {each.name: _altered(each, current) for each in wanted}


def applied(overrides: Mapping[str, str], changes: ConfigChanges) -> dict[str, str]:
    return {name: value for name, value in {**overrides, **changes}.items() if value is not None}


def _altered(alteration: ConfigAlteration, current: CurrentConfigs) -> str | None:
    name, operation, value = alteration
    if operation is ConfigOperation.DELETE:
        return None
    if operation is ConfigOperation.SET:
        return value
    definition = current.definitions.get(name)
    if definition is None or definition.kind is not ConfigType.LIST:
        raise InvalidConfig(key=name, value=value, reason="only a list can be added to or taken from")
    present = _words(current.value(name))
    if operation is ConfigOperation.APPEND:
        return ",".join(dict.fromkeys(present + _words(value)))
    return ",".join(word for word in present if word not in _words(value))


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]
