"""Refuses appends to topics whose quota of stored bytes is reached.

The bytes come from the catalog, every few seconds, because a topic's partitions have several owners. So a topic may
exceed its quota by what is appended meanwhile. A topic that is created under a prefix whose quota is reached accepts
nothing from the start. Lives on one event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from millpond.catalog import partitions
from millpond.catalog.partitions import StoredTopic
from millpond.model.errors import MillpondError, StorageQuotaExceeded
from millpond.model.ids import TopicId
from millpond.model.quotas import STORED_BYTES, ClientQuota, covers, is_prefix
from millpond.model.topics import Topic
from millpond.topology.catalog_access import ReadCatalog

REFRESH_S: Final = 2.0

logger = logging.getLogger(__name__)


class FullQuota(NamedTuple):
    """A quota that is reached."""

    pattern: str
    limit: int
    stored: int

    def error(self, topic: str) -> StorageQuotaExceeded:
        return StorageQuotaExceeded(topic=topic, quota=self.pattern, limit=self.limit, stored=self.stored)


class FullTopics:
    """What accepts no messages. `by_id` is empty if no quota is reached, so that an append costs one look at it."""

    def __init__(self, exempt: Collection[str] = ()) -> None:
        self.by_id: dict[TopicId, FullQuota] = {}
        self._prefixes: list[FullQuota] = []
        self._exempt = frozenset(exempt)

    def check(self, topic: Topic) -> None:
        """Raises `StorageQuotaExceeded` for a topic that is full, and for a new one that a full quota covers."""
        if not self.by_id:
            return
        full = self.by_id.get(topic.id) or self._covering(topic.name)
        if full is not None:
            raise full.error(topic.name)

    def replace(self, quotas: Iterable[ClientQuota], topics: Sequence[StoredTopic]) -> None:
        by_id: dict[TopicId, FullQuota] = {}
        prefixes = []
        counted = [each for each in topics if each.name not in self._exempt]
        for quota in quotas:
            pattern, limit = quota.entity.topic or "", int(quota.value)
            covered = [each for each in counted if covers(pattern, each.name)]
            stored = sum(each.bytes for each in covered)
            if stored >= limit:
                full = FullQuota(pattern, limit, stored)
                by_id.update((each.id, full) for each in covered)
                if is_prefix(pattern):
                    prefixes.append(full)
        self.by_id, self._prefixes = by_id, prefixes

    def _covering(self, name: str) -> FullQuota | None:
        if name in self._exempt:
            return None
        return next((each for each in self._prefixes if covers(each.pattern, name)), None)


class TopicQuotas:
    """`stored` returns the quotas as the broker last read them. `exempt` are topics that only brokers write: no quota
    of topics applies to them, and they count for none."""

    def __init__(self, stored: Callable[[], Sequence[ClientQuota]], exempt: Collection[str] = ()) -> None:
        self.full = FullTopics(exempt)
        self._stored = stored
        self._refreshing = asyncio.Lock()

    async def refresh(self, read: ReadCatalog) -> None:
        """One at a time, so that an older read never replaces a newer one."""
        async with self._refreshing:
            quotas = [each for each in self._stored() if each.key == STORED_BYTES]
            self.full.replace(quotas, await read(partitions.stored_bytes) if quotas else [])

    async def run(self, read: ReadCatalog) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh(read)
            except MillpondError as error:
                logger.warning("reading the sizes of topics failed; will retry", extra={"error": str(error)})
