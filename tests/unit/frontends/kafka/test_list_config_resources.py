"""ListConfigResources: which topics, brokers and groups have configs, by type."""

import pytest
from tests.unit.frontends.kafka.test_alter_configs import BROKER, GROUP, SET, TOPIC, alter, changing

from millpond.protocol import ErrorCode
from millpond.protocol.messages.configs import CLIENT_METRICS, ListConfigResourcesRequest

BROKER_LOGGER = 8


async def listed(interface, *types, version=1):
    response = await interface.send(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == 0
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


@pytest.fixture
async def altered(interface):
    await interface.topic("b")
    await interface.topic("a", retention_ms="5")
    await alter(
        interface, changing(("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="billing")
    )
    await alter(interface, changing(("num.partitions", SET, "3"), kind=BROKER, name=""))
    return interface


async def test_without_types_everything_is_listed(altered):
    expected = [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (GROUP, "billing")]
    assert await listed(altered) == expected


async def test_types_select(altered):
    assert await listed(altered, GROUP) == [(GROUP, "billing")]
    assert await listed(altered, BROKER, TOPIC) == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1")]
    assert await listed(altered, BROKER_LOGGER, CLIENT_METRICS) == []


async def test_the_oldest_version_asks_for_client_metrics_of_which_there_are_none(altered):
    assert await listed(altered, version=0) == []


async def test_a_type_that_does_not_exist_is_refused(altered):
    response = await altered.send(ListConfigResourcesRequest(resource_types=[TOPIC, 99]), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
