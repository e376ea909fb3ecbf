"""Streams of clients that lose their rights or their credential: they end, and nothing more is delivered."""

import asyncio

import grpc
import pytest
from tests.unit.frontends.rpc.wire import Wire
from tests.unit.frontends.secured import SUBSCRIPTION, TOPIC, secured_broker

from millpond.records import Record
from millpond.security import OPEN_ACCESS
from millpond.stubs import log_pb2, queue_pb2
from millpond.testing import SimulatedClock

DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
RIGHTS = [f"READ T {TOPIC}", f"READ G {TOPIC}/{SUBSCRIPTION}", f"WRITE T {TOPIC}"]
ATTACH = queue_pb2.SubscribeRequest(
    attach=queue_pb2.Attach(topic=TOPIC, subscription=SUBSCRIPTION, consumer="c")
)
CREDIT = queue_pb2.SubscribeRequest(credit=queue_pb2.Credit(messages=10))
ONE = log_pb2.NewMessage(value=b"x")


@pytest.fixture
async def secured():
    async with secured_broker(grpc=True) as running:
        yield running


@pytest.fixture
async def wire(secured):
    async with grpc.aio.insecure_channel(secured.broker.listeners["grpc"]) as channel:
        yield Wire(channel)


@pytest.fixture
async def metadata(secured):
    return [("authorization", await secured.user(*RIGHTS, name="reader"))]


def sweep(secured):
    secured.broker.interfaces.rpc.guards.streams.sweep()


async def lose(secured, how):
    await (secured.revoke("reader") if how is UNAUTHENTICATED else secured.deny_all("reader"))


def attachments(secured):
    return [
        each
        for active in secured.broker.queues._active_subscriptions.all()
        for each in active.attachments.values()
    ]


async def consuming(wire, metadata):
    """A stream that has read what there is, and waits."""
    call = wire("Log.Consume", log_pb2.ConsumeRequest(topic=TOPIC), metadata=metadata)
    assert [each.value for each in (await call.read()).messages] == [b"first"]
    return call


async def subscribed(wire, metadata):
    call = wire("Queue.Subscribe", metadata=metadata)
    await call.write(ATTACH)
    assert (await call.read()).HasField("attached")
    return call


@pytest.mark.parametrize("how", [UNAUTHENTICATED, DENIED])
@pytest.mark.parametrize("begin", [consuming, subscribed])
async def test_a_sweep_ends_a_stream_that_waits(secured, wire, metadata, begin, how):
    call = await begin(wire, metadata)
    sweep(secured)
    await lose(secured, how)
    sweep(secured)
    assert await call.code() is how


async def test_a_consumer_that_has_lost_its_rights_is_detached(secured, wire, metadata):
    call = await subscribed(wire, metadata)
    assert len(attachments(secured)) == 1
    await lose(secured, DENIED)
    sweep(secured)
    assert await call.code() is DENIED
    async with asyncio.timeout(60):  # the client has its response before the broker has finished
        while attachments(secured):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", [UNAUTHENTICATED, DENIED])
async def test_a_stream_delivers_nothing_that_arrives_after_its_client_has_lost_its_rights(
    secured, wire, metadata, how
):
    call = await consuming(wire, metadata)
    await lose(secured, how)
    await secured.broker.messages.produce(TOPIC, [Record(value=b"secret")], access=OPEN_ACCESS)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is how


@pytest.mark.parametrize("how", [UNAUTHENTICATED, DENIED])
async def test_every_request_of_a_consumer_is_checked(secured, wire, metadata, how):
    """An ack id or a credit proves nothing."""
    call = await subscribed(wire, metadata)
    await lose(secured, how)
    await call.write(CREDIT)
    assert await call.code() is how


async def test_a_consumer_cannot_attach_to_another_subscription_later(secured, wire, metadata):
    call = await subscribed(wire, metadata)
    other = queue_pb2.Attach(topic=TOPIC, subscription="other", consumer="c")
    await call.write(queue_pb2.SubscribeRequest(attach=other))
    assert await call.code() is DENIED


async def test_a_poll_that_waits_returns_nothing_when_the_rights_have_ended(secured, wire, metadata):
    positions = [log_pb2.Position(partition=0, read_from=2)]
    request = log_pb2.PollRequest(topic=TOPIC, positions=positions, wait_ms=20_000)
    poller, waits = secured.broker.poller, asyncio.Event()
    poll = poller.poll

    async def noticed(request):
        waits.set()
        return await poll(request)

    poller.poll = noticed
    call = wire("Log.Poll", request, metadata=metadata)
    await waits.wait()
    await lose(secured, DENIED)
    await secured.broker.messages.produce(TOPIC, [Record(value=b"secret")], access=OPEN_ACCESS)
    assert await call.code() is DENIED


async def test_a_refused_request_does_not_end_a_stream_of_a_producer(wire, metadata):
    call = wire("Log.ProduceStream", metadata=metadata)
    for topic in (TOPIC, "other", TOPIC):
        await call.write(log_pb2.ProduceRequest(topic=topic, messages=[ONE]))
    await call.done_writing()
    results = [result async for response in call for result in response.results]
    assert [each.error.reason for each in results] == ["", "TOPIC_NOT_AUTHORIZED", ""]
    assert [list(each.produced.numbers) for each in results] == [[2], [], [3]]


async def test_a_producer_that_has_lost_a_right_keeps_its_stream_but_not_with_its_token(
    secured, wire, metadata
):
    call = wire("Log.ProduceStream", metadata=metadata)
    request = log_pb2.ProduceRequest(topic=TOPIC, messages=[ONE])
    await call.write(request)
    assert list((await call.read()).results[0].produced.numbers) == [2]
    await lose(secured, DENIED)
    sweep(secured)
    await call.write(request)
    assert (await call.read()).results[0].error.reason == "TOPIC_NOT_AUTHORIZED"
    await lose(secured, UNAUTHENTICATED)
    sweep(secured)
    assert await call.code() is UNAUTHENTICATED


async def test_a_stream_ends_when_the_token_expires():
    clock = SimulatedClock()
    async with (
        secured_broker(grpc=True, clock=clock) as secured,
        grpc.aio.insecure_channel(secured.broker.listeners["grpc"]) as channel,
    ):
        user = await secured.user(*RIGHTS, name="reader", lifetime_ms=60_000)
        call = await consuming(Wire(channel), [("authorization", user)])
        clock.advance(59_999)
        sweep(secured)
        clock.advance(1)
        sweep(secured)
        assert await call.code() is UNAUTHENTICATED
