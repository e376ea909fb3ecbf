"""Changes of topics, each recorded in the audit log. All interfaces change topics through this class."""

from collections.abc import Mapping
from typing import Final

from millpond.log import Log
from millpond.model.config_changes import ConfigChanges, ConfigPlan, CurrentConfigs
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.security import Access
from millpond.security.audit import AuditLog, broker_principal

CONFIGS_NAMED_MAX: Final = 20
"""Changed configs that an event names."""


class NotedPlan:
    """A plan that remembers what it has changed, for the audit log."""

    def __init__(self, plan: ConfigPlan) -> None:
        self._plan = plan
        self._changes: ConfigChanges = {}

    def __call__(self, current: CurrentConfigs) -> ConfigChanges:
        self._changes = self._plan(current)
        return self._changes

    def names(self) -> str:
        return ", ".join(sorted(self._changes)[:CONFIGS_NAMED_MAX])


class AuditedTopicChanges:
    """`access` is the client that asks; its rights have been checked before."""

    def __init__(self, log: Log, audit: AuditLog, node_id: int) -> None:
        self._log = log
        self._audit = audit
        self._broker = broker_principal(node_id)

    async def create(
        self, access: Access, name: str, partitions: int = 1, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        topic = await self._log.create_topic(name, partitions, overrides)
        self._record(access, "topic created", topic.name)
        return topic

    async def create_by_broker(self, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """A topic that the broker needs itself, such as one for dead letters."""
        topic = await self._log.create_topic(name, partitions, overrides)
        self._audit.changed(self._broker, "", "topic created", topic.name)
        return topic

    async def add_partitions(self, access: Access, name: str, total: int) -> Topic:
        topic = await self._log.add_partitions(name, total)
        self._record(access, "partitions added", f"{name}: {total}")
        return topic

    async def alter_config(self, access: Access, name: str, plan: ConfigPlan) -> Topic:
        noted = NotedPlan(plan)
        topic = await self._log.plan_config(name, noted)
        self._record(access, "configs changed", f"{name}: {noted.names()}")
        return topic

    async def delete(self, access: Access, name: str) -> None:
        await self._log.delete_topic(name)
        self._record(access, "topic deleted", name)

    async def delete_records(
        self, access: Access, topic_partition: TopicPartition, before_offset: int
    ) -> int:
        """Returns the new log start."""
        name = self._log.topics.name_of(topic_partition.topic_id)  # it may be deleted meanwhile
        log_start = await self._log.delete_records(topic_partition, before_offset)
        self._record(access, "records deleted", f"{name}/{topic_partition.partition} below {log_start}")
        return log_start

    def _record(self, access: Access, change: str, name: str) -> None:
        self._audit.changed(access.principal, access.host, change, name)
