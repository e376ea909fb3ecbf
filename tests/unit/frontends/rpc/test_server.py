"""What the listener does as a whole: health, reflection, limits, and how it stops."""

import asyncio
import os

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.unit.frontends.rpc.wire import METHODS, details_of, serving, values

from millpond.broker import Broker
from millpond.frontends.rpc.limits import RpcLimits
from millpond.model.errors import InvalidSettings
from millpond.settings import Settings
from millpond.stubs import admin_pb2, log_pb2
from millpond.testing import Faults, running_broker

SERVICES = ("millpond.v1.Log", "millpond.v1.Admin", "protocol.MiniKafka")
STOP_SECONDS_MAX = 5
"""Far below how long those who wait would wait, and how long a drain may take."""


async def test_answers_are_counted_by_method_and_status():
    async with serving() as (broker, wire):
        await wire.produce("t", b"one")
        with pytest.raises(grpc.aio.AioRpcError):
            await wire.poll("nothing")
        lines = broker.metrics.expose().decode().splitlines()
    assert 'millpond_grpc_requests_total{operation="millpond.v1.Log.Produce",status="OK"} 1.0' in lines
    assert 'millpond_grpc_requests_total{operation="millpond.v1.Log.Poll",status="NOT_FOUND"} 1.0' in lines


# -- health and reflection ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["", *SERVICES])
async def test_health_says_that_every_service_serves(service):
    async with serving() as (_, wire):
        health = health_pb2_grpc.HealthStub(wire.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_tells_those_who_watch_that_it_stops():
    async with serving() as (broker, wire):
        watching = health_pb2_grpc.HealthStub(wire.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(broker.stop())
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        async with asyncio.timeout(STOP_SECONDS_MAX):  # it does not wait for them to go
            await stopping


async def reflected(wire, **request):
    stub = reflection_pb2_grpc.ServerReflectionStub(wire.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)]))
    return await call.read()


async def test_reflection_lists_the_services():
    async with serving() as (_, wire):
        answer = await reflected(wire, list_services="")
    assert {*SERVICES, "grpc.health.v1.Health"} <= {
        each.name for each in answer.list_services_response.service
    }


@pytest.mark.parametrize("service", SERVICES)
async def test_reflection_gives_schemas_from_which_a_client_can_be_made(service):
    async with serving() as (_, wire):
        answer = await reflected(wire, file_containing_symbol=service)
    pool = descriptor_pool.DescriptorPool()
    for packed in answer.file_descriptor_response.file_descriptor_proto:
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(packed))
    methods = {method.name for method in pool.FindServiceByName(service).methods}
    assert methods == {
        method.name for method in METHODS.values() if method.containing_service.full_name == service
    }


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_a_request_that_is_too_large_is_refused_and_the_connection_goes_on():
    async with serving(request_bytes_max=2_000_000) as (_, wire):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.produce("topic", bytes(3_000_000))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await wire.produce("topic", b"x")).numbers == [1]


async def test_more_calls_than_there_may_be_are_refused(monkeypatch):
    monkeypatch.setattr(Settings, "rpc_limits", lambda _: RpcLimits(calls_max=2))
    async with serving() as (_, wire):
        await wire.produce("topic", b"1")
        following = [wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic")) for _ in range(2)]
        for call in following:
            assert values(await call.read()) == [b"1"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.produce("topic", b"2")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in following:
            call.cancel()
        async with asyncio.timeout(STOP_SECONDS_MAX):
            while await outcome(wire.produce("topic", b"2")) is grpc.StatusCode.RESOURCE_EXHAUSTED:
                await asyncio.sleep(0.005)
        assert await outcome(wire.produce("topic", b"3")) is grpc.StatusCode.OK


async def outcome(call):
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_port_that_is_taken_is_an_error_that_names_it():
    async with running_broker(grpc=True) as broker:
        address = broker.listeners["grpc"]
        with pytest.raises(InvalidSettings, match=f"grpc_listen cannot be '{address}'"):
            async with running_broker(grpc=True, grpc_listen=address):
                pass


# -- stopping ---------------------------------------------------------------------------------------------------------


async def refused_with(call):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), details_of(refused.value)[1].reason


async def test_stopping_ends_long_polls_and_streams_at_once():
    stopping = (grpc.StatusCode.UNAVAILABLE, "STOPPING")
    async with serving() as (broker, wire), asyncio.timeout(STOP_SECONDS_MAX):
        producing = wire("Log.ProduceStream")
        await producing.write(log_pb2.ProduceRequest(topic="topic", messages=[{"value": b"1"}]))
        assert len((await producing.read()).results) == 1
        following = wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic"))
        assert values(await following.read()) == [b"1"]
        polling = asyncio.ensure_future(wire.poll("topic", 2, wait_ms=60_000))
        while len(broker.poller._waiting) < 2:
            await asyncio.sleep(0.005)
        await broker.stop()
        assert await refused_with(polling) == stopping
        assert await refused_with(following.read()) == stopping
        assert await refused_with(producing.read()) == stopping


async def test_stopping_answers_the_produces_that_were_accepted(tmp_path, monkeypatch):
    """The store is slow: three calls and three requests of a stream are accepted and not yet durable."""
    faults, accepted = Faults(), []
    async with serving(tmp_path, faults=faults, inline_bytes_max=0) as (broker, wire):
        await wire.produce("topic", b"0")
        slow, submit = faults.hold("append"), broker.messages.submit

        async def submit_and_tell(*given, **named):
            accepted.append(answer := await submit(*given, **named))
            return answer

        monkeypatch.setattr(broker.messages, "submit", submit_and_tell)
        calls = [asyncio.ensure_future(wire.produce("topic", b"call")) for _ in range(3)]
        stream = wire("Log.ProduceStream")
        for _ in range(3):
            await stream.write(log_pb2.ProduceRequest(topic="topic", messages=[{"value": b"stream"}]))
        async with asyncio.timeout(STOP_SECONDS_MAX):
            while len(accepted) < 6:
                await asyncio.sleep(0.005)
        stopping = asyncio.create_task(broker.stop())
        while not broker.rpc._log._stopping:
            await asyncio.sleep(0)
        slow.release()
        numbers = [number for call in calls for number in (await call).numbers]
        while len(numbers) < 6:
            results = (await stream.read()).results
            numbers += [number for result in results for number in result.produced.numbers]
        await stopping
    async with running_broker(tmp_path) as broker:
        stored = [record.offset + 1 for record in await broker.read("topic")]
    assert stored == [1, *sorted(numbers)]


async def test_describe_broker_says_where_it_listens():
    async with serving() as (broker, wire):
        await wire.produce("topic", b"x")
        found = await wire("Admin.DescribeBroker", admin_pb2.DescribeBrokerRequest())
    assert dict(found.listeners) == broker.listeners
    assert found.topics == 1


async def test_a_grpc_port_in_use_is_named_with_the_systems_reason(tmp_path):
    async with serving() as (broker, _):
        taken = broker.listeners["grpc"]
        other = Broker(
            Settings(data_dir=tmp_path, kafka_listen="", http_listen="", grpc_listen=taken), listen=True
        )
        with pytest.raises(InvalidSettings, match=os.strerror(98)):
            await other.start()
