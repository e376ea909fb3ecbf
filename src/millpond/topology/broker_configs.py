"""The dynamic configs of this broker: its own, else those of every broker, else its settings, else Kafka's default.

Lives on one event loop; the values change only between awaits.
"""

from collections.abc import Mapping

from millpond.model.broker_configs import (
    AUTO_CREATE,
    CONNECTIONS_MAX,
    DEFAULT_PARTITIONS,
    DYNAMIC,
    known,
    topic_defaults,
)
from millpond.model.dynamic_configs import BROKER, EVERY_BROKER, ConfigResource
from millpond.topology.dynamic_configs import DynamicConfigView
from millpond.topology.topics import TopicRegistry


class BrokerConfigs:
    """Follows the view: a change of the defaults of topics reaches `topics` at once."""

    def __init__(
        self, node_id: int, settings: Mapping[str, str], view: DynamicConfigView, topics: TopicRegistry
    ) -> None:
        """`settings` are values of this broker's settings, by Kafka's names of the configs."""
        self.settings = dict(settings)
        self.own: Mapping[str, str] = {}
        """Set for this broker."""
        self.every: Mapping[str, str] = {}
        """Set for every broker."""
        self._resource = ConfigResource(BROKER, str(node_id))
        self._view = view
        self._topics = topics
        self._parse()
        view.subscribe(self._on_change)

    def value(self, name: str) -> str:
        for values in (self.own, self.every, self.settings):
            if name in values:
                return values[name]
        return DYNAMIC[name].default

    def _on_change(self) -> None:
        configs = self._view.current
        self.own = known(configs.of(self._resource))
        self.every = known(configs.of(ConfigResource(BROKER, EVERY_BROKER)))
        self._parse()
        defaults = topic_defaults({**self.settings, **self.every, **self.own})
        if defaults != self._topics.broker_defaults:
            self._topics.replace_broker_defaults(defaults)

    def _parse(self) -> None:
        self.auto_create_topics = self.value(AUTO_CREATE) == "true"
        self.default_partitions = int(self.value(DEFAULT_PARTITIONS))
        self.connections_max = int(self.value(CONNECTIONS_MAX))
