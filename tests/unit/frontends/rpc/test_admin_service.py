"""The `Admin` service over the wire."""

import grpc
import pytest
from tests.unit.frontends.rpc.wire import serving, values

from millpond.stubs import admin_pb2


async def test_deleting_messages_needs_a_number_or_no_bound_at_all():
    async with serving() as (_, wire):
        await wire.produce("t", b"one", b"two", b"three")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wire("Admin.DeleteMessages", admin_pb2.DeleteMessagesRequest(topic="t", before=0))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert values(await wire.poll("t")) == [b"one", b"two", b"three"]
        left = await wire("Admin.DeleteMessages", admin_pb2.DeleteMessagesRequest(topic="t", before=3))
        assert left.oldest == 3
        left = await wire("Admin.DeleteMessages", admin_pb2.DeleteMessagesRequest(topic="t"))
        assert left.oldest == 4
