"""Configs of groups and brokers over the Kafka interface: what they are, and that brokers go by them at once."""

import pytest
from tests.unit.frontends.kafka.test_alter_configs import (
    BROKER,
    DELETE,
    GROUP,
    SET,
    alter,
    changing,
    replacing,
)
from tests.unit.frontends.kafka.test_describe_configs import TOPIC, by_name, describe
from tests.unit.frontends.kafka.test_share_groups import heartbeat as share_heartbeat
from tests.unit.frontends.kafka.test_share_groups import offsets, starts, write
from tests.unit.frontends.kafka.wire import Client

from millpond.model.clock import SystemClock
from millpond.model.config_changes import setting
from millpond.model.errors import UnknownTopic
from millpond.model.group_configs import GroupConfig
from millpond.model.share_group_configs import ISOLATION_LEVEL as ISOLATION
from millpond.model.share_group_configs import KAFKAS_SHARE_DEFAULTS, KEY_ORDER
from millpond.protocol import ErrorCode
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.security import OPEN_ACCESS
from millpond.security.audit import AuditLog
from millpond.service import ConfigAdministration

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
OWN, EVERY, STATIC, DEFAULT, OF_GROUP = 2, 3, 4, 5, 8


async def done(interface, *resources, **how):
    for result in await alter(interface, *resources, **how):
        assert (result.error_code, result.error_message) == (0, None)


async def synonyms(interface, kind, name, key):
    result = await describe(interface, kind, name, [key], include_synonyms=True)
    config = by_name(result)[key]
    assert config.synonyms[0].source == config.config_source
    return [(each.name, each.value, each.source) for each in config.synonyms]


# -- groups -------------------------------------------------------------------------------------------------------


async def test_a_group_that_does_not_exist_has_the_default_configs(interface):
    configs = by_name(await describe(interface, GROUP, "billing", include_documentation=True))
    of_consumers = {SESSION: "45000", INTERVAL: "5000"}
    assert {name: each.value for name, each in configs.items()} == of_consumers | KAFKAS_SHARE_DEFAULTS
    assert {each.config_source for each in configs.values()} == {DEFAULT}
    assert {configs[name].config_type for name in of_consumers} == {3}
    assert all(each.documentation.endswith(".") and not each.read_only for each in configs.values())


async def test_configs_of_a_group_are_set_and_reset(interface):
    await done(
        interface, changing((SESSION, SET, "50000"), (INTERVAL, SET, "6000"), kind=GROUP, name="billing")
    )
    assert interface.broker.configs.group_config("billing") == GroupConfig(50_000, 6_000)
    assert interface.broker.configs.group_config("other") == GroupConfig()
    assert await synonyms(interface, GROUP, "billing", SESSION) == [
        (SESSION, "50000", OF_GROUP),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    await done(interface, changing((SESSION, DELETE, None), kind=GROUP, name="billing"))
    assert interface.broker.configs.group_config("billing") == GroupConfig(45_000, 6_000)
    await done(interface, replacing((SESSION, "60000"), kind=GROUP, name="billing"))
    assert interface.broker.configs.group_config("billing") == GroupConfig(60_000, 5_000)


async def test_the_settings_decide_defaults_and_bounds_of_groups(serving):
    interface = await serving(
        group_consumer_session_timeout=2_000,
        group_consumer_session_timeout_min=1_000,
        group_consumer_heartbeat_interval=100,
        group_consumer_heartbeat_interval_min=50,
    )
    assert interface.broker.configs.group_config("billing") == GroupConfig(2_000, 100)
    assert await synonyms(interface, GROUP, "billing", INTERVAL) == [
        ("group.consumer.heartbeat.interval.ms", "100", STATIC),
        ("group.consumer.heartbeat.interval.ms", "5000", DEFAULT),
    ]
    await done(interface, changing((INTERVAL, SET, "50"), kind=GROUP, name="billing"))
    [refused] = await alter(interface, changing((INTERVAL, SET, "49"), kind=GROUP, name="billing"))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_CONFIG,
        f"Config '{INTERVAL}' cannot be '49': it must lie between 50 and 15000.",
    )


async def test_configs_of_share_groups_are_set_and_have_no_default_among_brokers_if_kafka_has_none(interface):
    await done(interface, changing(("share.auto.offset.reset", SET, "earliest"), kind=GROUP, name="billing"))
    assert interface.broker.configs.group_config("billing").share.start == "earliest"
    assert await synonyms(interface, GROUP, "billing", "share.auto.offset.reset") == [
        ("share.auto.offset.reset", "earliest", OF_GROUP)
    ]
    await done(interface, changing(("share.delivery.count.limit", SET, "3"), kind=GROUP, name="billing"))
    assert await synonyms(interface, GROUP, "billing", "share.delivery.count.limit") == [
        ("share.delivery.count.limit", "3", OF_GROUP),
        ("group.share.delivery.count.limit", "5", DEFAULT),
    ]
    wrong = changing(("errors.deadletterqueue.copy.record.enable", SET, "false"), kind=GROUP, name="billing")
    [refused] = await alter(interface, wrong)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "dead letters always have the whole message" in refused.error_message


async def test_the_key_order_of_a_share_group_changes_only_while_it_has_no_members(interface):
    await interface.topic()
    order, name = changing((KEY_ORDER, SET, "true"), kind=GROUP, name="workers"), "workers"
    await done(interface, order)
    await share_heartbeat(interface, 0)
    await done(interface, order, changing((ISOLATION, SET, "read_committed"), kind=GROUP, name="other"))
    for change in (
        changing((KEY_ORDER, SET, "false"), kind=GROUP, name=name),
        changing((KEY_ORDER, DELETE, None), kind=GROUP, name=name),
        replacing((ISOLATION, "read_committed"), kind=GROUP, name=name),
    ):
        [refused] = await alter(interface, change)
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "its group has members" in refused.error_message
    await done(interface, changing((ISOLATION, SET, "read_committed"), kind=GROUP, name=name))
    await share_heartbeat(interface, -1)
    await done(interface, changing((KEY_ORDER, DELETE, None), kind=GROUP, name=name))
    assert not interface.broker.configs.group_config(name).share.key_order


async def test_the_start_of_a_share_group_is_that_of_its_config(interface):
    topic = await interface.topic()
    hour_ms = 3_600_000
    await write(interface, topic, 0, 3, age_ms=2 * hour_ms)
    await write(interface, topic, 0, 2)
    for start, offset in (("earliest", 0), ("latest", 5), ("by_duration:PT1H", 3), ("by_duration:PT3H", 0)):
        group_id = start.replace(":", "-")
        await done(interface, changing(("share.auto.offset.reset", SET, start), kind=GROUP, name=group_id))
        await share_heartbeat(interface, 0, group_id=group_id)
        found = starts(await offsets(interface, {"orders": [0]}, group_id=group_id))
        assert found == {"orders": [(0, offset, 5 - offset)]}, start


# -- brokers ------------------------------------------------------------------------------------------------------


async def test_what_is_set_for_a_broker_comes_before_what_is_set_for_every_broker(serving):
    interface = await serving(retention=1234)
    name = "log.retention.ms"
    static = [(name, "1234", STATIC), (name, "604800000", DEFAULT)]
    assert await synonyms(interface, BROKER, "1", name) == static
    await done(interface, changing((name, SET, "55"), kind=BROKER, name=""))
    assert await synonyms(interface, BROKER, "1", name) == [(name, "55", EVERY), *static]
    await done(interface, changing((name, SET, "66"), kind=BROKER, name="1"))
    assert await synonyms(interface, BROKER, "1", name) == [(name, "66", OWN), (name, "55", EVERY), *static]
    assert await synonyms(interface, BROKER, "", name) == [(name, "55", EVERY)]
    assert set(by_name(await describe(interface, BROKER, ""))) == {name}


async def test_defaults_of_topics_change_for_all_topics_and_are_seen_there(interface):
    topic = await interface.topic()
    await interface.topic("kept", retention_ms="9")
    await done(interface, changing(("log.retention.ms", SET, "55"), kind=BROKER, name=""))
    registry = interface.log.topics
    assert registry.config(topic.id).retention_ms == 55
    assert registry.config(registry.named("kept").id).retention_ms == 9
    assert await synonyms(interface, TOPIC, "orders", "retention.ms") == [
        ("log.retention.ms", "55", EVERY),
        ("log.retention.ms", "604800000", DEFAULT),
    ]
    await done(interface, changing(("log.retention.ms", DELETE, None), kind=BROKER, name=""))
    assert registry.config(topic.id).retention_ms == 604_800_000


async def test_a_broker_creates_topics_by_its_dynamic_configs(interface):
    await done(interface, changing(("num.partitions", SET, "3"), kind=BROKER, name=""))
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="first")])
    await interface.send(wanted, 12)
    assert interface.log.topics.named("first").partitions == 3
    assert (await interface.broker.messages.topic("second", OPEN_ACCESS)).partitions == 3
    assert (await interface.broker.administration.create_topic("third", access=OPEN_ACCESS)).partitions == 3
    await done(interface, changing(("auto.create.topics.enable", SET, "false"), kind=BROKER, name="1"))
    [refused] = (await interface.send(MetadataRequest(topics=[MetadataRequestTopic(name="no")]), 12)).topics
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(UnknownTopic):
        await interface.broker.messages.topic("no", OPEN_ACCESS)


async def test_the_limit_of_connections_changes_for_new_ones(interface):
    await done(interface, changing(("max.connections", SET, "1"), kind=BROKER, name=""))
    with pytest.raises((ConnectionError, EOFError)):
        async with Client(interface.broker.kafka.listener) as second:
            await second.send(MetadataRequest(topics=[]), 12)
    await done(interface, changing(("max.connections", SET, "2"), kind=BROKER, name=""))
    async with Client(interface.broker.kafka.listener) as second:
        await second.send(MetadataRequest(topics=[]), 12)


async def test_what_is_not_set_can_be_reset_as_kafka_reassign_partitions_does(interface):
    rate = "leader.replication.throttled.rate"
    await done(interface, changing((rate, DELETE, None), ("num.partitions", SET, "3"), kind=BROKER, name="1"))
    assert by_name(await describe(interface, BROKER, "1"))["num.partitions"].value == "3"
    [refused] = await alter(interface, changing((rate, SET, "5"), kind=BROKER, name="1"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG


async def test_replacing_resets_the_other_configs_of_a_broker(interface):
    await done(
        interface,
        changing(("num.partitions", SET, "3"), ("log.retention.ms", SET, "5"), kind=BROKER, name=""),
    )
    await done(interface, replacing(("num.partitions", "4"), kind=BROKER, name=""))
    assert interface.broker.config_administration.broker.every == {"num.partitions": "4"}


async def test_a_node_id_that_is_not_running_keeps_its_configs_alterable(interface):
    configs = interface.broker.config_administration
    await done(interface, changing(("num.partitions", SET, "3"), kind=BROKER, name="1"))
    gone = configs._topology.current
    try:
        configs._topology.current = type(gone)()
        await done(interface, changing(("num.partitions", DELETE, None), kind=BROKER, name="1"))
    finally:
        configs._topology.current = gone
    assert configs.broker.own == {}


async def test_changes_are_in_the_audit_log(interface):
    events = []
    audit = AuditLog(SystemClock(), recorder=events.append)
    parts = interface.broker.parts
    configs = ConfigAdministration(
        parts.log, parts.configs, parts.config_administration.broker, parts.topology, audit
    )
    plan = setting({"num.partitions": "3", "log.retention.ms": "5"})
    await configs.alter_broker(OPEN_ACCESS, "", plan)
    await configs.alter_broker(OPEN_ACCESS, "", setting({"num.partitions": "4"}), validate_only=True)
    await configs.alter_group(OPEN_ACCESS, "billing", setting({SESSION: "50000"}))
    assert [each.resource for each in events] == [
        "every broker: log.retention.ms, num.partitions",
        f"group 'billing': {SESSION}",
    ]
