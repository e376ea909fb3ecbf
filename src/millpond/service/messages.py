"""Writes messages: packs the records of gRPC and HTTP requests into batches, and returns the offset of each record.

A request is checked as a whole before any of it is accepted, so a refused request has stored nothing. Batches of one
caller are appended in the order in which its `submit` calls returned.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from millpond.catalog.database import CatalogTransaction
from millpond.log import AppendResult, AppendRole
from millpond.model.clock import Clock
from millpond.model.errors import (
    CorruptBatch,
    InvalidRequest,
    MillpondError,
    NotOwner,
    RecordTooLarge,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnsupportedCompression,
)
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.partitioning import partition_of
from millpond.model.record_errors import keyless_records, record_errors, untimely_records
from millpond.model.topics import NO_TOPIC_ID, Topic, TopicConfig
from millpond.reading.quick_decoding import decodes_quickly
from millpond.records import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    Buffer,
    Record,
    build_batch,
    encoded_size_max,
    iter_records,
    read_header,
)
from millpond.security import Access
from millpond.security.requirements import require_creation
from millpond.security.throttling import charge_mutations
from millpond.service.audited_topic_changes import AuditedTopicChanges
from millpond.service.limits import PayloadLimits, ServiceLimits
from millpond.service.owners import Owners
from millpond.service.payloads import check_references
from millpond.service.workers import Workers
from millpond.topology import BrokerConfigs

T = TypeVar("T")


class StoredMessage(NamedTuple):
    """Where a message was stored. `timestamp` is the broker's time if the topic uses append time, else -1."""

    partition: int
    offset: int
    timestamp: int


class MessageBatch(NamedTuple):
    """One batch of a request; `indexes` are the positions of its messages in the request."""

    partition: int
    indexes: list[int]
    data: bytes


class NewMessage(NamedTuple):
    """A message for a topic; without a partition its key determines one."""

    topic: str
    partition: int | None
    record: Record


class AppendIndex(NamedTuple):
    """Where a message is in a joint append: `ordinal` counts the messages for its partition, from 0."""

    topic_partition: TopicPartition
    ordinal: int


class MessageWriter:
    """Each way to send messages (one, many, jointly) and its checks: more than 20 methods, because a message is
    checked in the same way on each of them."""

    def __init__(
        self,
        log: AppendRole,
        owners: Owners,
        workers: Workers,
        topic_changes: AuditedTopicChanges,
        *,
        clock: Clock,
        configs: BrokerConfigs,
        limits: ServiceLimits,
        payload_limits: PayloadLimits | None = None,
    ) -> None:
        self._log = log
        self._owners = owners
        self._workers = workers
        self._topic_changes = topic_changes
        self._clock = clock
        self._configs = configs
        self._limits = limits
        self._payload_limits = payload_limits or PayloadLimits()
        self._round_robin = 0

    async def produce(
        self,
        topic: str,
        records: Sequence[Record],
        partition: int | None = None,
        *,
        access: Access,
    ) -> list[StoredMessage]:
        """Returns when all messages are durable. Without a partition, the key of each message determines it; messages
        without a key go to a different partition for each request. `access` decides whether a topic that does not exist
        may be created; the right to write is not checked here."""
        return await (await self.submit(topic, records, partition, access=access))

    async def submit(
        self,
        topic: str,
        records: Sequence[Record],
        partition: int | None = None,
        *,
        access: Access,
    ) -> Awaitable[list[StoredMessage]]:
        """Accept messages; awaiting the returned object yields their results. See `produce`."""
        self.check_count(len(records))
        known = await self._find_topic(topic)
        if known is None:
            planned = self.planned(topic, access)
            batches = await self._check_and_pack_new(planned, records, partition)
            known = await self.topic(topic, access)
            if known.overrides or not known.partitions == planned.partitions == 1:
                return await self.submit(
                    topic, records, partition, access=access
                )  # owners and configs are known now
        else:
            batches = await self._check_and_pack_existing(known, records, partition)
        appends = [(TopicPartition(known.id, each.partition), each.data) for each in batches]
        if len(appends) > 1 and await self._has_several_owners(appends):
            return await self._submit_jointly(len(records), batches, appends)
        return _stored_messages(len(records), batches, [await self._submit(*each) for each in appends])

    async def _check_and_pack_new(
        self, planned: Topic, records: Sequence[Record], partition: int | None
    ) -> list[MessageBatch]:
        """The batches for a topic that does not exist yet. Raises the error of a message that would be refused. It is
        called before the topic is created, so that a refused request creates no topic."""
        check_partition(planned, partition)
        batches = await self._check_and_pack(planned, planned.config(), records, partition)
        for batch in batches:
            await self._log.check_planned(planned, batch.data)
        return batches

    async def _check_and_pack_existing(
        self, known: Topic, records: Sequence[Record], partition: int | None
    ) -> list[MessageBatch]:
        if partition is not None:
            await self._log.find_partition(known.name, partition)  # raises if the partition does not exist
        return await self._check_and_pack(known, self._log.topics.config(known.id), records, partition)

    async def _check_and_pack(
        self, topic: Topic, config: TopicConfig, records: Sequence[Record], partition: int | None
    ) -> list[MessageBatch]:
        """The batches of a request, after all checks that do not depend on the partition."""
        self._round_robin += 1
        choice = PartitionChoice(topic.partitions, partition, self._keyless_partition(topic))
        size_max, now_ms = config.max_message_bytes, self._clock.now_ms()
        self._check(config, records, now_ms)
        return await self._run_off_loop_if_large(
            records,
            lambda: pack(records, choice.partitions_of(records), self._limits.batch_bytes, size_max, now_ms),
        )

    def _check(self, config: TopicConfig, records: Sequence[Record], now_ms: int, first: int = 0) -> None:
        """`first` is the index of the first record in the request: an error names every bad message by its index."""
        if config.compacted:
            _check_keys(records, first)
        if not config.append_time:
            _check_times(config, records, now_ms, first)
        if config.payloads:
            check_references(records, now_ms, self._payload_limits)
        check_sizes(records, config.max_message_bytes, first)

    def _keyless_partition(self, topic: Topic) -> int:
        """The partition for messages without a key: a different one for each request, and one that this broker owns if
        it owns any. If the choice ignored the owner, a client that is redirected to the owner could be redirected
        again, because that broker would choose a different partition."""
        for distance in range(topic.partitions):
            number = (self._round_robin + distance) % topic.partitions
            if self._log.owns(TopicPartition(topic.id, number)):
                return number
        return self._round_robin % topic.partitions

    async def batches_of(
        self, messages: Sequence[NewMessage], *, access: Access
    ) -> tuple[dict[TopicPartition, bytes], list[AppendIndex]]:
        """For a joint append: the batches of each partition as one byte string, and for each message its partition and
        its index among the messages for that partition."""
        self.check_count(len(messages))
        await self._check_before_creating(messages, access)
        records_by_partition: dict[TopicPartition, list[Record]] = {}
        indexes: list[AppendIndex] = []
        now_ms = self._clock.now_ms()
        for number, message in enumerate(messages):
            known = await self.topic(message.topic, access)
            self._round_robin += 1
            choice = PartitionChoice(
                known.partitions, message.partition, self._round_robin % known.partitions
            )
            topic_partition = self._log.topics.partition(
                message.topic, choice.partitions_of([message.record])[0]
            )
            self._check(self._log.topics.config(known.id), [message.record], now_ms, number)
            records = records_by_partition.setdefault(topic_partition, [])
            indexes.append(AppendIndex(topic_partition, len(records)))
            records.append(message.record)
        return {
            topic_partition: self._pack_for_partition(topic_partition, records, now_ms)
            for topic_partition, records in records_by_partition.items()
        }, indexes

    async def _check_before_creating(self, messages: Sequence[NewMessage], access: Access) -> None:
        """Like `_check_and_pack_new`: if any message would be refused, no topic is created for the others."""
        topics = {message.topic: await self._find_topic(message.topic) for message in messages}
        if all(topics.values()):
            return
        for message in messages:
            known = topics[message.topic]
            if known is None:
                await self._check_and_pack_new(
                    self.planned(message.topic, access), [message.record], message.partition
                )
            else:
                check_partition(known, message.partition)
                self._check(known.config(), [message.record], self._clock.now_ms())

    def _pack_for_partition(
        self, topic_partition: TopicPartition, records: Sequence[Record], now_ms: int
    ) -> bytes:
        size_max = self._log.topics.config(topic_partition.topic_id).max_message_bytes
        batches = pack(
            records, [topic_partition.partition] * len(records), self._limits.batch_bytes, size_max, now_ms
        )
        return b"".join(batch.data for batch in batches)

    async def _has_several_owners(self, appends: Sequence[tuple[TopicPartition, bytes]]) -> bool:
        """Whether this broker owns the partitions of some batches but not of all. Raises the error of a batch that
        would be refused, and `NotOwner` if this broker owns none of the partitions."""
        refused: list[tuple[TopicPartition, NotOwner]] = []
        for topic_partition, data in appends:
            try:
                self._log.check(topic_partition, data)
            except NotOwner as error:
                refused.append((topic_partition, error))
        if len(refused) == len(appends):
            raise self._owners.explain(refused[0][1], refused[0][0])
        return bool(refused)

    async def _submit_jointly(
        self, count: int, batches: Sequence[MessageBatch], appends: Sequence[tuple[TopicPartition, bytes]]
    ) -> Awaitable[list[StoredMessage]]:
        """Append all batches in one commit, also to partitions of other brokers; their owners are notified."""
        by_partition: dict[TopicPartition, bytes] = {}
        for topic_partition, data in appends:
            by_partition[topic_partition] = by_partition.get(topic_partition, b"") + data
        for topic_partition, data in by_partition.items():
            self._log.check_joint(topic_partition, data)
        appending = await self._log.submit_jointly(by_partition, _no_extra_writes)
        appending.add_done_callback(_mark_exception_retrieved)
        return _jointly_stored_messages(count, batches, appends[0][0].topic_id, appending)

    def check_count(self, count: int) -> None:
        """Refuse a request with too many messages before its messages are processed."""
        if not 1 <= count <= self._limits.produce_messages_max:
            reason = f"{count} messages where 1 to {self._limits.produce_messages_max} are allowed"
            raise InvalidRequest(reason=reason)

    async def submit_batch(
        self, topic: str, partition: int, data: Buffer, *, access: Access
    ) -> "asyncio.Future[AppendResult]":
        """Accept one complete record batch from a producer, unchanged."""
        known = await self._find_topic(topic)
        if known is None:
            planned = self.planned(topic, access)
            check_partition(planned, partition)
            await self._log.check_planned(planned, data)
            known = await self.topic(topic, access)
        topic_partition = await self._log.find_partition(topic, partition)
        if self._log.topics.config(known.id).payloads:
            await self._check_batch_references(data)
        return await self._submit(topic_partition, data)

    async def _check_batch_references(self, data: Buffer) -> None:
        """Check the payload references in a batch that a producer built itself. A batch that cannot be decoded is not
        refused here: the log decides about it."""
        now_ms, decompressed_max = self._clock.now_ms(), self._limits.decompressed_bytes_max

        def check() -> None:
            with contextlib.suppress(CorruptBatch, UnsupportedCompression, RecordTooLarge):
                records = iter_records(data, decompressed_bytes_max=decompressed_max)
                check_references(records, now_ms, self._payload_limits)

        if decodes_quickly(
            [read_header(data)],
            len(data),
            bytes_max=self._limits.decoded_on_loop_bytes,
            records_max=self._limits.on_loop_messages,
        ):
            check()
        else:
            await self._workers.run(check)

    async def topic(self, name: str, access: Access) -> Topic:
        """The topic. Creates it if it does not exist, automatic creation is enabled, and the client may create it."""
        known = await self._find_topic(name)
        if known is not None:
            return known
        if not self._configs.auto_create_topics:
            raise UnknownTopic(topic=name)
        require_creation(access, name)
        charge_mutations(access, self._configs.default_partitions)
        return await self._create(name, access)

    def planned(self, name: str, access: Access) -> Topic:
        """A topic that does not exist, as producing to it would create it. Creates nothing."""
        if not self._configs.auto_create_topics:
            raise UnknownTopic(topic=name)
        if self._log.topics.knows(name):  # created a moment ago
            return self._log.topics.named(name)
        require_creation(access, name)
        self._log.topics.check_new(name)
        return Topic(
            id=NO_TOPIC_ID,
            name=name,
            partitions=self._configs.default_partitions,
            created_at=self._clock.now_ms(),
            broker_defaults=self._log.topics.broker_defaults,
        )

    async def _find_topic(self, name: str) -> Topic | None:
        try:
            return await self._log.topic(name)
        except UnknownTopic:
            return None

    async def _create(self, name: str, access: Access) -> Topic:
        try:
            self._log.topics.check_new(name)
            return await self._topic_changes.create(access, name, self._configs.default_partitions)
        except TopicExists:  # another producer has created it
            await self._log.refresh()
            return self._log.topics.named(name)

    async def _submit(self, topic_partition: TopicPartition, data: Buffer) -> "asyncio.Future[AppendResult]":
        try:
            return await self._log.submit(topic_partition, data)
        except MillpondError as error:
            raise self._owners.explain(error, topic_partition) from error

    async def _run_off_loop_if_large(self, records: Sequence[Record], work: Callable[[], T]) -> T:
        """Run small work directly, and other work on a thread, because it would block the event loop."""
        parts = sum(1 + len(record.headers) for record in records)
        size = sum(len(record.value or b"") + len(record.key or b"") for record in records)
        if parts <= self._limits.on_loop_messages and size <= self._limits.on_loop_bytes:
            return work()
        return await self._workers.run(work)


class PartitionChoice(NamedTuple):
    """Chooses the partitions of a request's messages. All go to `given` if it is set; otherwise their keys determine
    the partition, and messages without a key go to `keyless`."""

    partitions: int
    given: int | None
    keyless: int

    def partitions_of(self, records: Sequence[Record]) -> list[int]:
        if self.given is not None:
            return [self.given] * len(records)
        return [
            self.keyless if record.key is None else partition_of(record.key, self.partitions)
            for record in records
        ]


def pack(
    records: Sequence[Record], chosen: Sequence[int], batch_bytes: int, size_max: int, now_ms: int
) -> list[MessageBatch]:
    """The batches of a request; each partition's are in order. Raises `RecordTooLarge` for a message that is too large
    for any batch."""
    groups_by_partition: dict[int, list[list[int]]] = {}
    sizes: dict[int, int] = {}
    room = min(batch_bytes, size_max)
    for index, (record, partition) in enumerate(zip(records, chosen, strict=True)):
        size = encoded_size_max(record)
        groups = groups_by_partition.setdefault(partition, [])
        if not groups or sizes[partition] + size > room:
            groups.append([])
            sizes[partition] = HEADER_SIZE
        groups[-1].append(index)
        sizes[partition] += size
    return [
        MessageBatch(partition, group, _build(records, group, size_max, now_ms))
        for partition, groups in groups_by_partition.items()
        for group in groups
    ]


def check_partition(topic: Topic, partition: int | None) -> None:
    if partition is not None and not 0 <= partition < topic.partitions:
        raise UnknownPartition(topic=topic.name, partition=partition)


def check_sizes(records: Sequence[Record], size_max: int, first: int = 0) -> None:
    """Refuse messages that cannot fit, before they are hashed or copied."""
    for index, record in enumerate(records):
        if (size := _payload_size(record)) > size_max:
            found = record_errors(
                (first + index for index, each in enumerate(records) if _payload_size(each) > size_max),
                f"The message does not fit a batch of {size_max} bytes.",
            )
            raise RecordTooLarge(size=size + HEADER_SIZE, limit=size_max, record=first + index, records=found)


def _payload_size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")


def _check_keys(records: Sequence[Record], first: int) -> None:
    """The same check as the log's, for the whole request; the log checks one batch at a time."""
    error = keyless_records(first + index for index, record in enumerate(records) if record.key is None)
    if error is not None:
        raise error


def _check_times(config: TopicConfig, records: Sequence[Record], now_ms: int, first: int) -> None:
    """Like `_check_keys`."""
    before, after = config.timestamp_before_max_ms, config.timestamp_after_max_ms
    earliest, newest = now_ms - before, now_ms + after
    wrong = [
        (record.timestamp, first + index)
        for index, record in enumerate(records)
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= newest
    ]
    if wrong:
        indexes = (index for _, index in wrong)
        raise untimely_records(wrong[0][0], now_ms, before_max_ms=before, after_max_ms=after, indexes=indexes)


def _build(records: Sequence[Record], group: list[int], size_max: int, now_ms: int) -> bytes:
    data = build_batch([records[index] for index in group], now_ms=now_ms)
    if len(data) > size_max:
        raise RecordTooLarge(size=len(data), limit=size_max, record=group[0])
    return data


def _no_extra_writes(_: CatalogTransaction) -> None:
    """Passed to a joint append whose transaction commits nothing but the messages."""


def _mark_exception_retrieved(appending: "asyncio.Future[Any]") -> None:
    """If the caller has gone, no code awaits this future, and asyncio would log its exception as never retrieved."""
    if not appending.cancelled():
        appending.exception()


async def _jointly_stored_messages(
    count: int,
    batches: Sequence[MessageBatch],
    topic_id: TopicId,
    appending: "asyncio.Future[dict[TopicPartition, AppendResult]]",
) -> list[StoredMessage]:
    done = await asyncio.shield(appending)
    next_offsets = {topic_partition.partition: result.base_offset for topic_partition, result in done.items()}
    stored = [StoredMessage(-1, -1, -1)] * count
    for batch in batches:
        timestamp = done[TopicPartition(topic_id, batch.partition)].timestamp
        for index in batch.indexes:
            stored[index] = StoredMessage(batch.partition, next_offsets[batch.partition], timestamp)
            next_offsets[batch.partition] += 1
    return stored


async def _stored_messages(
    count: int, batches: Sequence[MessageBatch], futures: "Sequence[asyncio.Future[AppendResult]]"
) -> list[StoredMessage]:
    if len(futures) == 1:
        [batch] = batches
        done = await futures[0]
        return [
            StoredMessage(batch.partition, done.base_offset + delta, done.timestamp) for delta in range(count)
        ]
    stored = [StoredMessage(-1, -1, -1)] * count
    for batch, result in zip(batches, await asyncio.gather(*futures, return_exceptions=True), strict=True):
        if isinstance(result, BaseException):
            raise result
        for delta, index in enumerate(batch.indexes):
            stored[index] = StoredMessage(batch.partition, result.base_offset + delta, result.timestamp)
    return stored
