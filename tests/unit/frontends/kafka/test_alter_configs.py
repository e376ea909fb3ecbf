"""AlterConfigs and IncrementalAlterConfigs: one replaces the whole set, the other changes it piece by piece."""

import pytest

from millpond.model.group_configs import SESSION_TIMEOUT
from millpond.protocol import ErrorCode
from millpond.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def replacing(*configs, kind=TOPIC, name="orders"):
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs],
    )


def changing(*configs, kind=TOPIC, name="orders"):
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=how, value=value)
            for key, how, value in configs
        ],
    )


async def alter(interface, *resources, newest=True, validate_only=False):
    incremental = isinstance(resources[0], IncrementalAlterConfigsResource)
    kind = IncrementalAlterConfigsRequest if incremental else AlterConfigsRequest
    request = kind(resources=list(resources), validate_only=validate_only)
    results = (await interface.send(request, kind.versions.last if newest else kind.versions.first)).responses
    asked = [(each.resource_type, each.resource_name) for each in resources]
    assert [(each.resource_type, each.resource_name) for each in results] == asked
    return results


def overrides(interface, name="orders"):
    return interface.log.topics.named(name).overrides


@pytest.mark.parametrize("newest", [False, True])
async def test_replacing_takes_back_what_is_not_named(interface, newest):
    await interface.topic(retention_ms="1", segment_ms="2")
    [done] = await alter(interface, replacing(("retention.ms", "3"), ("retention.bytes", "4")), newest=newest)
    assert (done.error_code, done.error_message) == (0, None)
    assert overrides(interface) == {"retention.ms": "3", "retention.bytes": "4"}


async def test_replacing_by_nothing_takes_everything_back(interface):
    await interface.topic(retention_ms="1", segment_ms="2")
    await alter(interface, replacing())
    assert overrides(interface) == {}


@pytest.mark.parametrize("newest", [False, True])
async def test_changing_leaves_the_rest_alone(interface, newest):
    await interface.topic(retention_ms="1", segment_ms="2", flush_ms="3")
    changes = changing(("retention.ms", SET, "9"), ("segment.ms", DELETE, None), ("preallocate", SET, "true"))
    [done] = await alter(interface, changes, newest=newest)
    assert (done.error_code, done.error_message) == (0, None)
    assert overrides(interface) == {"retention.ms": "9", "flush.ms": "3", "preallocate": "true"}


async def test_a_change_is_what_the_engine_goes_by(interface):
    topic = await interface.topic()
    await alter(interface, changing(("max.message.bytes", SET, "100")))
    assert interface.log.topics.config(topic.id).max_message_bytes == 100


@pytest.mark.parametrize(
    ("before", "how", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("compact, delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
    ],
)
async def test_lists_are_added_to_and_taken_from(interface, before, how, value, after):
    await interface.topic(**({} if before is None else {"cleanup_policy": before}))
    [done] = await alter(interface, changing(("cleanup.policy", how, value)))
    assert done.error_code == 0
    assert overrides(interface) == {"cleanup.policy": after}


async def test_deleting_what_was_never_set_changes_nothing(interface):
    await interface.topic(retention_ms="1")
    [done] = await alter(interface, changing(("segment.ms", DELETE, None)))
    assert done.error_code == 0
    assert overrides(interface) == {"retention.ms": "1"}


@pytest.mark.parametrize("changes", [replacing(("segment.ms", "5")), changing(("segment.ms", SET, "5"))])
@pytest.mark.parametrize("newest", [False, True])
async def test_validate_only_changes_nothing(interface, changes, newest):
    await interface.topic(retention_ms="1")
    [done] = await alter(interface, changes, newest=newest, validate_only=True)
    assert done.error_code == 0
    assert overrides(interface) == {"retention.ms": "1"}


REFUSED = {
    "append to a number": (changing(("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
    "subtract from a number": (changing(("retention.ms", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG),
    "append to nothing": (changing(("no.such", APPEND, "1")), ErrorCode.INVALID_CONFIG),
    "append an impossible word": (changing(("cleanup.policy", APPEND, "shred")), ErrorCode.INVALID_CONFIG),
    "subtract everything": (changing(("cleanup.policy", SUBTRACT, "delete")), ErrorCode.INVALID_CONFIG),
    "set what is not there": (changing(("no.such", SET, "1")), ErrorCode.INVALID_CONFIG),
    "set the impossible": (changing(("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
    "set null": (changing(("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
    "append null": (changing(("cleanup.policy", APPEND, None)), ErrorCode.INVALID_REQUEST),
    "unknown change": (changing(("retention.ms", 4, "1")), ErrorCode.INVALID_REQUEST),
    "twice": (
        changing(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        ErrorCode.INVALID_REQUEST,
    ),
    "one of two is wrong": (
        changing(("segment.ms", SET, "5"), ("retention.ms", SET, "x")),
        ErrorCode.INVALID_CONFIG,
    ),
    "change a setting": (changing(("listeners", SET, "1"), kind=BROKER, name="1"), 42),
    "reset a setting": (
        changing(("group.initial.rebalance.delay.ms", DELETE, None), kind=BROKER, name=""),
        42,
    ),
    "change what has no effect": (changing(("log.segment.bytes", SET, "1"), kind=BROKER, name=""), 40),
    "change to the impossible": (changing(("num.partitions", SET, "0"), kind=BROKER, name=""), 40),
    "change a broker that is not there": (changing(("num.partitions", SET, "1"), kind=BROKER, name="9"), 42),
    "change a broker with a name": (changing(("num.partitions", SET, "1"), kind=BROKER, name="one"), 42),
    "change no group": (changing((SESSION_TIMEOUT, SET, "50000"), kind=GROUP, name=""), 24),
    "set a group beyond its bounds": (changing((SESSION_TIMEOUT, SET, "1"), kind=GROUP, name="g"), 40),
    "set a group what is not there": (changing(("retention.ms", SET, "1"), kind=GROUP, name="g"), 40),
    "append to a group": (changing((SESSION_TIMEOUT, APPEND, "50000"), kind=GROUP, name="g"), 40),
    "replace beyond a group's bounds": (replacing((SESSION_TIMEOUT, "1"), kind=GROUP, name="g"), 40),
    "change a logger": (changing(("root", SET, "INFO"), kind=BROKER_LOGGER, name="1"), 42),
    "change an unknown topic": (changing(("retention.ms", SET, "1"), name="nothing"), 3),
    "change an illegal topic": (changing(("retention.ms", SET, "1"), name="a/b"), 17),
    "replace null": (replacing(("retention.ms", None)), ErrorCode.INVALID_REQUEST),
    "replace twice": (replacing(("retention.ms", "1"), ("retention.ms", "2")), ErrorCode.INVALID_REQUEST),
    "replace by the impossible": (replacing(("retention.ms", "x")), ErrorCode.INVALID_CONFIG),
    "replace by what is not there": (replacing(("no.such", "x")), ErrorCode.INVALID_CONFIG),
    "replace a broker's": (replacing(("node.id", "1"), kind=BROKER, name="1"), 42),
    "replace an unknown topic's": (replacing(("retention.ms", "1"), name="nothing"), 3),
    "replace an unknown resource's": (replacing(("retention.ms", "1"), kind=99), 42),
}


@pytest.mark.parametrize("validate_only", [False, True], ids=["done", "validated"])
@pytest.mark.parametrize("newest", [False, True], ids=["oldest", "newest"])
@pytest.mark.parametrize(("resource", "code"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_says_why_and_changes_nothing(interface, resource, code, newest, validate_only):
    await interface.topic(flush_ms="7")
    [refused] = await alter(interface, resource, newest=newest, validate_only=validate_only)
    assert refused.error_code == code
    assert refused.error_message
    assert overrides(interface) == {"flush.ms": "7"}
    assert interface.broker.configs.current.by_resource == {}


async def test_a_broker_names_the_setting_that_must_be_changed_instead(interface):
    [refused] = await alter(interface, changing(("listeners", SET, "x"), kind=BROKER, name="1"))
    setting = (
        "'listeners' is a setting of the broker (kafka_listen): change it in its settings file and restart"
    )
    assert setting in refused.error_message


@pytest.mark.parametrize("resource", [replacing(("flush.ms", "1")), changing(("flush.ms", SET, "1"))])
async def test_a_resource_named_twice_is_refused_both_times(interface, resource):
    await interface.topic()
    results = await alter(interface, resource, resource)
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert overrides(interface) == {}


async def test_one_that_is_refused_does_not_keep_the_others_from_being_changed(interface):
    await interface.topic("a")
    await interface.topic("b")
    wrong, right = changing(("flush.ms", SET, "x"), name="a"), changing(("flush.ms", SET, "1"), name="b")
    results = await alter(interface, wrong, right)
    assert [each.error_code for each in results] == [ErrorCode.INVALID_CONFIG, 0]
    assert overrides(interface, "b") == {"flush.ms": "1"}


@pytest.mark.parametrize("validate_only", [True, False])
async def test_whether_a_topic_takes_payloads_is_chosen_when_it_is_made(interface, validate_only):
    await interface.topic(payload="reference")
    before = overrides(interface)
    for refused in (
        replacing(("retention.ms", "3")),
        changing(("payload", SET, "inline")),
        changing(("payload", DELETE, None)),
        changing(("message.timestamp.type", SET, "CreateTime")),
        changing(("message.timestamp.type", DELETE, None)),
    ):
        [result] = await alter(interface, refused, validate_only=validate_only)
        assert result.error_code == ErrorCode.INVALID_CONFIG
    assert overrides(interface) == before
    [done] = await alter(interface, changing(("retention.ms", SET, "3")), validate_only=validate_only)
    assert done.error_code == 0
