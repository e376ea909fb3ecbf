"""Drives the lanes of one topic of a producer: streams to brokers, responses, retries, deadlines.

For each broker one task writes and one reads. Another task decides which batch goes to which broker, and
checks deadlines. None of them waits for another: a broker that reads nothing delays neither the other brokers
nor the deadlines. Lives on one event loop; its state changes only between awaits.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import grpc

from millpond.client.calls import LOG, Connections, Pauses
from millpond.client.errors import error_of, error_of_result, redirect_of
from millpond.client.lane import Lane, OutBatch, ProducerIdentity
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import (
    AuthenticationFailed,
    ClusterNotAuthorized,
    Defect,
    MillpondError,
    NotAuthorized,
    TimedOut,
    TopicNotAuthorized,
)
from millpond.stubs import log_pb2

DEADLINE_CHECK_S: Final = 0.02
"""How often deadlines are checked while there is something to send."""

logger = logging.getLogger(__name__)


class ProduceLink:
    """A stream to one broker. Responses come in the order of the requests."""

    def __init__(self, address: str, call: Any) -> None:
        self.address = address
        self.call = call
        self.outbox: deque[log_pb2.ProduceRequest] = deque()
        self.has_more = asyncio.Event()
        self.unanswered: deque[tuple[Lane, float]] = deque()
        """The lanes of the requests without a response, and when each was queued."""
        self.tasks: list[asyncio.Task[None]] = []
        self.has_responded = False


class SendBuffer:
    """Limits the bytes of messages that wait for their results, over all topics of a producer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._freed = asyncio.Event()
        self.held_bytes = 0

    @property
    def has_room(self) -> bool:
        return self.held_bytes < self._bytes_max

    async def wait_for_room(self) -> None:
        while not self.has_room:
            self._freed.clear()
            await self._freed.wait()

    def release(self, size: int) -> None:
        self.held_bytes -= size
        self._freed.set()


class Sender:
    """Sends the messages of one topic. It drives a lane for each partition: one method for each event of its
    streams and timers, so there are more than 20."""

    def __init__(
        self, connections: Connections, topic: str, buffer: SendBuffer, *, clock: Clock | None = None
    ) -> None:
        """`clock` stamps records that have no timestamp."""
        self._connections = connections
        self._topic = topic
        self._buffer = buffer
        self._clock = clock or SystemClock()
        self._timed_out = TimedOut(timeout_ms=int(connections.timeout_s * 1000))
        self._last_error: MillpondError | None = None
        self._lanes: list[Lane] = []
        self._links: dict[str, ProduceLink] = {}
        self._pauses: dict[Lane, Pauses] = {}
        self._redirected: set[Lane] = set()
        self._wake = asyncio.Event()
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._identifying: asyncio.Task[None] | None = None
        self.failure: MillpondError | None = None
        """Why nothing can be sent any more."""
        self._held_bytes = 0
        self.has_stored = False
        """Whether any message was stored: then the topic exists."""

    def add(self, lanes: Sequence[Lane]) -> None:
        """Add lanes to drive. The first call starts the sender's task."""
        if not self._lanes:
            self._begin(self._run_or_fail())
        self._lanes += lanes
        for lane in lanes:
            self._connections.add_known_address(lane.address)

    def hold(self, size: int) -> None:
        """Count a message that was added to a lane."""
        self._held_bytes += size
        self._buffer.held_bytes += size
        self._wake.set()

    async def flush(self) -> None:
        """Wait until every message has a result."""
        while self._held_bytes:
            self._freed.clear()
            await self._freed.wait()

    async def close(self) -> None:
        for link in self._links.values():
            link.call.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def abandon(self, error: MillpondError) -> None:
        self.failure = error
        for lane in self._lanes:
            self._free(lane.abandon(error))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- scheduling -------------------------------------------------------------------------------------------

    async def _run_or_fail(self) -> None:
        """An unexpected error fails all messages, so that no caller waits for ever."""
        try:
            await self._run()
        except Exception as error:  # waiting callers must get every kind of error
            logger.exception(
                "unexpected error in producer; it cannot continue",
                extra={"topic": self._topic, "error": error},
            )
            self.abandon(Defect(reason=repr(error)))

    async def _run(self) -> None:
        while True:
            if not self._held_bytes:
                await self._wake.wait()
            self._wake.clear()
            now = asyncio.get_running_loop().time()
            self._check_deadlines(now)
            for lane in self._lanes:
                if not lane.is_idle:
                    self._drive(lane, now)
            await self._pause()

    async def _pause(self) -> None:
        if not self._wake.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DEADLINE_CHECK_S):
                    await self._wake.wait()
        else:
            await asyncio.sleep(0)

    def _drive(self, lane: Lane, now: float) -> None:
        if lane.needs_identity and self._identifying is None:
            self._identifying = self._begin(self._identify())
        while (batch := lane.next_batch(now, self._clock.now_ms())) is not None:
            self._send(lane, batch, now)

    async def _identify(self) -> None:
        """One identity for all lanes: a broker keeps sequences by partition."""
        try:
            request, response = log_pb2.InitProducerRequest(), log_pb2.InitProducerResponse
            found = await self._connections.call(LOG, "InitProducer", request, response)
            for lane in self._lanes:
                if lane.needs_identity:
                    lane.set_identity(ProducerIdentity(found.producer_id, found.producer_epoch))
            self._last_error = None
        except MillpondError as failed:
            error = self._last_error = self._for_topic(failed)
            if not error.retriable:
                for lane in self._lanes:
                    self._free(lane.abandon(error))
        finally:
            self._identifying = None
            self._wake.set()

    def _for_topic(self, error: MillpondError) -> MillpondError:
        """A client may not have an identity if it may write to no topic, so not to this one either."""
        if not isinstance(error, ClusterNotAuthorized):
            return error
        principal = error.facts.get("principal")
        return TopicNotAuthorized(principal=principal, operation="write", topic=self._topic)

    # -- writing ----------------------------------------------------------------------------------------------

    def _send(self, lane: Lane, batch: OutBatch, now: float) -> None:
        try:
            link = self._links.get(lane.address) or self._open_link(lane.address)
        except MillpondError as error:  # there is no token right now
            batch.in_flight, batch.failure, self._last_error = False, error, error
            self._on_refused(lane, error)
            return
        link.unanswered.append((lane, now))
        link.outbox.append(
            log_pb2.ProduceRequest(topic=self._topic, partition=lane.partition, batch=batch.data)
        )
        link.has_more.set()

    def _open_link(self, address: str) -> ProduceLink:
        link = self._links[address] = ProduceLink(address, self._connections.produce_stream(address))
        link.tasks = [self._begin(self._write(link)), self._begin(self._read(link))]
        return link

    def _on_refused(self, lane: Lane, error: MillpondError) -> None:
        """The broker accepted nothing that was sent: fail the messages of the lane if a retry cannot help. If an
        earlier attempt may have stored some of them, they have until their deadline to find out."""
        if error.retriable or lane.has_uncertain:
            self._delay_retry(lane, error)
        else:
            self._free(lane.abandon(error))

    async def _write(self, link: ProduceLink) -> None:
        try:
            while True:
                while link.outbox:
                    await link.call.write(link.outbox.popleft())
                link.has_more.clear()
                await link.has_more.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            pass  # the reader handles the reason

    # -- responses --------------------------------------------------------------------------------------------

    async def _read(self, link: ProduceLink) -> None:
        try:
            while (response := await link.call.read()) is not grpc.aio.EOF:
                link.has_responded = True
                for result in response.results:
                    self._settle(link.unanswered.popleft()[0], result)
                self._wake.set()
        except grpc.aio.AioRpcError as failure:
            self._on_stream_failed(link, error_of(failure, link.address, self._timed_out.facts["timeout_ms"]))
        except asyncio.InvalidStateError:
            pass  # the call was cancelled during the read
        finally:
            self._lose(link)

    def _on_stream_failed(self, link: ProduceLink, error: MillpondError) -> None:
        """A broker that refuses the client's credentials will refuse them again. But if it accepted them first, they
        have expired, and the next stream has the current token."""
        self._last_error = error
        if isinstance(error, AuthenticationFailed | NotAuthorized) and not link.has_responded:
            for lane in self._lanes:
                if lane.address == link.address:
                    self._on_refused(lane, error)

    def _settle(self, lane: Lane, result: log_pb2.ProduceResult) -> None:
        if result.HasField("produced"):
            freed = lane.settle(result.produced.numbers[0])
            self.has_stored = True
            self._pauses.pop(lane, None)
            self._redirected.discard(lane)
            self._last_error = None
        else:
            error = error_of_result(result.error)
            freed = lane.settle(error)
            if error.retriable:
                self._delay_retry(lane, error)
        if freed:
            self._free(freed)

    def _delay_retry(self, lane: Lane, error: MillpondError | None) -> None:
        """Redirect a lane to the partition's owner, if it is known, and delay its next attempt. The first
        redirect is followed without a delay."""
        owner = redirect_of(error) if error is not None else None
        if owner is not None and owner != lane.address:
            self._connections.add_known_address(owner)
            lane.address = owner
            if lane not in self._redirected:
                self._redirected.add(lane)
                return
        pause = self._pauses.setdefault(lane, Pauses()).take(*([error] if error is not None else []))
        lane.resume_at = asyncio.get_running_loop().time() + pause

    def _lose(self, link: ProduceLink) -> None:
        """The stream has ended. Requests without a response are sent again, to another broker if there is one."""
        if self._links.get(link.address) is not link:
            return
        del self._links[link.address]
        link.call.cancel()
        for task in link.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        following = self._connections.next_known_address(link.address)
        for lane in self._lanes:
            if (
                lane.address == link.address
            ):  # otherwise each lane would discover the failure by itself, one message at a time
                lane.address = following
        for lane in dict.fromkeys(lane for lane, _ in link.unanswered):
            lane.lose_in_flight()
            self._delay_retry(lane, None)
        self._wake.set()

    # -- deadlines --------------------------------------------------------------------------------------------

    def _check_deadlines(self, now: float) -> None:
        for link in list(self._links.values()):
            if link.unanswered and link.unanswered[0][1] + self._connections.attempt_s <= now:
                self._connections.drop_channel(link.address)  # the connection has gone silent
                self._lose(link)
        for lane in self._lanes:
            if lane.oldest_deadline <= now:
                self._free(lane.expire(now, self._timed_out, self._last_error or self._timed_out))

    def _free(self, size: int) -> None:
        self._held_bytes -= size
        self._freed.set()
        self._buffer.release(size)
