"""DescribeConfigs: topics and the broker, with values, sources, types, synonyms and documentation."""

import pytest

from millpond.model.broker_configs import DYNAMIC, OF_TOPIC_CONFIGS
from millpond.model.configs import DEFINITIONS
from millpond.protocol import ErrorCode
from millpond.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
OF_TOPIC, OF_BROKER, DEFAULT = 1, 4, 5
LATEST = DescribeConfigsRequest.versions.last
VERSIONS = (DescribeConfigsRequest.versions.first, LATEST)


async def describe(interface, kind, name, keys=None, version=LATEST, **include):
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], **include)
    [result] = (await interface.send(request, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result):
    assert (result.error_code, result.error_message) == (0, None)
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_has_every_config_with_its_value_and_source(serving, version):
    interface = await serving(retention=1234)
    await interface.topic(cleanup_policy="compact")
    configs = by_name(await describe(interface, TOPIC, "orders", version=version))
    assert set(configs) == set(DEFINITIONS)
    shown = {name: (config.value, config.config_source) for name, config in configs.items()}
    assert shown["cleanup.policy"] == ("compact", OF_TOPIC)
    assert shown["retention.ms"] == ("1234", OF_BROKER)
    assert shown["segment.bytes"] == ("1073741824", DEFAULT)
    assert not any(config.read_only or config.is_sensitive for config in configs.values())


async def test_a_broker_setting_that_is_the_default_is_called_the_default(interface):
    await interface.topic()
    configs = by_name(await describe(interface, TOPIC, "orders"))
    assert configs["retention.ms"].config_source == DEFAULT


async def test_types_are_kafkas(interface):
    await interface.topic()
    configs = by_name(await describe(interface, TOPIC, "orders"))
    names = ["preallocate", "compression.type", "segment.bytes", "retention.ms"]
    names += ["min.cleanable.dirty.ratio", "cleanup.policy"]
    assert [configs[name].config_type for name in names] == [1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize("keys", [None, []])
async def test_no_keys_are_all_keys(interface, keys):
    await interface.topic()
    assert len((await describe(interface, TOPIC, "orders", keys)).configs) == len(DEFINITIONS)


async def test_only_the_keys_asked_for(interface):
    await interface.topic()
    configs = by_name(await describe(interface, TOPIC, "orders", ["retention.ms", "no.such", "segment.ms"]))
    assert set(configs) == {"retention.ms", "segment.ms"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_synonyms_begin_with_what_holds_and_end_with_the_default(serving, version):
    interface = await serving(retention=1234)
    await interface.topic(retention_ms="99")
    result = await describe(interface, TOPIC, "orders", ["retention.ms"], version, include_synonyms=True)
    synonyms = by_name(result)["retention.ms"].synonyms
    assert [(each.name, each.value, each.source) for each in synonyms] == [
        ("retention.ms", "99", OF_TOPIC),
        ("log.retention.ms", "1234", OF_BROKER),
        ("log.retention.ms", "604800000", DEFAULT),
    ]


async def test_synonyms_and_documentation_come_only_when_asked_for(interface):
    await interface.topic()
    plain = by_name(await describe(interface, TOPIC, "orders"))
    told = by_name(await describe(interface, TOPIC, "orders", include_documentation=True))
    assert not any(config.synonyms or config.documentation for config in plain.values())
    assert all(config.documentation.endswith(".") for config in told.values())
    assert told["segment.ms"].documentation.endswith("has no effect here.")
    assert told["retention.ms"].documentation == DEFINITIONS["retention.ms"].meaning


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_broker_tells_its_configs_by_the_names_that_tools_look_for(serving, version):
    interface = await serving(
        node_id=3,
        default_partitions=7,
        auto_create_topics=False,
        retention=1234,
        offsets_retention=120_000,
        transaction_timeout_max=30_000,
        connections_max=50,
        kafka_advertise="mill.example:9999",
    )
    configs = by_name(await describe(interface, BROKER, "3", version=version))
    values = {key: config.value for key, config in configs.items()}
    port = interface.broker.kafka.listener.rpartition(":")[2]
    assert values.items() >= {
        ("node.id", "3"),
        ("broker.id", "3"),
        ("num.partitions", "7"),
        ("auto.create.topics.enable", "false"),
        ("log.retention.ms", "1234"),
        ("log.retention.bytes", "-1"),
        ("log.cleanup.policy", "delete"),
        ("message.max.bytes", "1048588"),
        ("min.insync.replicas", "1"),
        ("default.replication.factor", "1"),
        ("offsets.retention.minutes", "2"),
        ("transaction.max.timeout.ms", "30000"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("connections.max.idle.ms", "600000"),
        ("socket.request.max.bytes", "104857600"),
        ("max.connections", "50"),
        ("advertised.listeners", "PLAINTEXT://mill.example:9999"),
        ("listeners", f"PLAINTEXT://127.0.0.1:{port}"),
    }
    assert {name for name, config in configs.items() if not config.read_only} == set(DYNAMIC)
    assert configs["num.partitions"].config_source == OF_BROKER
    assert configs["delete.topic.enable"].config_source == DEFAULT


async def test_every_broker_config_is_documented_and_named_once(interface):
    result = await describe(interface, BROKER, "1", include_documentation=True, include_synonyms=True)
    configs = by_name(result)
    assert len(configs) == len(result.configs)
    assert set(OF_TOPIC_CONFIGS.values()) <= set(configs)
    assert all(config.documentation.endswith(".") for config in configs.values())
    assert all(config.synonyms[0].source == config.config_source for config in configs.values())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
async def test_what_does_not_exist_is_refused(interface, version, kind, name, code):
    result = await describe(interface, kind, name, version=version)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message
