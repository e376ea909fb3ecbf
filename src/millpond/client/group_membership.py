"""A consumer's member in a group: sends the heartbeats, and makes the readers of its topics follow its assignment.

Heartbeats run in the background, between polls. What they change is carried out by polls only, so that an application
has the partitions of its messages until it polls again. `membership_state.py` has the rules.
"""

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from millpond.client.coordinator_calls import CoordinatorCalls
from millpond.client.membership_state import LOST, REBALANCE_TIMEOUT_S, MembershipState
from millpond.client.topic_reader import TopicReader
from millpond.model.errors import MillpondError, Stopping, UnknownGroup, UnknownMember
from millpond.stubs import admin_pb2

HEARTBEAT_S: Final = 1.0
"""How long a new member waits at most until the others notice that they have to share. A broker may want heartbeats
more often."""
LEAVE_S: Final = 2.0
"""How long a member tries to leave. After that its session expires."""
LOAN_S: Final = 5.0
"""How long an iteration over the messages of a poll takes at most until the next poll commits their positions."""
HOST_CHARS_MAX: Final = 100

logger = logging.getLogger(__name__)


class GroupMembership:
    def __init__(self, group: str, topics: Sequence[str], coordinator: CoordinatorCalls) -> None:
        self._membership = MembershipState(group, topics, _new_member_id())
        self._coordinator = coordinator
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeats: asyncio.Task[None] | None = None
        self._interval_s = HEARTBEAT_S
        self._polled_at = 0.0
        self._failure: MillpondError | None = None
        self._is_closed = False
        self.changed = asyncio.Event()
        """Set when there is something for a poll to follow."""

    # -- in polls ---------------------------------------------------------------------------------------------

    @property
    def is_joined(self) -> bool:
        return self._membership.is_joined

    def must_follow(self, readers: Sequence[TopicReader]) -> bool:
        """To be asked in every round of a poll: it shows that the application is alive."""
        self._polled_at = asyncio.get_running_loop().time()
        self.changed.clear()
        membership = self._membership
        is_settled = membership.is_joined and membership.owned == membership.assigned
        is_quiet = self._failure is None and self._sends_heartbeats
        return not (is_settled and is_quiet) or any(each.is_outdated for each in readers)

    async def follow(self, readers: Sequence[TopicReader]) -> None:
        """Join if need be, give up what is revoked, report that at once, and take over what is added. The positions of
        processed messages are committed before."""
        self._raise_failure()
        while self._give_up(readers) or not self.is_joined:
            try:
                await self._send_heartbeat()
            except MillpondError as error:
                if not (error.retriable and self.is_joined):
                    raise
                break  # the next heartbeat reports it
        if not self._sends_heartbeats:
            self._heartbeats = asyncio.create_task(self._repeat_heartbeats())
        self.changed.clear()  # what the heartbeats above have brought is taken over now
        for each in readers:
            await self._take_over(each)

    def loan(self) -> Callable[[], bool]:
        """For an iteration over the messages of a poll, possibly in another thread. It asks before each of them, which
        shows that the application is alive. Returns False when it is time for a poll."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LOAN_S

        def goes_on() -> bool:
            self._polled_at = loop.time()
            return self._polled_at < until and not self.changed.is_set()

        return goes_on

    async def commit(self, request: admin_pb2.CommitPositionsRequest) -> None:
        """Raises one of `LOST` if the member has lost its partitions."""
        membership = self._membership
        if not membership.is_joined:
            raise UnknownMember(group=membership.group, member_id=membership.member_id)
        request.member_id, request.member_epoch = membership.member_id, membership.epoch
        try:
            await self._coordinator.call("CommitPositions", request, admin_pb2.CommitPositionsResponse)
        except UnknownGroup as error:
            self._end()
            raise UnknownMember(group=membership.group, member_id=membership.member_id) from error
        except LOST:
            self._end()
            raise

    async def leave(self) -> None:
        """Called once, at the end. Polls fail from now on."""
        self._is_closed = True
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])
        await self._leave()

    # -- internals --------------------------------------------------------------------------------------------

    @property
    def _sends_heartbeats(self) -> bool:
        return self._heartbeats is not None and not self._heartbeats.done()

    def _give_up(self, readers: Sequence[TopicReader]) -> bool:
        """Returns whether there is something to report, or another assignment to be expected."""
        must_report = bool(self._membership.revoked)
        for each in readers:
            for topic, topic_id, number in self._membership.revoked:
                if topic == each.topic:
                    each.give_up(topic_id, number)
            must_report |= each.is_outdated
            each.is_outdated = False
        self._membership.give_up()
        return must_report

    async def _take_over(self, reader: TopicReader) -> None:
        """Heartbeats that overlap this report the partitions as owned, and may revoke them again."""
        membership = self._membership
        for topic_id in {each.topic_id for each in membership.added if each.topic == reader.topic}:
            added = frozenset(each for each in membership.added if each.topic_id == topic_id)
            is_read = False
            membership.take_over(added)
            try:
                is_read = await reader.take_over(topic_id, frozenset(each.partition for each in added))
            finally:
                if not is_read:
                    membership.undo_take_over(added)

    async def _send_heartbeat(self) -> None:
        async with self._heartbeat_lock:
            if self._is_closed:
                raise Stopping("The client is closed.")
            if not self.is_joined and self._membership.owned:
                return  # lost a moment ago: a poll drops what it owned, and then joins
            request = self._membership.heartbeat()
            try:
                response = await self._coordinator.call(
                    "GroupHeartbeat", request, admin_pb2.GroupHeartbeatResponse
                )
            except LOST:
                self._end()
            else:
                self._membership.accept(request, response)
                self._interval_s = min(HEARTBEAT_S, response.heartbeat_interval_ms / 1000)
        if self._membership.owned != self._membership.assigned:
            self.changed.set()

    async def _repeat_heartbeats(self) -> None:
        """Ends when the consumer is no member any more."""
        loop = asyncio.get_running_loop()
        while self.is_joined:
            await asyncio.sleep(self._interval_s)
            if loop.time() - self._polled_at >= REBALANCE_TIMEOUT_S:
                await self._leave()
            elif self.is_joined:
                await self._try_heartbeat()

    async def _try_heartbeat(self) -> None:
        try:
            await self._send_heartbeat()
        except MillpondError as error:
            if not error.retriable:
                self._failure = error
                self._end()
        except Exception as error:
            logger.exception(
                "unexpected error in group heartbeat; will retry",
                extra={"group": self._membership.group, "error": error},
            )

    async def _leave(self) -> None:
        """Waits for a heartbeat in flight, which may be a join."""
        with contextlib.suppress(MillpondError, TimeoutError):
            async with asyncio.timeout(LEAVE_S), self._heartbeat_lock:
                if self.is_joined:
                    request = self._membership.leaving()
                    await self._coordinator.call("GroupHeartbeat", request, admin_pb2.GroupHeartbeatResponse)
        self._end()

    def _end(self) -> None:
        self._membership.end()
        self.changed.set()

    def _raise_failure(self) -> None:
        """The error of a heartbeat in the background, once."""
        error, self._failure = self._failure, None
        if error is not None:
            raise error


def _new_member_id() -> str:
    """Unique, and it shows an administrator which process it is."""
    return f"{socket.gethostname()[:HOST_CHARS_MAX]}-{os.getpid()}-{uuid.uuid4()}"
