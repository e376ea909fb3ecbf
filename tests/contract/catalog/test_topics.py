"""Topics: created, configured, grown, deleted and created again."""

import pytest

from millpond.catalog import appends, extents, groups, partitions, topics, transactions
from millpond.model.errors import (
    InvalidConfig,
    InvalidPartitionCount,
    InvalidTopicName,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from millpond.model.ids import TopicPartition
from millpond.model.topics import ConfigOrigin


def test_a_created_topic_is_found_with_its_id_and_partitions(catalog):
    made = catalog.topic("orders", 3)
    assert catalog.read(topics.find, "orders") == made
    rows = catalog.read(partitions.of_topic, made.id)
    assert [row.topic_partition.partition for row in rows] == [0, 1, 2]
    assert {(row.owner, row.epoch, row.log_start, row.end_offset, row.bytes) for row in rows} == {
        (None, 0, 0, 0, 0)
    }


def test_topics_are_listed_by_name(catalog):
    for name in ("b", "a", "c"):
        catalog.topic(name)
    assert [topic.name for topic in catalog.read(topics.all_topics)] == ["a", "b", "c"]


def test_a_topic_can_be_created_with_an_owner(catalog):
    made = catalog.topic(count=2, owner="s1")
    assert {(row.owner, row.epoch) for row in catalog.read(partitions.of_topic, made.id)} == {("s1", 1)}
    assert len(catalog.read(partitions.owned_by, "s1")) == 2


def test_a_second_topic_of_the_same_name_is_refused(catalog):
    first = catalog.topic()
    with pytest.raises(TopicExists, match="'orders' already exists"):
        catalog.topic()
    assert catalog.read(topics.all_topics) == [first]


def test_a_name_that_only_differs_in_case_is_another_topic(catalog):
    assert catalog.topic("orders").id != catalog.topic("Orders").id


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "../etc",
        "a b",
        "a\x00b",
        "a\n",
        "naïve",
        "\uff41",
        "'; DROP TABLE topics;--",
        "x" * 250,
    ],
)
def test_hostile_names_are_refused_and_leave_nothing(catalog, name):
    with pytest.raises(InvalidTopicName):
        catalog.topic(name)
    assert catalog.read(topics.all_topics) == []


def test_the_longest_legal_name_is_accepted(catalog):
    assert catalog.topic("x" * 249).name == "x" * 249


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_impossible_partition_counts_are_refused(catalog, count):
    with pytest.raises(InvalidPartitionCount):
        catalog.topic(count=count)


def test_configs_say_where_their_values_come_from(catalog):
    catalog.topic(**{"retention.ms": "5"})
    described = catalog.read(topics.find, "orders").describe_config()
    assert (described["retention.ms"].value, described["retention.ms"].source) == ("5", ConfigOrigin.TOPIC)
    assert (described["retention.bytes"].value, described["retention.bytes"].source) == (
        "-1",
        ConfigOrigin.DEFAULT,
    )


@pytest.mark.parametrize(
    ("key", "value"), [("no.such.config", "1"), ("retention.ms", "-2"), ("retention.ms", "soon")]
)
def test_unknown_and_impossible_configs_are_refused(catalog, key, value):
    with pytest.raises(InvalidConfig, match=key):
        catalog.topic(**{key: value})
    catalog.topic()
    with pytest.raises(InvalidConfig, match=key):
        catalog.write(topics.alter_config, "orders", {"retention.ms": "7", key: value})
    assert catalog.read(topics.find, "orders").overrides == {}


def test_altering_sets_some_configs_clears_others_and_keeps_the_rest(catalog):
    catalog.topic(**{"retention.ms": "5", "retention.bytes": "6"})
    changed = catalog.write(topics.alter_config, "orders", {"retention.ms": None, "segment.ms": "8"})
    assert changed.overrides == {"retention.bytes": "6", "segment.ms": "8"}
    assert catalog.read(topics.find, "orders") == changed


def test_added_partitions_start_empty_and_old_ones_keep_their_offsets(catalog):
    topic = catalog.topic()
    catalog.append_one(catalog.topic_partition(topic), 7)
    grown = catalog.write(topics.add_partitions, "orders", 3, owner="s1")
    assert (grown.id, grown.partitions) == (topic.id, 3)
    rows = catalog.read(partitions.of_topic, topic.id)
    assert [(row.end_offset, row.owner, row.epoch) for row in rows] == [
        (7, None, 0),
        (0, "s1", 1),
        (0, "s1", 1),
    ]


@pytest.mark.parametrize("total", [1, 2])
def test_partitions_are_never_taken_away(catalog, total):
    catalog.topic(count=2)
    with pytest.raises(InvalidPartitionCount, match="can only be added"):
        catalog.write(topics.add_partitions, "orders", total)


@pytest.mark.parametrize(
    "change",
    [
        lambda tx: topics.find(tx, "nope"),
        lambda tx: topics.alter_config(tx, "nope", {}),
        lambda tx: topics.add_partitions(tx, "nope", 2),
        lambda tx: topics.delete(tx, "nope", now_ms=1),
    ],
)
def test_a_topic_that_does_not_exist_is_named_in_the_error(catalog, change):
    with pytest.raises(UnknownTopic, match="no topic 'nope'"):
        catalog.write(change)


def test_a_topic_created_again_has_another_id_and_starts_at_nought(catalog):
    old = catalog.topic()
    catalog.append_one(catalog.topic_partition(old), 5)
    catalog.write(topics.delete, "orders", now_ms=2)
    new = catalog.topic()
    assert new.id != old.id
    assert catalog.partition(catalog.topic_partition(new)).end_offset == 0
    assert catalog.read(topics.deleted) == [(old.id, 1)]


def test_a_commit_to_a_deleted_topic_is_refused_even_after_its_name_is_taken_again(catalog):
    old = catalog.topic_partition(catalog.topic(owner="s1"))
    catalog.write(topics.delete, "orders", now_ms=2)
    catalog.topic(owner="s1")
    assert isinstance(catalog.append_one(old, epoch=1), UnknownPartition)
    assert isinstance(catalog.append_one(old), UnknownPartition)


def test_a_deleted_topic_leaves_its_extents_to_maintenance_and_nothing_else(catalog):
    topic = catalog.topic()
    topic_partition = catalog.topic_partition(topic)
    catalog.append_one(topic_partition, sequences=[catalog.batch((1, 0), 0, 0)])
    offset = groups.GroupOffset(topic_partition, 1)
    catalog.write(groups.commit_offsets, "g", [offset], now_ms=1)
    producer = catalog.write(transactions.begin_producer, "tx", 1000, now_ms=1).producer
    catalog.write(transactions.add_partitions, producer, [topic_partition], now_ms=1)
    catalog.write(transactions.add_offsets, producer, "g", [offset], now_ms=1)
    catalog.write(topics.delete, "orders", now_ms=2)
    for table in ("partitions", "producers", "txn_partitions", "txn_offsets", "group_offsets"):
        assert catalog.rows(f"SELECT count(*) FROM {table} WHERE topic_id = ?", topic.id) == [(0,)], table
    assert len(catalog.read(extents.facts, topic_partition, 0, 10)) == 1
    assert catalog.write(extents.remove_below, topic_partition, 2**62, limit=10, now_ms=3) == 1


def test_a_forgotten_topic_is_gone_and_a_living_one_cannot_be_forgotten(catalog):
    living, dying = catalog.topic("living"), catalog.topic("dying")
    catalog.write(topics.delete, "dying", now_ms=2)
    for topic in (living, dying):
        catalog.write(topics.forget, topic.id)
    assert catalog.read(topics.deleted) == []
    assert catalog.read(topics.all_topics) == [living]


def test_reading_a_partition_that_is_not_there_says_which(catalog):
    topic = catalog.topic()
    with pytest.raises(UnknownPartition, match="no partition 1"):
        catalog.read(partitions.read, TopicPartition(topic.id, 1))
    assert isinstance(catalog.append_one(TopicPartition(topic.id, 1)), UnknownPartition)
    assert appends.FOREIGN < 0
