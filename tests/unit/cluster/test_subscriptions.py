"""Subscriptions while partitions are handed over."""

from tests.unit.cluster.conftest import until


async def test_a_subscription_does_not_begin_on_a_partition_that_is_being_handed_over(brokers):
    first = await brokers.add()
    await first.log.create_topic("t", 2)
    await first.queues.create("t", "s")
    [given, kept] = (first.log.topics.partition("t", number) for number in range(2))
    subscriptions = first.queues._active_subscriptions
    take = subscriptions._take

    async def take_while_one_goes(active, state_keys):
        taken = await take(active, state_keys)
        await first.queues.prepare_handover([given])
        return taken

    subscriptions._take = take_while_one_goes
    attachment = await first.queues.attach("t", "s", "c")
    assert [queue.topic_partition for queue in attachment.queues.values()] == [kept]
    subscriptions._take = take
    first.queues.end_handover([given])
    await until(lambda: len(attachment.queues) == 2)
