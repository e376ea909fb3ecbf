"""DescribeClientQuotas and AlterClientQuotas, as an administrator uses them."""

import math
from contextlib import AsyncExitStack

import pytest
from tests.each import for_each
from tests.unit.frontends.kafka.secured import ADMIN, SETTINGS, Cluster
from tests.unit.frontends.kafka.wire import Client

from millpond.frontends.kafka.handlers import describe_client_quotas
from millpond.model.quotas import EVERY_NAME, QuotaEntity
from millpond.protocol import ErrorCode
from millpond.protocol.messages import quotas as wire
from millpond.testing import running_broker

PRODUCER, CONSUMER, CONNECTIONS = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
EXACT, DEFAULT, ANY = 0, 1, 2
ALICE = (("user", "alice"),)
ALICE_APP = (("user", "alice"), ("client-id", "app"))
EVERY_USER = (("user", None),)
EVERY_APP = (("user", None), ("client-id", "app"))
CLIENT = (("client-id", "app"),)
ADDRESS, EVERY_ADDRESS = (("ip", "192.0.2.1"),), (("ip", None),)
ENTITIES = (ALICE, ALICE_APP, EVERY_USER, EVERY_APP, CLIENT, ADDRESS, EVERY_ADDRESS)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as closing:
        yield closing


@pytest.fixture
async def cluster(stack):
    made = Cluster(await stack.enter_async_context(running_broker(kafka=True, **SETTINGS)))
    await made.user(ADMIN.name)
    return made


@pytest.fixture
async def admin(cluster, stack):
    return await cluster.connected(stack, ADMIN.name)


def alteration(entity, *operations):
    """Operations are (key, value); None removes."""
    return wire.QuotaAlteration(
        entity=[wire.AlteredQuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            wire.QuotaOperation(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in operations
        ],
    )


async def alter(client, *entries, version=1, validate_only=False):
    request = wire.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = await client.send(request, version)
    return [each.error_code for each in response.entries]


async def describe(client, *components, strict=False, version=1):
    request = wire.DescribeClientQuotasRequest(
        components=[
            wire.QuotaFilterComponent(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    return await client.send(request, version)


async def listed(client, *components, **options):
    response = await describe(client, *components, **options)
    assert response.error_code == 0, response.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


def key_for(entity):
    return CONNECTIONS if entity[0][0] == "ip" else PRODUCER


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_changed_and_removed(admin, version):
    entries = [alteration(entity, (key_for(entity), 1024.0)) for entity in ENTITIES]
    assert await alter(admin, *entries, version=version) == [0] * len(ENTITIES)
    assert await listed(admin, version=version) == {each: {key_for(each): 1024.0} for each in ENTITIES}
    changed = alteration(ALICE, (PRODUCER, None), (CONSUMER, 5.0), ("request_percentage", 12.5))
    assert await alter(admin, changed, version=version) == [0]
    found = await listed(admin, version=version)
    assert found[ALICE] == {CONSUMER: 5.0, "request_percentage": 12.5}
    removed = alteration(ALICE, (CONSUMER, None), ("request_percentage", None), (PRODUCER, None))
    assert await alter(admin, removed, version=version) == [0]
    assert ALICE not in await listed(admin, version=version)


FILTERS = (
    ((), False, ENTITIES),
    ((), True, ()),
    ((("user", EXACT, "alice"),), False, (ALICE, ALICE_APP)),
    ((("user", EXACT, "alice"),), True, (ALICE,)),
    ((("user", EXACT, "bob"),), False, ()),
    ((("user", EXACT, ""),), False, ()),
    ((("user", DEFAULT, None),), False, (EVERY_USER, EVERY_APP)),
    ((("user", DEFAULT, None),), True, (EVERY_USER,)),
    ((("user", ANY, None),), False, (ALICE, ALICE_APP, EVERY_USER, EVERY_APP)),
    ((("user", ANY, None),), True, (ALICE, EVERY_USER)),
    ((("client-id", EXACT, "app"),), False, (ALICE_APP, EVERY_APP, CLIENT)),
    ((("client-id", EXACT, "app"),), True, (CLIENT,)),
    ((("user", ANY, None), ("client-id", ANY, None)), True, (ALICE_APP, EVERY_APP)),
    ((("user", EXACT, "alice"), ("client-id", EXACT, "app")), False, (ALICE_APP,)),
    ((("ip", ANY, None),), False, (ADDRESS, EVERY_ADDRESS)),
    ((("ip", DEFAULT, None),), True, (EVERY_ADDRESS,)),
    ((("ip", EXACT, "192.0.2.1"),), True, (ADDRESS,)),
)
BAD_FILTERS = (
    ((("user", EXACT, None),), ErrorCode.INVALID_REQUEST),
    ((("user", DEFAULT, "alice"),), ErrorCode.INVALID_REQUEST),
    ((("user", ANY, "alice"),), ErrorCode.INVALID_REQUEST),
    ((("user", 3, None),), ErrorCode.INVALID_REQUEST),
    ((("user", -1, None),), ErrorCode.INVALID_REQUEST),
    ((("user", EXACT, "alice"), ("user", EXACT, "bob")), ErrorCode.INVALID_REQUEST),
    ((("ip", ANY, None), ("user", ANY, None)), ErrorCode.INVALID_REQUEST),
    ((("group", ANY, None),), ErrorCode.UNSUPPORTED_VERSION),
    ((("", ANY, None),), ErrorCode.UNSUPPORTED_VERSION),
)


async def test_a_filter_selects_entities_by_type_and_name(admin):
    await alter(admin, *(alteration(entity, (key_for(entity), 1024.0)) for entity in ENTITIES))
    for components, strict, expected in FILTERS:
        found = await listed(admin, *components, strict=strict)
        assert found.keys() == set(expected), (components, strict)


async def test_a_filter_that_means_nothing_is_refused(admin):
    for components, code in BAD_FILTERS:
        response = await describe(admin, *components)
        assert (response.error_code, response.entries) == (code, None), components
        assert response.error_message


@for_each("present", [QuotaEntity("alice", None), QuotaEntity(EVERY_NAME, "app")])
def test_a_strict_filter_names_all_types_of_an_entity(present):
    wanted = {field: None for field, name in present._asdict().items() if name is not None}
    assert describe_client_quotas._matches(present, wanted, strict=True)
    assert not describe_client_quotas._matches(present, {**wanted, "ip": None}, strict=False)


BAD_ALTERATIONS = (
    alteration((), (PRODUCER, 1.0)),
    alteration((("group", "g"),), (PRODUCER, 1.0)),
    alteration((("user", ""),), (PRODUCER, 1.0)),
    alteration((("user", "a"), ("user", "b")), (PRODUCER, 1.0)),
    alteration((("ip", "192.0.2.1"), ("user", "a")), (CONNECTIONS, 1.0)),
    alteration((("ip", "example.org"),), (CONNECTIONS, 1.0)),
    alteration((("ip", "192.0.2.1"),), (PRODUCER, 1.0)),
    alteration(CLIENT, (CONNECTIONS, 1.0)),
    alteration(CLIENT, ("bytes", 1.0)),
    alteration(CLIENT, ("bytes", None)),
    alteration(CLIENT, (PRODUCER, 1.0), (PRODUCER, 2.0)),
    alteration(CLIENT, (PRODUCER, 1.0), (PRODUCER, None)),
    *(alteration(CLIENT, (PRODUCER, value)) for value in (0.0, -1.0, 1.5, math.nan, math.inf)),
    alteration((("user", "x" * 256),), (PRODUCER, 1.0)),
)


async def test_an_invalid_alteration_is_refused_and_the_others_are_made(admin):
    for bad in BAD_ALTERATIONS:
        codes = await alter(admin, bad, alteration(ALICE, (PRODUCER, 1.0)))
        assert codes == [ErrorCode.INVALID_REQUEST, 0], bad
        assert await listed(admin) == {ALICE: {PRODUCER: 1.0}}


async def test_an_entity_that_is_named_twice_is_not_changed(admin):
    twice = [alteration(ALICE_APP, (PRODUCER, 1.0)), alteration(ALICE_APP[::-1], (CONSUMER, 1.0))]
    assert await alter(admin, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert await listed(admin) == {}


async def test_an_alteration_can_be_checked_without_effect(admin):
    good, bad = alteration(ALICE, (PRODUCER, 1.0)), alteration(CLIENT, (PRODUCER, 0.0))
    assert await alter(admin, good, bad, validate_only=True) == [0, ErrorCode.INVALID_REQUEST]
    assert await listed(admin) == {}


async def test_without_security_there_are_no_quotas(stack):
    broker = await stack.enter_async_context(running_broker(kafka=True))
    client = await stack.enter_async_context(Client(broker.kafka.listener))
    assert await alter(client, alteration(ALICE, (PRODUCER, 1.0))) == [ErrorCode.SECURITY_DISABLED]
    assert (await describe(client)).error_code == ErrorCode.SECURITY_DISABLED
