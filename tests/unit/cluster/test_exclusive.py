"""An exclusive subscription whose partitions are on two brokers."""

import pytest
from tests.unit.cluster.conftest import until

from millpond.model.errors import SubscriptionBusy


async def test_one_consumer_has_all_of_it(brokers):
    first, second = await brokers.add(), await brokers.add()
    await first.log.create_topic("t", 2)
    await first.queues.create("t", "s", {"mode": "exclusive"})
    mine = await first.queues.attach("t", "s", "anna")
    with pytest.raises(SubscriptionBusy, match="'anna' has it"):
        await second.queues.attach("t", "s", "bert")
    await second.queues.attach("t", "s", "anna")
    first.queues.detach(mine)
    with pytest.raises(SubscriptionBusy):
        await first.queues.attach("t", "s", "bert")


async def test_the_next_one_gets_it_when_it_is_left(brokers):
    first, second = await brokers.add(), await brokers.add()
    await first.log.create_topic("t", 2)
    await first.queues.create("t", "s", {"mode": "exclusive"})
    attached = [await each.queues.attach("t", "s", "anna") for each in (first, second)]
    for broker, attachment in zip((first, second), attached, strict=True):
        broker.queues.detach(attachment)

    async def free():
        try:
            return await second.queues.attach("t", "s", "bert")
        except SubscriptionBusy:
            return None

    found = []
    while not found or found[-1] is None:
        found.append(await free())
    assert found[-1].name == "bert"
    await until(lambda: bool(found[-1].queues))
