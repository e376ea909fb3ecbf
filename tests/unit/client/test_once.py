"""Calls that must not be done twice, while the network swallows answers: the broker is asked once."""

import pytest
from tests.proxy import Proxy

from millpond import AsyncAdmin
from millpond.log import Log
from millpond.model.errors import OutcomeUnknown
from millpond.testing import running_broker


@pytest.fixture
async def broker():
    async with running_broker(grpc=True) as running:
        yield running


@pytest.fixture
async def proxy(broker):
    proxy = Proxy(broker.listeners["grpc"])
    yield proxy
    proxy.close()


@pytest.fixture
def deleted(monkeypatch, proxy):
    """What the broker was asked to delete; each is made anew at once, and the answer gets lost."""
    names, delete = [], Log.delete_topic

    async def noting(log, name):
        names.append(name)
        await delete(log, name)
        await log.create_topic(name)
        proxy.drop_responses()

    monkeypatch.setattr(Log, "delete_topic", noting)
    return names


async def test_a_topic_that_was_made_anew_is_not_deleted_by_a_repeat(broker, deleted, proxy):
    await broker.produce("t", b"old")
    async with AsyncAdmin(address=proxy.address, timeout=5.0) as admin:
        old = await admin.describe_topic("t")
        with pytest.raises(OutcomeUnknown):
            await admin.delete_topic("t")
        assert deleted == ["t"]
        await broker.produce("t", b"acknowledged")
        new = await admin.describe_topic("t")
        assert new.topic.id != old.topic.id
        assert new.partitions[0].messages == 1
