"""Groups and their offsets."""

import dataclasses

import pytest

from millpond.catalog import coordinators, groups
from millpond.catalog.groups import GroupOffset, GroupRow
from millpond.model.errors import NotOwner

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
    where = catalog.where()

    def write(tx):
        coordinators.hold(tx, shard, "me", epoch)
        groups.save(tx, GROUP)
        groups.commit_offsets(tx, "g1", [GroupOffset(where, 1)], now_ms=1)

    catalog.write(coordinators.claim, [shard], "other")
    with pytest.raises(NotOwner):
        catalog.write(write)
    assert catalog.read(groups.find, "g1") is None
    assert catalog.read(groups.committed_offsets, "g1") == []


def test_the_latest_committed_offset_counts_even_if_it_is_lower(catalog):
    topic = catalog.topic(count=2)
    first, second = catalog.where(topic), catalog.where(topic, 1)
    commit(catalog, "g1", GroupOffset(second, 9), GroupOffset(first, 5, 1, "five"))
    commit(catalog, "g1", GroupOffset(first, 3, 2, "three"))
    assert catalog.read(groups.committed_offsets, "g1") == [
        GroupOffset(first, 3, 2, "three"),
        GroupOffset(second, 9),
    ]
    assert catalog.read(groups.committed_offsets, "g2") == []


def test_offsets_are_deleted_one_by_one_or_with_their_group(catalog):
    topic = catalog.topic(count=3)
    wheres = [catalog.where(topic, number) for number in range(3)]
    catalog.write(groups.save, GROUP)
    for group_id in ("g1", "g2"):
        commit(catalog, group_id, *(GroupOffset(where, 1) for where in wheres))
    assert catalog.write(groups.delete_offsets, "g1", [wheres[0], wheres[0]]) == 1
    assert [each.where for each in catalog.read(groups.committed_offsets, "g1")] == wheres[1:]
    assert catalog.write(groups.delete, "g1") is True
    assert catalog.write(groups.delete, "g1") is False
    assert catalog.read(groups.committed_offsets, "g1") == []
    assert len(catalog.read(groups.committed_offsets, "g2")) == 3


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
    old, recent = GroupOffset(catalog.where(topic), 1), GroupOffset(catalog.where(topic, 1), 1)
    if group is not None:
        catalog.write(groups.save, group)
    commit(catalog, "g1", old, now_ms=499)
    commit(catalog, "g1", recent, now_ms=500)
    assert catalog.write(groups.expire_offsets, unused_since_ms=500) == expired
    left = catalog.read(groups.committed_offsets, "g1")
    assert left == ([recent] if expired else [old, recent])
