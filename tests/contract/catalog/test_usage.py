"""How much topics hold and how far their readers are behind, summed over the partitions of one owner."""

from millpond.catalog import groups, partitions, subscriptions, topics, usage
from millpond.catalog.groups import GroupOffset
from millpond.model.subscriptions import SubscriptionConfig
from millpond.model.usage import ReaderLag, TopicUsage, Usage


def fill(catalog, topic, *counts):
    """Appends so many messages to each partition."""
    for number, count in enumerate(counts):
        if count:
            catalog.append_one(catalog.topic_partition(topic, number), count)


def of(catalog, owner="me"):
    return catalog.read(usage.of_owner, owner)


def test_a_broker_without_partitions_has_nothing(catalog):
    catalog.topic(owner="other")
    assert of(catalog) == Usage([], [], [])


def test_a_topic_is_the_sum_of_its_partitions(catalog):
    fill(catalog, catalog.topic("b", 3, owner="me"), 5, 7, 0)
    fill(catalog, catalog.topic("a", 1, owner="me"), 1)
    catalog.topic("c", 1, owner="other")
    assert of(catalog).topics == [TopicUsage("a", 1, 1, 1, 100), TopicUsage("b", 3, 12, 12, 200)]


def test_expired_messages_count_for_the_end_only(catalog):
    topic = catalog.topic(owner="me")
    fill(catalog, topic, 9)
    catalog.write(partitions.advance_log_start, catalog.topic_partition(topic), 4)
    [found] = of(catalog).topics
    assert (found.offsets, found.end_offset) == (5, 9)


def test_a_group_lags_behind_where_it_has_committed(catalog):
    """Below the log start it can read from there on only. Partitions without a committed offset do not count."""
    topic = catalog.topic(count=4, owner="me")
    fill(catalog, topic, 10, 10, 10, 10)
    catalog.write(partitions.advance_log_start, catalog.topic_partition(topic, 1), 6)
    committed = {0: 3, 1: 2, 2: 10}
    offsets = [
        GroupOffset(catalog.topic_partition(topic, number), offset) for number, offset in committed.items()
    ]
    catalog.write(groups.commit_offsets, "readers", offsets, now_ms=1)
    assert of(catalog).groups == [ReaderLag("readers", "orders", 7 + 4 + 0)]
    assert of(catalog, "other").groups == []


def test_an_offset_beyond_the_end_is_no_negative_lag(catalog):
    topic = catalog.topic(owner="me")
    catalog.write(
        groups.commit_offsets, "readers", [GroupOffset(catalog.topic_partition(topic), 5)], now_ms=1
    )
    assert of(catalog).groups == [ReaderLag("readers", "orders", 0)]


def test_a_subscription_lags_behind_what_it_has_settled(catalog):
    """A partition that was added later has no state: it begins at its start."""
    topic = catalog.topic(count=3, owner="me")
    fill(catalog, topic, 10, 10, 10)
    catalog.write(partitions.advance_log_start, catalog.topic_partition(topic, 2), 1)
    catalog.write(
        subscriptions.create,
        topic.id,
        "billing",
        SubscriptionConfig(),
        {0: 4, 1: 10},
        topic=topic.name,
        now_ms=catalog.now,
    )
    assert of(catalog).subscriptions == [ReaderLag("billing", "orders", 6 + 0 + 9)]


def test_deleted_topics_are_left_out(catalog):
    topic = catalog.topic(owner="me")
    fill(catalog, topic, 3)
    catalog.write(topics.delete, topic.name, now_ms=1)
    assert of(catalog) == Usage([], [], [])
