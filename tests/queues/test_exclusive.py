"""Exclusive subscriptions: which consumer holds one, and when it is free again."""

import asyncio

import pytest

from millpond.catalog import exclusive_consumers
from millpond.model.errors import CatalogUnavailable, OutcomeUnknown
from millpond.queues import queues as queues_module


async def holders(stage):
    rows = await stage.broker.log.read(lambda tx: tx.rows("SELECT consumer FROM exclusive_consumers"))
    return [consumer for (consumer,) in rows]


async def test_an_exclusive_subscription_is_freed_although_the_catalog_was_unavailable_at_first(
    stage, monkeypatch, eventually
):
    monkeypatch.setattr(queues_module, "RELEASE_RETRY_S", 0.01)
    await stage.subscribe(mode="exclusive")
    worker = await stage.worker()
    released, refused = exclusive_consumers.release, []

    def release(*given):
        if len(refused) < 2:
            refused.append(given)
            raise CatalogUnavailable(reason="away")
        released(*given)

    monkeypatch.setattr(exclusive_consumers, "release", release)
    assert await holders(stage) == ["worker"]
    worker.leave()

    async def is_free():
        return await holders(stage) == []

    await eventually(is_free)
    assert len(refused) == 2


@pytest.mark.parametrize("error", [OutcomeUnknown(), asyncio.CancelledError()])
async def test_a_consumer_that_fails_to_attach_holds_no_exclusive_subscription(
    stage, monkeypatch, eventually, error
):
    await stage.subscribe(mode="exclusive")
    log = stage.broker.log
    write = log.write

    async def write_and_fail(operation, *given, **named):
        await write(operation, *given, **named)
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(log, "write", write_and_fail)
    with pytest.raises(type(error)):
        await stage.worker()

    async def is_free():
        return await holders(stage) == []

    await eventually(is_free)
    await stage.worker("another")
