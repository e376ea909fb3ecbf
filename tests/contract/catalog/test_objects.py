"""Objects: counted by their extents, collected only when they can no longer grow."""

import pytest

from millpond.catalog import extents, objects, writers

LATER = 10**9


def collectable(catalog, before=LATER, limit=100):
    return [key for _, key in catalog.read(objects.collectable, dead_before_ms=before, limit=limit)]


def emptied(catalog, key="j1", session="s1", **named):
    """An object that had one extent, which retention took at time 50."""
    topic_partition = catalog.topic_partition(catalog.topic(f"for-{key}"))
    catalog.append_one(topic_partition, to=catalog.object(key, session, **named))
    catalog.write(extents.remove_below, topic_partition, 1, limit=1, now_ms=50)
    return topic_partition


def test_a_growing_journal_adds_up_bytes_and_extents(catalog):
    topic = catalog.topic(count=3)
    journal = catalog.object("j1")
    shares = [catalog.share(catalog.topic_partition(topic, number), stored=True) for number in range(3)]
    catalog.append(*shares, to=journal)
    catalog.append(shares[0], to=journal)
    assert catalog.rows("SELECT bytes, extents, sealed FROM objects") == [(2000, 4, 0)]
    assert catalog.read(objects.totals) == {"journal": (1, 2000)}


def test_ids_are_stable_and_differ(catalog):
    ids = [catalog.write(objects.add, catalog.object(key), extents=1, now_ms=1) for key in ("j1", "j2", "j1")]
    assert ids[0] == ids[2] != ids[1]


def test_an_object_lives_until_its_last_extent_goes(catalog):
    topic = catalog.topic(count=2)
    topic_partitions = [catalog.topic_partition(topic, number) for number in range(2)]
    catalog.append(
        *(catalog.share(w, stored=True) for w in topic_partitions), to=catalog.object("j1", sealed=True)
    )
    catalog.write(extents.remove_below, topic_partitions[0], 1, limit=1, now_ms=50)
    assert collectable(catalog) == []
    assert catalog.rows("SELECT extents, dead_since FROM objects") == [(1, None)]
    catalog.write(extents.remove_below, topic_partitions[1], 1, limit=1, now_ms=60)
    assert collectable(catalog) == ["j1"]
    assert collectable(catalog, before=59) == []
    assert collectable(catalog, before=60) == ["j1"]


def test_several_extents_of_one_object_released_at_once_are_all_counted(catalog):
    topic_partition = catalog.topic_partition()
    for _ in range(3):
        catalog.append_one(topic_partition, to=catalog.object("j1", sealed=True))
    assert catalog.write(extents.remove_below, topic_partition, 3, limit=9, now_ms=50) == 3
    assert catalog.rows("SELECT extents, dead_since FROM objects") == [(0, 50)]


def test_an_unsealed_journal_of_a_living_session_is_never_collected(catalog):
    catalog.writer("s1")
    emptied(catalog)
    assert collectable(catalog) == []
    catalog.write(writers.mark_dead, "s1", 70)
    assert collectable(catalog) == ["j1"]


def test_an_unsealed_journal_is_kept_while_any_lane_of_its_session_lives(catalog):
    catalog.writer("s1")
    catalog.writer("s1", lane=1)
    emptied(catalog)
    assert collectable(catalog) == []


def test_a_sealed_journal_of_a_living_session_is_collected(catalog):
    catalog.writer("s1")
    emptied(catalog, sealed=True)
    assert collectable(catalog) == ["j1"]


def test_a_forgotten_session_leaves_nothing_uncollectable(catalog):
    catalog.writer("s1")
    emptied(catalog)
    catalog.write(writers.mark_dead, "s1", 70)
    catalog.write(writers.forget, "s1")
    assert collectable(catalog) == ["j1"]


def test_a_journal_that_grows_again_is_alive_again(catalog):
    catalog.writer("s1")
    topic_partition = emptied(catalog)
    catalog.append_one(topic_partition, to=catalog.object("j1"))
    assert catalog.rows("SELECT extents, dead_since FROM objects") == [(1, None)]
    catalog.write(writers.mark_dead, "s1", 70)
    assert collectable(catalog) == []


def test_a_writer_that_moved_on_seals_its_earlier_journals_only(catalog):
    for session in ("s1", "s2"):
        catalog.writer(session)
    for key, session in (("a1", "s1"), ("a2", "s1"), ("b1", "s2")):
        emptied(catalog, key, session)
    emptied(catalog, "seg", "s1", kind="segment")
    catalog.write(objects.seal_earlier, "s1", "a2")
    assert collectable(catalog) == ["a1"]


def test_the_longest_dead_are_collected_first_within_the_limit(catalog):
    for key, died in (("late", 30), ("early", 10), ("middle", 20)):
        added = catalog.write(objects.add, catalog.object(key, sealed=True), extents=1, now_ms=1)
        catalog.write(objects.release, [added], now_ms=died)
    assert collectable(catalog, limit=2) == ["early", "middle"]


def test_forgetting_takes_dead_objects_and_leaves_living_ones(catalog):
    dead, living = (
        catalog.write(objects.add, catalog.object(key, sealed=True), extents=1, now_ms=1) for key in "ab"
    )
    catalog.write(objects.release, [dead], now_ms=5)
    catalog.write(objects.forget, [dead, living])
    assert catalog.rows("SELECT key FROM objects") == [("b",)]


def test_the_known_keys_of_a_session_are_its_own(catalog):
    for key, session in (("a1", "s1"), ("a2", "s1"), ("b1", "s2")):
        catalog.write(objects.add, catalog.object(key, session), extents=1, now_ms=1)
    assert catalog.read(objects.known_keys, "s1") == {"a1", "a2"}
    assert catalog.read(objects.known_keys, "s3") == set()


@pytest.mark.parametrize("times", [1, 2])
def test_collecting_is_safe_to_repeat(catalog, times):
    emptied(catalog, sealed=True)
    found = catalog.read(objects.collectable, dead_before_ms=LATER, limit=9)
    for _ in range(times):
        catalog.write(objects.forget, [object_id for object_id, _ in found])
    assert catalog.read(objects.totals) == {}
