"""The `Queue` service: subscriptions, and consumers that receive messages by push."""

import asyncio
from collections.abc import AsyncIterator

from millpond.frontends.rpc.context import Context
from millpond.frontends.rpc.convert import NUMBER_MAX, record_of
from millpond.frontends.rpc.guarding import guarded
from millpond.frontends.rpc.limits import RpcLimits
from millpond.frontends.rpc.memory import ResponseMemory
from millpond.frontends.rpc.rights import (
    READ_SUBSCRIPTION,
    READ_TOPIC,
    SUBSCRIPTION,
    WRITE_DEAD_LETTERS,
    WRITE_TOPIC,
)
from millpond.frontends.rpc.subscribe_stream import ACK_RESULT_CODES, FIELDS_AFTER_ATTACH, SubscribeStream
from millpond.frontends.rpc.subscriptions import config_text, subscription_of, subscription_state
from millpond.model.acls import AclOperation, ResourceType
from millpond.model.errors import InvalidRequest, Stopping
from millpond.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millpond.queues import AckResult, QueueLimits, Queues, StartAt, SubscriptionStart
from millpond.security import Access
from millpond.security.requirements import SEPARATOR, Needs, Shows
from millpond.service import Administration, MessageWriter, NewMessage
from millpond.stubs import queue_pb2 as pb

KEYS_DEFAULT = 10
KEYS_MAX = 1_000
"""Maximum number of keys in a description."""
FAILING_DEFAULT = 10


class QueueService:
    def __init__(
        self,
        queues: Queues,
        administration: Administration,
        messages: MessageWriter,
        response_memory: ResponseMemory,
        limits: RpcLimits,
        queue_limits: QueueLimits,
    ) -> None:
        self._queues = queues
        self._administration = administration
        self._messages = messages
        self._response_memory = response_memory
        self._limits = limits
        self._queue_limits = queue_limits
        self._streams: set[SubscribeStream] = set()
        self._stopping = False

    def stop(self) -> None:
        """Detach consumers gracefully: their acknowledgements are saved, and they receive the results."""
        self._stopping = True
        for stream in list(self._streams):
            stream.stop()

    # -- subscriptions ----------------------------------------------------------------------------------------

    @guarded(READ_SUBSCRIPTION, READ_TOPIC, WRITE_DEAD_LETTERS)
    async def create_subscription(self, request: pb.CreateSubscriptionRequest, _: Context) -> pb.Subscription:
        start, config = _start(request.start), dict(request.config)
        return subscription_of(
            request.topic, await self._queues.create(request.topic, request.name, config, start)
        )

    @guarded(Needs(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, of=SUBSCRIPTION), WRITE_DEAD_LETTERS)
    async def alter_subscription(self, request: pb.AlterSubscriptionRequest, _: Context) -> pb.Subscription:
        altered = await self._queues.alter(request.topic, request.name, dict(request.config))
        return subscription_of(request.topic, altered)

    @guarded(Needs(AclOperation.DELETE, ResourceType.GROUP, of=SUBSCRIPTION))
    async def delete_subscription(
        self, request: pb.DeleteSubscriptionRequest, _: Context
    ) -> pb.DeleteSubscriptionResponse:
        await self._queues.delete(request.topic, request.name)
        return pb.DeleteSubscriptionResponse()

    @guarded(
        Needs(AclOperation.DESCRIBE, ResourceType.TOPIC, of="topic", when=("topic",)),
        Shows(AclOperation.DESCRIBE, ResourceType.GROUP),
    )
    async def list_subscriptions(
        self, request: pb.ListSubscriptionsRequest, context: Context
    ) -> pb.ListSubscriptionsResponse:
        if request.topic:
            found = [(request.topic, each) for each in await self._queues.all_of(request.topic)]
        else:
            found = await self._queues.all()
        shown = [(topic, each) for topic, each in found if _may_describe(context.access, topic, each.name)]
        return pb.ListSubscriptionsResponse(subscriptions=[subscription_of(*each) for each in shown])

    @guarded(READ_SUBSCRIPTION, READ_TOPIC)
    async def reset_subscription(
        self, request: pb.ResetSubscriptionRequest, _: Context
    ) -> pb.ResetSubscriptionResponse:
        await self._queues.reset(request.topic, request.name, _start(request.start))
        return pb.ResetSubscriptionResponse()

    @guarded(READ_SUBSCRIPTION, READ_TOPIC)
    async def unblock(self, request: pb.UnblockRequest, _: Context) -> pb.UnblockResponse:
        return pb.UnblockResponse(unblocked=await self._queues.unblock(request.topic, request.name))

    @guarded(READ_SUBSCRIPTION, READ_TOPIC, WRITE_TOPIC)
    async def redrive_dead_letters(
        self, request: pb.RedriveDeadLettersRequest, _: Context
    ) -> pb.RedriveDeadLettersResponse:
        redriven = await self._queues.redrive(request.topic, request.name, request.messages_max)
        return pb.RedriveDeadLettersResponse(redriven=redriven)

    @guarded(
        Needs(AclOperation.DESCRIBE, ResourceType.GROUP, of=SUBSCRIPTION),
        Needs(AclOperation.DESCRIBE, ResourceType.TOPIC, of="topic"),
    )
    async def describe_subscription(
        self, request: pb.DescribeSubscriptionRequest, _: Context
    ) -> pb.SubscriptionState:
        keys_max = min(request.keys_max or KEYS_DEFAULT, KEYS_MAX)
        failing_max = request.failing_max or FAILING_DEFAULT
        return subscription_state(
            await self._queues.describe(request.topic, request.name, keys_max, failing_max)
        )

    # -- consumers --------------------------------------------------------------------------------------------

    @guarded(
        Needs(AclOperation.READ, ResourceType.GROUP, of=("attach.topic", "attach.subscription")),
        Needs(AclOperation.READ, ResourceType.TOPIC, of="attach.topic"),
        counts=CONSUMER_BYTE_RATE,
    )
    async def subscribe(
        self, requests: AsyncIterator[pb.SubscribeRequest], context: Context
    ) -> AsyncIterator[pb.SubscribeResponse]:
        attach = await self._first(requests)
        if self._stopping:
            raise Stopping
        attachment = await self._queues.attach(attach.topic, attach.subscription, attach.consumer)
        stream = SubscribeStream(self._queues, attachment, attach, self._limits, self._queue_limits)
        self._streams.add(stream)
        context.add_done_callback(lambda: self._end(stream))
        if self._stopping:
            raise Stopping
        yield await self._attached(attach.topic, stream)
        async for response, size in stream.responses(requests):
            with self._response_memory.holding(size), stream.write_deadline():
                yield response
            await context.sent(size)

    def _end(self, stream: SubscribeStream) -> None:
        """Called however the call ends. The detach is not graceful, unless the consumer has already detached."""
        self._streams.discard(stream)
        stream.detach(graceful=False)

    async def _first(self, requests: AsyncIterator[pb.SubscribeRequest]) -> pb.Attach:
        try:
            async with asyncio.timeout(self._limits.attach_ms_max / 1000):
                first = await anext(requests, None)
        except TimeoutError:
            reason = f"the stream sent no request for {self._limits.attach_ms_max} ms"
            raise InvalidRequest(reason=reason) from None
        if first is None or not first.HasField("attach"):
            raise InvalidRequest(reason="the first request of a consumer must attach")
        if any(first.HasField(other) for other in FIELDS_AFTER_ATTACH):
            raise InvalidRequest(reason="the first request of a consumer attaches, and has no other fields")
        return first.attach

    @guarded(
        Needs(AclOperation.READ, ResourceType.GROUP, of=("topic", "subscription")),
        READ_TOPIC,
        Needs(AclOperation.WRITE, ResourceType.TOPIC, of="messages.topic"),
        counts=PRODUCER_BYTE_RATE,
    )
    async def commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        count = len(request.acks)
        if count > self._queue_limits.acks_per_request_max:
            limit = self._queue_limits.acks_per_request_max
            raise InvalidRequest(reason=f"{count} acknowledgements, and {limit} are allowed")
        commit = (request.topic, request.subscription, request.consumer, list(request.acks))
        results = await self._queues.check_commit(*commit)
        if any(each is not AckResult.OK for each in results):  # a refused commit must not create topics
            return pb.CommitResponse(answers=[ACK_RESULT_CODES[each] for each in results])
        new = [_new_message(each) for each in request.messages]
        appends, append_indexes = (
            await self._messages.batches_of(new, access=context.access) if new else ({}, [])
        )
        results, appended = await self._queues.commit(*commit, appends)
        response = pb.CommitResponse(answers=[ACK_RESULT_CODES[each] for each in results])
        for topic_partition, ordinal in append_indexes if appended else ():
            response.numbers.append(appended[topic_partition].base_offset + ordinal + 1)
            response.partitions.append(topic_partition.partition)
        return response

    async def _attached(self, topic: str, stream: SubscribeStream) -> pb.SubscribeResponse:
        found = await self._administration.describe_topic(topic)
        brokers = dict.fromkeys(each.owner.get("grpc", "") for each in found.partitions)
        config = config_text(stream.attachment.subscription)
        return pb.SubscribeResponse(attached=pb.Attached(brokers=filter(None, brokers), config=config))


def _may_describe(access: Access, topic: str, subscription: str) -> bool:
    return access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, f"{topic}{SEPARATOR}{subscription}")


def _new_message(appended: pb.Appended) -> NewMessage:
    partition = appended.partition if appended.HasField("partition") else None
    return NewMessage(appended.topic, partition, record_of(appended.message))


_START = {
    pb.Start.EARLIEST: StartAt.EARLIEST,
    pb.Start.LATEST: StartAt.LATEST,
    pb.Start.NUMBER: StartAt.OFFSET,
    pb.Start.TIME: StartAt.TIME,
}


def _start(start: pb.Start) -> SubscriptionStart:
    at = _START.get(start.at)
    if at is None:
        raise InvalidRequest(reason=f"{start.at} is not a valid start")
    if at is StartAt.OFFSET:
        if not 1 <= start.value <= NUMBER_MAX:
            raise InvalidRequest(reason=f"{start.value} is no message number: they begin at 1")
        return SubscriptionStart(at, start.value - 1)
    if not 0 <= start.value <= NUMBER_MAX:
        raise InvalidRequest(reason=f"{start.value} is no time")
    return SubscriptionStart(at, start.value)
