"""The part of a producer that sends to one topic: it knows the topic's partitions, chooses one for each message, and
refreshes what it knows.

Messages that are submitted at the same time are sent together: the first is sent immediately, and while it is
in flight the next batch fills.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from millpond.client import arguments
from millpond.client.calls import ADMIN, Connections
from millpond.client.lane import Lane, QueuedRecord
from millpond.client.message import Placed
from millpond.client.sender import SendBuffer, Sender
from millpond.model.configs import MAX_MESSAGE_BYTES
from millpond.model.errors import MillpondError, RecordTooLarge, Stopping, UnknownPartition
from millpond.model.partitioning import partition_of
from millpond.records import HEADER_SIZE, Codec, Record, build_batch, encoded_size_max
from millpond.stubs import admin_pb2

STICKY_BYTES: Final = 16 * 1024
"""Bytes without a key that go to one partition before the next partition is used."""
METADATA_REFRESH_S: Final = 60.0
"""How often a producer in use asks for the topic's partitions and limits."""
PLANNED_METADATA_REFRESH_S: Final = 1.0
"""The same while the topic is not known to exist: another client may create it with another number of partitions."""
STALE: Final = (UnknownPartition, RecordTooLarge)
"""Errors of `put` that may be caused by an outdated description of the topic."""


class TopicProducer:
    """Sends to one topic over the connections of a producer, which closes them."""

    def __init__(
        self, topic: str, connections: Connections, buffer: SendBuffer, *, codec: Codec, batch_bytes: int
    ) -> None:
        self.topic = topic
        self._connections = connections
        self._buffer = buffer
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._timeout_s = connections.timeout_s
        self._sender = Sender(connections, topic, buffer)
        self._lanes: list[Lane] = []
        self.configs: Mapping[str, str] = {}
        """The topic's configs, once they are known."""
        self._size_max = 0
        self._exists = False
        """Whether the topic existed when it was last described. If not, the description shows how it would be
        created."""
        self._sticky_partition = 0
        self._sticky_bytes = 0
        self._refresh_task: asyncio.Task[None] | None = None
        self._refresh_at = 0.0
        self._closed = False

    # -- sending ----------------------------------------------------------------------------------------------

    async def submit_record(self, record: Record, partition: int | None = None) -> "asyncio.Future[Placed]":
        """Returns as soon as the message is queued. If it is refused, the future has the error. Waits until the topic
        is known and the buffer has room."""
        if partition is not None:
            partition = arguments.number("partition", partition)
        loop = asyncio.get_running_loop()
        now = loop.time()
        future: asyncio.Future[Placed] = loop.create_future()
        entry = QueuedRecord(record, encoded_size_max(record), future)
        try:
            if not self.is_ready or now >= self._refresh_at:
                await self.ready()
            try:
                self.put(entry, partition, now + self._timeout_s)
            except STALE:
                await self.place_again(entry, partition, now + self._timeout_s)
        except MillpondError as error:
            future.set_exception(error.copy())
        return future

    async def ready(self) -> None:
        """Wait until the topic is known and there is room for another message."""
        self._check_open()
        if not self._lanes:
            await self._ensure_metadata()
        elif asyncio.get_running_loop().time() >= self._refresh_at:
            self._start_refresh()
        if not self._buffer.has_room:
            await self._buffer.wait_for_room()

    @property
    def is_ready(self) -> bool:
        """Whether `ready` returns without waiting."""
        return bool(self._lanes) and self._buffer.has_room

    @property
    def has_room(self) -> bool:
        """Whether the buffer takes another message."""
        return self._buffer.has_room

    def put(self, entry: QueuedRecord, partition: int | None, deadline: float) -> None:
        """Queue a message, when the producer is ready. The result may go to another thread. Raises one of `STALE` if
        the known description of the topic refuses the message: see `place_again`."""
        self._check_open()
        if entry.size + HEADER_SIZE > self._size_max:
            self._check_size(entry.record)
        self._lane(entry, partition).add(entry, deadline)
        self._sender.hold(entry.size)

    async def place_again(self, entry: QueuedRecord, partition: int | None, deadline: float) -> None:
        """Describe the topic again, and try once more a message that its old description refused."""
        if self._refresh_task is not None:
            await asyncio.wait([self._refresh_task])  # its request may have been sent too early
        await self._ensure_metadata()
        self.put(entry, partition, deadline)

    def _check_open(self) -> None:
        if self._closed:
            raise Stopping("The producer is closed.")
        if self._sender.failure is not None:
            raise self._sender.failure.copy()

    def _check_size(self, record: Record) -> None:
        """Exact check of a record that may be too large."""
        size = len(build_batch([record], compression=self._codec))
        if size > self._size_max:
            raise RecordTooLarge(size=size, limit=self._size_max)

    async def flush(self) -> None:
        """Wait until every submitted message has a result."""
        await self._sender.flush()

    def _lane(self, entry: QueuedRecord, partition: int | None) -> Lane:
        lanes = self._lanes
        if partition is not None:
            if not 0 <= partition < len(lanes):
                raise UnknownPartition(topic=self.topic, partition=partition)
            return lanes[partition]
        if len(lanes) == 1:
            return lanes[0]
        if entry.record.key is not None:
            return lanes[partition_of(entry.record.key, len(lanes))]
        return self._keyless_lane(entry.size)

    def _keyless_lane(self, size: int) -> Lane:
        """Messages without a key go to the partitions round robin: single messages one by one, many messages in
        runs of about `STICKY_BYTES`."""
        lane = self._lanes[self._sticky_partition]
        if self._sticky_bytes and (self._sticky_bytes >= STICKY_BYTES or lane.is_idle):
            self._sticky_partition, self._sticky_bytes = (self._sticky_partition + 1) % len(self._lanes), 0
            lane = self._lanes[self._sticky_partition]
        self._sticky_bytes += size
        return lane

    # -- lifecycle --------------------------------------------------------------------------------------------

    async def _ensure_metadata(self) -> None:
        """Describe the topic, once for all callers that need it at the same time."""
        learning = self._refresh_task or self._start_refresh()
        try:
            await asyncio.shield(learning)
        except asyncio.CancelledError:
            if self._closed:
                raise Stopping("The producer is closed.") from None
            raise

    def _start_refresh(self) -> "asyncio.Task[None]":
        self._refresh_at = asyncio.get_running_loop().time() + METADATA_REFRESH_S
        if self._refresh_task is None:
            self._refresh_task = asyncio.create_task(self._refresh_metadata())
            self._refresh_task.add_done_callback(self._on_refresh_done)
        return self._refresh_task

    def _on_refresh_done(self, learning: "asyncio.Task[None]") -> None:
        """Callers that wait get the error. Without one, the error is ignored: the topic is described again later."""
        self._refresh_task = None
        if not learning.cancelled():
            learning.exception()

    async def _refresh_metadata(self) -> None:
        """A topic that does not exist is described as it would be created. The first message that the broker
        accepts creates it; a refused one does not. A topic that existed before is not created again, since it
        may have been deleted on purpose."""
        request = admin_pb2.DescribeTopicRequest(
            name=self.topic, plan=not (self._exists or self._sender.has_stored)
        )
        found = await self._connections.call(ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription)
        self._exists = bool(found.topic.id)
        if not self._exists:
            soon_s = min(METADATA_REFRESH_S, PLANNED_METADATA_REFRESH_S)
            self._refresh_at = asyncio.get_running_loop().time() + soon_s
        for broker in found.brokers:
            self._connections.add_known_address(broker)
        self.configs = {each.name: each.value for each in found.configs}
        self._size_max = int(self.configs[MAX_MESSAGE_BYTES])
        batch_bytes = min(self._batch_bytes, self._size_max - HEADER_SIZE)
        for lane in self._lanes:
            lane.batch_bytes = batch_bytes
        added = [
            Lane(
                each.partition,
                each.owner or self._connections.address,
                batch_bytes=batch_bytes,
                compression=self._codec,
            )
            for each in found.partitions[len(self._lanes) :]
        ]
        # Lanes are never removed: a topic recreated with fewer partitions refuses messages for the others.
        self._lanes += added
        self._sender.add(added)

    async def close(self) -> None:
        """Send all submitted messages, then stop. Messages without a response at the timeout fail."""
        self._closed = True
        try:
            await self._sender.flush()
        finally:
            await self._leave()

    async def abort(self) -> None:
        """Stop immediately: messages without a response fail."""
        self._closed = True
        await self._leave()

    async def _leave(self) -> None:
        """Fail all waiting messages and stop all tasks."""
        self._sender.abandon(Stopping("The producer was closed before this message was acknowledged."))
        if (learning := self._refresh_task) is not None:
            learning.cancel()
            await asyncio.wait([learning])
        await self._sender.close()
