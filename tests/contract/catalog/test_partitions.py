"""Partition rows: claims, epochs and the log start. Coordinator shards follow the same rule."""

import pytest

from millpond.catalog import coordinators, partitions
from millpond.catalog.appends import AppendedShare
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.model.errors import NotOwner, OffsetOutOfRange, UnknownPartition
from millpond.model.ids import TopicPartition


def test_a_claim_raises_the_epoch_and_fences_the_former_owner(catalog):
    topic_partition = catalog.topic_partition()
    first = catalog.write(partitions.claim, topic_partition, "s1")
    second = catalog.write(partitions.claim, topic_partition, "s2")
    assert (first, second) == (1, 2)
    assert isinstance(catalog.append_one(topic_partition, epoch=first), NotOwner)
    assert catalog.append_one(topic_partition, epoch=second) == AppendedShare(0, 2, 0)


def test_claiming_again_raises_the_epoch_even_for_the_same_owner(catalog):
    topic_partition = catalog.topic_partition()
    assert [catalog.write(partitions.claim, topic_partition, "s1") for _ in range(2)] == [1, 2]


def test_claiming_all_takes_only_what_others_hold(catalog):
    topic = catalog.topic(count=3)
    catalog.write(partitions.claim, catalog.topic_partition(topic, 1), "me")
    assert catalog.write(partitions.claim_all, "me") == 2
    assert [row.epoch for row in catalog.read(partitions.owned_by, "me")] == [1, 1, 1]
    assert catalog.write(partitions.claim_all, "me") == 0
    assert catalog.write(partitions.claim_all, "other") == 3
    assert catalog.read(partitions.owned_by, "me") == []


def test_a_partition_that_is_not_there_cannot_be_claimed(catalog):
    topic = catalog.topic()
    with pytest.raises(UnknownPartition):
        catalog.write(partitions.claim, TopicPartition(topic.id, 9), "s1")


def test_the_log_start_only_moves_forward(catalog):
    topic_partition = catalog.topic_partition()
    catalog.append_one(topic_partition, 10)
    assert catalog.write(partitions.advance_log_start, topic_partition, 4) == 4
    assert catalog.write(partitions.advance_log_start, topic_partition, 2) == 4
    assert catalog.write(partitions.advance_log_start, topic_partition, 10) == 10
    assert catalog.partition(topic_partition).log_start == 10
    assert catalog.append_one(topic_partition) == AppendedShare(10, 0, 10)


def test_the_log_start_cannot_pass_the_end(catalog):
    topic_partition = catalog.topic_partition()
    catalog.append_one(topic_partition, 10)
    with pytest.raises(OffsetOutOfRange, match="11 is outside the retained range 0 to 10"):
        catalog.write(partitions.advance_log_start, topic_partition, 11)
    assert catalog.partition(topic_partition).log_start == 0


def test_the_bytes_of_a_topic_are_those_of_its_partitions(catalog):
    topic, other = catalog.topic("b", count=2), catalog.topic("a")
    for number in range(2):
        topic_partition = catalog.topic_partition(topic, number)
        epoch = catalog.write(partitions.claim, topic_partition, "s1")
        catalog.append_one(topic_partition, epoch=epoch)
    size = catalog.read(partitions.of_topic, topic.id)[0].bytes
    assert size > 0
    assert catalog.read(partitions.stored_bytes) == [(other.id, "a", 0), (topic.id, "b", 2 * size)]


def test_every_coordinator_shard_exists_from_the_start(catalog):
    assert catalog.read(coordinators.owners) == dict.fromkeys(range(COORDINATOR_SHARDS), (None, 0))


def test_a_shard_that_moved_on_can_no_longer_be_held(catalog):
    mine = catalog.write(coordinators.claim, [3, 1], "me")
    assert mine == {1: 1, 3: 1}
    catalog.write(coordinators.hold, 3, "me", mine[3])
    catalog.write(coordinators.claim, [3], "other")
    with pytest.raises(NotOwner, match="shard 3"):
        catalog.write(coordinators.hold, 3, "me", mine[3])
    with pytest.raises(NotOwner):
        catalog.write(coordinators.hold, 3, "other", 1)
    catalog.write(coordinators.hold, 1, "me", 1)


def test_a_name_hashes_to_the_same_shard_in_every_version():
    assert [coordinators.shard_of(name) for name in ("billing", "group-1", "größe")] == [42, 40, 9]
