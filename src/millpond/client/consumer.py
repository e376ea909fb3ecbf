"""A consumer on an event loop: messages of one topic, from a position that the client keeps.

    async with AsyncConsumer("orders", read_from="earliest") as consumer:
        messages, read_from = await consumer.poll(wait=3.0)

By default the broker keeps no position, and a consumer begins at `read_from`. A consumer that keeps its
positions in a file or under a group's name continues where it stopped. The messages of a poll count as
processed when the next poll is called, or the consumer is closed: after a crash they are read again.

Positions belong to one topic, by its id. If the topic is deleted and created again, reading starts again from
its beginning.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from millpond.client import arguments
from millpond.client.calls import ADMIN, LOG, Connections, Pauses, ServerAddresses
from millpond.client.decoding import decode
from millpond.client.message import Message, Polled, ReadFrom
from millpond.client.positions import FilePositions, GroupPositions, StoredPositions
from millpond.model.errors import (
    MillpondError,
    TopicReplaced,
    Unavailable,
    UnknownPartition,
    UnreadableBatch,
)
from millpond.stubs import admin_pb2, log_pb2

TIMEOUT_S: Final = 10.0
FOLLOW_WAIT_S: Final = 30.0
ROUND_S_MAX: Final = 10.0
"""A longer wait is split into several requests, so that a silent connection is noticed."""
METADATA_REFRESH_S: Final = 5.0
"""How long new partitions may stay unread."""
MESSAGES_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024

ConsumerStart = ReadFrom | Literal["earliest", "latest"] | datetime
"""Where a consumer begins: at a message number, at numbers by partition, at the earliest message, at the next new
message, or at the first message of a time."""


class AsyncConsumer:
    """Reads all partitions of a topic, or one. With one partition, a position is a number; otherwise it is
    numbers by partition. Partitions that are added later are read from their first message on."""

    def __init__(
        self,
        topic: str,
        *,
        address: ServerAddresses = None,
        read_from: ConsumerStart | None = None,
        offset: ReadFrom | None = None,
        partition: int | None = None,
        group: str | None = None,
        reader: str | None = None,
        position_file: str | Path | None = None,
        strict: bool = False,
        uncommitted: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """`read_from` is a message number, which counts from 1, or numbers by partition, "earliest" (the default),
        "latest", or a datetime. `offset` is the same position as Kafka counts, from 0, or offsets by partition. A
        position below the oldest message continues at the oldest; a position above the end waits until that message
        is written.

        `strict` refuses both (OffsetOutOfRange). It also refuses a topic that was created again since its positions
        were kept or read (TopicReplaced); without `strict`, reading begins at the oldest message of the new topic.

        `reader` names a consumer that needs the `group` for itself, and polls every few seconds. It is
        refused (GroupInUse) while another such reader, or a member, uses the group.
        """
        if group is not None and position_file is not None:
            raise ValueError("positions are kept under a group's name or in a file, not in both")
        self._start = arguments.start(read_from, offset)
        self.topic = arguments.topic("topic", topic)
        self._partition = arguments.optional(arguments.number, "partition", partition)
        reader = arguments.optional(arguments.label, "reader", reader)
        self._strict = arguments.flag("strict", strict)
        self._uncommitted = arguments.flag("uncommitted", uncommitted)
        self._connections = Connections(address, timeout)
        self._position_store: StoredPositions | None = None
        if group is not None:
            self._position_store = GroupPositions(
                arguments.label("group", group),
                topic,
                self._connections,
                partition,
                reader,
            )
        elif position_file is not None:
            self._position_store = FilePositions(arguments.path("position_file", position_file), topic)
        self._positions: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._fetch_from: dict[int, int] = {}
        self._fetched: deque[Message] = deque()
        self._unreadable: dict[int, UnreadableBatch] = {}
        self._topic_id = ""
        self._refresh_at = 0.0
        self._owners: dict[int, str] = {}
        self._poll_lock = asyncio.Lock()
        self._save_lock = asyncio.Lock()

    # -- reading ----------------------------------------------------------------------------------------------

    async def poll(
        self, wait: float = 0.0, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX
    ) -> Polled:
        """Messages from the position on, and the next position. Waits up to `wait` seconds for a first
        message. Several tasks may poll at the same time: they wait for each other, and each message goes to one of
        them only. A batch that cannot be decoded raises UnreadableBatch, after the messages before it were
        returned; `seek` skips it."""
        wait_s = arguments.optional_seconds("wait", wait)
        messages_max = arguments.count("messages_max", messages_max)
        bytes_max = arguments.integer("bytes_max", bytes_max, 1, arguments.UINT32_MAX)
        async with self._poll_lock:
            await self._save_positions()
            await self._ensure_open()
            if not self._fetched and not self._unreadable:
                await self._fetch(math.inf if wait_s is None else wait_s, bytes_max)
            if not self._fetched:
                self._check_readable()
            return self._take_fetched(messages_max)

    def _check_readable(self) -> None:
        """If the caller polls again without a seek, the batch is fetched again, and the other partitions
        continue."""
        if self._unreadable:
            raise self._unreadable.pop(min(self._unreadable))

    def _take_fetched(self, messages_max: int) -> Polled:
        messages = [self._fetched.popleft() for _ in range(min(messages_max, len(self._fetched)))]
        for message in messages:
            self._positions[message.partition] = message.number + 1
        if not self._fetched:
            self._positions = dict(self._fetch_from)
        return Polled(messages, self.read_from)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, and new ones as they arrive; the iteration does not end by itself. A message counts
        as processed when the next one is requested, and positions are kept once for each poll."""
        while True:
            for message in (await self.poll(FOLLOW_WAIT_S)).messages:
                yield message

    @property
    def read_from(self) -> int | dict[int, int]:
        """The position of the next poll."""
        if len(self._positions) == 1:
            return next(iter(self._positions.values()))
        if self._positions:
            return dict(self._positions)
        return dict(self._start) if isinstance(self._start, Mapping) else _number(self._start)

    async def seek(self, read_from: ConsumerStart | None = None, *, offset: ReadFrom | None = None) -> None:
        """Continue at another position, which is given as for a new consumer. Partitions that numbers or offsets by
        partition do not name keep their positions. Waits for a poll in progress."""
        start = arguments.required_start(read_from, offset)
        async with self._poll_lock:
            with contextlib.suppress(TopicReplaced):  # one of the reasons to seek
                await self._ensure_open()
            found = await self._description()
            positions = self._positions if found.topic.id == self._topic_id else {}
            chosen = self._chosen(found)
            for number in start if isinstance(start, Mapping) else ():
                if number not in chosen:
                    raise UnknownPartition(topic=self.topic, partition=number)
            ends, start = _ends(found), await self._at_time(start)
            first = {each: _first(start, each, ends[each], positions.get(each, 1)) for each in chosen}
            self._reset_positions(found, first)

    async def positions(self) -> dict[int, int]:
        """The position of the next poll by partition. Also works before the first poll."""
        async with self._poll_lock:
            await self._ensure_open()
            return dict(self._positions)

    async def commit(self) -> None:
        """Keep the positions now, in the file or group of this consumer."""
        async with self._poll_lock:
            await self._save_positions()

    async def _save_positions(self) -> None:
        async with self._save_lock:  # a separate lock: `close` does not wait for a poll
            if self._position_store is None or not self._positions:
                return
            await self._position_store.renew()
            if self._positions != self._saved:
                positions = dict(self._positions)
                await self._position_store.save(self._topic_id, positions)
                self._saved = positions

    async def _fetch(self, wait_s: float, bytes_max: int) -> None:
        """Send requests until there are messages, the wait is over, or no broker has responded in time."""
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + wait_s
        respond_by = wait_until + self._connections.timeout_s
        pauses = Pauses()
        while True:
            await self._refresh_metadata()
            round_s = min(wait_until - loop.time(), self._refresh_at - loop.time(), ROUND_S_MAX)
            errors = await self._poll_all_owners(max(0.0, round_s), bytes_max)
            if self._fetched or self._unreadable or (not errors and loop.time() >= wait_until):
                return
            for error in errors:
                if self._connections.is_closed or not self._may_retry(error):
                    raise error
            if errors:
                pause = pauses.take()
                if loop.time() + pause >= respond_by:
                    raise errors[0]
                await asyncio.sleep(pause)
                await self._recover(errors)

    def _may_retry(self, error: MillpondError) -> bool:
        return error.retriable or (isinstance(error, TopicReplaced) and not self._strict)

    async def _recover(self, errors: list[MillpondError]) -> None:
        """Learn the new owners of partitions. If the topic was created again, start again at its beginning."""
        found = await self._description()
        is_replaced = any(isinstance(error, TopicReplaced) for error in errors)
        if is_replaced and found.topic.id != self._topic_id:
            self._reset_positions(found, dict.fromkeys(self._chosen(found), 1))
        else:
            self._update_metadata(found)

    async def _refresh_metadata(self) -> None:
        """Check from time to time whether partitions were added. If no broker responds, the poll that follows
        reports the error."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._refresh_at:
            return
        request = admin_pb2.DescribeTopicRequest(name=self.topic)
        try:
            found = await self._connections.call_once(
                *(ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription),
                address=next(iter(self._owners.values())),
                timeout_s=self._connections.attempt_s,
            )
        except Unavailable:
            self._refresh_at = loop.time() + METADATA_REFRESH_S
        else:
            self._update_metadata(found)

    def _update_metadata(self, found: admin_pb2.TopicDescription) -> None:
        """Store new owners and added partitions. Only the owner of a partition decides whether the topic is
        still the same: its view is never outdated."""
        self._refresh_at = asyncio.get_running_loop().time() + METADATA_REFRESH_S
        self._owners |= self._owners_in(found)
        if found.topic.id == self._topic_id:
            for number in self._chosen(found):
                self._fetch_from.setdefault(number, 1)
                self._positions.setdefault(number, 1)

    async def _poll_all_owners(self, wait_s: float, bytes_max: int) -> list[MillpondError]:
        """One round of requests to every broker that owns some of the partitions; returns the errors. With
        several brokers, the first requests do not wait; only if none of them has messages does a second round
        wait for the first broker that has."""
        by_owner: dict[str, list[int]] = {}
        for partition in self._fetch_from:
            by_owner.setdefault(self._owners[partition], []).append(partition)
        if len(by_owner) == 1:
            return await self._poll_owners(by_owner, wait_s, bytes_max, asyncio.ALL_COMPLETED)
        errors = await self._poll_owners(by_owner, 0.0, bytes_max, asyncio.ALL_COMPLETED)
        if self._fetched or errors or not wait_s:
            return errors
        return await self._poll_owners(by_owner, wait_s, bytes_max, asyncio.FIRST_COMPLETED)

    async def _poll_owners(
        self, by_owner: Mapping[str, list[int]], wait_s: float, bytes_max: int, until: str
    ) -> list[MillpondError]:
        polls = [
            asyncio.ensure_future(self._poll_owner(owner, partitions, wait_s, bytes_max))
            for owner, partitions in by_owner.items()
        ]
        try:
            await asyncio.wait(polls, return_when=until)
            outcomes = [poll.result() for poll in polls if poll.done()]
        finally:
            await _cancel(polls)
        for outcome in outcomes:
            if not isinstance(outcome, MillpondError):
                self._take(outcome)
        return [outcome for outcome in outcomes if isinstance(outcome, MillpondError)]

    async def _poll_owner(
        self, owner: str, partitions: list[int], wait_s: float, bytes_max: int
    ) -> log_pb2.PollResponse | MillpondError:
        request = log_pb2.PollRequest(
            topic=self.topic,
            positions=[
                log_pb2.Position(partition=number, read_from=self._fetch_from[number])
                for number in partitions
            ],
            bytes_max=bytes_max,
            wait_ms=int(wait_s * 1000),
            strict=self._strict,
            uncommitted=self._uncommitted,
            as_batches=True,
            topic_id=self._topic_id,
        )
        timeout_s = wait_s + self._connections.attempt_s
        try:
            return await self._connections.call_once(
                LOG, "Poll", request, log_pb2.PollResponse, address=owner, timeout_s=timeout_s
            )
        except MillpondError as error:
            return error

    def _take(self, response: log_pb2.PollResponse) -> None:
        """A partition with an unreadable batch stays at that batch."""
        following = {each.partition: each.read_from for each in response.standings}
        for batch in response.batches:
            if batch.partition not in self._unreadable:
                self._take_batch(batch, following[batch.partition])
        for number, read_from in following.items():
            if number not in self._unreadable:
                self._fetch_from[number] = read_from

    def _take_batch(self, batch: log_pb2.Batch, following: int) -> None:
        number = batch.partition
        messages, unreadable = decode(batch.data, self.topic, number, self._fetch_from[number], following)
        self._fetched += messages
        if unreadable is not None:
            self._unreadable[number] = unreadable
            self._fetch_from[number] = max(self._fetch_from[number], unreadable.facts["offset"] + 1)

    # -- lifecycle --------------------------------------------------------------------------------------------

    async def _ensure_open(self) -> None:
        """Find the partitions and the first positions. Fails if the topic does not exist (yet)."""
        if self._positions:
            return
        found = await self._description()
        chosen, ends = self._chosen(found), _ends(found)
        kept = await self._load(found.topic.id)
        start = await self._at_time(self._start)
        first = {each: kept.get(each) or _first(start, each, ends[each], 1) for each in chosen}
        self._reset_positions(found, first)
        self._saved = {number: kept[number] for number in chosen if number in kept}

    async def _at_time(self, start: arguments.Start) -> arguments.Start:
        """The numbers of the first messages of a time; other positions as they are."""
        if not isinstance(start, datetime):
            return start
        request = admin_pb2.FindByTimeRequest(topic=self.topic, timestamp_ms=int(start.timestamp() * 1000))
        found = await self._connections.call(ADMIN, "FindByTime", request, admin_pb2.FindByTimeResponse)
        return dict(enumerate(found.numbers))

    async def _load(self, topic_id: str) -> dict[int, int]:
        try:
            return await self._position_store.load(topic_id) if self._position_store is not None else {}
        except TopicReplaced:
            if self._strict:
                raise
            return {}

    def _reset_positions(self, found: admin_pb2.TopicDescription, first: dict[int, int]) -> None:
        self._topic_id = found.topic.id
        self._owners = self._owners_in(found)
        self._refresh_at = asyncio.get_running_loop().time() + METADATA_REFRESH_S
        self._positions, self._fetch_from, self._saved = first, dict(first), {}
        self._fetched.clear()
        self._unreadable.clear()

    def _chosen(self, found: admin_pb2.TopicDescription) -> list[int]:
        """The partitions to read."""
        there = sorted(each.partition for each in found.partitions)
        if self._partition is None:
            return there
        if self._partition not in there:
            raise UnknownPartition(topic=self.topic, partition=self._partition)
        return [self._partition]

    def _owners_in(self, found: admin_pb2.TopicDescription) -> dict[int, str]:
        owners = {each.partition: each.owner or self._connections.address for each in found.partitions}
        for owner in owners.values():
            self._connections.add_known_address(owner)
        for broker in found.brokers:
            self._connections.add_known_address(broker)
        return owners

    async def _description(self) -> admin_pb2.TopicDescription:
        request = admin_pb2.DescribeTopicRequest(name=self.topic)
        return await self._connections.call(ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription)

    async def close(self) -> None:
        """Keep the positions and close. A poll that is waiting fails."""
        if self._connections.is_closed:
            return
        try:
            await self._save_positions()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        try:
            if self._position_store is not None:
                await self._position_store.release()
        finally:
            await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error the positions stay as they were last kept: the messages of the last poll were not
        processed."""
        if kind is None:
            await self.close()
        else:
            await self._leave()


def _ends(found: admin_pb2.TopicDescription) -> dict[int, int]:
    return {each.partition: each.next for each in found.partitions}


def _first(start: arguments.Start, partition: int, end: int, otherwise: int) -> int:
    """The first position in a partition; `otherwise` if `start` does not name the partition."""
    if start == arguments.LATEST:
        return end
    return start.get(partition, otherwise) if isinstance(start, Mapping) else _number(start)


def _number(start: object) -> int:
    """The number of a position; 1 for "earliest", since no message has a lower number."""
    return start if isinstance(start, int) else 1


async def _cancel(tasks: "Sequence[asyncio.Future[log_pb2.PollResponse | MillpondError]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
