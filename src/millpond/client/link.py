"""A subscriber's stream to one broker: one task writes credit and acknowledgements (acks, nacks, extensions),
another reads the broker's responses.

Lives on an event loop; only `answer` and `return_credit` may be called from any thread. If a broker is silent for
a while, the link sends an empty request as heartbeat, to which a broker responds no matter how busy it is. If
the broker stays silent, the link closes the connection.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from millpond.client.calls import Connections
from millpond.client.delivery import NACK, AckAction, Acknowledgement, BaseDelivery, Outcome
from millpond.client.inbox import Inbox, Order
from millpond.client.outbox import Outbox, OutboxItem
from millpond.model.errors import Unreachable
from millpond.stubs import queue_pb2 as pb

HEARTBEAT_S: Final = 5.0
WATCH_S: Final = 1.0
GRANT_DIVISOR: Final = 4
"""Credit is granted again when this part of it (1/4) has been returned."""
DELAY_MS_MAX: Final = 2**32 - 1

Fetch = Callable[[BaseDelivery, pb.Delivery], Coroutine[Any, Any, bytes | None]]


@dataclass(frozen=True, slots=True)
class Attaching:
    """The parameters with which a subscriber attaches to every broker."""

    topic: str
    subscription: str
    consumer: str
    value_bytes_max: int
    metadata_only: bool

    def request(self) -> pb.SubscribeRequest:
        return pb.SubscribeRequest(
            attach=pb.Attach(
                topic=self.topic,
                subscription=self.subscription,
                consumer=self.consumer,
                value_bytes_max=self.value_bytes_max,
                metadata_only=self.metadata_only,
            )
        )


class Credit:
    """The credit of one broker: the deliveries that are granted and not yet taken never exceed its share. Any
    thread may return credit."""

    def __init__(self, messages: int, size: int) -> None:
        self._changing = threading.Lock()
        self._messages = messages
        self._bytes = size
        self._free_messages = messages
        self._free_bytes = size

    def resize(self, messages: int, size: int) -> None:
        """Set another share. A smaller share is reached only as credit is returned."""
        with self._changing:
            self._free_messages += messages - self._messages
            self._free_bytes += size - self._bytes
            self._messages, self._bytes = messages, size

    def return_credit(self, size: int) -> bool:
        """Return the credit of one delivery. Returns whether it is time to grant again."""
        with self._changing:
            self._free_messages = messages = self._free_messages + 1
            self._free_bytes = free = self._free_bytes + size
            return messages > 0 and (
                messages * GRANT_DIVISOR >= self._messages or free * GRANT_DIVISOR >= self._bytes
            )

    def take(self) -> tuple[int, int] | None:
        """The credit to grant now; None if it is too little for a request."""
        with self._changing:
            if not self._is_due():
                return None
            granted = self._free_messages, max(self._free_bytes, 0)
            self._free_messages = 0
            self._free_bytes -= granted[1]
            return granted

    def _is_due(self) -> bool:
        return self._free_messages > 0 and (
            self._free_messages * GRANT_DIVISOR >= self._messages
            or self._free_bytes * GRANT_DIVISOR >= self._bytes
        )


class SubscribeLink:
    def __init__(
        self,
        address: str,
        connections: Connections,
        attaching: Attaching,
        inbox: Inbox,
        credit: Credit,
        *,
        kind: type[BaseDelivery],
        fetch: Fetch,
        now_ms: Callable[[], int],
        on_arrival: Callable[[], None],
        on_lost: Callable[[], None],
        on_refused: Callable[[OutboxItem], None],
    ) -> None:
        self.address = address
        self.topic = attaching.topic
        self.now_ms = now_ms
        self.body_of = fetch
        self.attached: pb.Attached | None = None
        self.paused = False
        self.is_draining = False
        """Whether `leave` has been called."""
        self.credit = credit
        self._connections = connections
        self._attaching = attaching
        self._inbox = inbox
        self._kind = kind
        self._on_arrival = on_arrival
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self.outbox = Outbox(self._loop.time)
        self._thread = threading.get_ident()
        self._write_wakeup = asyncio.Event()
        self._is_waking = False
        self._sent_paused = False
        self._heartbeat_due = False
        self._leaving = False
        self._ended = False
        self._last_received_at = self._loop.time()
        self._lifetime_s = 0.0
        self._idle = asyncio.Event()

    # -- from any thread --------------------------------------------------------------------------------------

    def answer(
        self, kind: AckAction, delivery: BaseDelivery, seconds: float | None = None
    ) -> Acknowledgement:
        ms = None if seconds is None else int(min(max(seconds * 1000, 0), DELAY_MS_MAX))
        acknowledgement = Acknowledgement()
        if kind is NACK:
            self._inbox.refuse(delivery)
        self.outbox.add(OutboxItem(kind, delivery, acknowledgement, ms))
        if self._ended:  # checked after adding: `_end` sets it before it empties the outbox
            self._fail_late_items()
        if not self._is_waking:
            self.wake()
        return acknowledgement

    def return_credit(self, delivery: BaseDelivery) -> None:
        if self.credit.return_credit(delivery.size):
            self.wake()

    def wake(self) -> None:
        """Signal that there is something to write. Waking another thread's loop is expensive: once is enough."""
        if not self._is_waking:
            self._is_waking = True
            if threading.get_ident() == self._thread:
                self._write_wakeup.set()
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed, and its writer has ended
                    self._loop.call_soon_threadsafe(self._write_wakeup.set)

    def _fail_late_items(self) -> None:
        """An acknowledgement was added after the end. The next `flushed` must see its outcome, so on the loop
        it is lost immediately."""
        if threading.get_ident() == self._thread:
            self._end()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and no caller waits
                self._loop.call_soon_threadsafe(self._end)

    # -- the stream -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until the link has left in order. Raises the reason if it ended in any other way."""
        with self._connections.translating(self.address):
            call = self._connections.subscribe_stream(self.address)
        tasks = [asyncio.create_task(each) for each in (self._write(call), self._watch(call))]
        try:
            with self._connections.translating(self.address):
                await self._read(call)
            if not self._leaving:
                raise Unreachable(address=self.address, reason="the stream ended")
        except asyncio.InvalidStateError:
            raise Unreachable(address=self.address, reason="the stream was given up") from None
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._end()

    async def leave(self, timeout_s: float) -> None:
        """Detach when the broker has responded to every acknowledgement, or the time is up."""
        self.is_draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.flushed()
        self._leaving = True
        self._write_wakeup.set()

    async def flushed(self) -> None:
        while not self.outbox.is_idle and not self._ended:
            self._idle.clear()
            await self._idle.wait()

    def _end(self) -> None:
        self._ended = True
        self._inbox.lose(self)
        for item in self.outbox.lose():
            self._note(item)
        self._idle.set()

    async def _read(self, call: Any) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            self._last_received_at = self._loop.time()
            if response.HasField("deliveries"):
                self._arrive(response.deliveries)
            elif response.HasField("revoked"):
                self._inbox.revoke(response.revoked.ack_ids)
            elif response.HasField("lost"):
                self._inbox.lose(self, response.lost.partition)
                self._on_lost()
            elif response.HasField("attached"):
                self._begin(response.attached)
            if response.results:
                self._settle(response.results)

    def _begin(self, attached: pb.Attached) -> None:
        config: Mapping[str, str] = attached.config
        self._inbox.order = Order.of(config)
        self._lifetime_s = int(config.get("ack_timeout_ms", "0")) / 1000
        self.attached = attached
        self._write_wakeup.set()
        self._on_arrival()

    def _arrive(self, deliveries: pb.Deliveries) -> None:
        partition, epoch, kind = deliveries.partition, deliveries.epoch, self._kind
        deadline = self._last_received_at + self._lifetime_s
        made = [kind(self, partition, epoch, raw, deadline) for raw in deliveries.deliveries]
        self._inbox.arrive(partition, epoch, made)
        self._on_arrival()

    def _settle(self, results: Sequence[pb.Results]) -> None:
        for each in results:
            for item in self.outbox.settle(each):
                self._note(item)
        if self.outbox.is_idle:
            self._idle.set()
        self._write_wakeup.set()

    async def _write(self, call: Any) -> None:
        try:
            await call.write(self._attaching.request())
            while not self._leaving:
                await self._wait()
                while (request := self._next_request()) is not None:
                    await call.write(request)
            await call.write(pb.SubscribeRequest(detach=pb.Detach()))
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            pass  # the reader raises the reason

    async def _wait(self) -> None:
        await self._write_wakeup.wait()
        self._write_wakeup.clear()
        self._is_waking = False

    async def _watch(self, call: Any) -> None:
        """Send a heartbeat after a silence. A broker that does not respond to it is considered gone."""
        while True:
            await asyncio.sleep(min(WATCH_S, HEARTBEAT_S))
            if self.outbox.is_late:
                self._write_wakeup.set()
            silent_s = self._loop.time() - self._last_received_at
            if silent_s > HEARTBEAT_S + self._connections.attempt_s:
                self._connections.drop_channel(self.address)
                call.cancel()
            elif silent_s > HEARTBEAT_S and not self.outbox.has_heartbeat_in_flight:
                self._heartbeat_due = True
                self._write_wakeup.set()

    def _next_request(self) -> pb.SubscribeRequest | None:
        """Everything that there is to send, or as much of it as fits."""
        if self.attached is None:
            return None
        flow = self._next_flow()
        answers = self._next_answers()
        granted = self.credit.take()
        if flow is None and answers is None and granted is None:
            return None
        credit = pb.Credit(messages=granted[0], bytes=granted[1]) if granted is not None else None
        return pb.SubscribeRequest(flow=flow, answers=answers, credit=credit)

    def _next_flow(self) -> pb.Flow | None:
        if self.paused == self._sent_paused:
            return None
        self._sent_paused = self.paused
        return pb.Flow(paused=self.paused)

    def _next_answers(self) -> pb.Answers | None:
        if self._heartbeat_due:
            self._heartbeat_due = False
            return self.outbox.heartbeat()
        return self.outbox.next_request()

    def _note(self, item: OutboxItem) -> None:
        """Handle the result of a nack, or of an acknowledgement that was not accepted."""
        if item.kind is NACK:
            self._inbox.release(item.delivery)
            self._on_arrival()
        if item.acknowledgement.outcome is not Outcome.OK:
            self._on_refused(item)
