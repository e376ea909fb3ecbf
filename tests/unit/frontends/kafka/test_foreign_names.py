"""Every API, in every version, with the names of another tenant: the response is that for names that do not exist, byte
by byte. Ids of topics are not compared: they are random, and as in Kafka an unknown one has an error of its own, with
which clients renew what they know."""

import struct
from contextlib import AsyncExitStack

import pytest
from tests.unit.frontends.kafka import authorization_cases as cases
from tests.unit.frontends.kafka.secured import SETTINGS, Cluster, allow

from millpond.frontends.kafka.rights import Right
from millpond.model.acls import AclOperation, ResourceType
from millpond.protocol import encode_request
from millpond.testing import running_broker

ABSENT_TOPIC, ABSENT_GROUP, ABSENT_TRANSACTION = "absent", "h-", "y-"
"""As long as the names that exist."""
VERSIONS_MAX = 20
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
TENANTS = {
    "with its own names only": {TOPIC: "mine-*", GROUP: "mine-*", TRANSACTION: "mine-*"},
    "with rights on all groups and transactional ids": {TOPIC: "mine-*", GROUP: "*", TRANSACTION: "*"},
    "with rights on all topics": {TOPIC: "*", GROUP: "mine-*", TRANSACTION: "mine-*"},
}


@pytest.fixture
async def stack():
    async with AsyncExitStack() as closing:
        yield closing


@pytest.fixture
async def client(stack):
    broker = await stack.enter_async_context(running_broker(kafka=True, **SETTINGS))
    cluster = Cluster(broker)
    topic = await broker.log.create_topic(cases.TOPIC, 2, {})
    await broker.log.create_topic(cases.NEW_TOPIC, 1, {})
    await broker.produce(cases.TOPIC, b"v")
    await cluster.user()
    client = await cluster.connected(stack)
    await cluster.set_acls(*(allow(Right(AclOperation.ALL, each), "*") for each in (TOPIC, TRANSACTION)))
    for version in range(VERSIONS_MAX):
        ids = cases.Ids(topic.id, version)
        await broker.administration.commit(ids.group, cases.TOPIC, {0: 1})
        made = await client.send(cases.init_producer_id(ids.transaction), 4)
        assert made.error_code == 0
    client.cluster, client.topic_id = cluster, topic.id
    return client


def substitutes(client, version, hidden):
    """What stands for a name that exists, by type of resource, where the client has no rights."""
    ids = cases.Ids(client.topic_id, version)
    pairs = {
        TOPIC: [(cases.TOPIC.encode(), ABSENT_TOPIC.encode())],
        GROUP: [(f"{cases.GROUP}{each}".encode(), f"{ABSENT_GROUP}{each}".encode()) for each in {version, 1}],
        TRANSACTION: [
            (
                ids.transaction.encode(),
                ids.transaction.replace(cases.TRANSACTION, ABSENT_TRANSACTION).encode(),
            )
        ],
    }
    return [pair for kind in hidden for pair in pairs[kind]]


async def response(client, data):
    """The bytes of a response, without the number of its request."""
    await client.send_bytes(data)
    return (await client.receive())[4:]


def exchanged(data, pairs):
    for old, new in pairs:
        data = data.replace(old, new)
    return data


@pytest.mark.parametrize("tenant", TENANTS)
async def test_the_names_of_another_tenant_look_like_names_that_do_not_exist(client, tenant):
    owned = TENANTS[tenant]
    hidden = [kind for kind, name in owned.items() if name != "*"]
    await client.cluster.set_acls(
        *(allow(Right(AclOperation.ALL, kind), name) for kind, name in owned.items())
    )
    compared = 0
    for case in cases.CASES:
        for version in case.all_versions():
            request = case.build(cases.Ids(client.topic_id, version))
            data = b"".join(encode_request(request, version, 7, "tenant").buffers)[struct.calcsize(">i") :]
            pairs = substitutes(client, version, hidden)
            absent = exchanged(data, pairs)
            if absent == data:
                continue  # it names nothing that is hidden
            existing = await response(client, data)
            found = exchanged(await response(client, absent), [(new, old) for old, new in pairs])
            assert existing == found, (case.name, version)
            compared += 1
    assert compared > 60, compared
