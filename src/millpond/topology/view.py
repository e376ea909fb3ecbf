"""The topology as this broker last read it from the catalog: live brokers, and the owners of partitions and coordinator
shards. All parts of a broker read it here. Lives on one event loop; state changes only between awaits."""

from collections.abc import Callable

from millpond.catalog.topology import Topology


class TopologyView:
    def __init__(self) -> None:
        self.current = Topology()
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of `current`. Subscribers are called in the order of their subscriptions,
        so one may rely on what an earlier one has updated."""
        self._subscribers.append(on_change)

    def apply(self, found: Topology) -> None:
        """Replace the topology by a newer one."""
        self.current = found
        for on_change in self._subscribers:
            on_change()
