"""The topic `__audit`: the events of the audit log as JSON, one message each, which the broker itself writes.

Events wait in a bounded queue and are written in the background, so no request waits for them. When the queue is full,
new events are counted and left out, and the topic says how many. So is an event that the log refuses as invalid: it is
not tried again. What this module does itself is no event.
"""

import asyncio
import json
import logging
from collections import deque
from datetime import UTC, datetime
from itertools import accumulate, islice
from typing import Final

from millpond.catalog.database import CatalogTransaction
from millpond.log import Log
from millpond.model.configs import MAX_MESSAGE_BYTES
from millpond.model.errors import InvalidInput, MillpondError, TopicExists, UnknownTopic
from millpond.model.ids import AUDIT_TOPIC, TopicPartition
from millpond.model.topics import Topic
from millpond.observability.metrics import SecurityMetrics
from millpond.records import HEADER_SIZE, Record, build_batch, encoded_size_max
from millpond.security.audit import DROPPED, FAILURE, AuditEvent, broker_principal

QUEUED_MAX: Final = 10_000
"""Events that wait to be written. Further ones are dropped, and counted."""
EVENTS_PER_BATCH_MAX: Final = 200
TEXT_BYTES_MAX: Final = 1_000
"""Longer values of an event are cut. Counted as JSON, which needs up to 12 bytes for a character."""
EVENT_BYTES_MAX: Final = 16 * 1024
"""No event is larger: it has few values, and each of them is cut."""
BATCH_BYTES_MAX: Final = 256 * 1024
"""`max.message.bytes` of the topic: room for many events, whatever the broker's default is."""
RETRY_DELAY_S: Final = 1.0
PARTITIONS: Final = 1
"""All events of a cluster are in one order."""

logger = logging.getLogger(__name__)


class AuditTopic:
    """Call `open` before clients are served, `run` afterwards, and `close` before the log stops. Lives on one event
    loop."""

    def __init__(
        self,
        log: Log,
        *,
        node_id: int,
        retention_ms: int,
        metrics: SecurityMetrics,
        queued_max: int = QUEUED_MAX,
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(retention_ms),
            MAX_MESSAGE_BYTES: str(BATCH_BYTES_MAX),
        }
        self._metrics = metrics
        self._queued_max = queued_max
        self._queue: deque[AuditEvent] = deque()
        self._dropped = 0
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()

    def add(self, event: AuditEvent) -> None:
        """Never blocks, and never fails."""
        if len(self._queue) >= self._queued_max:
            self._count_dropped()
            return
        self._queue.append(event)
        self._news.set()

    async def open(self) -> None:
        """Create the topic, or give it the configs that it needs and the retention of the settings."""
        topic = await self._topic()
        changes = {name: value for name, value in self._configs.items() if topic.overrides.get(name) != value}
        if changes:
            await self._log.alter_config(AUDIT_TOPIC, changes)

    async def run(self) -> None:
        while True:
            await self._news.wait()
            if await self._try_write_all():
                self._news.clear()
            else:
                await asyncio.sleep(RETRY_DELAY_S)

    async def close(self) -> None:
        """Write what is queued, if possible."""
        await self._try_write_all()

    async def _try_write_all(self) -> bool:
        """Returns False if it must be tried again. The events stay in the queue until they are written."""
        try:
            async with self._writing:
                while self._queue:
                    await self._write_some()
        except MillpondError as error:
            logger.warning("writing the audit topic failed; will retry", extra={"error": str(error)})
            return False
        return True

    async def _write_some(self, events_max: int = EVENTS_PER_BATCH_MAX) -> None:
        records = self._next_records(events_max)
        written, dropped = len(records), self._dropped
        if dropped:
            records.append(self._record(self._dropped_event(records[-1].timestamp, dropped)))
        topic = await self._topic()
        try:
            await self._log.append_jointly({TopicPartition(topic.id, 0): build_batch(records)}, _no_operation)
        except InvalidInput as error:
            await self._write_valid(written, error)
            return
        self._dropped -= dropped
        self._remove(written)

    async def _write_valid(self, refused: int, error: InvalidInput) -> None:
        """The first events of the queue were refused together. Write them one by one, and drop those that are refused
        again."""
        if refused > 1:
            for _ in range(refused):
                await self._write_some(1)
            return
        logger.warning("audit event refused; left out of the topic", extra={"error": str(error)})
        self._count_dropped()
        self._remove(1)

    def _next_records(self, events_max: int) -> list[Record]:
        """The first events of the queue that fit into one batch, with room for one more event."""
        records: list[Record] = []
        left = BATCH_BYTES_MAX - HEADER_SIZE
        for event in islice(self._queue, events_max):
            record = self._record(event)
            left -= encoded_size_max(record)
            if records and left < EVENT_BYTES_MAX:
                break
            records.append(record)
        return records

    def _record(self, event: AuditEvent) -> Record:
        return Record(value=_encoded(event, self._node_id), timestamp=event.time_ms)

    def _remove(self, count: int) -> None:
        for _ in range(count):
            self._queue.popleft()

    def _count_dropped(self) -> None:
        self._dropped += 1
        self._metrics.audit_dropped.inc()

    async def _topic(self) -> Topic:
        try:
            return await self._log.topic(AUDIT_TOPIC)
        except UnknownTopic:
            pass
        try:
            return await self._log.create_topic(AUDIT_TOPIC, PARTITIONS, self._configs)
        except TopicExists:  # another broker has created it
            await self._log.refresh()
            return await self._log.topic(AUDIT_TOPIC)

    def _dropped_event(self, time_ms: int, count: int) -> AuditEvent:
        principal = str(broker_principal(self._node_id))
        return AuditEvent(time_ms, DROPPED, principal, "", str(count), FAILURE)


def _encoded(event: AuditEvent, node_id: int) -> bytes:
    moment = datetime.fromtimestamp(event.time_ms / 1000, UTC)
    values = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "event": event.event,
        "principal": _cut(event.principal),
        "address": _cut(event.address),
        "resource": _cut(event.resource),
        "outcome": event.outcome,
        **{name: _cut(value) for name, value in event.details.items()},
        "broker": node_id,
    }
    return json.dumps(values).encode()


def _cut(text: str) -> str:
    """The longest beginning of a value that has `TEXT_BYTES_MAX` as JSON."""
    text = text[:TEXT_BYTES_MAX]
    if _json_bytes(text) <= TEXT_BYTES_MAX:
        return text
    sizes = accumulate(map(_json_bytes, text))
    return text[: sum(size <= TEXT_BYTES_MAX for size in sizes)]


def _json_bytes(text: str) -> int:
    return len(json.dumps(text)) - len('""')


def _no_operation(_: CatalogTransaction) -> None:
    """`append_jointly` appends to the partition whichever broker owns it. Nothing else is in its commit."""
