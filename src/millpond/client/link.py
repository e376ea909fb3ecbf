"""A subscriber's stream to one broker: one task writes credit and acknowledgements (acks, nacks, extensions),
another reads the broker's responses.

Lives on an event loop; only `acknowledge` and `return_credit` may be called from any thread. If no response arrives
for a while, the link sends a heartbeat: a request without acknowledgements, to which a broker responds however busy it
is. If there is still no response, the link closes the connection.
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
from millpond.client.inbox import DeliveryOrder, Inbox
from millpond.client.outbox import Outbox, OutboxItem
from millpond.model.errors import Unreachable
from millpond.stubs import queue_pb2 as pb

HEARTBEAT_S: Final = 5.0
WATCH_S: Final = 1.0
GRANT_DIVISOR: Final = 4
"""Credit is granted again when this part of it (1/4) has been returned."""
DELAY_MS_MAX: Final = 2**32 - 1

FetchBody = Callable[[BaseDelivery, pb.Delivery], Coroutine[Any, Any, bytes | None]]


@dataclass(frozen=True, slots=True)
class AttachParameters:
    """The parameters of the attach request, the same for every broker."""

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


class BrokerCredit:
    """How much one broker may still deliver. Granted credit plus deliveries that are not taken yet never exceed the
    broker's share of the subscriber's prefetch. Any thread may return credit."""

    def __init__(self, messages: int, size: int) -> None:
        self._lock = threading.Lock()
        self._messages = messages
        self._bytes = size
        self._free_messages = messages
        self._free_bytes = size

    def resize(self, messages: int, size: int) -> None:
        """Change the share. Granted credit cannot be withdrawn, so a smaller share takes effect as credit is
        returned."""
        with self._lock:
            self._free_messages += messages - self._messages
            self._free_bytes += size - self._bytes
            self._messages, self._bytes = messages, size

    def return_credit(self, size: int) -> bool:
        """Return the credit of one delivery. Returns whether it is time to grant again."""
        with self._lock:
            self._free_messages = messages = self._free_messages + 1
            self._free_bytes = free = self._free_bytes + size
            return messages > 0 and (
                messages * GRANT_DIVISOR >= self._messages or free * GRANT_DIVISOR >= self._bytes
            )

    def take(self) -> tuple[int, int] | None:
        """The credit to grant now; None if it is too little for a request."""
        with self._lock:
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
        attach_parameters: AttachParameters,
        inbox: Inbox,
        credit: BrokerCredit,
        *,
        delivery_class: type[BaseDelivery],
        fetch_body: FetchBody,
        now_ms: Callable[[], int],
        on_arrival: Callable[[], None],
        on_lost: Callable[[], None],
        on_refused: Callable[[OutboxItem], None],
    ) -> None:
        self.address = address
        self.topic = attach_parameters.topic
        self.now_ms = now_ms
        self.body_of = fetch_body
        self.attached: pb.Attached | None = None
        self.paused = False
        self.is_draining = False
        """Whether `detach` has been called."""
        self.credit = credit
        self._connections = connections
        self._attach_parameters = attach_parameters
        self._inbox = inbox
        self._delivery_class = delivery_class
        self._on_arrival = on_arrival
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self.outbox = Outbox(self._loop.time)
        self._thread = threading.get_ident()
        self._write_wakeup = asyncio.Event()
        self._wake_pending = False
        self._sent_paused = False
        self._heartbeat_due = False
        self._is_detaching = False
        self._has_ended = False
        self._last_received_at = self._loop.time()
        self._ack_timeout_s = 0.0
        self._idle = asyncio.Event()

    # -- from any thread --------------------------------------------------------------------------------------

    def acknowledge(
        self, action: AckAction, delivery: BaseDelivery, seconds: float | None = None, reason: str = ""
    ) -> Acknowledgement:
        ms = None if seconds is None else int(min(max(seconds * 1000, 0), DELAY_MS_MAX))
        acknowledgement = Acknowledgement()
        if action is NACK:
            self._inbox.hold_behind(delivery)
        self.outbox.add(OutboxItem(action, delivery, acknowledgement, ms, reason))
        if self._has_ended:  # checked after adding: `_end` sets it before it empties the outbox
            self._fail_late_items()
        if not self._wake_pending:
            self.wake()
        return acknowledgement

    def return_credit(self, delivery: BaseDelivery) -> None:
        if self.credit.return_credit(delivery.size):
            self.wake()

    def wake(self) -> None:
        """Wake up the task that writes. Waking another thread's event loop is expensive, so this is done once until
        the task runs."""
        if not self._wake_pending:
            self._wake_pending = True
            if threading.get_ident() == self._thread:
                self._write_wakeup.set()
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed, and its writer has ended
                    self._loop.call_soon_threadsafe(self._write_wakeup.set)

    def _fail_late_items(self) -> None:
        """Mark an acknowledgement that was added after the end as lost. On the event loop this happens immediately,
        because the next `flushed` must find its outcome set."""
        if threading.get_ident() == self._thread:
            self._end()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and no caller waits
                self._loop.call_soon_threadsafe(self._end)

    # -- the stream -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until the link has detached gracefully. Raises the reason if the stream ends in any other way."""
        with self._connections.translating(self.address):
            call = self._connections.subscribe_stream(self.address)
        tasks = [asyncio.create_task(each) for each in (self._write(call), self._watch(call))]
        try:
            with self._connections.translating(self.address):
                await self._read(call)
            if not self._is_detaching:
                raise Unreachable(address=self.address, reason="the stream ended")
        except asyncio.InvalidStateError:
            raise Unreachable(address=self.address, reason="the stream was cancelled") from None
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._end()

    async def detach(self, timeout_s: float) -> None:
        """Detach when the broker has responded to every acknowledgement, or the time is up."""
        self.is_draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.flushed()
        self._is_detaching = True
        self._write_wakeup.set()

    async def flushed(self) -> None:
        """Wait until every acknowledgement has an outcome."""
        while not self.outbox.is_idle and not self._has_ended:
            self._idle.clear()
            await self._idle.wait()

    def _end(self) -> None:
        self._has_ended = True
        self._inbox.lose(self)
        for item in self.outbox.lose():
            self._on_result(item)
        self._idle.set()

    async def _read(self, call: Any) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            self._last_received_at = self._loop.time()
            if response.HasField("deliveries"):
                self._on_deliveries(response.deliveries)
            elif response.HasField("revoked"):
                self._inbox.revoke(response.revoked.ack_ids)
            elif response.HasField("lost"):
                self._inbox.lose(self, response.lost.partition)
                self._on_lost()
            elif response.HasField("attached"):
                self._on_attached(response.attached)
            if response.results:
                self._on_results(response.results)

    def _on_attached(self, attached: pb.Attached) -> None:
        config: Mapping[str, str] = attached.config
        self._inbox.order = DeliveryOrder.of(config)
        self._ack_timeout_s = int(config.get("ack_timeout_ms", "0")) / 1000
        self.attached = attached
        self._write_wakeup.set()
        self._on_arrival()

    def _on_deliveries(self, deliveries: pb.Deliveries) -> None:
        partition, epoch, delivery_class = deliveries.partition, deliveries.epoch, self._delivery_class
        deadline = self._last_received_at + self._ack_timeout_s
        created = [delivery_class(self, partition, epoch, raw, deadline) for raw in deliveries.deliveries]
        self._inbox.arrive(partition, epoch, created)
        self._on_arrival()

    def _on_results(self, results: Sequence[pb.Results]) -> None:
        for each in results:
            for item in self.outbox.settle(each):
                self._on_result(item)
        if self.outbox.is_idle:
            self._idle.set()
        self._write_wakeup.set()

    async def _write(self, call: Any) -> None:
        try:
            await call.write(self._attach_parameters.request())
            while not self._is_detaching:
                await self._wait_for_wakeup()
                while (request := self._next_request()) is not None:
                    await call.write(request)
            await call.write(pb.SubscribeRequest(detach=pb.Detach()))
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            pass  # the reader raises the reason

    async def _wait_for_wakeup(self) -> None:
        await self._write_wakeup.wait()
        self._write_wakeup.clear()
        self._wake_pending = False

    async def _watch(self, call: Any) -> None:
        """Request a heartbeat when no response has arrived for a while, and cancel the call when the heartbeat gets
        no response either."""
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
        """The next request, with everything that is ready to be sent and fits; None if nothing is."""
        if self.attached is None:
            return None
        flow = self._next_flow()
        answers = self._next_acknowledgements()
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

    def _next_acknowledgements(self) -> pb.Answers | None:
        if self._heartbeat_due:
            self._heartbeat_due = False
            return self.outbox.heartbeat()
        return self.outbox.next_request()

    def _on_result(self, item: OutboxItem) -> None:
        """Handle the result of a nack, or of an acknowledgement that was not accepted."""
        if item.action is NACK:
            self._inbox.release_behind(item.delivery)
            self._on_arrival()
        if item.acknowledgement.outcome is not Outcome.OK:
            self._on_refused(item)
