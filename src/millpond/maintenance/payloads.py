"""Deletes payloads that are no longer needed: together with their messages, or by age if they never got a message.

No row counts the references to a payload. Its id contains its creation time, and messages carry the broker's
time. A message is accepted only while its payload is younger than half the collection age, so

* a payload that is older than the oldest message by more than that has lost its message, and is deleted
  (`expire`);
* a payload older than the collection age will not get a message any more, and is deleted unless one of the
  messages accepted around that time refers to it (`sweep`). This also finds payloads whose messages were
  removed out of order, and uploads to a topic that is gone.

Nothing is deleted while the wall clock is not trusted. The owner of a topic's first partition collects its
payloads. Deleting can be repeated, so a crash anywhere leaves only work for the next pass.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import groupby, islice, takewhile
from typing import Final, TypeVar
from uuid import UUID

from millpond.catalog import extents, topics
from millpond.catalog.database import CatalogTransaction
from millpond.log import Upkeep
from millpond.maintenance.clock_guard import JUMP_MS, ClockGuard
from millpond.maintenance.compaction import Pacer
from millpond.model.clock import Clock
from millpond.model.errors import Damaged, InvalidInput
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.payloads import AHEAD_MS_MAX, referred_to
from millpond.model.topics import Topic
from millpond.objects.store import ObjectStore
from millpond.records import iter_records
from millpond.segments.keys import PAYLOADS, PayloadKey, parse, payload_prefix

KEYS_PER_STEP: Final = 100_000
"""Number of payloads compared with messages at a time: some megabytes of ids."""
DELETED_PER_STEP: Final = 1_000
SPANS_PER_LOOK: Final = 1_000
READ_BYTES: Final = 1024 * 1024
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum decompressed size of one stored batch. The references in a larger batch are unknown."""
SWEEPS_PER_AGE: Final = 4
UNCOMMITTED_MS_MAX: Final = JUMP_MS
"""Messages that were accepted and have no row yet are younger than this, despite small steps of the clock."""

logger = logging.getLogger(__name__)
T = TypeVar("T")


class PayloadCollector:
    def __init__(
        self,
        log: Upkeep,
        store: ObjectStore,
        clock: Clock,
        guard: ClockGuard,
        *,
        age_ms: int,
        bytes_per_second: int,
    ) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._guard = guard
        self._age_ms = age_ms
        self._bytes_per_second = bytes_per_second
        self._cutoffs: dict[TopicId, int] = {}
        self._sweep_due_ms: int | None = None

    async def run_once(self) -> int:
        """Delete what is due; returns how many payloads were deleted."""
        if not self._guard.trusts_clock():
            return 0
        return await self.expire() + (await self.sweep() if self._sweep_is_due() else 0)

    # -- with their messages ------------------------------------------------------------------------------------

    async def expire(self) -> int:
        owned = [topic for topic in self._log.topics.all() if self._collects_for(topic.id)]
        self._cutoffs = {topic.id: self._cutoffs.get(topic.id, 0) for topic in owned}
        return sum([await self._expire(topic) for topic in owned])

    async def _expire(self, topic: Topic) -> int:
        oldest_ms = await self._log.read(lambda tx: extents.oldest_timestamp(tx, topic.id))
        if oldest_ms is None:
            return 0  # without messages only age decides
        cutoff_ms = oldest_ms - self._age_ms // 2 - UNCOMMITTED_MS_MAX
        if cutoff_ms <= self._cutoffs[topic.id]:
            return 0
        deleted = await self._log.in_pool(lambda: self._delete(self._created_before(topic.id, cutoff_ms)))
        if self._guard.trusts_clock():
            self._cutoffs[topic.id] = cutoff_ms
        return deleted

    def _created_before(self, topic_id: TopicId, cutoff_ms: int) -> Iterator[PayloadKey]:
        """Keys sort by creation time."""
        return takewhile(
            lambda key: key.created_ms < cutoff_ms, _payloads(self._store, payload_prefix(topic_id))
        )

    # -- payloads without a message -------------------------------------------------------------------------------

    def _sweep_is_due(self) -> bool:
        return self._sweep_due_ms is None or self._clock.monotonic_ms() >= self._sweep_due_ms

    async def sweep(self) -> int:
        """Check all payloads, `KEYS_PER_STEP` at a time."""
        deleted, listing = 0, _payloads(self._store, PAYLOADS)
        while some := await self._log.in_pool(lambda: list(islice(listing, KEYS_PER_STEP))):
            # Read after the listing: a topic created in between has no payload in it.
            living, gone_soon = await self._log.read(_topics)
            for topic_id, keys in groupby(some, lambda key: key.topic_id):
                if topic_id in living:
                    deleted += await self._sweep_topic(living[topic_id], list(keys))
                elif topic_id not in gone_soon:
                    deleted += await self._drop(list(keys))
        self._sweep_due_ms = self._clock.monotonic_ms() + self._age_ms // SWEEPS_PER_AGE
        return deleted

    async def _sweep_topic(self, topic: Topic, keys: list[PayloadKey]) -> int:
        if not self._collects_for(topic.id):
            return 0
        cutoff_ms = self._clock.now_ms() - self._age_ms
        old = {key.identifier: key for key in keys if key.created_ms < cutoff_ms}
        if not old:
            return 0
        try:
            orphans = await self._log.in_pool(lambda: self._unreferenced(topic, set(old)))
        except (Damaged, InvalidInput) as error:
            logger.warning(
                "payload collection skipped; topic has unreadable messages",
                extra={"topic": topic.name, "error": str(error)},
            )
            return 0
        return await self._drop([old[orphan] for orphan in sorted(orphans)])

    def _unreferenced(self, topic: Topic, ids: set[UUID]) -> set[UUID]:
        """The ids to which no message refers, among the messages accepted while a reference was possible."""
        times = [each.int >> 80 for each in ids]
        start_ms = min(times) - AHEAD_MS_MAX - UNCOMMITTED_MS_MAX
        pacer = Pacer(self._log, self._bytes_per_second)
        for number in range(topic.partitions):
            topic_partition = TopicPartition(topic.id, number)
            for data in self._stored(topic_partition, start_ms, max(times) + self._age_ms):
                for record in iter_records(data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                    ids -= referred_to(record.headers)
                if not ids:
                    return ids
                pacer.pause(len(data))
        return ids

    def _stored(self, topic_partition: TopicPartition, start_ms: int, end_ms: int) -> Iterator[bytes]:
        """Batches that may hold messages of these times. Found by offset, since extents may be merged
        concurrently."""
        offset = 0
        while spans := self._spans(topic_partition, start_ms, end_ms, offset):
            for base, end in spans:
                offset = max(offset, base)
                while offset < end and (runs := self._log.read_runs(topic_partition, offset, READ_BYTES)):
                    yield from (bytes(run.data) for run in runs)
                    offset = runs[-1].end_offset
                offset = max(offset, end)

    def _spans(
        self, topic_partition: TopicPartition, start_ms: int, end_ms: int, offset: int
    ) -> list[tuple[int, int]]:
        with self._log.catalog_read() as tx:
            return extents.spans_in_time(
                tx, topic_partition, start_ms, end_ms, offset=offset, limit=SPANS_PER_LOOK
            )

    # -- deleting -------------------------------------------------------------------------------------------------

    async def _drop(self, keys: list[PayloadKey]) -> int:
        if keys:
            logger.info("collecting unreferenced payloads", extra={"payloads": len(keys)})
        return await self._log.in_pool(lambda: self._delete(keys))

    def _delete(self, keys: Iterable[PayloadKey]) -> int:
        """Stops when the clock is no longer trusted; returns how many payloads were deleted."""
        deleted = 0
        for some in _in_steps(keys, DELETED_PER_STEP):
            if not self._guard.trusts_clock():
                break
            self._store.delete([str(key) for key in some])
            deleted += len(some)
        return deleted

    def _collects_for(self, topic_id: TopicId) -> bool:
        """Whether this broker owns the topic's first partition, and the topic accepts payloads."""
        topic_partition = TopicPartition(topic_id, 0)
        if not self._log.topics.knows_id(topic_id) or not self._log.topics.config(topic_id).payloads:
            return False
        return any(
            partition.topic_partition == topic_partition and not partition.fenced
            for partition in self._log.partitions()
        )


def remove_all(store: ObjectStore, topic_id: TopicId) -> None:
    """Delete all payloads of a deleted topic. A later sweep finds uploads that are still in flight."""
    for some in _in_steps(_payloads(store, payload_prefix(topic_id)), DELETED_PER_STEP):
        store.delete([str(key) for key in some])


def _payloads(store: ObjectStore, prefix: str) -> Iterator[PayloadKey]:
    """Other objects under the prefix are left alone."""
    parsed = (parse(key) for key in store.list(prefix))
    return (key for key in parsed if isinstance(key, PayloadKey))


def _topics(tx: CatalogTransaction) -> tuple[dict[TopicId, Topic], set[TopicId]]:
    """The existing topics, and the deleted ones that `Garbage` is still removing."""
    deleted = {topic_id for topic_id, _ in topics.deleted(tx)}
    return {topic.id: topic for topic in topics.all_topics(tx)}, deleted


def _in_steps(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while some := list(islice(remaining, size)):
        yield some
