"""Topics as administrators handle them, through each library's own admin client."""

import uuid

import pytest
from tests.clients.adapters.base import Refused

UNKNOWN_TOPIC, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG = 3, 36, 37, 40
INVALID_TOPIC = 17
OFFSET_OUT_OF_RANGE = 1


@pytest.fixture
def admin(setting):
    return setting.admin()


@pytest.fixture
def name():
    return f"t-{uuid.uuid4().hex[:12]}"


def test_a_topic_is_created_described_altered_grown_and_deleted(admin, name):
    admin.create_topic(name, 3, {"retention.ms": "3600000", "cleanup.policy": "delete"})
    assert admin.topics()[name] == 3
    assert admin.configs(name)["retention.ms"] == "3600000"
    admin.alter(name, "retention.ms", "7200000")
    assert admin.configs(name)["retention.ms"] == "7200000"
    admin.add_partitions(name, 5)
    assert admin.topics()[name] == 5
    admin.delete_topic(name)
    assert name not in admin.topics()


def test_every_config_is_told_whether_it_was_set_or_not(admin, name):
    admin.create_topic(name)
    configs = admin.configs(name)
    assert configs["cleanup.policy"] == "delete"
    assert configs["max.message.bytes"] == "1048588"
    assert len(configs) > 30


def test_the_broker_tells_its_configs(admin):
    configs = admin.broker_configs(1)
    assert configs["node.id"] == "1"
    assert configs["group.initial.rebalance.delay.ms"] == "0"


def test_records_are_deleted_up_to_an_offset(setting, admin):
    topic = setting.topic()
    producer = setting.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number)
    producer.flush()
    admin.delete_records((topic, 0), 6)
    assert [each.offset for each in setting.read(topic, 4)] == [6, 7, 8, 9]
    with pytest.raises(Refused) as refused:
        admin.delete_records((topic, 0), 11)
    assert refused.value.code == OFFSET_OUT_OF_RANGE


def refusal(function, *args):
    with pytest.raises(Refused) as refused:
        function(*args)
    return refused.value.code


def test_what_cannot_be_done_is_refused_with_kafkas_number(admin, name):
    admin.create_topic(name, 2)
    assert refusal(admin.create_topic, name) == TOPIC_ALREADY_EXISTS
    assert refusal(admin.create_topic, "a b") == INVALID_TOPIC
    assert refusal(admin.create_topic, f"{name}-x", 1, {"retention.ms": "soon"}) == INVALID_CONFIG
    assert refusal(admin.add_partitions, name, 2) == INVALID_PARTITIONS
    assert refusal(admin.delete_topic, f"{name}-y") == UNKNOWN_TOPIC
    assert refusal(admin.alter, name, "retention.ms", "soon") == INVALID_CONFIG
