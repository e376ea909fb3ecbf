"""Configs that many clients alter at one time through two brokers, and when each broker goes by them."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.cluster.near import LOOK_SECONDS, SECONDS_MAX, near_brokers
from tests.unit.frontends.kafka.test_alter_configs import APPEND, BROKER, GROUP, SET, SUBTRACT, changing
from tests.unit.frontends.kafka.wire import Client

from millpond.catalog import dynamic_configs, topics
from millpond.model.dynamic_configs import ConfigResource
from millpond.protocol.messages.configs import IncrementalAlterConfigsRequest

CLIENTS = 4
"""Of each broker."""
CHANGES = 10
"""By each client, one after another."""
WORDS = "leader.replication.throttled.replicas"


@pytest.fixture
async def near(tmp_path):
    async with near_brokers(tmp_path, 2) as near:
        yield near


async def alter(client, resource):
    [result] = (await client.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert (result.error_code, result.error_message) == (0, None)


async def at_once(near, changes_of):
    """Run the changes of each client, all clients at the same time. Clients of the first broker have even numbers."""
    async with AsyncExitStack() as stack:
        addresses = near.addresses("kafka") * CLIENTS
        clients = [await stack.enter_async_context(Client(each)) for each in addresses]

        async def run(number, client):
            for resource in changes_of(number):
                await alter(client, resource)

        await asyncio.gather(*(run(number, client) for number, client in enumerate(clients)))


async def eventually(check):
    async with asyncio.timeout(SECONDS_MAX):
        while not check():
            await asyncio.sleep(LOOK_SECONDS)


async def stored_words(near):
    topic = await near.brokers[0].log.read(lambda tx: topics.find(tx, "orders"))
    return set(topic.overrides.get(WORDS, "").split(",")) - {""}


async def test_no_word_is_lost_that_many_clients_append_through_two_brokers(near):
    await near.brokers[0].log.create_topic("orders")
    every = [f"{number}:{change}" for number in range(2 * CLIENTS) for change in range(CHANGES)]
    appending = lambda number: [  # noqa: E731
        changing((WORDS, APPEND, f"{number}:{change}")) for change in range(CHANGES)
    ]
    await at_once(near, appending)
    assert await stored_words(near) == set(every)
    removing = lambda number: [  # noqa: E731
        changing((WORDS, SUBTRACT if number % 2 else APPEND, f"{number - number % 2}:{change}"))
        for change in range(CHANGES)
    ]
    await at_once(near, lambda number: removing(number) if number % 2 else appending(number + 2 * CLIENTS))
    kept = {word for word in every if int(word.split(":")[0]) % 2}
    added = {
        f"{number + 2 * CLIENTS}:{change}" for number in range(0, 2 * CLIENTS, 2) for change in range(CHANGES)
    }
    assert await stored_words(near) == kept | added


async def test_no_config_of_groups_and_brokers_is_lost(near):
    names = ["log.retention.ms", "log.retention.bytes", "num.partitions", "max.connections"]
    names += ["message.max.bytes", "log.message.timestamp.after.max.ms", "log.cleaner.min.compaction.lag.ms"]
    names += ["log.cleaner.delete.retention.ms"]

    def changes(number):
        group = changing(
            ("consumer.heartbeat.interval.ms", SET, str(6_000 + number)), kind=GROUP, name=f"g{number}"
        )
        sessions = changing(("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name=f"g{number ^ 1}")
        return [changing((names[number], SET, "777"), kind=BROKER, name=""), group, sessions]

    await at_once(near, changes)
    found = await near.brokers[0].log.read(dynamic_configs.read)
    assert found.of(ConfigResource("broker", "")) == dict.fromkeys(names, "777")
    for number in range(2 * CLIENTS):
        assert found.of(ConfigResource("group", f"g{number}")) == {
            "consumer.heartbeat.interval.ms": str(6_000 + number),
            "consumer.session.timeout.ms": "50000",
        }


async def test_a_change_applies_on_every_broker_and_on_one_that_starts_later(near):
    first, second = near.brokers
    topic = await first.log.create_topic("orders")
    async with Client(near.addresses("kafka")[0]) as client:
        await alter(
            client, changing(("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="billing")
        )
        await alter(client, changing(("log.retention.ms", SET, "1234"), kind=BROKER, name=""))
        of_second = changing(("log.retention.ms", SET, "99"), kind=BROKER, name=str(second.node_id))
        await alter(client, of_second)
    await near.add()

    def seen():
        return [
            (
                each.configs.group_config("billing").session_timeout_ms,
                each.log.topics.config(topic.id).retention_ms,
            )
            for each in near.brokers
        ]

    assert seen()[2] == (50_000, 1234)
    await eventually(lambda: seen() == [(50_000, 1234), (50_000, 99), (50_000, 1234)])
