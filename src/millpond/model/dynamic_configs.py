"""Dynamic configs: configs of groups and brokers that are stored in the catalog and apply without a restart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

GROUP: Final = "group"
BROKER: Final = "broker"
EVERY_BROKER: Final = ""
"""As the name of a broker: the configs of all brokers, unless one has its own."""
NO_CONFIGS: Final[Mapping[str, str]] = {}


class ConfigResource(NamedTuple):
    """What has configs: a group by its id, or a broker by its node id."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class DynamicConfigs:
    """All stored configs, by resource."""

    version: int = 0
    by_resource: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)

    def of(self, resource: ConfigResource) -> Mapping[str, str]:
        return self.by_resource.get(resource, NO_CONFIGS)

    def names(self, kind: str) -> list[str]:
        """The names of the resources that have configs."""
        return sorted(resource.name for resource in self.by_resource if resource.kind == kind)
