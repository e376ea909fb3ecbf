"""Changes to topics: each is committed to the catalog, applied to this broker's state, and announced to other
brokers."""

from collections.abc import Mapping

from millpond.catalog import topics, topology
from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction
from millpond.model.clock import Clock
from millpond.model.config_changes import ConfigPlan
from millpond.model.errors import TopicExists
from millpond.model.topics import Topic
from millpond.topology.catalog_access import WriteCatalog
from millpond.topology.catalog_view import CatalogView
from millpond.topology.changes_in_flight import ChangesInFlight
from millpond.topology.peers import Peers
from millpond.topology.topics import TopicRegistry


class TopicChanges:
    def __init__(
        self,
        write: WriteCatalog,
        catalog_view: CatalogView,
        topics: TopicRegistry,
        peers: Peers,
        in_flight: ChangesInFlight,
        *,
        clock: Clock,
    ) -> None:
        self._write = write
        self._catalog_view = catalog_view
        self._topics = topics
        self._peers = peers
        self._in_flight = in_flight
        self._clock = clock

    async def create(self, name: str, count: int, overrides: Mapping[str, str]) -> Topic:
        def create(tx: CatalogTransaction) -> None:
            topics.create(tx, name, count, overrides, now_ms=self._clock.now_ms())

        try:
            return await self._in_flight.complete(self._change_one(name, create))
        except TopicExists:
            if not self._topics.knows(name):
                await self._catalog_view.refresh()
            raise

    async def add_partitions(self, name: str, total: int) -> Topic:
        return await self._in_flight.complete(
            self._change_one(name, lambda tx: topics.add_partitions(tx, name, total))
        )

    async def alter_config(self, name: str, plan: ConfigPlan) -> Topic:
        """The plan runs on the writer thread, while the topic's row is locked."""
        defaults = self._topics.broker_defaults
        return await self._in_flight.complete(
            self._change_one(name, lambda tx: topics.plan_config(tx, name, plan, defaults))
        )

    async def delete(self, name: str) -> None:
        def delete(tx: CatalogTransaction) -> None:
            topics.delete(tx, name, now_ms=self._clock.now_ms())

        await self._in_flight.complete(self._change_all(delete))

    async def _change_one(self, name: str, operation: CommitOperation) -> Topic:
        """Write, then reload only this topic, because a broker may have thousands."""

        def write(tx: CatalogTransaction) -> int:
            operation(tx)
            return topology.version(tx)

        version: int = await self._write(write, own_commit=True)
        known = await self._catalog_view.reload_topic(name, version)
        await self._peers.notify_all_and_wait()
        return known

    async def _change_all(self, operation: CommitOperation) -> None:
        await self._write(operation, own_commit=True)
        await self._catalog_view.refresh()
        await self._peers.notify_all_and_wait()
