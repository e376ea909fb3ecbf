"""Reads the catalog and applies what it finds: topics, owners, and the rows of this broker's partitions.

These reads run one at a time: an older read must not be applied after a newer one, or a topic
just created would be forgotten again. A broker reads the catalog when another broker notifies it, when
another process has written, and when it receives a request for an unknown topic. Lives on one event loop.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from millpond.catalog import compactions, dynamic_configs, partitions, topics, topology
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.topology import Ownership, Topology
from millpond.model.dynamic_configs import DynamicConfigs
from millpond.model.errors import MillpondError
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import Topic
from millpond.topology.catalog_access import ReadCatalog
from millpond.topology.dynamic_configs import DynamicConfigView
from millpond.topology.owned_rows import CompactionMark, OwnedRows
from millpond.topology.topics import TopicRegistry
from millpond.topology.view import TopologyView

REFRESH_RETRY_S = 1.0
CATCH_UP_EVERY_S = 0.1
"""Minimum interval between catalog reads caused by unknown topics, for all callers together."""

logger = logging.getLogger(__name__)


class CatalogView:
    def __init__(
        self,
        read: ReadCatalog,
        session: Session,
        view: TopologyView,
        topics: TopicRegistry,
        owned: OwnedRows,
        configs: DynamicConfigView,
        *,
        shares_catalog: bool,
    ) -> None:
        """With `shares_catalog`, other brokers may create topics, too."""
        self._read = read
        self._session = session
        self._topics = topics
        self._owned = owned
        self._view = view
        self._configs = configs
        self._shares_catalog = shares_catalog
        self._read_lock = asyncio.Lock()
        self._requested: asyncio.Future[None] | None = None
        self._request_lock = asyncio.Lock()
        self._catching_up: asyncio.Future[None] | None = None
        self._catch_up_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_wanted = False
        self._ending = False

    async def refresh(self) -> None:
        """Apply the current state of the catalog: configs, topics, partitions, and appends by other processes."""
        async with self._read_lock:
            seen = self._owned.seen()
            known, configs = self._view.current, self._configs.current
            found = await self._read(lambda tx: _read_all(tx, self._session, known, configs))
            if found.new_configs is not None:
                self._configs.apply(found.new_configs)
            if found.new_topology is not None:
                self._topics.replace_all(found.new_topology.topics)
                self._view.apply(found.new_topology.topology)
            self._owned.apply_all(found.rows, seen)
            self._owned.apply_compactions(found.marks)

    async def reload_topic(self, name: str, version: int) -> Topic:
        """Reload one topic that this broker has changed, which created this version of the topology. A broker
        may have thousands of topics, so the others are not read."""
        async with self._read_lock:
            topic, rows = await self._read(lambda tx: _read_topic(tx, name))
            known = self._topics.put(topic)
            for row in rows:
                if row.owner == self._session:
                    self._owned.apply(row)
            if version == self._view.current.version + 1:
                self._view.apply(_with_rows(self._view.current, version, rows))
        return known

    async def reload_configs(self) -> None:
        """Reload only the configs of groups and brokers, which this broker has changed."""
        async with self._read_lock:
            self._configs.apply(await self._read(dynamic_configs.read))

    # -- changes by other brokers -----------------------------------------------------------------------------

    async def refresh_on_request(self) -> None:
        """Refresh because another broker has requested it after a change. Calls during such a refresh share the next
        one."""
        if self._requested is None:
            self._requested = asyncio.ensure_future(self._refresh_for_requests())
        await asyncio.shield(self._requested)

    async def _refresh_for_requests(self) -> None:
        async with self._request_lock:
            self._requested = None
            await self.refresh()

    async def catch_up(self) -> None:
        """Apply what other brokers changed before this call. Concurrent callers share the next read, and
        reads are `CATCH_UP_EVERY_S` apart: requests for topics that do not exist cost the catalog little."""
        if not self._shares_catalog:
            return
        if self._catching_up is None:
            self._catching_up = asyncio.ensure_future(self._refresh_if_changed())
        await asyncio.shield(self._catching_up)

    async def _refresh_if_changed(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._catch_up_at - loop.time())
        self._catch_up_at = loop.time() + CATCH_UP_EVERY_S
        self._catching_up = None
        if await self._read(topology.version) != self._view.current.version:
            await self.refresh()

    # -- writes by other processes ----------------------------------------------------------------------------

    def on_foreign_change(self) -> None:
        """A refresh in flight may have read the catalog before this change, so another one follows it."""
        self._refresh_wanted = True
        if not self._ending and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh_while_wanted())

    async def _refresh_while_wanted(self) -> None:
        while self._refresh_wanted and not self._ending:
            self._refresh_wanted = False
            try:
                await self.refresh()
            except MillpondError as error:
                logger.warning("catalog refresh failed; will retry", extra={"error": str(error)})
                self._refresh_wanted = True
                await asyncio.sleep(REFRESH_RETRY_S)

    async def stop(self) -> None:
        """Start no more refreshes because of foreign changes, and wait for the one in flight."""
        self._ending = True
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])


@dataclass(frozen=True, slots=True)
class _NewTopology:
    topics: list[Topic]
    topology: Topology


@dataclass(frozen=True, slots=True)
class _RefreshRead:
    """The result of a refresh's read. If `new_topology` is None, topics and owners are unchanged; if `new_configs` is
    None, so are the configs of groups and brokers."""

    rows: list[PartitionRow]
    marks: dict[TopicPartition, CompactionMark]
    new_topology: _NewTopology | None
    new_configs: DynamicConfigs | None


def _read_all(
    tx: CatalogTransaction, session: Session, known: Topology, configs: DynamicConfigs
) -> _RefreshRead:
    """Read the topology first: a partition that it assigns to this broker is then among the rows, or has
    moved since."""
    new_topology = None
    if topology.version(tx) != known.version:
        view = topology.read(tx, known)
        new_topology = _NewTopology(topics.all_topics(tx), view)
    new_configs = dynamic_configs.read(tx) if dynamic_configs.version(tx) != configs.version else None
    rows, marks = partitions.owned_by(tx, session), compactions.marks(tx, session)
    return _RefreshRead(rows, marks, new_topology, new_configs)


def _read_topic(tx: CatalogTransaction, name: str) -> tuple[Topic, list[PartitionRow]]:
    topic = topics.find(tx, name)
    return topic, partitions.of_topic(tx, topic.id)


def _with_rows(before: Topology, version: int, rows: Sequence[PartitionRow]) -> Topology:
    owners = {**before.partitions, **{row.topic_partition: Ownership(row.owner, row.epoch) for row in rows}}
    return Topology(version, before.members, owners, before.shards)
