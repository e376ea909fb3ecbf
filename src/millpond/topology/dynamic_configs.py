"""The configs of groups and brokers as this broker last read them from the catalog. `CatalogView` reads them: when
another broker notifies this one of a change, or another process has written. Lives on one event loop."""

from collections.abc import Callable

from millpond.model.dynamic_configs import GROUP, ConfigResource, DynamicConfigs
from millpond.model.group_configs import GroupConfig, GroupConfigs


class DynamicConfigView:
    def __init__(self, groups: GroupConfigs | None = None) -> None:
        """`groups` has the definitions of group configs within this broker's bounds."""
        self.current = DynamicConfigs()
        self.groups = groups or GroupConfigs()
        self._by_group: dict[str, GroupConfig] = {}
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of `current`."""
        self._subscribers.append(on_change)

    def apply(self, found: DynamicConfigs) -> None:
        """Replace all configs by newer ones."""
        self.current = found
        self._by_group = {
            group: self.groups.effective(found.of(ConfigResource(GROUP, group)))
            for group in found.names(GROUP)
        }
        for on_change in self._subscribers:
            on_change()

    def group_config(self, group_id: str) -> GroupConfig:
        """The values that apply to a group, whether it exists or not."""
        return self._by_group.get(group_id, self.groups.default)
