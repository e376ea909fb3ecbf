"""Refuses appends to topics whose quota of stored bytes is reached.

The bytes come from the catalog, every few seconds, because a topic's partitions have several owners. So a topic may
exceed its quota by what is appended meanwhile. Lives on one event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from millpond.catalog import partitions
from millpond.catalog.partitions import StoredTopic
from millpond.model.errors import MillpondError, StorageQuotaExceeded
from millpond.model.ids import TopicId
from millpond.model.quotas import STORED_BYTES, ClientQuota, covers
from millpond.topology.catalog_access import ReadCatalog

REFRESH_S: Final = 2.0

FullTopics = Mapping[TopicId, StorageQuotaExceeded]

logger = logging.getLogger(__name__)


class TopicQuotas:
    """`stored` returns the quotas as the broker last read them. `full` is the same dict for ever, and empty without
    quotas, so that an append costs one look at it."""

    def __init__(self, stored: Callable[[], Sequence[ClientQuota]]) -> None:
        self.full: dict[TopicId, StorageQuotaExceeded] = {}
        self._stored = stored

    async def refresh(self, read: ReadCatalog) -> None:
        quotas = [each for each in self._stored() if each.key == STORED_BYTES]
        found = full_topics(quotas, await read(partitions.stored_bytes)) if quotas else {}
        for topic_id in self.full.keys() - found.keys():
            del self.full[topic_id]
        self.full.update(found)

    async def run(self, read: ReadCatalog) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh(read)
            except MillpondError as error:
                logger.warning("reading the sizes of topics failed; will retry", extra={"error": str(error)})


def full_topics(quotas: Iterable[ClientQuota], topics: Sequence[StoredTopic]) -> FullTopics:
    """The topics that a quota covers whose bytes are reached, each with the error of its appends."""
    found: dict[TopicId, StorageQuotaExceeded] = {}
    for quota in quotas:
        pattern, limit = quota.entity.topic or "", int(quota.value)
        covered = [each for each in topics if covers(pattern, each.name)]
        stored = sum(each.bytes for each in covered)
        if stored >= limit:
            for each in covered:
                found[each.id] = StorageQuotaExceeded(
                    topic=each.name, quota=pattern, limit=limit, stored=stored
                )
    return found
