"""The `Log` service: produce, poll and consume."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace

from millpond.frontends.rpc.context import Context
from millpond.frontends.rpc.convert import (
    BYTES_DEFAULT,
    MESSAGES_DEFAULT,
    poll_request,
    poll_response,
    positions_of,
    produced,
    record_of,
    size_of,
)
from millpond.frontends.rpc.errors import error_message
from millpond.frontends.rpc.guarding import guarded
from millpond.frontends.rpc.limits import RpcLimits
from millpond.frontends.rpc.memory import ResponseMemory
from millpond.frontends.rpc.ordered_results import OrderedResults
from millpond.frontends.rpc.rights import READ_TOPIC, WRITE_TOPIC
from millpond.log import AppendResult, Transactions
from millpond.model.acls import AclOperation, ResourceType
from millpond.model.errors import InvalidRequest, MillpondError, NotAuthorized, Stopping
from millpond.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millpond.records import read_header
from millpond.security import Access
from millpond.security.requirements import AnyOf, Needs, NeedsSomewhere
from millpond.security.throttling import response_bytes_max
from millpond.service import OLDEST, MessageWriter, Poller, PollRequest, PollResult, StoredMessage
from millpond.stubs import log_pb2

FOLLOW_WAIT_MS = 5_000
"""Maximum wait of one poll while following a topic; after it the stream checks for new partitions."""

ProduceOutcome = Awaitable[log_pb2.ProduceResponse] | MillpondError


class LogService:
    def __init__(
        self,
        messages: MessageWriter,
        poller: Poller,
        transactions: Transactions,
        response_memory: ResponseMemory,
        limits: RpcLimits,
    ) -> None:
        self._messages = messages
        self._poller = poller
        self._transactions = transactions
        self._limits = limits
        self._response_memory = response_memory
        self._stopping = False
        self._streams: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Stop reading streams; requests already read still get their responses."""
        self._stopping = True
        for reading in self._streams:
            reading.cancel()

    # -- produce --------------------------------------------------------------------------------------------------

    @guarded(WRITE_TOPIC, counts=PRODUCER_BYTE_RATE)
    async def produce(self, request: log_pb2.ProduceRequest, context: Context) -> log_pb2.ProduceResponse:
        return await (await self._submit(request, context.access))

    @guarded(WRITE_TOPIC, per_request=True, counts=PRODUCER_BYTE_RATE)
    async def produce_stream(
        self, requests: AsyncIterator[log_pb2.ProduceRequest], context: Context
    ) -> AsyncIterator[log_pb2.ProduceStreamResponse]:
        """One task reads and submits requests in order; this one sends results in order, all that are ready
        per response."""
        results: OrderedResults[log_pb2.ProduceResult] = OrderedResults(self._limits.stream_requests_max)
        reading = asyncio.create_task(self._read_stream(requests, results, context.access))
        self._streams.add(reading)
        reading.add_done_callback(self._streams.discard)
        try:
            while taken := await results.take(self._limits.results_per_response_max):
                yield log_pb2.ProduceStreamResponse(results=taken)
            await asyncio.wait([reading])
        finally:
            reading.cancel()
        if self._stopping:
            raise Stopping
        reading.result()

    @guarded(
        AnyOf(
            Needs(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
            NeedsSomewhere(AclOperation.WRITE, ResourceType.TOPIC),
        )
    )
    async def init_producer(
        self, _: log_pb2.InitProducerRequest, __: Context
    ) -> log_pb2.InitProducerResponse:
        return log_pb2.InitProducerResponse(producer_id=await self._transactions.new_producer_id())

    async def _read_stream(
        self,
        requests: AsyncIterator[log_pb2.ProduceRequest],
        results: OrderedResults[log_pb2.ProduceResult],
        access: Access,
    ) -> None:
        try:
            while (outcome := await self._next_outcome(requests, access)) is not None:
                await results.put(asyncio.ensure_future(self._result(outcome)))
        finally:
            results.end()

    async def _next_outcome(
        self, requests: AsyncIterator[log_pb2.ProduceRequest], access: Access
    ) -> ProduceOutcome | None:
        """None at the end of the stream. A request to a topic that the client may not write to is refused like any
        other wrong request, and the stream continues."""
        try:
            request = await anext(requests)
        except StopAsyncIteration:
            return None
        except NotAuthorized as error:
            return error
        try:
            return await self._submit(request, access)
        except MillpondError as error:
            return error

    async def _submit(
        self, request: log_pb2.ProduceRequest, access: Access
    ) -> Awaitable[log_pb2.ProduceResponse]:
        """Submit a request. When this returns, its place in the order of appends is fixed."""
        if self._stopping:
            raise Stopping
        partition = request.partition if request.HasField("partition") else None
        if request.batch:
            return await self._submit_batch(request, partition, access)
        self._messages.check_count(len(request.messages))
        records = [record_of(message) for message in request.messages]
        return _produced(await self._messages.submit(request.topic, records, partition, access=access))

    async def _submit_batch(
        self, request: log_pb2.ProduceRequest, partition: int | None, access: Access
    ) -> Awaitable[log_pb2.ProduceResponse]:
        if partition is None or request.messages:
            raise InvalidRequest(reason="a batch needs a partition, and no messages beside it")
        header = read_header(request.batch)
        if header.is_transactional or header.is_control:
            raise InvalidRequest(reason="transactional batches are taken over the Kafka protocol only")
        appending = await self._messages.submit_batch(request.topic, partition, request.batch, access=access)
        return _appended(appending, partition)

    async def _result(self, outcome: ProduceOutcome) -> log_pb2.ProduceResult:
        try:
            if isinstance(outcome, MillpondError):
                raise outcome
            return log_pb2.ProduceResult(produced=await outcome)
        except MillpondError as error:
            return log_pb2.ProduceResult(error=error_message(error, self._limits.retry_after_ms))

    # -- consume --------------------------------------------------------------------------------------------------

    @guarded(READ_TOPIC, waits=True, counts=CONSUMER_BYTE_RATE)
    async def poll(self, request: log_pb2.PollRequest, context: Context) -> log_pb2.PollResponse:
        polled = await self._poll(poll_request(request), context.access, as_batches=request.as_batches)
        self._response_memory.hold_until_sent(size_of(polled), context)
        return poll_response(polled)

    @guarded(READ_TOPIC, counts=CONSUMER_BYTE_RATE)
    async def consume(
        self, request: log_pb2.ConsumeRequest, context: Context
    ) -> AsyncIterator[log_pb2.PollResponse]:
        """Sends a response as soon as there are messages, and the first one immediately, so that a reader
        knows its positions."""
        following = _consume_request(request)
        polled = await self._poll(
            replace(following, wait_ms=0), context.access, as_batches=request.as_batches
        )
        ends = {each.partition: each.end_offset for each in polled.read_positions}
        with self._response_memory.holding(size_of(polled)):
            yield poll_response(polled)
        await context.sent(size_of(polled))
        while not (request.until_end and _reached(polled, ends)):
            positions = _positions(polled)
            if not request.positions and not request.until_end:
                positions = self._with_new_partitions(request.topic, positions)
            following = replace(following, positions=positions, topic_id=polled.topic_id)
            polled = await self._poll(following, context.access, as_batches=request.as_batches)
            if polled.records or polled.batches:
                with self._response_memory.holding(size_of(polled)):
                    yield poll_response(polled)
                await context.sent(size_of(polled))

    def _with_new_partitions(self, topic: str, positions: dict[int, int]) -> dict[int, int]:
        """A reader of the whole topic also reads partitions that are added later."""
        return {**dict.fromkeys(range(self._poller.partitions(topic)), OLDEST), **positions}

    async def _poll(self, request: PollRequest, access: Access, *, as_batches: bool) -> PollResult:
        room = response_bytes_max(access, self._response_memory.room(request.bytes_max))
        poll = self._poller.poll_batches if as_batches else self._poller.poll
        with self._response_memory.holding(
            0 if request.wait_ms else room
        ):  # a waiting poll holds no data yet
            return await poll(replace(request, bytes_max=room))


def _consume_request(request: log_pb2.ConsumeRequest) -> PollRequest:
    return PollRequest(
        topic=request.topic,
        positions=positions_of(request.positions),
        messages_max=request.messages_max or MESSAGES_DEFAULT,
        bytes_max=request.bytes_max or BYTES_DEFAULT,
        wait_ms=FOLLOW_WAIT_MS,
        strict=request.strict,
        committed=not request.uncommitted,
    )


def _positions(polled: PollResult) -> dict[int, int]:
    return {each.partition: each.next_offset for each in polled.read_positions}


def _reached(polled: PollResult, ends: dict[int, int]) -> bool:
    """A position below the oldest message counts as the oldest: there are no messages in between."""
    return all(
        max(each.next_offset, each.log_start) >= ends[each.partition] for each in polled.read_positions
    )


async def _produced(appending: Awaitable[list[StoredMessage]]) -> log_pb2.ProduceResponse:
    return produced(await appending)


async def _appended(appending: "asyncio.Future[AppendResult]", partition: int) -> log_pb2.ProduceResponse:
    return produced([StoredMessage(partition, (await appending).base_offset, -1)])
