"""The way in, up to the buffer: batches are checked, looked into if their topic asks for it, judged against what their
producer sent before, and given to the flusher. Refusing is done here; from the buffer on it is the commit that decides.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from millpond.catalog.commits import Operation
from millpond.log.admission import AS_PRODUCED, Headers, admit, look_inside
from millpond.log.buffer import AppendResult, Pending, sequence_of
from millpond.log.flusher import Flusher
from millpond.log.owned import OwnedPartitions
from millpond.log.partition import Partition
from millpond.log.threads import Threads
from millpond.log.topics import TopicRegistry
from millpond.model.clock import Clock
from millpond.model.errors import InvalidRequest, NotOwner, RecordTooLarge
from millpond.model.ids import TopicPartition
from millpond.model.producers import CommittedBatch
from millpond.model.topics import Topic, TopicConfig
from millpond.records import Buffer

LOOKED_AT_ON_LOOP_BYTES = 64 * 1024
"""Batches the broker must look into: more than this, decompressed, is done on a reader's thread."""
LOOKED_AT_ON_LOOP_RECORDS = 500


class Appender:
    def __init__(
        self,
        flusher: Flusher,
        owned: OwnedPartitions,
        topics: TopicRegistry,
        threads: Threads,
        *,
        clock: Clock,
        decompressed_bytes_max: int,
    ) -> None:
        self._flusher = flusher
        self._owned = owned
        self._topics = topics
        self._threads = threads
        self._clock = clock
        self._decompressed_bytes_max = decompressed_bytes_max

    # -- one partition ----------------------------------------------------------------------------------------

    async def submit(self, where: TopicPartition, data: Buffer) -> "asyncio.Future[AppendResult]":
        """See `Log.submit`."""
        partition = self._owned.served(where)
        config = self._topics.config(where.topic_id)
        data, headers, timestamp = admit(data, config, now_ms=self._clock.now_ms())
        if config.compression == AS_PRODUCED and not config.compacted:
            return await self._accept(partition, data, headers, timestamp)
        async with partition.turn:
            data, headers = await self._look_inside(data, headers, config)
            return await self._accept(partition, data, headers, timestamp)

    def check(self, where: TopicPartition, data: Buffer) -> None:
        """See `Log.check`."""
        self._owned.served(where)
        self.check_joint(where, data)

    async def check_planned(self, topic: Topic, data: Buffer) -> None:
        """See `Log.check_planned`."""
        config = topic.config()
        data, headers, _ = admit(data, config, now_ms=self._clock.now_ms())
        if config.compression != AS_PRODUCED or config.compacted:
            await self._look_inside(data, headers, config)

    async def _accept(
        self, partition: Partition, data: Buffer, headers: Headers, timestamp: int
    ) -> "asyncio.Future[AppendResult]":
        """Put admitted batches into a buffer, unless they are a repeat of some that were there before."""
        where = partition.where
        self._flusher.check_available(where)
        await self._flusher.room_for(len(data))
        sequence = sequence_of(headers[0][1])
        if sequence is not None and (sequence.transactional or partition.sequences.stale):
            await partition.learn_of(sequence, self._threads.read)
        self._flusher.check_available(where)
        if not self._owned.serves(partition):
            raise NotOwner
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if sequence is not None:
            known = partition.sequences.admit(sequence)
            if isinstance(known, CommittedBatch):
                future.set_result(AppendResult(known.offset, partition.log_start, timestamp))
                return future
            if known is None:
                partition.ongoing.check(sequence)
                partition.sequences.expect(sequence, future)
                self._flusher.add(Pending(where, data, headers, future, timestamp))
            return asyncio.shield(known or future)  # a repeat may share it: no one's leaving may cancel it
        self._flusher.add(Pending(where, data, headers, future, timestamp))
        return future

    # -- several partitions, whoever owns them ----------------------------------------------------------------

    async def append_jointly(
        self, appends: Mapping[TopicPartition, Buffer], also: Operation
    ) -> dict[TopicPartition, AppendResult]:
        """See `Log.append_jointly`."""
        pendings = await self._admit_jointly(appends)
        self._flusher.add_jointly(pendings, also)
        return await _joint_results(pendings)

    async def submit_jointly(
        self, appends: Mapping[TopicPartition, Buffer], also: Operation
    ) -> "asyncio.Future[dict[TopicPartition, AppendResult]]":
        """See `Log.submit_jointly`."""
        pendings = await self._admit_jointly(appends)
        self._flusher.launch_buffered(appends.keys())
        self._flusher.add_jointly(pendings, also)
        return asyncio.ensure_future(_joint_results(pendings))

    def check_joint(self, where: TopicPartition, data: Buffer) -> None:
        """See `Log.check_joint`."""
        self._owned.check_not_halted(where)
        admit(data, self._topics.config(where.topic_id), now_ms=self._clock.now_ms())
        self._flusher.check_available(where)

    async def _admit_jointly(self, appends: Mapping[TopicPartition, Buffer]) -> list[Pending]:
        pendings = [await self._joint(where, data) for where, data in appends.items()]
        await self._flusher.room_for(sum(pending.size for pending in pendings))
        for pending in pendings:
            self._owned.check_not_halted(pending.where)
            self._flusher.check_available(pending.where)
        return pendings

    async def _joint(self, where: TopicPartition, data: Buffer) -> Pending:
        config = self._topics.config(where.topic_id)
        data, headers, timestamp = admit(data, config, now_ms=self._clock.now_ms())
        if any(header.producer_id >= 0 for _, header in headers):
            raise InvalidRequest(reason="a joint append takes no batches with sequences")
        if config.compression != AS_PRODUCED or config.compacted:
            data, headers = await self._look_inside(data, headers, config)
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        return Pending(where, data, headers, future, timestamp)

    # -- inside -----------------------------------------------------------------------------------------------

    async def _look_inside(
        self, data: Buffer, headers: Headers, config: TopicConfig
    ) -> tuple[Buffer, Headers]:
        """What is small once decompressed is done at once; anything else would hold up everybody on the loop."""
        limit = self._decompressed_bytes_max
        records = sum(header.record_count for _, header in headers)
        if len(data) <= LOOKED_AT_ON_LOOP_BYTES and records <= LOOKED_AT_ON_LOOP_RECORDS:
            with contextlib.suppress(RecordTooLarge):
                small = min(limit, LOOKED_AT_ON_LOOP_BYTES)
                return look_inside(data, headers, config, decompressed_bytes_max=small)
        return await self._threads.in_pool(
            lambda: look_inside(data, headers, config, decompressed_bytes_max=limit)
        )


async def _joint_results(pendings: Sequence[Pending]) -> dict[TopicPartition, AppendResult]:
    results = await asyncio.gather(*(pending.future for pending in pendings), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return {
        pending.where: result
        for pending, result in zip(pendings, results, strict=True)
        if isinstance(result, AppendResult)
    }
