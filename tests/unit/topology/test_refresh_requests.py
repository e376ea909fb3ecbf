"""Refresh requests: how brokers tell each other that the catalog has changed."""

import asyncio

import grpc
import pytest

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
