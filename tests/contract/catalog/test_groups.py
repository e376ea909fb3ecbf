"""Groups and their offsets."""

import dataclasses
import random

import pytest

from millpond.catalog import coordinators, groups, transactions
from millpond.catalog.groups import GroupName, GroupOffset, GroupRow
from millpond.model.errors import NotOwner
from millpond.model.group_ids import GROUP_ID_BYTES_MAX, MEMBER_ID_BYTES_MAX

PRINTABLE = [chr(code) for code in range(33, 127)]
GROUP = GroupRow("g1", 3, "consumer", "Stable", '{"m1": "ünïcode"}', 100)


def commit(catalog, group_id, *offsets, now_ms=100):
    catalog.write(groups.commit_offsets, group_id, offsets, now_ms=now_ms)


def test_a_saved_group_is_found_by_name_and_by_shard(catalog):
    catalog.write(groups.save, GROUP)
    later = dataclasses.replace(GROUP, generation=4, state="Empty", members="{}", updated_at=200)
    catalog.write(groups.save, later)
    assert catalog.read(groups.find, "g1") == later
    shard = coordinators.shard_of("g1")
    assert catalog.read(groups.of_shard, shard) == [later]
    assert catalog.read(groups.of_shard, shard + 1) == []
    assert catalog.read(groups.find, "g2") is None


def test_a_group_write_of_a_coordinator_that_moved_on_is_refused_whole(catalog):
    shard = coordinators.shard_of("g1")
    (epoch,) = catalog.write(coordinators.claim, [shard], "me").values()
    topic_partition = catalog.topic_partition()

    def write(tx):
        coordinators.hold(tx, shard, "me", epoch)
        groups.save(tx, GROUP)
        groups.commit_offsets(tx, "g1", [GroupOffset(topic_partition, 1)], now_ms=1)

    catalog.write(coordinators.claim, [shard], "other")
    with pytest.raises(NotOwner):
        catalog.write(write)
    assert catalog.read(groups.find, "g1") is None
    assert catalog.read(groups.committed_offsets, "g1") == []


def test_the_latest_committed_offset_counts_even_if_it_is_lower(catalog):
    topic = catalog.topic(count=2)
    first, second = catalog.topic_partition(topic), catalog.topic_partition(topic, 1)
    commit(catalog, "g1", GroupOffset(second, 9), GroupOffset(first, 5, 1, "five"))
    commit(catalog, "g1", GroupOffset(first, 3, 2, "three"))
    assert catalog.read(groups.committed_offsets, "g1") == [
        GroupOffset(first, 3, 2, "three"),
        GroupOffset(second, 9),
    ]
    assert catalog.read(groups.committed_offsets, "g2") == []


def test_offsets_are_deleted_one_by_one_or_with_their_group(catalog):
    topic = catalog.topic(count=3)
    topic_partitions = [catalog.topic_partition(topic, number) for number in range(3)]
    catalog.write(groups.save, GROUP)
    for group_id in ("g1", "g2"):
        commit(catalog, group_id, *(GroupOffset(topic_partition, 1) for topic_partition in topic_partitions))
    assert catalog.write(groups.delete_offsets, "g1", [topic_partitions[0], topic_partitions[0]]) == 1
    assert [
        each.topic_partition for each in catalog.read(groups.committed_offsets, "g1")
    ] == topic_partitions[1:]
    assert catalog.write(groups.delete, "g1") is True
    assert catalog.write(groups.delete, "g1") is False
    assert catalog.read(groups.committed_offsets, "g1") == []
    assert len(catalog.read(groups.committed_offsets, "g2")) == 3


def begin_transaction(catalog, group_id, *offsets):
    producer = catalog.write(transactions.begin_producer, "pay", 60_000, now_ms=1).producer
    catalog.write(transactions.add_offsets, producer, group_id, offsets, now_ms=1, opens=True)
    return producer


def test_offsets_that_hang_on_a_transaction_are_known_and_deleted_with_the_others(catalog):
    topic = catalog.topic(count=3)
    topic_partitions = [catalog.topic_partition(topic, number) for number in range(3)]
    producer = begin_transaction(
        catalog, "g1", *(GroupOffset(topic_partition, 9) for topic_partition in topic_partitions[:2])
    )
    assert sorted(catalog.read(groups.pending_offsets, "g1")) == topic_partitions[:2]
    assert catalog.read(groups.pending_offsets, "g2") == []
    assert catalog.read(groups.has_offsets, "g1") is False
    assert catalog.write(groups.delete_offsets, "g1", topic_partitions[:1]) == 0
    assert catalog.read(groups.pending_offsets, "g1") == topic_partitions[1:2]
    assert catalog.write(groups.delete, "g1") is True
    assert catalog.write(groups.delete, "g1") is False
    catalog.write(transactions.end, producer, commit=True, bump_epoch=False, now_ms=2)
    assert catalog.read(groups.committed_offsets, "g1") == []


def test_a_group_of_which_there_are_only_offsets_is_known(catalog):
    topic_partition = catalog.topic_partition()
    catalog.write(groups.save, GROUP)
    commit(catalog, "g1", GroupOffset(topic_partition, 1))
    commit(catalog, "g0", GroupOffset(topic_partition, 1))
    assert catalog.read(groups.all_groups) == [
        GroupName("g0", "", "Empty"),
        GroupName("g1", "consumer", "Stable"),
    ]
    assert catalog.read(groups.has_offsets, "g0") is True
    assert catalog.read(groups.has_offsets, "g2") is False
    assert catalog.write(groups.delete, "g0") is True
    assert [each.group_id for each in catalog.read(groups.all_groups)] == ["g1"]


def test_groups_with_neither_members_nor_offsets_are_forgotten(catalog):
    topic_partition = catalog.topic_partition()
    empty = dataclasses.replace(GROUP, state="Empty", members="{}")
    for group in (GROUP, *(dataclasses.replace(empty, group_id=name) for name in ("g2", "g3", "g4"))):
        catalog.write(groups.save, group)
    commit(catalog, "g2", GroupOffset(topic_partition, 1))
    begin_transaction(catalog, "g3", GroupOffset(topic_partition, 1))
    assert catalog.write(groups.forget_empty) == 1
    assert [each.group_id for each in catalog.read(groups.all_groups)] == ["g1", "g2", "g3"]


def test_empty_share_groups_are_not_forgotten(catalog):
    """Their positions are those of subscriptions."""
    empty = dataclasses.replace(GROUP, state="Empty")
    catalog.write(groups.save, dataclasses.replace(empty, group_id="s", type=groups.SHARE))
    catalog.write(groups.save, dataclasses.replace(empty, group_id="c", type=groups.CONSUMER))
    assert catalog.write(groups.forget_empty) == 1
    assert [each.group_id for each in catalog.read(groups.all_groups)] == ["s"]


@pytest.mark.parametrize(
    ("group", "expired"),
    [
        (None, True),
        (dataclasses.replace(GROUP, state="Empty", updated_at=499), True),
        (dataclasses.replace(GROUP, state="Empty", updated_at=500), False),
        (dataclasses.replace(GROUP, state="Stable", updated_at=1), False),
    ],
)
def test_offsets_expire_when_their_group_has_been_empty_and_silent_for_long(catalog, group, expired):
    topic = catalog.topic(count=2)
    old, recent = (
        GroupOffset(catalog.topic_partition(topic), 1),
        GroupOffset(catalog.topic_partition(topic, 1), 1),
    )
    if group is not None:
        catalog.write(groups.save, group)
    commit(catalog, "g1", old, now_ms=499)
    commit(catalog, "g1", recent, now_ms=500)
    assert catalog.write(groups.expire_offsets, unused_since_ms=500) == expired
    left = catalog.read(groups.committed_offsets, "g1")
    assert left == ([recent] if expired else [old, recent])


CONSUMER_GROUP = GroupRow("g1", 7, "consumer", "Stable", "{}", 100, groups.CONSUMER, '{"target_epoch":7}')


def test_a_group_of_the_consumer_protocol_has_rows_of_its_members(catalog):
    catalog.write(groups.save, CONSUMER_GROUP)
    catalog.write(groups.save_members, "g1", {"m1": "one", "m2": "zwölf", "m3": "three"})
    catalog.write(groups.save_members, "g2", {"m1": "of another group"})
    catalog.write(groups.save_members, "g1", {"m1": "changed", "m3": None, "never": None})
    assert catalog.read(groups.find, "g1") == CONSUMER_GROUP
    assert catalog.read(groups.members, "g1") == {"m1": "changed", "m2": "zwölf"}
    assert catalog.read(groups.members, "absent") == {}


def test_the_longest_ids_are_stored(catalog):
    """Of bytes that no compression makes shorter."""
    rng = random.Random(1)
    group_id = "".join(rng.choices(PRINTABLE, k=GROUP_ID_BYTES_MAX))
    member_id = "".join(rng.choices(PRINTABLE, k=MEMBER_ID_BYTES_MAX))
    catalog.write(groups.save_members, group_id, {member_id: "one"})
    assert catalog.read(groups.members, group_id) == {member_id: "one"}


def test_an_epoch_is_saved_without_the_rest_of_the_group(catalog):
    catalog.write(groups.save, CONSUMER_GROUP)
    catalog.write(groups.save_epoch, "g1", 8, "Empty", now_ms=200)
    expected = dataclasses.replace(CONSUMER_GROUP, generation=8, state="Empty", updated_at=200)
    assert catalog.read(groups.find, "g1") == expected
    assert catalog.read(groups.all_groups) == [GroupName("g1", "consumer", "Empty", groups.CONSUMER)]


def test_a_group_that_becomes_a_classic_one_has_no_rows_of_members(catalog):
    catalog.write(groups.save, CONSUMER_GROUP)
    catalog.write(groups.save_members, "g1", {"m1": "one"})
    catalog.write(groups.save, GROUP)
    assert catalog.read(groups.find, "g1") == GROUP
    assert catalog.read(groups.members, "g1") == {}


def test_a_group_is_deleted_with_its_members(catalog):
    catalog.write(groups.save, CONSUMER_GROUP)
    catalog.write(groups.save_members, "g1", {"m1": "one"})
    assert catalog.write(groups.delete, "g1")
    assert catalog.read(groups.find, "g1") is None
    assert catalog.read(groups.members, "g1") == {}
