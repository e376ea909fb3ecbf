"""The Subscribe stream of one consumer: a task reads its requests, and the gRPC call itself writes the responses.

Deliveries in flight to a consumer are limited by its credit and by the broker's own window: unread bytes never
exceed `unread_bytes_max`, whatever credit the consumer grants. Acknowledgements (`Answers` in the schema: acks, nacks
and extends) are processed in order of arrival; their results are sent as they become durable. Runs on the event loop;
state changes only between awaits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from millpond.frontends.rpc.convert import PART_BYTES
from millpond.frontends.rpc.errors import error_message
from millpond.frontends.rpc.limits import RpcLimits
from millpond.model.errors import Defect, InvalidRequest, MillpondError, Stopping, TimedOut
from millpond.queues import AckResult, Attachment, Deliveries, Event, QueueLimits, Queues, Revocation
from millpond.queues.deadletters import is_public
from millpond.queues.deliverer import Delivered
from millpond.queues.dispatcher_results import OK
from millpond.queues.dispatcher_state import CREDIT_MAX
from millpond.stubs import queue_pb2 as pb

VALUE_BYTES_DEFAULT = 256 * 1024
ANSWER_OK: Final = pb.ANSWER_OK
ACK_RESULT_CODES = {
    AckResult.OK: ANSWER_OK,
    AckResult.STALE: pb.ANSWER_STALE,
    AckResult.UNKNOWN: pb.ANSWER_UNKNOWN,
    AckResult.NOT_OWNER: pb.ANSWER_NOT_OWNER,
}
FIELDS_AFTER_ATTACH = ("credit", "answers", "flow", "detach")
LAST_WRITE_S = 1.0
"""Time that a consumer has to read its last results when the broker stops."""
ACK_BYTES = 64
"""Estimated overhead of a delivery."""

SizedResponse = tuple[pb.SubscribeResponse, int]
logger = logging.getLogger(__name__)


class ByteWindow:
    """Decides how much of a consumer's byte credit to pass on to its attachment, so that the bytes in flight exceed
    neither what the consumer has granted nor `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._granted: int | None = None
        """Bytes that the consumer has granted and that are not passed on yet. None if the consumer does not count
        bytes."""
        self._granted_total = 0
        """All bytes passed on so far."""
        self._read_total = 0

    def grant(self, size: int) -> None:
        if size:
            self._granted = (self._granted or 0) + size

    def refund(self, size: int) -> None:
        """Return bytes that were charged to the consumer but not sent to it."""
        if self._granted is not None:
            self._granted += size

    def dispatched(self, left: int) -> int:
        """The total number of bytes that deliveries have used, if `left` of those passed on remain."""
        return self._granted_total - left

    def mark_read(self, dispatched: int) -> None:
        """The consumer has read the deliveries that used the first `dispatched` bytes."""
        self._read_total = dispatched

    def next_grant(self) -> int:
        """Returns the bytes to add to the attachment's credit now."""
        room = self._limit - (self._granted_total - self._read_total)
        more = max(0, room if self._granted is None else min(room, self._granted))
        if self._granted is not None:
            self._granted -= more
        self._granted_total += more
        return more


class SubscribeStream:
    def __init__(
        self,
        queues: Queues,
        attachment: Attachment,
        attach: pb.Attach,
        limits: RpcLimits,
        queue_limits: QueueLimits,
    ) -> None:
        self.attachment = attachment
        self._queues = queues
        self._limits = limits
        self._queue_limits = queue_limits
        self._value_bytes_max = -1 if attach.metadata_only else attach.value_bytes_max or VALUE_BYTES_DEFAULT
        self._window = ByteWindow(limits.unread_bytes_max)
        attachment.consumer_credit.add(0, 0)  # the window needs bytes counted, even if the consumer does not
        self._room = asyncio.Semaphore(limits.acks_in_progress_max)
        self._acknowledging: set[asyncio.Task[None]] = set()
        self._results: list[pb.Results] = []
        self._writing: asyncio.Task[object] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._failure: MillpondError | None = None
        self._detached = False

    def detach(self, *, graceful: bool, error: MillpondError | None = None) -> None:
        """Detach the consumer and stop reading; only the first call has an effect. `error` is what the
        consumer receives."""
        if not self._detached:
            self._detached = True
            self._failure = error
            self._queues.detach(self.attachment, graceful=graceful)
            self.attachment.wake()
        if self._reading is not None:
            self._reading.cancel()

    # -- responses ------------------------------------------------------------------------------------------------

    async def responses(self, requests: AsyncIterator[pb.SubscribeRequest]) -> AsyncIterator[SizedResponse]:
        """Yields responses until either side ends the stream. Results of earlier acknowledgements are still sent."""
        if not self._detached:
            self._reading = asyncio.create_task(self._read(requests))
        while not self._detached:
            events: Sequence[Event] = ()
            try:
                events = await self.attachment.take()
            except MillpondError as error:
                self.detach(graceful=True, error=error)
            dispatched = self._window.dispatched(self.attachment.consumer_credit.bytes)
            for response in self._responses_to(events):
                yield response
            self._window.mark_read(dispatched)
            self._refill()
        while self._acknowledging or self._results:
            if not self._results:
                await asyncio.wait(self._acknowledging, return_when=asyncio.FIRST_COMPLETED)
            for response in self._responses_to(()):
                yield response
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def write_deadline(self) -> Iterator[None]:
        """Wraps a write. A consumer that blocks a write for too long is detached; it gets the error when it
        reads again."""
        self._writing = asyncio.current_task()
        alarm = asyncio.get_running_loop().call_later(self._limits.write_ms_max / 1000, self._detach_stalled)
        try:
            yield
        finally:
            alarm.cancel()
            self._writing = None

    def _detach_stalled(self) -> None:
        name, limit_ms = self.attachment.name, self._limits.write_ms_max
        logger.warning(
            "consumer idle; detaching",
            extra={
                "topic": self.attachment.topic,
                "subscription": self.attachment.subscription.name,
                "consumer": name,
                "timeout_ms": limit_ms,
            },
        )
        error = TimedOut(f"Consumer {name!r} read nothing for {limit_ms} ms.", timeout_ms=limit_ms)
        self.detach(graceful=False, error=error)

    def stop(self) -> None:
        """The broker stops: results of acknowledgements are still sent, if the consumer reads them."""
        self.detach(graceful=True, error=Stopping())
        asyncio.get_running_loop().call_later(LAST_WRITE_S, self._cancel_write)

    def _cancel_write(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    def _responses_to(self, events: Sequence[Event]) -> Iterator[SizedResponse]:
        """The responses for these events, with the results that are ready. Events come first: a consumer that
        receives a STALE result must already know what was revoked. Results are added to the last event's response,
        because each response is expensive."""
        results, self._results = self._results, []
        last: SizedResponse | None = None
        for sized in self._event_responses(events) if not self._detached else ():
            if last is not None:
                yield last
            last = sized
        if results:
            response, size = last or (pb.SubscribeResponse(), 0)
            response.results.extend(results)
            last = response, size + sum(PART_BYTES + len(each.answers) for each in results)
        if last is not None:
            yield last
        for _ in results:
            self._room.release()  # not earlier: too many unread results must stop the reading of requests

    def _event_responses(self, events: Sequence[Event]) -> Iterator[SizedResponse]:
        for event in events:
            if isinstance(event, Deliveries):
                yield from self._deliveries(event)
            elif isinstance(event, Revocation):
                revoked = pb.Revoked(partition=event.partition, ack_ids=event.ack_ids)
                yield pb.SubscribeResponse(revoked=revoked), ACK_BYTES * len(event.ack_ids)
            else:
                error = error_message(event.error, self._limits.retry_after_ms)
                lost = pb.PartitionLost(partition=event.partition, error=error)
                yield pb.SubscribeResponse(lost=lost), PART_BYTES

    def _deliveries(self, event: Deliveries) -> Iterator[SizedResponse]:
        """Split deliveries into as few responses as the limits allow."""
        count_max, bytes_max = self._limits.deliveries_per_response_max, self._limits.delivery_response_bytes
        response, size, count = _empty_response(event), 0, 0
        for ack_id, delivered in event.deliveries:
            size += self._add(response.deliveries, ack_id, delivered)
            count += 1
            if count >= count_max or size >= bytes_max:
                yield response, size
                response, size, count = _empty_response(event), 0, 0
        if count:
            yield response, size

    def _add(self, into: pb.Deliveries, ack_id: bytes, delivered: Delivered) -> int:
        (offset, _, attempts, _), record = delivered
        key, value = record.key, record.value
        size = len(value) if value is not None else 0
        is_omitted = size > self._value_bytes_max and value is not None
        if is_omitted:
            self._window.refund(size)
            value, size = None, 0
        delivery = into.deliveries.add(
            ack_id=ack_id, number=offset + 1, key=key, value=value, timestamp_ms=record.timestamp
        )
        if attempts:
            delivery.retry_count = attempts
        if is_omitted:
            delivery.value_omitted = True
        if record.headers:
            size += self._add_headers(delivery, record.headers)
        return size + ACK_BYTES if key is None else size + ACK_BYTES + len(key)

    def _add_headers(self, delivery: pb.Delivery, headers: Sequence[tuple[str, bytes | None]]) -> int:
        size = 0
        for name, value in headers:
            header_bytes = len(name) + len(value or b"")
            if is_public(name):
                delivery.headers.add(name=name, value=value)
                size += header_bytes + PART_BYTES
            else:
                self._window.refund(header_bytes)
        return size

    def _refill(self) -> None:
        """Add to the attachment's credit when half of it is used, not more often: each time wakes up every
        partition."""
        if not self._detached and self.attachment.consumer_credit.bytes * 2 < self._limits.unread_bytes_max:
            more = self._window.next_grant()
            if more:
                self.attachment.grant(0, more)

    # -- requests -------------------------------------------------------------------------------------------------

    async def _read(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        graceful, failure = False, None
        try:
            async for request in requests:
                await self._handle_request(request)
                if request.HasField("detach"):
                    await asyncio.sleep(0)  # acknowledgements in the same request are processed first
                    graceful = True
                    return
        except MillpondError as error:
            failure = error
        finally:
            self._reading = None
            self.detach(graceful=graceful, error=failure)

    async def _handle_request(self, request: pb.SubscribeRequest) -> None:
        if request.HasField("attach") or not any(map(request.HasField, FIELDS_AFTER_ATTACH)):
            raise InvalidRequest(
                reason="only the first request of a stream attaches, and each later one needs a field"
            )
        if request.HasField("flow"):
            self.attachment.pause(paused=request.flow.paused)
        if request.HasField("credit"):
            self._grant(request.credit)
        if request.HasField("answers"):
            answers, limit = request.answers, self._queue_limits.acks_per_request_max
            count = len(answers.acks) + len(answers.nacks) + len(answers.extends)
            if count > limit:
                raise InvalidRequest(
                    reason=f"{count} acknowledgements in one request, and {limit} are allowed"
                )
            if answers.nack_reasons and len(answers.nack_reasons) != len(answers.nacks):
                raise InvalidRequest(
                    reason=f"{len(answers.nack_reasons)} reasons for {len(answers.nacks)} nacks"
                )
            await self._room.acquire()
            acknowledging = asyncio.create_task(self._acknowledge(answers))
            self._acknowledging.add(acknowledging)
            acknowledging.add_done_callback(self._on_acknowledged)

    def _grant(self, credit: pb.Credit) -> None:
        if self.attachment.consumer_credit.messages + credit.messages > CREDIT_MAX:
            raise InvalidRequest(reason=f"credit for more than {CREDIT_MAX} messages")
        self._window.grant(credit.bytes)
        self.attachment.grant(credit.messages, self._window.next_grant())

    async def _acknowledge(self, answers: pb.Answers) -> None:
        delay_ms = answers.nack_delay_ms if answers.HasField("nack_delay_ms") else None
        found = await self.attachment.acknowledge(
            answers.acks,
            answers.nacks,
            answers.extends,
            cumulative=answers.cumulative,
            delay_ms=delay_ms,
            by_ms=answers.extend_ms,
            reasons=answers.nack_reasons,
        )
        codes = [ANSWER_OK if each is OK else ACK_RESULT_CODES[each] for each in found]
        results = pb.Results(request=answers.request, answers=codes)
        self._results.append(results)
        self.attachment.wake()

    def _on_acknowledged(self, acknowledging: "asyncio.Task[None]") -> None:
        self._acknowledging.discard(acknowledging)
        if not acknowledging.cancelled() and (error := acknowledging.exception()) is not None:
            logger.error(
                "unexpected error in acknowledgements; detaching consumer",
                exc_info=error,
                extra={
                    "topic": self.attachment.topic,
                    "subscription": self.attachment.subscription.name,
                    "consumer": self.attachment.name,
                    "error": error,
                },
            )
            self.detach(graceful=True, error=Defect(reason="see the broker's log"))


def _empty_response(event: Deliveries) -> pb.SubscribeResponse:
    return pb.SubscribeResponse(deliveries=pb.Deliveries(partition=event.partition, epoch=event.epoch))
