"""Refresh requests: how brokers tell each other that the catalog has changed."""

import asyncio

import grpc
import pytest
from tests.tls import Pki

from millpond.security.tls import ServerTls
from millpond.topology import RefreshRequests


class Silent(grpc.GenericRpcHandler):
    """A broker that hangs: it accepts calls and never responds."""

    def __init__(self):
        self.called = asyncio.Event()

    def service(self, _):
        async def hang(request, context):
            self.called.set()
            await asyncio.Event().wait()

        return grpc.unary_unary_rpc_method_handler(hang)


@pytest.fixture
async def silent(long_refresh_timeout):
    server = grpc.aio.server()
    handler = Silent()
    server.add_generic_rpc_handlers((handler,))
    handler.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield handler
    await server.stop(None)


async def test_waiting_for_refreshes_is_not_cancelled_when_a_broker_is_forgotten(silent):
    """A topic is created while a broker that hangs is declared dead: the creation succeeds."""
    requests = RefreshRequests()
    waiting = asyncio.create_task(requests.send([silent.address]))
    await silent.called.wait()
    await requests.send([])
    await asyncio.wait([waiting])
    await requests.close()
    assert not waiting.cancelled()
    assert waiting.exception() is None


class Noted(grpc.GenericRpcHandler):
    """Remembers the metadata of each call."""

    def __init__(self):
        self.metadata = []

    def service(self, _):
        async def respond(request, context):
            self.metadata.append(dict(context.invocation_metadata()))
            return b""

        return grpc.unary_unary_rpc_method_handler(respond)


async def test_the_channel_and_the_metadata_of_each_call_can_be_given(tmp_path):
    """Between brokers with TLS: a verified certificate, and a token that is made for the call."""
    pki = Pki(tmp_path)
    tls = ServerTls(pki.files("required"))
    server, handler = grpc.aio.server(), Noted()
    server.add_generic_rpc_handlers((handler,))
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', tls.grpc_credentials())}"
    await server.start()
    tokens = iter(["first", "second"])
    made = []

    def make_channel(address):
        made.append(address)
        return tls.broker_channel(address)

    requests = RefreshRequests(make_channel, lambda: [("authorization", next(tokens))])
    await requests.send([address])
    requests.renew_channels()
    await requests.send([address])
    plain = RefreshRequests()
    await plain.send([address])
    for each in (requests, plain):
        await each.close()
    await server.stop(None)
    assert [each["authorization"] for each in handler.metadata] == ["first", "second"]
    assert made == [address] * 2
