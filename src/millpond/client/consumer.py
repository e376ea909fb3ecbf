"""A consumer on an event loop: messages of one or several topics, from a position that the client keeps.

    async with AsyncConsumer("orders", read_from="earliest") as consumer:
        messages, read_from = await consumer.poll(wait=3.0)

By default the broker keeps no position, and a consumer begins at `read_from`. A consumer that keeps its
positions in a file or a group continues where it stopped, and the members of a group share the partitions. The
messages of a poll count as processed when the next poll is called, or the consumer is closed: after a crash they
are read again.

Positions belong to one topic, by its id. If the topic is deleted and created again, reading starts again from
its beginning.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from millpond.client import arguments
from millpond.client.calls import Connections, Pauses
from millpond.client.coordinator_calls import CoordinatorCalls
from millpond.client.group_membership import GroupMembership
from millpond.client.group_positions import GroupPositions
from millpond.client.iteration import LentMessages
from millpond.client.membership_state import LOST
from millpond.client.message import Message, NextPosition, Polled, ReadFrom
from millpond.client.positions import FilePositions, StoredPositions
from millpond.client.reprs import client_repr
from millpond.client.security import SecurityArguments, TlsArgument, TokenArgument
from millpond.client.sources import ServerAddresses
from millpond.client.topic_reader import TopicReader
from millpond.model.errors import MillpondError, TopicReplaced

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
FOLLOW_WAIT_S: Final = 30.0
ROUND_S_MAX: Final = 10.0
"""A longer wait is split into several requests, so that a silent connection is noticed."""
MESSAGES_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024

ConsumerStart = ReadFrom | Literal["earliest", "latest"] | datetime
"""Where a consumer begins: at a message number, at numbers by partition, at the earliest message, at the next new
message, or at the first message of a time."""
Failures = list[tuple[TopicReader, MillpondError]]


class AsyncConsumer:
    """Reads all partitions of its topics, one partition, or its share in a group. Partitions that are added later are
    read from their first message on.

    `topics` is a name or a list of names. For a name, a position is a number if there is one partition, and numbers by
    partition otherwise; for a list it is a mapping of names to such positions.

    `read_from` is a message number, which counts from 1, or numbers by partition, "earliest" (the default), "latest",
    or a datetime. `offset` is the same position as Kafka counts, from 0, or offsets by partition. For a list of topics,
    both may be a mapping of names to positions. A position below the oldest message continues at the oldest; a position
    above the end waits until that message is written.

    `group` makes the consumer a member of a consumer group, with its first poll: the members, Kafka's consumers among
    them, share the partitions of the topics, and the group keeps their positions. A member that does not poll for 5
    minutes leaves, and joins again in its next poll. With a `partition` the consumer is no member: positions are kept
    under the name of the group, which is refused (GroupInUse) while it has members. `position_file` keeps the positions
    of one topic in a file.

    `strict` refuses positions outside the topic (OffsetOutOfRange). It also refuses a topic that was created again
    since its positions were kept or read (TopicReplaced); without `strict`, reading begins at the oldest message of the
    new topic. `uncommitted` also returns messages of transactions that are open or aborted.

    `address` is the broker to try first, or several; `timeout` is the time that a broker has to respond. `tls` is True,
    the path of a CA file or a `Tls`; `username` and `password`, or `token`, prove who you are."""

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        address: ServerAddresses = None,
        read_from: ConsumerStart | Mapping[str, ConsumerStart] | None = None,
        offset: ReadFrom | Mapping[str, ReadFrom] | None = None,
        partition: int | None = None,
        group: str | None = None,
        position_file: str | Path | None = None,
        strict: bool = False,
        uncommitted: bool = False,
        timeout: float = TIMEOUT_S,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        if group is not None and position_file is not None:
            raise ValueError("positions are kept under a group's name or in a file, not in both")
        self.topics = arguments.topics("topics", topics)
        self._has_one_topic = isinstance(topics, str)
        starts = self._starts(read_from, offset)
        partition = arguments.optional(arguments.number, "partition", partition)
        group = arguments.optional(arguments.label, "group", group)
        path = arguments.optional(arguments.path, "position_file", position_file)
        if path is not None and len(self.topics) > 1:
            raise arguments.out_of_range("position_file", path, "one topic; use group= for several")
        arguments.flag("strict", strict)
        arguments.flag("uncommitted", uncommitted)
        self._connections = Connections(address, timeout, SecurityArguments(tls, username, password, token))
        coordinator = CoordinatorCalls(self._connections)
        is_member = group is not None and partition is None
        self._member = (
            GroupMembership(group, self.topics, coordinator) if group is not None and is_member else None
        )

        def position_store(topic: str) -> StoredPositions | None:
            if group is not None:
                return GroupPositions(group, topic, coordinator, self._member)
            return None if path is None else FilePositions(path, topic)

        self._readers = [
            TopicReader(
                topic,
                self._connections,
                position_store(topic),
                start=starts.get(topic, arguments.EARLIEST),
                partition=partition,
                is_shared=is_member,
                strict=strict,
                uncommitted=uncommitted,
            )
            for topic in self.topics
        ]
        self._lent = LentMessages()
        self._poll_lock = asyncio.Lock()
        self._save_lock = asyncio.Lock()

    def _starts(self, read_from: object, offset: object) -> dict[str, arguments.Start]:
        """The positions of the topics that are named."""
        if self._has_one_topic:
            return {self.topics[0]: arguments.start(read_from, offset)}
        return arguments.starts(self.topics, read_from, offset)

    # -- reading ----------------------------------------------------------------------------------------------

    async def poll(
        self, wait: float = 0.0, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX
    ) -> Polled:
        """Messages from the position on, and the next position. Waits up to `wait` seconds for a first
        message. Several tasks or threads may poll at the same time: they wait for each other, and each message goes to
        one of them only. A batch that cannot be decoded raises UnreadableBatch, after the messages before it were
        returned; `seek` skips it."""
        wait_s = arguments.optional_seconds("wait", wait)
        messages_max = arguments.count("messages_max", messages_max)
        bytes_max = arguments.integer("bytes_max", bytes_max, 1, arguments.UINT32_MAX)
        async with self._poll_lock:
            messages = await self._poll(math.inf if wait_s is None else wait_s, messages_max, bytes_max)
            return Polled(messages, self._next_positions())

    async def _poll(self, wait_s: float, messages_max: int, bytes_max: int) -> list[Message]:
        self._end_loan()
        await self._save_unless_lost()
        await self._ensure_open()
        await self._follow_assignment()
        if not self._has_news:
            for each in self._readers:
                each.check_failure()
            await self._fetch(wait_s, bytes_max)
        if not any(each.has_messages for each in self._readers):
            for each in self._readers:
                each.check_readable()
        return self._take(messages_max)

    @property
    def _has_news(self) -> bool:
        return any(each.has_news for each in self._readers)

    def _take(self, messages_max: int) -> list[Message]:
        """Messages of the topics in turn: the first topic of this poll is the last one of the next."""
        messages: list[Message] = []
        for each in self._readers:
            messages += each.take(messages_max - len(messages))
        if len(self._readers) > 1:
            self._readers.append(self._readers.pop(0))
        return messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, and new ones as they arrive; the iteration does not end by itself. A message counts
        as processed when the next one is requested. Positions are kept once for each poll, in a group also every few
        seconds, and when the assignment changes."""
        while True:
            lent = await self.lend()
            while (message := lent.take()) is not None:
                yield message

    async def lend(self) -> LentMessages:
        """Of the library itself: the next messages of an iteration. Those that it does not take stay unread, and the
        one that it takes last counts as processed at the next call."""
        async with self._poll_lock:
            messages = await self._poll(FOLLOW_WAIT_S, MESSAGES_MAX, BYTES_MAX)
            self._lent = (
                LentMessages(messages)
                if self._member is None
                else LentMessages(messages, self._member.loan())
            )
            return self._lent

    def _take_back(self) -> None:
        """Messages that were lent to an iteration, and that it has not taken, are read by the next poll."""
        self._put_back(self._lent.take_back())

    def _end_loan(self) -> None:
        """The message that the iteration has taken last counts as processed."""
        self._take_back()
        self._lent = LentMessages()

    def _put_back(self, messages: list[Message]) -> None:
        for each in self._readers:
            each.put_back([message for message in messages if message.topic == each.topic])

    @property
    def read_from(self) -> NextPosition | dict[str, NextPosition | None] | None:
        """The position of the next poll, by topic if the consumer has a list of them. Before the first poll it is the
        number that the consumer was created with; None if that is a name or a time, or if positions are kept, since a
        broker has to be asked (see `positions`)."""
        found = {each.topic: self._known_position(each) for each in self._in_order()}
        return found[self.topics[0]] if self._has_one_topic else found

    def _known_position(self, reader: TopicReader) -> NextPosition | None:
        return self._next_position(reader) if reader.is_open else reader.first_position

    def _next_position(self, reader: TopicReader) -> NextPosition:
        return reader.next_position(self._lent.positions(reader.topic))

    def _next_positions(self) -> NextPosition | dict[str, NextPosition]:
        """After a poll, when all of them are known."""
        found = {each.topic: self._next_position(each) for each in self._in_order()}
        return found[self.topics[0]] if self._has_one_topic else found

    def _in_order(self) -> list[TopicReader]:
        return sorted(self._readers, key=lambda each: self.topics.index(each.topic))

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that this consumer reads, by topic: in a group those of its share, else all that it has found.
        Empty lists before the first poll, and while other members have all partitions."""
        return {each.topic: sorted(each.positions) for each in self._in_order()}

    async def seek(
        self,
        read_from: ConsumerStart | Mapping[str, ConsumerStart] | None = None,
        *,
        offset: ReadFrom | Mapping[str, ReadFrom] | None = None,
    ) -> None:
        """Continue at another position, which is given as for a new consumer. Topics and partitions that it does not
        name keep their positions, and so do those that other members of its group read. Waits for a poll in
        progress."""
        arguments.given_start(read_from, offset)
        starts = self._starts(read_from, offset)
        async with self._poll_lock:
            self._end_loan()
            for each in self._readers:
                if each.topic in starts:
                    with contextlib.suppress(TopicReplaced):  # one of the reasons to seek
                        await each.ensure_open()
                        await self._ensure_joined()
                    await each.seek(starts[each.topic])

    async def positions(self) -> dict[int, int] | dict[str, dict[int, int]]:
        """The position of the next poll by partition, or by topic and partition if the consumer has a list of topics.
        In a group, of the partitions that are assigned to this consumer. Also works before the first poll."""
        async with self._poll_lock:
            self._take_back()
            await self._ensure_open()
            if self._has_one_topic:
                return dict(self._readers[0].positions)
            return {each.topic: dict(each.positions) for each in self._in_order()}

    async def commit(self) -> None:
        """Keep the positions now, in the file or group of this consumer. Raises a GroupError if the consumer has lost
        its partitions to other members of the group, which read the messages again."""
        async with self._poll_lock:
            self._end_loan()
            await self._save_positions()

    async def _save_positions(self) -> None:
        """If one topic fails, the others are saved nevertheless."""
        errors: list[MillpondError] = []
        async with self._save_lock:  # a separate lock: `close` does not wait for a poll
            for each in tuple(self._readers):  # a poll may change their order
                try:
                    await each.save_positions()
                except MillpondError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def _save_unless_lost(self) -> None:
        """A member that has lost its partitions continues with others. The messages since the last commit are read
        again by other members."""
        try:
            await self._save_positions()
        except LOST as error:
            logger.info("partitions of a group were lost; joining again", extra={"error": str(error)})

    async def _ensure_open(self) -> None:
        """Find the partitions and the first positions. Fails if a topic does not exist (yet)."""
        for each in self._readers:
            await each.ensure_open()
        await self._ensure_joined()

    async def _ensure_joined(self) -> None:
        if self._member is not None and not self._member.is_joined:
            await self._follow_assignment()

    async def _follow_assignment(self) -> None:
        """To be called when the positions are saved: revoked partitions are given up."""
        if self._member is not None and self._member.must_follow(self._readers):
            await self._member.follow(self._readers)

    # -- fetching ---------------------------------------------------------------------------------------------

    async def _fetch(self, wait_s: float, bytes_max: int) -> None:
        """Send requests until there are messages, the wait is over, or no broker has responded in time."""
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + wait_s
        respond_by = wait_until + self._connections.timeout_s
        pauses = Pauses()
        if all(each.is_gone for each in self._readers):
            for each in self._readers:
                each.expect_again()  # with no other topic to read, every poll reports it
        while True:
            await self._refresh()
            refresh_at = min(each.refresh_at for each in self._readers)
            round_s = min(wait_until - loop.time(), refresh_at - loop.time(), ROUND_S_MAX)
            failures = await self._poll_all_owners(max(0.0, round_s), bytes_max)
            if self._has_lost_partitions:
                continue  # drops what was fetched, and joins again
            if self._has_news:
                await self._postpone(failures)
                return
            if not failures and loop.time() >= wait_until:
                return
            for reader, error in failures:
                if self._connections.is_closed or not reader.may_retry(error):
                    reader.leave_out_if_gone(error)
                    raise error
            if failures:
                pause = pauses.take(*(error for _, error in failures))
                if loop.time() + pause >= respond_by:
                    raise failures[0][1]
                await asyncio.sleep(pause)
                for reader, errors in _by_reader(failures):
                    reader.recover(await reader.describe(), errors)

    async def _refresh(self) -> None:
        """Learn what has changed of topics and the assignment. A topic whose last partition was given up may be
        deleted, which only its metadata shows; and a topic that has changed gets another assignment."""
        await self._follow_assignment()
        while any(each.is_refresh_due for each in self._readers):
            for each in self._readers:
                await each.refresh_metadata()
            await self._follow_assignment()

    @property
    def _has_lost_partitions(self) -> bool:
        return self._member is not None and not self._member.is_joined

    async def _postpone(self, failures: Failures) -> None:
        """For errors of a fetch that has messages to return: topics that can recover do so now, and the errors of
        others are raised by the next poll that has to fetch."""
        for reader, errors in _by_reader(failures):
            try:
                for error in errors:
                    if not reader.may_retry(error):
                        raise error
                reader.recover(await reader.describe_once(self._connections.address), errors)
            except MillpondError as error:
                if not error.retriable:
                    reader.raise_later(error)

    async def _poll_all_owners(self, wait_s: float, bytes_max: int) -> Failures:
        """One round of requests, one for each topic and each broker that owns some of its partitions; returns the
        errors. If there are several, the first requests do not wait; only if none of them has messages does a second
        round wait for the first broker that has. A change of the member's assignment ends the wait."""
        if sum(1 for each in self._readers for _ in each.partitions_by_owner()) == 1:
            return await self._poll_owners(wait_s, bytes_max, asyncio.ALL_COMPLETED)
        failures = await self._poll_owners(0.0, bytes_max, asyncio.ALL_COMPLETED)
        if any(each.has_messages for each in self._readers) or failures or not wait_s:
            return failures
        return await self._poll_owners(wait_s, bytes_max, asyncio.FIRST_COMPLETED)

    async def _poll_owners(self, wait_s: float, bytes_max: int, until: str) -> Failures:
        polls = {
            asyncio.ensure_future(reader.poll_owner(owner, partitions, wait_s, bytes_max)): reader
            for reader in self._readers
            for owner, partitions in reader.partitions_by_owner()
        }
        waiting: set[asyncio.Future[Any]] = set(polls)
        if self._member is not None and wait_s:
            until = asyncio.FIRST_COMPLETED
            waiting.add(asyncio.ensure_future(self._member.changed.wait()))
        try:
            if waiting:
                await asyncio.wait(waiting, timeout=None if polls else wait_s, return_when=until)
            outcomes = [(reader, poll.result()) for poll, reader in polls.items() if poll.done()]
        finally:
            await _cancel(waiting)
        failures: Failures = []
        for reader, outcome in outcomes:
            if isinstance(outcome, MillpondError):
                failures.append((reader, outcome))
            else:
                reader.take_response(outcome)
        return failures

    # -- lifecycle --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Keep the positions, leave the group, and close. A poll that is waiting fails. The message at which an
        iteration ended does not count as processed."""
        if self._connections.is_closed:
            return
        self._take_back()
        self._put_back([] if self._lent.last is None else [self._lent.last])
        try:
            await self._save_unless_lost()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        try:
            if self._member is not None:
                await self._member.leave()
        finally:
            await self._connections.close()

    def __repr__(self) -> str:
        return client_repr(
            "AsyncConsumer",
            is_closed=self._connections.is_closed,
            topics=list(self.topics),
            read_from=self.read_from,
            address=self._connections.address,
        )

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


def _by_reader(failures: Failures) -> list[tuple[TopicReader, list[MillpondError]]]:
    readers = dict.fromkeys(reader for reader, _ in failures)
    return [(reader, [error for failed, error in failures if failed is reader]) for reader in readers]


async def _cancel(tasks: "Collection[asyncio.Future[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
