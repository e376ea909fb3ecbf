"""A consumer on an event loop: messages of one topic from a position of its own.

    async with AsyncConsumer("orders", read_from=1) as consumer:
        messages, read_from = await consumer.poll(wait=3.0)

The broker keeps no position. A consumer begins at `read_from`; or, if it is told to keep its positions in a file or
under a group's name, where it left off. What a poll returned counts as done when the next one is called, or the
consumer is closed: after a crash the messages in between come again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from millpond.client.calls import ADMIN, DEFAULT_ADDRESS, LOG, Connections
from millpond.client.message import Message, Polled, ReadFrom, message_of
from millpond.client.positions import FilePositions, GroupPositions, Positions
from millpond.model.errors import NotOwner, UnknownPartition, Unreachable
from millpond.records import iter_records
from millpond.stubs import admin_pb2, log_pb2

TIMEOUT_S: Final = 10.0
FOLLOW_WAIT_S: Final = 30.0
MESSAGES_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
OLDEST, NEWEST = "oldest", "newest"

Start = ReadFrom | Literal["oldest", "newest"]


class AsyncConsumer:
    """Reads all partitions of a topic, or one. With one partition positions are numbers, else numbers by partition."""

    def __init__(
        self,
        topic: str,
        read_from: Start = 1,
        *,
        partition: int | None = None,
        group: str | None = None,
        position_file: str | Path | None = None,
        strict: bool = False,
        uncommitted: bool = False,
        address: str = DEFAULT_ADDRESS,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """`strict` refuses a position that is no longer, or not yet, there; else reading goes on at the nearest."""
        if group is not None and position_file is not None:
            raise ValueError("positions are kept under a group's name or in a file, not in both")
        self.topic = topic
        self._start = read_from
        self._partition = partition
        self._strict = strict
        self._uncommitted = uncommitted
        self._connections = Connections(address, timeout)
        self._kept: Positions | None = None
        if group is not None:
            self._kept = GroupPositions(group, topic, self._connections)
        elif position_file is not None:
            self._kept = FilePositions(Path(position_file), topic)
        self._positions: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._fetch_from: dict[int, int] = {}
        self._fetched: deque[Message] = deque()
        self._owners: dict[int, str] = {}

    # -- reading ----------------------------------------------------------------------------------------------

    async def poll(
        self, wait: float = 0.0, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX
    ) -> Polled:
        """Messages from the position on, and where to go on. Waits up to `wait` seconds for a first one."""
        if not self._positions:
            await self._open()
        else:
            await self.commit()
        if not self._fetched:
            await self._fetch(wait, bytes_max)
        messages = [self._fetched.popleft() for _ in range(min(messages_max, len(self._fetched)))]
        for message in messages:
            self._positions[message.partition] = message.number + 1
        if not self._fetched:
            self._positions = dict(self._fetch_from)
        return Polled(messages, self.read_from)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, and new ones as they come; it does not end by itself. A message counts as done when the one
        behind it is asked for, and positions are kept once for each poll."""
        while True:
            for message in (await self.poll(FOLLOW_WAIT_S)).messages:
                yield message

    @property
    def read_from(self) -> int | dict[int, int]:
        """Where the next poll reads from."""
        if len(self._positions) == 1:
            return next(iter(self._positions.values()))
        if self._positions:
            return dict(self._positions)
        return dict(self._start) if isinstance(self._start, Mapping) else _number(self._start)

    async def positions(self) -> dict[int, int]:
        """The same, by partition, also before the first poll."""
        if not self._positions:
            await self._open()
        return dict(self._positions)

    async def commit(self) -> None:
        """Keep the positions now, where this consumer keeps them."""
        if self._kept is not None and self._positions != self._saved:
            await self._kept.save(self._positions)
            self._saved = dict(self._positions)

    async def _fetch(self, wait_s: float, bytes_max: int) -> None:
        """From every broker that owns some of the partitions; the first that has something is enough."""
        by_owner: dict[str, list[int]] = {}
        for partition in self._fetch_from:
            by_owner.setdefault(self._owners[partition], []).append(partition)
        polls = [
            asyncio.ensure_future(self._ask(owner, partitions, wait_s, bytes_max))
            for owner, partitions in by_owner.items()
        ]
        try:
            await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
            for poll in polls:
                if poll.done():
                    self._take(poll.result())
        except (NotOwner, Unreachable):
            self._owners = (
                await self._describe()
            )  # partitions move: the next attempt goes to whoever has them now
            raise
        finally:
            await _cancel(polls)

    async def _ask(
        self, owner: str, partitions: list[int], wait_s: float, bytes_max: int
    ) -> log_pb2.PollResponse:
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
        )
        return await self._connections.call(
            LOG, "Poll", request, log_pb2.PollResponse, address=owner, extra_s=wait_s
        )

    def _take(self, response: log_pb2.PollResponse) -> None:
        for batch in response.batches:
            first = self._fetch_from[batch.partition] - 1
            for record in iter_records(batch.data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                if record.offset >= first:
                    self._fetched.append(message_of(record, batch.partition))
        for standing in response.standings:
            self._fetch_from[standing.partition] = standing.read_from

    # -- life -------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Learn of the partitions and where to begin. Fails if there is no such topic (yet)."""
        found = await self._description()
        self._owners = self._owners_in(found)
        chosen = [self._partition] if self._partition is not None else sorted(self._owners)
        for number in chosen:
            if number not in self._owners:
                raise UnknownPartition(topic=self.topic, partition=number)
        ends = {each.partition: each.next for each in found.partitions}
        kept = await self._kept.load() if self._kept is not None else {}
        self._saved = dict(kept)
        self._positions = {number: kept.get(number) or self._first(number, ends[number]) for number in chosen}
        self._fetch_from = dict(self._positions)

    def _first(self, partition: int, end: int) -> int:
        if self._start == NEWEST:
            return end
        if isinstance(self._start, Mapping):
            return self._start.get(partition, 1)
        return _number(self._start)

    async def _describe(self) -> dict[int, str]:
        return self._owners_in(await self._description())

    def _owners_in(self, found: admin_pb2.TopicDescription) -> dict[int, str]:
        return {each.partition: each.owner or self._connections.address for each in found.partitions}

    async def _description(self) -> admin_pb2.TopicDescription:
        request = admin_pb2.DescribeTopicRequest(name=self.topic)
        return await self._connections.call(ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription)

    async def close(self) -> None:
        """Keep the positions and leave."""
        try:
            await self.commit()
        finally:
            await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error the positions stay where they were kept last: its messages were not dealt with."""
        if kind is None:
            await self.close()
        else:
            await self._connections.close()


def _number(start: object) -> int:
    """The oldest message there is has at least this number."""
    return start if isinstance(start, int) else 1


async def _cancel(tasks: "Sequence[asyncio.Future[log_pb2.PollResponse]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
