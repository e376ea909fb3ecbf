"""ShareFetch (78), v1-2: a member of a share group acknowledges messages and acquires others (KIP-932).

Epoch 0 opens the share session of a member on this broker, or replaces it, and acknowledges nothing; each further
request has the next epoch, and -1 closes the session, after its acknowledgements. Closing it and losing the connection
release the member's locks; these deliveries count. Neither membership nor assignment is checked, as in Kafka. A batch
may hold messages that are not acquired; AcquiredRecords says which are. A partition with acknowledgements is always in
the response, others only with messages or an error. BatchSize is a hint that is not used, and MaxRecords is never
exceeded, in either ShareAcquireMode. v2 renews locks, in a request that fetches nothing.

A partition in which the group has no state gets UNKNOWN_SERVER_ERROR, as in Kafka: clients ask again. A session that is
refused because there are too many is answered after MaxWaitMs.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import (
    REFUSALS,
    KafkaError,
    KafkaRefusal,
    code_and_message,
    code_of,
)
from millpond.frontends.kafka.registry import handles_pipelined
from millpond.frontends.kafka.rights import READ_GROUP, READ_TOPIC
from millpond.frontends.kafka.share_batches import acquired_records, batches_of
from millpond.frontends.kafka.share_delivery import (
    Acknowledgements,
    PendingAcks,
    Refused,
    ServedPartitions,
    acknowledgements_of,
    end_session,
    member_name,
    partition_code,
)
from millpond.frontends.kafka.share_sessions import FINAL_EPOCH, OPENING_EPOCH, ShareSession
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.quotas import CONSUMER_BYTE_RATE
from millpond.protocol import ErrorCode, Response
from millpond.protocol.messages import share_fetch as wire
from millpond.queues import MemberName, QueueDelivery

NO_STATE = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the share group has no state in this partition")
MAY_WAIT = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors of partitions that end by themselves: the request waits for messages of the others."""
LOCK_PARTS: Final = 10
"""The part of a lock's time that may pass while the request waits for MinBytes: one in 10. The rest is the member's."""


@dataclass(slots=True)
class AcquiredHere:
    """What a request has acquired in one partition."""

    epoch: int | None
    """That of the queue."""
    deliveries: list[QueueDelivery] = field(default_factory=list)


@dataclass(slots=True)
class ShareFetch:
    """A request in progress."""

    name: MemberName
    request: wire.ShareFetchRequest
    partitions: Sequence[TopicPartition]
    """Those of the session."""
    session: ShareSession
    acks: Acknowledgements
    served: ServedPartitions
    pending: PendingAcks
    bytes_max: int
    throttle_time_ms: int = 0
    turns: Turns = field(default_factory=Turns)
    acquired: dict[TopicPartition, AcquiredHere] = field(default_factory=dict)

    @property
    def fetches(self) -> bool:
        """Not with all limits 0, and a request that closes the session or renews locks."""
        request = self.request
        return (
            request.share_session_epoch != FINAL_EPOCH
            and not request.is_renew_ack
            and request.max_records > 0
            and self.bytes_max > 0
        )


@handles_pipelined(wire.ShareFetchRequest, rights=(READ_GROUP, READ_TOPIC))
async def share_fetch(call: KafkaCall, request: wire.ShareFetchRequest) -> Awaitable[Response | None]:
    try:
        begun = await _begin(call, request)
    except REFUSALS as error:
        return _refused(call, request, error)
    return _respond(call, begun)


async def _begin(call: KafkaCall, request: wire.ShareFetchRequest) -> ShareFetch:
    """Everything that must happen in the order of requests: the step of the session, and acknowledgements."""
    name = member_name(call, request.group_id, request.member_id)
    _check_renewal(request)
    await call.ensure_known(READ_TOPIC, ids=(topic.topic_id for topic in request.topics))
    acks = await acknowledgements_of(request.topics)
    forgotten = [
        TopicPartition(TopicId(topic.topic_id), number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    sessions = call.services.share_sessions
    partitions = sessions.fetch(
        name,
        request.share_session_epoch,
        acks,
        forgotten,
        call.authentication,
        acknowledges=any(acks.values()),
    )
    served, consumers = ServedPartitions(call), call.services.share_consumers
    begun = ShareFetch(name, request, partitions, sessions.find(name), acks, served, PendingAcks(), 0)
    begun.bytes_max, begun.throttle_time_ms = _bytes_max(call, request)
    consumers.pause(name, forgotten)
    if request.share_session_epoch == OPENING_EPOCH:
        consumers.begin_session(name, acks)
    if request.share_session_epoch != FINAL_EPOCH:
        consumers.resume(name, acks)  # also if it fetches nothing: it has added them to the session
    await begun.pending.apply(call, name, acks, served, is_renew_ack=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        end_session(call, name)
    elif begun.fetches:
        await _attach(call, begun)
    return begun


def _check_renewal(request: wire.ShareFetchRequest) -> None:
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(limits):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that renews locks has all limits 0")


def _bytes_max(call: KafkaCall, request: wire.ShareFetchRequest) -> tuple[int, int]:
    """How many bytes the client may receive now, and how long it must wait before its next request."""
    quotas, limit = call.services.security.quotas, call.services.limits.fetch_bytes_max
    bytes_max = min(request.max_bytes, limit)
    if not quotas.is_active:
        return bytes_max, 0
    client = (call.access.principal, call.client_id)
    if (delay_ms := quotas.delay_ms(CONSUMER_BYTE_RATE, *client)) > 0:
        return 0, delay_ms
    allowed = quotas.response_bytes_max(*client)
    return (bytes_max if allowed is None else min(bytes_max, allowed)), 0


async def _attach(call: KafkaCall, begun: ShareFetch) -> None:
    served = begun.served
    wanted = [each async for each in begun.turns.over(begun.partitions) if served.check(each)]
    if not call.services.share_sessions.is_current(begun.name, begun.session):
        return  # the connection was lost between two turns; nothing would release what is attached now
    try:
        without = await call.services.share_consumers.attach(begun.name, wanted)
    except MillpondError as error:
        served.refused.update(dict.fromkeys(wanted, Refused(code_of(error), str(error))))
        return
    served.refused.update({each: NO_STATE for each in wanted if each.topic_id in without})


async def _respond(call: KafkaCall, begun: ShareFetch) -> wire.ShareFetchResponse:
    if begun.fetches:
        await _acquire(call, begun)
    parts: dict[TopicPartition, wire.SharePartitionData] = {}
    for each, acquired in begun.acquired.items():
        part = await _with_records(call, begun, each, acquired)
        if part is not None:
            parts[each] = part
    codes = await begun.pending.results()
    is_first = begun.request.share_session_epoch == OPENING_EPOCH
    async for each in begun.turns.over((*begun.partitions, *begun.acks)):
        if each not in parts and (is_first or each in begun.acks or each in begun.served.refused):
            parts[each] = wire.SharePartitionData(partition_index=each.partition)
    async for each, part in begun.turns.over(parts.items()):
        _complete(begun, each, part, codes.get(each, ErrorCode.NONE))
    return _response(call, begun, parts)


async def _acquire(call: KafkaCall, begun: ShareFetch) -> None:
    """Acquire messages, and wait for the first ones until MaxWaitMs. What arrives before MinBytes have is kept, unless
    the session ends or is replaced meanwhile: its client reads no response."""
    request, consumers, loop = begun.request, call.services.share_consumers, asyncio.get_running_loop()
    sessions = call.services.share_sessions
    served = [each for each in begun.partitions if each not in begun.served.refused]
    partitions = begun.session.rotated(served)
    must_answer = any(partition_code(each.code) not in MAY_WAIT for each in begun.served.refused.values())
    wait_ms = 0 if must_answer else max(0, min(request.max_wait_ms, call.services.limits.fetch_wait_ms_max))
    deadline, version = loop.time() + wait_ms / 1000, call.services.security.version
    messages_left, bytes_left = request.max_records, begun.bytes_max
    hold_s, is_held = consumers.config(begun.name.group_id).record_lock_ms / 1000 / LOCK_PARTS, False
    enough = begun.bytes_max - min(request.min_bytes, begun.bytes_max)
    with consumers.waiting(begun.name, partitions) as available:
        while True:
            available.clear()
            for each in partitions:
                if messages_left <= 0 or bytes_left <= 0:
                    break
                await begun.turns.step()
                if not sessions.is_current(begun.name, begun.session):
                    break
                deliveries, size = consumers.acquire(begun.name, each, messages_left, bytes_left)
                if deliveries:
                    _keep(call, begun, each, deliveries)
                    messages_left -= len(deliveries)
                    bytes_left -= size
            if not sessions.is_current(begun.name, begun.session):
                _give_back(call, begun)
                return
            is_full = messages_left <= 0 or bytes_left <= 0
            if begun.acquired and not is_held:
                is_held, deadline = True, min(deadline, loop.time() + hold_s)
            left_s = deadline - loop.time()
            if is_full or left_s <= 0 or (begun.acquired and bytes_left <= enough):
                break
            try:
                async with asyncio.timeout(left_s):
                    await available.wait()
            except TimeoutError:
                pass
    if call.services.security.version != version:  # rights may have ended while it waited
        _give_back_refused(call, begun)


def _keep(
    call: KafkaCall, begun: ShareFetch, topic_partition: TopicPartition, deliveries: Sequence[QueueDelivery]
) -> None:
    epoch = call.services.share_consumers.epoch(begun.name, topic_partition)
    acquired = begun.acquired.get(topic_partition)
    if acquired is None or acquired.epoch != epoch:  # the queue has restarted, which ends its locks
        acquired = begun.acquired[topic_partition] = AcquiredHere(epoch)
    acquired.deliveries.extend(deliveries)


def _restore(
    call: KafkaCall,
    begun: ShareFetch,
    topic_partition: TopicPartition,
    epoch: int | None,
    deliveries: Sequence[QueueDelivery],
) -> None:
    consumers = call.services.share_consumers
    held = consumers.still_held(begun.name, topic_partition, epoch, deliveries)
    consumers.restore(begun.name, topic_partition, held)


def _give_back(call: KafkaCall, begun: ShareFetch) -> None:
    for each, acquired in begun.acquired.items():
        _restore(call, begun, each, acquired.epoch, acquired.deliveries)
    begun.acquired.clear()


def _give_back_refused(call: KafkaCall, begun: ShareFetch) -> None:
    may_read = call.allows(READ_GROUP, begun.name.group_id)
    for each in list(begun.acquired):
        if not may_read:
            begun.served.refused[each] = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
        if not may_read or not begun.served.check(each):
            acquired = begun.acquired.pop(each)
            _restore(call, begun, each, acquired.epoch, acquired.deliveries)


async def _with_records(
    call: KafkaCall, begun: ShareFetch, topic_partition: TopicPartition, acquired: AcquiredHere
) -> wire.SharePartitionData | None:
    """None if the locks of all messages have ended while the request waited."""
    consumers, epoch = call.services.share_consumers, acquired.epoch
    deliveries = consumers.still_held(begun.name, topic_partition, epoch, acquired.deliveries)
    if not deliveries:
        return None
    deliveries.sort()
    found = await batches_of(call.log, topic_partition, deliveries)
    if found.lost:
        _restore(call, begun, topic_partition, epoch, found.lost)
        lost = set(found.lost)
        deliveries = [each for each in deliveries if each not in lost]
        if found.error is not None and not deliveries:
            begun.served.refused[topic_partition] = Refused(code_of(found.error), str(found.error))
    return wire.SharePartitionData(
        partition_index=topic_partition.partition,
        records=found.buffers,
        acquired_records=acquired_records(deliveries),
    )


def _complete(
    begun: ShareFetch, topic_partition: TopicPartition, part: wire.SharePartitionData, ack_code: ErrorCode
) -> None:
    """Add the errors of the partition, and who owns it instead."""
    refused = begun.served.refused.get(topic_partition)
    if refused is not None and begun.fetches:
        part.error_code, part.error_message = partition_code(refused.code), refused.message
    part.acknowledge_error_code = ack_code
    part.current_leader = begun.served.leader(topic_partition, ErrorCode(part.error_code or ack_code))


def _response(
    call: KafkaCall, begun: ShareFetch, parts: dict[TopicPartition, wire.SharePartitionData]
) -> wire.ShareFetchResponse:
    topics: defaultdict[bytes, list[wire.SharePartitionData]] = defaultdict(list)
    for topic_partition, part in parts.items():
        topics[topic_partition.topic_id].append(part)
    return wire.ShareFetchResponse(
        throttle_time_ms=begun.throttle_time_ms,
        acquisition_lock_timeout_ms=call.services.share_consumers.config(begun.name.group_id).record_lock_ms,
        responses=[
            wire.ShareFetchableTopicResponse(topic_id=topic_id, partitions=found)
            for topic_id, found in topics.items()
        ],
        node_endpoints=begun.served.endpoints(part.current_leader for part in parts.values()),
    )


async def _refused(
    call: KafkaCall, request: wire.ShareFetchRequest, error: KafkaRefusal
) -> wire.ShareFetchResponse:
    code, message = code_and_message(error)
    if code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        await asyncio.sleep(max(0, min(request.max_wait_ms, call.services.limits.fetch_wait_ms_max)) / 1000)
    return wire.ShareFetchResponse(error_code=code, error_message=message)
