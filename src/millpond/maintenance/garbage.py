"""Garbage: dead objects, deleted topics, and bytes that a dead writer left without rows.

An object of a live session is never deleted, however old it is, unless the catalog marks it as dead and
sealed: its writer may be slow. Deleting can always be repeated, so a crash anywhere leaves only work for the
next pass.
"""

import logging
from typing import Final

from millpond.catalog import extents, objects, topics, writers
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.writers import DeadSession
from millpond.log import Upkeep
from millpond.maintenance.payloads import remove_all
from millpond.model.clock import Clock
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.objects.store import ObjectStore
from millpond.segments.keys import session_prefixes

OBJECTS_PER_STEP: Final = 500
EXTENTS_PER_STEP: Final = 1_000
SWEEP_EVERY_MS: Final = 10 * 60 * 1000
"""How often the leftovers of a dead session are searched again: it may have been uploading when it died."""
REMEMBER_DEAD_MS: Final = 24 * 60 * 60 * 1000
OFFSET_MAX: Final = 2**63 - 1

logger = logging.getLogger(__name__)


class Garbage:
    def __init__(
        self, log: Upkeep, store: ObjectStore, session: Session, clock: Clock, *, grace_ms: int
    ) -> None:
        self._log = log
        self._store = store
        self._session = session
        self._clock = clock
        self._grace_ms = grace_ms
        self._swept_at: dict[Session, int] = {}

    async def run_once(self) -> int:
        """Collect garbage; returns how many objects were deleted."""
        await self._log.write(
            lambda tx: writers.mark_expired_tools_dead(tx, self._session, self._clock.now_ms())
        )
        await self._seal_closed_journals()
        for topic_id, partitions in await self._log.read(topics.deleted):
            await self._remove_topic(topic_id, partitions)
        collected = await self._collect_dead()
        for dead in await self._log.read(writers.dead_sessions):
            collected += await self._sweep(dead)
        return collected

    async def _seal_closed_journals(self) -> None:
        """A journal that the store has closed does not grow any more. Usually the next flush records that. On
        a full disk there is no next flush, and deleted data could not be collected. Sealing has a commit of its
        own (`own_commit`): no flush is then between storing its bytes and committing its rows. (An upload may
        be, but it seals its object itself.)"""
        if self._store.appends_are_uploads:
            return
        keys = await self._log.read(lambda tx: objects.unsealed_journals(tx, self._session))
        if all(self._store.is_open(key) for key in keys):
            return

        def seal_closed(tx: CatalogTransaction) -> None:
            for key in objects.unsealed_journals(tx, self._session):
                if not self._store.is_open(key):
                    objects.seal(tx, key)

        await self._log.write(seal_closed, own_commit=True)

    async def _remove_topic(self, topic_id: TopicId, partitions: int) -> None:
        for number in range(partitions):
            await self._remove_extents(TopicPartition(topic_id, number))
        await self._log.in_pool(lambda: remove_all(self._store, topic_id))
        await self._log.write(lambda tx: topics.forget(tx, topic_id))

    async def _remove_extents(self, topic_partition: TopicPartition) -> None:
        now_ms = self._clock.now_ms()

        def remove(tx: CatalogTransaction) -> int:
            return extents.remove_below(
                tx, topic_partition, OFFSET_MAX, limit=EXTENTS_PER_STEP, now_ms=now_ms
            )

        while await self._log.write(remove, own_commit=True) == EXTENTS_PER_STEP:
            pass

    async def _collect_dead(self) -> int:
        before_ms = self._clock.now_ms() - self._grace_ms
        dead = await self._log.read(
            lambda tx: objects.collectable(tx, dead_before_ms=before_ms, limit=OBJECTS_PER_STEP)
        )
        if dead:
            await self._log.in_pool(lambda: self._store.delete([key for _, key in dead]))
            await self._log.write(lambda tx: objects.forget(tx, [object_id for object_id, _ in dead]))
        return len(dead)

    async def _sweep(self, dead: DeadSession) -> int:
        """A dead session cannot commit any more, so objects that it stored without a row belong to no
        partition. They are kept for the grace period all the same: a catalog that went back in time may have
        lost the rows. A session that ended in order stores nothing more either, so the first sweep that finds
        nothing is its last."""
        session, now_ms = dead.session, self._clock.now_ms()
        if now_ms - dead.dead_since < self._grace_ms:
            return 0
        swept_at = self._swept_at.get(session)
        if swept_at is not None and now_ms - swept_at < SWEEP_EVERY_MS:
            return 0
        orphans = await self._log.in_pool(lambda: self._find_orphans(session))
        if orphans:
            logger.info("collecting orphaned objects", extra={"session": session, "objects": len(orphans)})
            await self._log.in_pool(lambda: self._store.delete(orphans))
        self._swept_at[session] = now_ms
        if not orphans and (dead.in_order or now_ms - dead.dead_since > REMEMBER_DEAD_MS):
            await self._log.write(lambda tx: writers.forget(tx, session))
            del self._swept_at[session]
        return len(orphans)

    def _find_orphans(self, session: Session) -> list[str]:
        """List first, read the rows second, so that the rows include every object committed before the listing."""
        listed = [key for prefix in session_prefixes(session) for key in self._store.list(prefix)]
        with self._log.catalog_read() as tx:
            known = objects.known_keys(tx, session)
        return [key for key in listed if key not in known]
