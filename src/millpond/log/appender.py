"""The first half of the write path. The appender checks batches, reads their records if the topic's config or
an untrusted header requires it, compares idempotent batches with what their producer sent before, and adds
them to the flusher's buffer. Appends are refused here; once a batch is buffered, the commit decides.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from millpond.catalog.commits import CommitOperation
from millpond.log.admission import Admitted, admit, check_times, inspect_records, needs_inspection
from millpond.log.buffer import AppendResult, Pending, sequence_of
from millpond.log.flusher import Flusher
from millpond.log.owned_partitions import OwnedPartitions
from millpond.log.partition import LogPartition
from millpond.log.refused_sequences import RefusedSequences, is_sent_again
from millpond.log.threads import Threads
from millpond.log.topic_quotas import FullTopics
from millpond.model.clock import Clock
from millpond.model.errors import InvalidInput, InvalidRequest, MillpondError, NotOwner, RecordTooLarge
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.producers import CommittedBatch
from millpond.model.topics import Topic, TopicConfig
from millpond.records import Buffer, read_header
from millpond.topology.topics import TopicRegistry

INSPECTED_ON_LOOP_BYTES = 64 * 1024
"""Batches whose records the broker must read: above this decompressed size it does so on a thread. The rule differs
from `reading/quick_decoding.py`: a compressed batch may be read on the event loop, too, if it proves to be small."""
INSPECTED_ON_LOOP_RECORDS = 500


class Appender:
    def __init__(
        self,
        flusher: Flusher,
        owned: OwnedPartitions,
        topics: TopicRegistry,
        threads: Threads,
        refused: RefusedSequences,
        *,
        clock: Clock,
        decompressed_bytes_max: int,
        full_topics: FullTopics,
    ) -> None:
        self._flusher = flusher
        self._backpressure = flusher.backpressure
        self._owned = owned
        self._topics = topics
        self._threads = threads
        self._refused = refused
        self._full_topics = full_topics
        self._clock = clock
        self._decompressed_bytes_max = decompressed_bytes_max

    # -- one partition ----------------------------------------------------------------------------------------

    async def submit(self, topic_partition: TopicPartition, data: Buffer) -> "asyncio.Future[AppendResult]":
        """See `Log.submit`."""
        try:
            partition = self._owned.served(topic_partition)
            if self._full_topics.by_id:
                self._check_quota(topic_partition.topic_id)
            config = self._topics.config(topic_partition.topic_id)
            admitted = admit(data, config, now_ms=self._clock.now_ms())
            is_inspected = needs_inspection(admitted, config)
            # If the catalog is read for this producer's earlier sequences, its later batches must wait for this one.
            awaits_sequences = admitted.headers[0][1].producer_id >= 0 and partition.sequences.stale
            if not is_inspected and not awaits_sequences and not partition.queued_appends:
                return await self._accept(partition, admitted)
            partition.queued_appends += 1
            try:
                async with partition.append_lock:
                    if is_inspected:
                        admitted = await self._inspect_records(admitted, config)
                    return await self._accept(partition, admitted)
            finally:
                partition.queued_appends -= 1
        except MillpondError as error:
            self.remember_refusal(topic_partition, data, error)
            raise

    def remember_refusal(self, topic_partition: TopicPartition, data: Buffer, error: MillpondError) -> None:
        """See `Log.remember_refusal`."""
        if not is_sent_again(error):
            return
        with contextlib.suppress(InvalidInput):  # without a valid header, the sequence is not known
            if (sequence := sequence_of(read_header(data))) is not None:
                self._refused.add(topic_partition, sequence, self._clock.monotonic_ms())

    def check(self, topic_partition: TopicPartition, data: Buffer) -> None:
        """See `Log.check`."""
        self._owned.served(topic_partition)
        self.check_joint(topic_partition, data)

    async def check_planned(self, topic: Topic, data: Buffer) -> None:
        """See `Log.check_planned`."""
        self._full_topics.check(topic)
        config = topic.config()
        self._backpressure.check_available(TopicPartition(topic.id, 0))
        self._backpressure.check_disk_space()
        admitted = admit(data, config, now_ms=self._clock.now_ms())
        if needs_inspection(admitted, config):
            await self._inspect_records(admitted, config)

    async def _accept(self, partition: LogPartition, admitted: Admitted) -> "asyncio.Future[AppendResult]":
        """Add admitted batches to a buffer, unless they repeat earlier ones."""
        topic_partition = partition.topic_partition
        self._backpressure.check_available(topic_partition)
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        pending = Pending(topic_partition, admitted, future)
        sequence = pending.sequence
        await self._backpressure.wait_for_room(pending.size)
        if sequence is not None and (sequence.transactional or partition.sequences.stale):
            await partition.load_state_for(sequence, self._threads.read)
        self._backpressure.check_available(topic_partition)
        if not self._owned.serves(partition):
            raise NotOwner
        if sequence is not None:
            if self._refused and not partition.sequences.knows(sequence.producer_id):
                self._refused.check(topic_partition, sequence, self._clock.monotonic_ms())
            known = partition.sequences.admit(sequence)
            if isinstance(known, CommittedBatch):
                future.set_result(AppendResult(known.offset, partition.log_start, admitted.timestamp))
                return future
            if known is None:
                partition.open_transactions.check(sequence)
                partition.sequences.expect(sequence, future)
                self._refused.remove(topic_partition, sequence.producer_id)
                self._flusher.add(pending)
            return asyncio.shield(known or future)  # a repeat may share it: one caller must not cancel both
        self._flusher.add(pending)
        return future

    # -- several partitions, with any owner -------------------------------------------------------------------

    async def append_jointly(
        self, appends: Mapping[TopicPartition, Buffer], joint_operation: CommitOperation
    ) -> dict[TopicPartition, AppendResult]:
        """See `Log.append_jointly`."""
        pendings = await self._admit_jointly(appends)
        self._flusher.add_jointly(pendings, joint_operation)
        return await _joint_results(pendings)

    async def submit_jointly(
        self, appends: Mapping[TopicPartition, Buffer], joint_operation: CommitOperation
    ) -> "asyncio.Future[dict[TopicPartition, AppendResult]]":
        """See `Log.submit_jointly`."""
        pendings = await self._admit_jointly(appends)
        self._flusher.launch_buffered(appends.keys())
        self._flusher.add_jointly(pendings, joint_operation)
        return asyncio.ensure_future(_joint_results(pendings))

    def check_joint(self, topic_partition: TopicPartition, data: Buffer) -> None:
        """See `Log.check_joint`."""
        self._owned.check_not_halted(topic_partition)
        self._check_quota(topic_partition.topic_id)
        config = self._topics.config(topic_partition.topic_id)
        admitted = admit(data, config, now_ms=self._clock.now_ms())
        if not admitted.is_trusted:
            check_times(admitted, config, self._decompressed_bytes_max)
        self._backpressure.check_available(topic_partition)

    async def _admit_jointly(self, appends: Mapping[TopicPartition, Buffer]) -> list[Pending]:
        pendings = [await self._joint(topic_partition, data) for topic_partition, data in appends.items()]
        await self._backpressure.wait_for_room(sum(pending.size for pending in pendings))
        for pending in pendings:
            self._owned.check_not_halted(pending.topic_partition)
            self._backpressure.check_available(pending.topic_partition)
        return pendings

    async def _joint(self, topic_partition: TopicPartition, data: Buffer) -> Pending:
        self._check_quota(topic_partition.topic_id)
        config = self._topics.config(topic_partition.topic_id)
        admitted = admit(data, config, now_ms=self._clock.now_ms())
        if any(header.producer_id >= 0 for _, header in admitted.headers):
            raise InvalidRequest(reason="a joint append takes no batches with sequences")
        if needs_inspection(admitted, config):
            admitted = await self._inspect_records(admitted, config)
        return Pending(topic_partition, admitted, asyncio.get_running_loop().create_future())

    # -- inside -----------------------------------------------------------------------------------------------

    def _check_quota(self, topic_id: TopicId) -> None:
        self._full_topics.check(self._topics.with_id(topic_id))

    async def _inspect_records(self, admitted: Admitted, config: TopicConfig) -> Admitted:
        """Read small batches on the event loop. Read all others on a thread, because they would block the loop."""
        limit = self._decompressed_bytes_max
        if _is_small(admitted):
            with contextlib.suppress(RecordTooLarge):
                small = min(limit, INSPECTED_ON_LOOP_BYTES)
                return inspect_records(admitted, config, decompressed_bytes_max=small)
        return await self._threads.run_on_batch_threads(
            lambda: inspect_records(admitted, config, decompressed_bytes_max=limit)
        )


def _is_small(admitted: Admitted) -> bool:
    """Whether this is one batch with few bytes and records. Only decompressing it shows its decompressed size."""
    if len(admitted.headers) > 1 or len(admitted.data) > INSPECTED_ON_LOOP_BYTES:
        return False
    return admitted.headers[0][1].record_count <= INSPECTED_ON_LOOP_RECORDS


async def _joint_results(pendings: Sequence[Pending]) -> dict[TopicPartition, AppendResult]:
    results = await asyncio.gather(*(pending.future for pending in pendings), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return {
        pending.topic_partition: result
        for pending, result in zip(pendings, results, strict=True)
        if isinstance(result, AppendResult)
    }
