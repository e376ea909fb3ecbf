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

from millpond.client.calls import ADMIN, DEFAULT_ADDRESS, LOG, Connections, Pauses
from millpond.client.message import Message, Polled, ReadFrom, message_of
from millpond.client.positions import FilePositions, GroupPositions, Positions
from millpond.model.errors import InvalidRequest, MillpondError, UnknownPartition
from millpond.records import iter_records
from millpond.stubs import admin_pb2, log_pb2

TIMEOUT_S: Final = 10.0
FOLLOW_WAIT_S: Final = 30.0
ROUND_S_MAX: Final = 10.0
"""A longer wait is made of several, so that a connection that has gone silent is noticed."""
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
        _check_start(read_from)
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
        self._turn = asyncio.Lock()
        self._keeping = asyncio.Lock()

    # -- reading ----------------------------------------------------------------------------------------------

    async def poll(
        self, wait: float = 0.0, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX
    ) -> Polled:
        """Messages from the position on, and where to go on. Waits up to `wait` seconds for a first one. Several may
        poll at the same time: they take turns, and no message is given to two of them."""
        if messages_max < 1 or bytes_max < 1 or not wait >= 0:
            raise InvalidRequest(
                reason="a poll asks for at least one message and one byte, and waits 0 s or longer"
            )
        async with self._turn:
            await self._keep()
            await self._ensure_open()
            if not self._fetched:
                await self._fetch(wait, bytes_max)
            return self._hand_out(messages_max)

    def _hand_out(self, messages_max: int) -> Polled:
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
        async with self._turn:
            await self._ensure_open()
            return dict(self._positions)

    async def commit(self) -> None:
        """Keep the positions now, where this consumer keeps them."""
        async with self._turn:
            await self._keep()

    async def _keep(self) -> None:
        async with self._keeping:  # whoever closes does not wait for a poll
            if self._kept is not None and self._positions and self._positions != self._saved:
                positions = dict(self._positions)
                await self._kept.save(positions)
                self._saved = positions

    async def _fetch(self, wait_s: float, bytes_max: int) -> None:
        """Ask until there is something, the wait is over, or nobody has answered in time."""
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + wait_s
        answer_by = wait_until + self._connections.timeout_s
        pauses = Pauses()
        while True:
            errors = await self._ask_all(min(max(0.0, wait_until - loop.time()), ROUND_S_MAX), bytes_max)
            if self._fetched or (not errors and loop.time() >= wait_until):
                return
            for error in errors:
                if not error.retriable or self._connections.is_closed:
                    raise error
            if errors:
                pause = pauses.take()
                if loop.time() + pause >= answer_by:
                    raise errors[0]
                await asyncio.sleep(pause)
                self._owners = self._owners_in(await self._description())  # partitions move

    async def _ask_all(self, wait_s: float, bytes_max: int) -> list[MillpondError]:
        """One round to every broker that owns some of the partitions; returns what went wrong. Only when none of them
        has anything is it worth to wait for the first that will."""
        by_owner: dict[str, list[int]] = {}
        for partition in self._fetch_from:
            by_owner.setdefault(self._owners[partition], []).append(partition)
        if len(by_owner) == 1:
            return await self._ask_some(by_owner, wait_s, bytes_max, asyncio.ALL_COMPLETED)
        errors = await self._ask_some(by_owner, 0.0, bytes_max, asyncio.ALL_COMPLETED)
        if self._fetched or errors or not wait_s:
            return errors
        return await self._ask_some(by_owner, wait_s, bytes_max, asyncio.FIRST_COMPLETED)

    async def _ask_some(
        self, by_owner: Mapping[str, list[int]], wait_s: float, bytes_max: int, until: str
    ) -> list[MillpondError]:
        polls = [
            asyncio.ensure_future(self._ask(owner, partitions, wait_s, bytes_max))
            for owner, partitions in by_owner.items()
        ]
        try:
            await asyncio.wait(polls, return_when=until)
            answers = [poll.result() for poll in polls if poll.done()]
        finally:
            await _cancel(polls)
        for answer in answers:
            if not isinstance(answer, MillpondError):
                self._take(answer)
        return [answer for answer in answers if isinstance(answer, MillpondError)]

    async def _ask(
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
        )
        timeout_s = wait_s + self._connections.attempt_s
        try:
            return await self._connections.call_once(
                LOG, "Poll", request, log_pb2.PollResponse, address=owner, timeout_s=timeout_s
            )
        except MillpondError as error:
            return error

    def _take(self, response: log_pb2.PollResponse) -> None:
        for batch in response.batches:
            first = self._fetch_from[batch.partition] - 1
            for record in iter_records(batch.data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                if record.offset >= first:
                    self._fetched.append(message_of(record, batch.partition))
        for standing in response.standings:
            self._fetch_from[standing.partition] = standing.read_from

    # -- life -------------------------------------------------------------------------------------------------

    async def _ensure_open(self) -> None:
        """Learn of the partitions and where to begin. Fails if there is no such topic (yet)."""
        if self._positions:
            return
        found = await self._description()
        owners = self._owners_in(found)
        chosen = [self._partition] if self._partition is not None else sorted(owners)
        for number in chosen:
            if number not in owners:
                raise UnknownPartition(topic=self.topic, partition=number)
        ends = {each.partition: each.next for each in found.partitions}
        kept = await self._kept.load() if self._kept is not None else {}
        first = {number: kept.get(number) or self._first(number, ends[number]) for number in chosen}
        self._owners, self._saved = owners, {number: kept[number] for number in chosen if number in kept}
        self._positions, self._fetch_from = first, dict(first)

    def _first(self, partition: int, end: int) -> int:
        if self._start == NEWEST:
            return end
        if isinstance(self._start, Mapping):
            return self._start.get(partition, 1)
        return _number(self._start)

    def _owners_in(self, found: admin_pb2.TopicDescription) -> dict[int, str]:
        owners = {each.partition: each.owner or self._connections.address for each in found.partitions}
        for owner in owners.values():
            self._connections.learn(owner)
        return owners

    async def _description(self) -> admin_pb2.TopicDescription:
        request = admin_pb2.DescribeTopicRequest(name=self.topic)
        return await self._connections.call(ADMIN, "DescribeTopic", request, admin_pb2.TopicDescription)

    async def close(self) -> None:
        """Keep the positions and leave. Whoever waits in a poll is sent away."""
        if self._connections.is_closed:
            return
        try:
            await self._keep()
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


def _check_start(start: object) -> None:
    """Here, where the mistake is made."""
    numbers = start.values() if isinstance(start, Mapping) else [start]
    for number in numbers:
        is_number = isinstance(number, int) and not isinstance(number, bool) and number >= 1
        if not is_number and not (number is start and start in (OLDEST, NEWEST)):
            reason = f"read_from={start!r}: positions are message numbers from 1 on, or 'oldest' or 'newest'"
            raise InvalidRequest(reason=reason)


def _number(start: object) -> int:
    """The oldest message there is has at least this number."""
    return start if isinstance(start, int) else 1


async def _cancel(tasks: "Sequence[asyncio.Future[log_pb2.PollResponse | MillpondError]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
