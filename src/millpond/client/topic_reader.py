"""The part of a consumer that reads one topic: its positions, its fetched messages, and the owners of its partitions.

It decides nothing about time: the consumer chooses when to poll, how long to wait, and what to do about errors.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from millpond.client import arguments
from millpond.client.calls import ADMIN, LOG, Connections
from millpond.client.decoding import decode
from millpond.client.message import Message, NextPosition
from millpond.client.positions import StoredPositions
from millpond.model.errors import (
    MillpondError,
    TopicReplaced,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
    UnreadableBatch,
)
from millpond.stubs import admin_pb2, log_pb2

METADATA_REFRESH_S: Final = 5.0
"""How long new partitions may stay unread."""


class TopicReader:
    """Reads one topic over the connections of a consumer, which closes them. Reading, positions and their storage
    change together, so they are one class with more than 20 methods."""

    def __init__(
        self,
        topic: str,
        connections: Connections,
        position_store: StoredPositions | None,
        *,
        start: arguments.Start,
        partition: int | None,
        is_shared: bool,
        strict: bool,
        uncommitted: bool,
    ) -> None:
        """`is_shared`: a group assigns the partitions, by `take_over` and `give_up`."""
        self.topic = topic
        self._connections = connections
        self._position_store = position_store
        self._start = start
        self._partition = partition
        self._is_shared = is_shared
        self._strict = strict
        self._uncommitted = uncommitted
        self.positions: dict[int, int] = {}
        """The position of the next poll, by partition that is read."""
        self._saved: dict[int, int] = {}
        self._fetch_from: dict[int, int] = {}
        self._fetched: deque[Message] = deque()
        self._unreadable: dict[int, UnreadableBatch] = {}
        self._topic_id = ""
        self._partition_count = 0
        self._first_count = 0
        """The partitions when the topic was opened. Those that are added later are read from their first message on."""
        self.is_outdated = False
        """Whether a shared topic has changed, so that another assignment is to be expected."""
        self.refresh_at = 0.0
        self.is_gone = False
        """Whether the topic was deleted. It is left out until it exists again."""
        self._failure: MillpondError | None = None
        self._owners: dict[int, str] = {}

    # -- messages ---------------------------------------------------------------------------------------------

    @property
    def has_messages(self) -> bool:
        return bool(self._fetched)

    @property
    def has_news(self) -> bool:
        """Whether there are messages, or a batch that cannot be decoded."""
        return bool(self._fetched or self._unreadable)

    def check_readable(self) -> None:
        """Raise the error of a batch that cannot be decoded. If the caller polls again without a seek, the batch is
        fetched again, and the other partitions continue."""
        if self._unreadable:
            raise self._unreadable.pop(min(self._unreadable))

    def take(self, messages_max: int) -> list[Message]:
        """Up to this many of the fetched messages. The position moves behind them."""
        messages = [self._fetched.popleft() for _ in range(min(messages_max, len(self._fetched)))]
        for message in messages:
            self.positions[message.partition] = message.number + 1
        if not self._fetched:
            self.positions = dict(self._fetch_from)
        return messages

    def put_back(self, messages: list[Message]) -> None:
        """Return the last messages that were taken: they are the next ones again."""
        self._fetched.extendleft(reversed(messages))
        for message in reversed(messages):
            self.positions[message.partition] = message.number

    def next_position(self, lent: dict[int, int]) -> NextPosition:
        """The position of the next poll, once the topic is open. `lent` has the positions of partitions with messages
        that were taken, and that will be put back."""
        positions = self.positions | lent
        is_only = len(positions) == 1 and (not self._is_shared or self._partition_count == 1)
        return next(iter(positions.values())) if is_only else positions

    @property
    def first_position(self) -> NextPosition | None:
        """Where reading begins, if that is known before the topic is open."""
        if self._position_store is None and isinstance(self._start, int | dict):
            return self._start if isinstance(self._start, int) else dict(self._start)
        return None

    async def seek(self, start: arguments.Start) -> None:
        """Continue at another position. Partitions that `start` does not name keep theirs, and so do those that others
        of the group read."""
        found = await self.describe()
        positions = self.positions if found.topic.id == self._topic_id else {}
        if found.topic.id != self._topic_id and self._is_shared:
            self._start = start  # of the partitions that the group will assign
        chosen = self._chosen(found)
        readable = {each.partition for each in found.partitions} if self._is_shared else chosen
        for number in start if isinstance(start, Mapping) else ():
            if number not in readable:
                raise UnknownPartition(topic=self.topic, partition=number)
        start = await self._at_time(start)
        first = {each: _first(start, chosen[each], positions.get(each)) for each in chosen}
        self._reset_positions(found, first)

    # -- fetching ---------------------------------------------------------------------------------------------

    def may_retry(self, error: MillpondError) -> bool:
        return error.retriable or (isinstance(error, TopicReplaced) and not self._strict)

    def recover(self, found: admin_pb2.TopicDescription, errors: list[MillpondError]) -> None:
        """Learn the new owners of partitions. If the topic was created again, start again at its beginning, after the
        messages that were fetched."""
        is_replaced = any(isinstance(error, TopicReplaced) for error in errors)
        if is_replaced and found.topic.id != self._topic_id and not self._fetched and not self._is_shared:
            self._reset_positions(found, dict.fromkeys(self._chosen(found), 1))
        else:
            self._update_metadata(found)

    def raise_later(self, error: MillpondError) -> None:
        """Let `check_failure` raise the error."""
        self._failure = error
        self.leave_out_if_gone(error)

    def check_failure(self) -> None:
        """Raise the error of an earlier fetch, once."""
        error, self._failure = self._failure, None
        if error is not None:
            raise error

    def leave_out_if_gone(self, error: MillpondError) -> None:
        """For an error that is raised: if the topic was deleted, the other topics can be read after it."""
        if isinstance(error, UnknownTopic):
            self.is_gone = True
            self.refresh_at = asyncio.get_running_loop().time() + METADATA_REFRESH_S

    @property
    def is_refresh_due(self) -> bool:
        return asyncio.get_running_loop().time() >= self.refresh_at

    async def refresh_metadata(self) -> None:
        """Check from time to time whether partitions were added, or whether a deleted topic exists again. The poll that
        follows reports errors."""
        if not self.is_refresh_due:
            return
        self.refresh_at = asyncio.get_running_loop().time() + METADATA_REFRESH_S
        try:
            self._update_metadata(await self.describe_once(next(iter(self._owners.values()))))
            self.is_gone = False
        except UnknownTopic as error:
            if self.positions or self.is_gone:
                return
            self.leave_out_if_gone(error)  # no partition is left to report it
            raise
        except (Unavailable, UnknownPartition):
            return

    def expect_again(self) -> None:
        """Report once more if the topic is still deleted."""
        self.is_gone = False
        if not self.positions:
            self.refresh_at = 0.0

    def _update_metadata(self, found: admin_pb2.TopicDescription) -> None:
        """Store new owners and added partitions. Only the owner of a partition decides whether the topic is
        still the same: its view is never outdated."""
        self.refresh_at = asyncio.get_running_loop().time() + METADATA_REFRESH_S
        self._owners |= self._owners_in(found)
        if found.topic.id == self._topic_id:
            self.is_outdated |= self._is_shared and len(found.partitions) != self._partition_count
            self._partition_count = len(found.partitions)
            for number in self._chosen(found):
                self._fetch_from.setdefault(number, 1)
                self.positions.setdefault(number, 1)
        else:
            self.is_outdated |= self._is_shared

    def partitions_by_owner(self) -> Iterator[tuple[str, list[int]]]:
        """The partitions to read, by the broker that owns them."""
        by_owner: dict[str, list[int]] = {}
        for partition in () if self.is_gone else self._fetch_from:
            by_owner.setdefault(self._owners[partition], []).append(partition)
        yield from by_owner.items()

    async def poll_owner(
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

    def take_response(self, response: log_pb2.PollResponse) -> None:
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

    @property
    def is_open(self) -> bool:
        return bool(self._topic_id)

    async def ensure_open(self) -> None:
        """Find the partitions and the first positions. Fails if the topic does not exist (yet)."""
        if self.is_open:
            return
        found = await self.describe()
        if self._is_shared:
            self._reset_positions(found, {})
            return
        chosen = self._chosen(found)
        kept = await self._load(found.topic.id)
        start = await self._at_time(self._start)
        first = {each: kept.get(each) or _first(start, chosen[each], None) for each in chosen}
        self._reset_positions(found, first)
        self._saved = {number: kept[number] for number in chosen if number in kept}

    async def take_over(self, topic_id: str, numbers: frozenset[int]) -> bool:
        """Also read these partitions, which the group has assigned. Returns False if that has to be tried again,
        because a broker has not learned of the topic or the partitions yet, or the topic was just deleted."""
        try:
            found = await self.describe()
        except UnknownTopic:
            return False
        there = {each.partition: each for each in found.partitions if each.partition in numbers}
        if found.topic.id != topic_id or len(there) < len(numbers):
            return False
        if topic_id != self._topic_id:
            if self._strict:
                raise TopicReplaced(topic=self.topic)
            self._reset_positions(found, {})
            self._first_count = 0
        kept = {number: at for number, at in (await self._load(topic_id)).items() if number in numbers}
        first = kept | await self._first_positions([there[each] for each in numbers - kept.keys()])
        self._owners |= self._owners_in(found)
        self.positions |= first
        self._fetch_from |= first
        self._saved |= kept
        self.is_gone = False
        return True

    async def _first_positions(self, partitions: list[admin_pb2.Partition]) -> dict[int, int]:
        """Where a group begins that has no position yet. They are kept at once if the next member would choose others,
        because this one may lose the partitions before its messages are processed."""
        if not partitions:
            return {}
        start = await self._at_time(self._start)
        first = {
            each.partition: _first(start, each, None) if each.partition < self._first_count else 1
            for each in partitions
        }
        if self._start != arguments.EARLIEST and self._position_store is not None:
            await self._position_store.save(self._topic_id, first)
            self._saved |= first
        return first

    def give_up(self, topic_id: str, number: int) -> None:
        """Do not read this partition any more. Its messages that were fetched and not taken are dropped."""
        if topic_id != self._topic_id:
            return
        for kept in (self.positions, self._fetch_from, self._saved, self._unreadable):
            kept.pop(number, None)
        self._fetched = deque(message for message in self._fetched if message.partition != number)
        if not self.positions:
            self.refresh_at = 0.0  # perhaps the topic was deleted

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
        self._partition_count = len(found.partitions)
        if found.topic.id != self._topic_id:
            self._first_count = self._partition_count
        self._topic_id = found.topic.id
        self.is_gone, self._failure = False, None
        self._owners = self._owners_in(found)
        self.refresh_at = asyncio.get_running_loop().time() + METADATA_REFRESH_S
        self.positions, self._fetch_from, self._saved = first, dict(first), {}
        self._fetched.clear()
        self._unreadable.clear()

    def _chosen(self, found: admin_pb2.TopicDescription) -> dict[int, admin_pb2.Partition]:
        """The partitions to read, by number."""
        there = {each.partition: each for each in sorted(found.partitions, key=lambda each: each.partition)}
        if self._is_shared:
            return {number: each for number, each in there.items() if number in self.positions}
        if self._partition is None:
            return there
        if self._partition not in there:
            raise UnknownPartition(topic=self.topic, partition=self._partition)
        return {self._partition: there[self._partition]}

    def _owners_in(self, found: admin_pb2.TopicDescription) -> dict[int, str]:
        owners = {each.partition: each.owner or self._connections.address for each in found.partitions}
        for owner in owners.values():
            self._connections.add_known_address(owner)
        for broker in found.brokers:
            self._connections.add_known_address(broker)
        return owners

    async def describe(self) -> admin_pb2.TopicDescription:
        """Retries until the timeout."""
        request = admin_pb2.DescribeTopicRequest(name=self.topic)
        return await self._connections.call(ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription)

    async def describe_once(self, address: str) -> admin_pb2.TopicDescription:
        """Asks each known broker once, this one first, until one responds or the time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._connections.timeout_s
        request = admin_pb2.DescribeTopicRequest(name=self.topic)
        failure: MillpondError | None = None
        for each in self._connections.known_addresses(address):
            if failure is not None and loop.time() >= until:
                break
            try:
                return await self._connections.call_once(
                    *(ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription),
                    address=each,
                    timeout_s=self._connections.attempt_s,
                )
            except Unavailable as error:
                failure = error
        assert failure is not None, "at least one address is known"
        raise failure

    async def save_positions(self) -> None:
        """Positions in a topic or partition that no longer exists are dropped: the next fetch reports it."""
        if self._position_store is None or not self.positions or self.is_gone:
            return
        with contextlib.suppress(UnknownTopic, UnknownPartition, TopicReplaced):
            if self.positions != self._saved:
                positions = dict(self.positions)
                await self._position_store.save(self._topic_id, positions)
                self._saved = positions


def _first(start: arguments.Start, partition: admin_pb2.Partition, current: int | None) -> int:
    """The first position in a partition. If `start` does not name the partition, it is the current position, or else
    the oldest message."""
    if start == arguments.LATEST:
        return partition.next
    if isinstance(start, Mapping):
        return start.get(partition.partition, current or partition.oldest)
    return start if isinstance(start, int) else partition.oldest
