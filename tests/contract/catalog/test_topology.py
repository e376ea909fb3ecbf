"""Brokers and what they own, on every engine."""

import pytest

from millpond.catalog import coordinators, partitions, topics, topology, writers
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.model.ids import Session

NOW = 1_000_000


@pytest.fixture(autouse=True)
def no_coordinators(catalog):
    """Shards are rows that stay: nobody has them at first."""
    catalog.write(lambda tx: tx.rows("UPDATE coordinators SET owner = NULL, epoch = 0"))


def broker(catalog, name, node_id=0):
    def register(tx):
        writers.register(tx, Session(name), kind="broker", address="", lease_ms=10**9, node_id=node_id)

    catalog.write(register)


def topic(catalog, name, count, **named):
    return catalog.write(lambda tx: topics.create(tx, name, count, {}, now_ms=NOW, **named))


def owners(catalog):
    return [owner.session for owner in catalog.read(topology.read).partitions.values()]


def test_every_change_of_topics_moves_the_version(catalog):
    versions = [catalog.read(topology.version)]
    for change in (
        lambda tx: topics.create(tx, "t", 1, {}, now_ms=NOW),
        lambda tx: topics.add_partitions(tx, "t", 2),
        lambda tx: topics.alter_config(tx, "t", {"retention.ms": "1"}),
        lambda tx: topics.delete(tx, "t", now_ms=NOW),
    ):
        catalog.write(change)
        versions.append(catalog.read(topology.version))
    assert versions == sorted(set(versions))


def test_new_partitions_are_spread_over_the_brokers_that_stay(catalog):
    for name in ("a", "b", "c"):
        broker(catalog, name)
    catalog.write(lambda tx: topology.set_leaving(tx, "c", leaving=True))
    topic(catalog, "t", 4)
    catalog.write(lambda tx: topics.add_partitions(tx, "t", 6))
    assert sorted(owners(catalog)) == ["a", "a", "a", "b", "b", "b"]


def test_without_brokers_partitions_wait_for_the_first(catalog):
    topic(catalog, "t", 2)
    assert owners(catalog) == [None, None]
    broker(catalog, "a")
    assert catalog.write(topology.adopt) == 2 + COORDINATOR_SHARDS
    assert owners(catalog) == ["a", "a"]
    assert catalog.write(topology.adopt) == 0


def test_what_the_dead_owned_goes_to_the_living_under_a_new_epoch(catalog):
    for name in ("a", "b", "c"):
        broker(catalog, name)
    made = topic(catalog, "t", 9)
    catalog.write(topology.adopt)
    catalog.write(lambda tx: writers.mark_dead(tx, Session("b"), NOW))
    before = catalog.read(topology.read)
    lost = [topic_partition for topic_partition, owner in before.partitions.items() if owner.session == "b"]
    catalog.write(topology.adopt)
    after = catalog.read(topology.read)
    assert list(after.members) == ["a", "c"]
    assert sorted(owners(catalog)).count("b") == 0
    assert {owner.session for owner in after.shards.values()} == {"a", "c"}
    for topic_partition, owner in after.partitions.items():
        assert owner.epoch == before.partitions[topic_partition].epoch + (topic_partition in lost)
    assert len(catalog.read(lambda tx: partitions.of_topic(tx, made.id))) == 9


def test_only_the_owner_gives_and_only_under_its_epoch(catalog):
    broker(catalog, "a")
    made = topic(catalog, "t", 1)
    broker(catalog, "b")
    topic_partition = next(iter(catalog.read(topology.owners)))
    assert topic_partition.topic_id == made.id
    hand_over = topology.hand_over
    assert catalog.write(lambda tx: hand_over(tx, "b", {topic_partition: (1, "b")})) == 0
    assert catalog.write(lambda tx: hand_over(tx, "a", {topic_partition: (2, "b")})) == 0
    assert catalog.write(lambda tx: hand_over(tx, "a", {topic_partition: (1, "nobody")})) == 0
    assert catalog.write(lambda tx: hand_over(tx, "a", {topic_partition: (1, "b")})) == 1
    assert catalog.read(topology.owners)[topic_partition] == ("b", 2)


def test_shards_are_given_like_partitions(catalog):
    broker(catalog, "a")
    catalog.write(topology.adopt)
    broker(catalog, "b")
    assert catalog.write(lambda tx: topology.hand_over_shards(tx, "a", {3: (1, "b"), 4: (9, "b")})) == 1
    assert catalog.read(coordinators.owners)[3] == ("b", 2)
    assert catalog.read(coordinators.owners)[4] == ("a", 1)


def test_members_are_living_brokers_by_number(catalog):
    broker(catalog, "x", node_id=2)
    broker(catalog, "y", node_id=1)
    broker(catalog, "z", node_id=3)
    catalog.write(lambda tx: writers.mark_dead(tx, Session("z"), NOW))
    catalog.write(lambda tx: writers.register(tx, Session("job"), kind="spark", address="", lease_ms=10**9))
    assert [(each.session, each.node_id) for each in catalog.read(topology.members)] == [("y", 1), ("x", 2)]
    assert not catalog.write(lambda tx: topology.set_leaving(tx, "z", leaving=True))


def test_what_is_left_of_leases(catalog):
    broker(catalog, "a")
    rests = catalog.read(writers.lease_remaining_ms)
    assert 10**9 - 60_000 < rests[Session("a")] <= 10**9


def test_what_has_moved_since_is_enough_to_know_everything(catalog):
    """Whatever happens, who reads only the news comes to the same as who reads all."""
    for name in ("a", "b"):
        broker(catalog, name)
    topic(catalog, "t", 3)
    known = catalog.read(topology.read)

    def hand_over(tx):
        topology.bump_version(tx)
        topic_partition, owner = next(each for each in known.partitions.items() if each[1].session == "a")
        assert topology.hand_over(tx, "a", {topic_partition: (owner.epoch, "b")}) == 1

    def mark_dead(tx):
        writers.mark_dead(tx, Session("a"), NOW)
        topology.bump_version(tx)
        topology.adopt(tx)

    for change in (
        hand_over,
        lambda tx: topics.create(tx, "other", 2, {}, now_ms=NOW),
        lambda tx: topics.add_partitions(tx, "other", 4),
        lambda tx: topics.delete(tx, "t", now_ms=NOW),
        mark_dead,
        lambda tx: topics.delete(tx, "other", now_ms=NOW),
    ):
        catalog.write(change)
        whole = catalog.read(topology.read)
        assert whole.version > known.version
        known = catalog.read(topology.read, known)
        assert known == whole


def test_only_what_has_moved_is_read(catalog):
    broker(catalog, "a")
    topic(catalog, "t", 3)
    known = catalog.read(topology.read)
    topic(catalog, "u", 1)
    catalog.write(lambda tx: tx.rows("UPDATE partitions SET owner = 'x' WHERE moved <= ?", (known.version,)))
    found = catalog.read(topology.read, known)
    assert [owner.session for owner in found.partitions.values()] == ["a"] * 4


def test_a_catalog_that_went_back_is_read_anew(catalog):
    broker(catalog, "a")
    topic(catalog, "t", 1)
    ahead = topology.Topology(catalog.read(topology.version) + 5, {}, {}, {})
    assert catalog.read(topology.read, ahead) == catalog.read(topology.read)
