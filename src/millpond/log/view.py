"""The catalog as this broker has last seen it: topics, who owns what, and the rows of its own partitions.

Whatever changes it is read in turns: what was read first must not be taken in last, or a topic just made would be
forgotten again. A broker looks when somebody tells it to, when another process has written, and when it is asked
for a topic that it does not know. Lives on one event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millpond.catalog import compactions, partitions, topics, topology
from millpond.catalog.database import Transaction
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.topology import Owner, Topology
from millpond.log.owned import CompactionMark, OwnedPartitions
from millpond.log.threads import Threads
from millpond.log.topics import TopicRegistry
from millpond.model.errors import MillpondError
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import Topic

REFRESH_AGAIN_S = 1.0
CATCH_UP_EVERY_S = 0.1
"""How often the catalog is asked because of a topic that is not known here, whoever asks for whatever."""

logger = logging.getLogger(__name__)


class CatalogView:
    def __init__(
        self,
        threads: Threads,
        session: Session,
        topics: TopicRegistry,
        owned: OwnedPartitions,
        *,
        on_topology: Callable[[Topology], None],
        shares_catalog: bool,
    ) -> None:
        """With `shares_catalog` other brokers may make topics, too."""
        self.topology = Topology()
        self._threads = threads
        self._session = session
        self._topics = topics
        self._owned = owned
        self._on_topology = on_topology
        self._shares_catalog = shares_catalog
        self._turn = asyncio.Lock()
        self._catching_up: asyncio.Future[None] | None = None
        self._catch_up_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_wanted = False
        self._ending = False

    async def refresh(self) -> None:
        """Take in what the catalog says now: topics, partitions, and appends by others."""
        async with self._turn:
            seen = self._owned.seen()
            known = self.topology
            found = await self._threads.read(lambda tx: _read_all(tx, self._session, known))
            if found.news is not None:
                self._topics.replace_all(found.news.topics)
                self._take_in_topology(found.news.topology)
            self._owned.take_in_all(found.rows, seen)
            self._owned.take_in_compactions(found.marks)

    async def take_in_topic(self, name: str, version: int) -> Topic:
        """One that was changed here, which made this version of the topology: a broker may have thousands."""
        async with self._turn:
            topic, rows = await self._threads.read(lambda tx: _read_topic(tx, name))
            known = self._topics.put(topic)
            for row in rows:
                if row.owner == self._session:
                    self._owned.take_in(row)
            if version == self.topology.version + 1:
                self._take_in_topology(_with_rows(self.topology, version, rows))
        return known

    def _take_in_topology(self, found: Topology) -> None:
        self.topology = found
        self._on_topology(found)

    # -- what others make -------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Take in what other brokers have changed before this was called. Those who ask share the next look, and the
        looks are apart: asking for what nobody has made costs the catalog little."""
        if not self._shares_catalog:
            return
        if self._catching_up is None:
            self._catching_up = asyncio.ensure_future(self._look_for_news())
        await asyncio.shield(self._catching_up)

    async def _look_for_news(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._catch_up_at - loop.time())
        self._catch_up_at = loop.time() + CATCH_UP_EVERY_S
        self._catching_up = None
        if await self._threads.read(topology.version) != self.topology.version:
            await self.refresh()

    # -- what others write ------------------------------------------------------------------------------------

    def on_foreign_change(self) -> None:
        """A refresh that is under way may have read the catalog before this change: then another one follows."""
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
                await asyncio.sleep(REFRESH_AGAIN_S)

    async def stop(self) -> None:
        """Look no more because of others, and wait for what is being taken in of them."""
        self._ending = True
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])


@dataclass(frozen=True, slots=True)
class _News:
    topics: list[Topic]
    topology: Topology


@dataclass(frozen=True, slots=True)
class _Found:
    """What a refresh has read. Without `news` topics and owners are as they were."""

    rows: list[PartitionRow]
    marks: dict[TopicPartition, CompactionMark]
    news: _News | None


def _read_all(tx: Transaction, session: Session, known: Topology) -> _Found:
    """The topology first: partitions that it says are owned here are then read with it, or are gone again."""
    news = None
    if topology.version(tx) != known.version:
        view = topology.read(tx, known)
        news = _News(topics.all_topics(tx), view)
    return _Found(partitions.owned_by(tx, session), compactions.marks(tx, session), news)


def _read_topic(tx: Transaction, name: str) -> tuple[Topic, list[PartitionRow]]:
    topic = topics.find(tx, name)
    return topic, partitions.of_topic(tx, topic.id)


def _with_rows(before: Topology, version: int, rows: Sequence[PartitionRow]) -> Topology:
    owners = {**before.partitions, **{row.where: Owner(row.owner, row.epoch) for row in rows}}
    return Topology(version, before.members, owners, before.shards)
