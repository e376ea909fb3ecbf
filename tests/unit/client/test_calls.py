"""Which calls are repeated, and which reach a broker once. The broker is a stub that notes what it is asked."""

import asyncio
import socket

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2
from tests.ports import free_port

from millpond import AsyncAdmin
from millpond.client.errors import DETAILS_KEY
from millpond.model.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable, TimedOut, Unreachable
from millpond.stubs import admin_pb2 as pb

ONCE = {
    "CreateTopic": lambda admin: admin.create_topic("t"),
    "DeleteTopic": lambda admin: admin.delete_topic("t"),
    "DeleteMessages": lambda admin: admin.delete_messages("t", before=None),
    "DeleteGroup": lambda admin: admin.delete_group("g"),
}


class Broken:
    """What gRPC says when a connection breaks."""

    code, details = grpc.StatusCode.UNAVAILABLE, ()


class Refused:
    code = grpc.StatusCode.FAILED_PRECONDITION

    def __init__(self, reason, **facts):
        info = Any()
        info.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="millpond", metadata=facts))
        status = status_pb2.Status(message=reason, details=[info])
        self.details = ((DETAILS_KEY, status.SerializeToString()),)


class Silent:
    """It takes the request and never answers."""


class StubBroker(grpc.GenericRpcHandler):
    """Answers with what it is told, in this order; then with empty messages."""

    def __init__(self, *outcomes):
        self.outcomes, self.asked = list(outcomes), []

    def service(self, details):
        async def answer(request, context):
            self.asked.append((details.method.rsplit("/", 1)[1], request))
            outcome = self.outcomes.pop(0) if self.outcomes else None
            if outcome is Silent:
                await asyncio.Event().wait()
            if outcome is not None:
                await context.abort(outcome.code, "no", outcome.details)
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)

    @property
    def names(self):
        return [name for name, _ in self.asked]

    async def serve(self, port=0):
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers([self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{port}')}"
        await self._server.start()

    async def stop(self):
        await self._server.stop(None)


@pytest.fixture
async def stub():
    broker = StubBroker()
    await broker.serve()
    yield broker
    await broker.stop()


@pytest.fixture
async def other():
    broker = StubBroker()
    await broker.serve()
    yield broker
    await broker.stop()


@pytest.mark.parametrize("name", ONCE)
async def test_what_must_not_be_done_twice_is_asked_once_if_the_answer_is_lost(stub, name):
    stub.outcomes = [Broken]
    async with AsyncAdmin(address=stub.address, timeout=10.0) as admin:
        with pytest.raises(OutcomeUnknown, match=f"response to {name}: whether it was done is not known"):
            await ONCE[name](admin)
    assert stub.names == [name]


async def test_what_must_not_be_done_twice_is_asked_once_if_no_answer_comes():
    """All at once: each waits for its timeout, which a busy machine must not reach before the request is sent."""

    async def asked(name):
        broker = StubBroker()
        await broker.serve()
        broker.outcomes = [Silent]
        async with AsyncAdmin(address=broker.address, timeout=5.0) as admin:
            with pytest.raises(TimedOut):
                await ONCE[name](admin)
        await broker.stop()
        return broker.names

    assert await asyncio.gather(*map(asked, ONCE)) == [[name] for name in ONCE]


@pytest.mark.parametrize("name", ONCE)
async def test_a_broker_that_could_not_do_it_is_not_asked_again(stub, name):
    stub.outcomes = [Refused("STORE_UNAVAILABLE")]
    async with AsyncAdmin(address=stub.address, timeout=10.0) as admin:
        with pytest.raises(StoreUnavailable):
            await ONCE[name](admin)
    assert stub.names == [name]


@pytest.mark.parametrize("reason", ["NOT_OWNER", "NOT_COORDINATOR"])
@pytest.mark.parametrize("name", ONCE)
async def test_who_is_sent_elsewhere_goes_there(stub, other, name, reason):
    """Whoever sends away has done nothing."""
    stub.outcomes = [Refused(reason, owner_grpc=other.address)]
    async with AsyncAdmin(address=stub.address, timeout=10.0) as admin:
        await ONCE[name](admin)
    assert (stub.names, other.names) == ([name], [name])


@pytest.mark.parametrize("name", ONCE)
async def test_a_broker_that_is_not_there_yet_is_waited_for(name, monkeypatch):
    """Nothing was sent, so it is certain that nothing was done."""
    port, late, failed = free_port(), StubBroker(), asyncio.Event()
    async with AsyncAdmin(address=f"127.0.0.1:{port}", timeout=60.0) as admin:
        connect = admin._connections._connect

        async def noted(*given):
            try:
                await connect(*given)
            except Unreachable:
                failed.set()
                raise

        monkeypatch.setattr(admin._connections, "_connect", noted)
        asking = asyncio.ensure_future(ONCE[name](admin))
        await failed.wait()
        await late.serve(port)
        await asking
    await late.stop()
    assert late.names == [name]


async def test_nobody_there():
    async with AsyncAdmin(address="127.0.0.1:1", timeout=0.3) as admin:
        with pytest.raises(Unreachable, match="millpond serve"):
            await admin.delete_topic("t")


async def test_somebody_who_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with AsyncAdmin(address=f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.4) as admin:
            with pytest.raises(Unreachable):
                await admin.delete_topic("t")


async def test_what_only_reads_is_asked_again(stub):
    stub.outcomes = [Broken, Refused("STORE_UNAVAILABLE")]
    async with AsyncAdmin(address=stub.address, timeout=10.0) as admin:
        assert await admin.list_topics() == []
    assert stub.names == ["ListTopics"] * 3


@pytest.mark.parametrize("before", [None, 0, 1, 7])
async def test_what_to_delete_is_said_as_it_was_given(stub, before):
    async with AsyncAdmin(address=stub.address) as admin:
        await admin.delete_messages("t", before=before)
    request = pb.DeleteMessagesRequest.FromString(stub.asked[0][1])
    assert (request.before if request.HasField("before") else None) == before


async def test_deleting_before_nothing_deletes_nothing(setting):
    await setting.produce("t", b"a", b"b")
    async with setting.admin() as admin:
        with pytest.raises(InvalidRequest):
            await admin.delete_messages("t", before=0)
        assert (await admin.describe_topic("t")).partitions[0].messages == 2
        assert await admin.delete_messages("t", before=None) == 3
