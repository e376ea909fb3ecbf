"""Compaction in the catalog: many extents for many in one transaction, the points with them, all or nothing."""

import dataclasses
import itertools
import threading

import pytest

from millpond.catalog import compactions, extents, objects, partitions, topics
from millpond.catalog.compactions import POINTS_PER_RETENTION, TOMBSTONES_REMOVED, CompactionPoint, thinned
from millpond.catalog.extents import NewExtent
from millpond.catalog.transactions import last_stable_offset
from millpond.model.errors import ExtentsChanged
from millpond.model.topics import TopicConfig
from millpond.rewriting.commits import commit_compaction
from millpond.rewriting.compaction import Compacted, CompactedSegment, plan_compaction
from millpond.rewriting.compaction_keys import NO_TOMBSTONE
from millpond.rewriting.inputs import read_state


def filled(catalog, times=(9, 3, 12, 4, 5), **named):
    topic_partition = catalog.topic_partition(catalog.topic(**{"cleanup.policy": "compact"}))
    for newest in times:
        catalog.append_one(topic_partition, 5, times=(0, newest), **named)
    return topic_partition


def facts(catalog, topic_partition):
    return catalog.read(extents.facts, topic_partition, 0, 100)


def segment(catalog, old, key, length=30):
    """`old` extents become one of this length."""
    row = NewExtent(
        old[0].topic_partition,
        old[0].base_offset,
        old[-1].end_offset,
        0,
        None,
        64,
        length,
        2,
        1,
        2,
        2,
        True,
        None,
        None,
    )
    return CompactedSegment(tuple(old), row, catalog.object(key, kind="segment", sealed=True))


def compacted(catalog, topic_partition, *segments, clean_end=25, first_tombstone=3, defaults=None):
    """A deed by a plan of the time 1."""
    named = {"broker_defaults": defaults} if defaults else {}
    config = config_of(catalog, topic_partition, defaults or {})
    plan = plan_compaction(catalog.read(read_state, topic_partition), config, now_ms=1, force=True, **named)
    return Compacted(plan, segments, clean_end, first_tombstone, 0, 0, 0)


def config_of(catalog, topic_partition, defaults) -> TopicConfig:
    topic = next(t for t in catalog.read(topics.all_topics) if t.id == topic_partition.topic_id)
    return dataclasses.replace(topic, broker_defaults=defaults).config()


def state(catalog, topic_partition):
    return (
        facts(catalog, topic_partition),
        catalog.partition(topic_partition),
        catalog.read(compactions.read, topic_partition),
        catalog.rows("SELECT key, extents, dead_since FROM objects ORDER BY key"),
    )


def test_several_segments_take_the_place_of_several_extents_and_the_rest_stays(catalog):
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)
    done = compacted(
        catalog, topic_partition, segment(catalog, old[:2], "s1"), segment(catalog, old[3:], "s2", 0)
    )
    catalog.write(commit_compaction, done, now_ms=9)
    found = [(e.base_offset, e.end_offset, e.key, e.length) for e in facts(catalog, topic_partition)]
    assert found == [(0, 10, "s1", 30), (10, 15, None, 100), (15, 25, "s2", 0)]
    assert catalog.partition(topic_partition).bytes == 130
    assert catalog.read(compactions.read, topic_partition) == ((25, 9),)


def test_what_is_newest_up_to_an_extent_never_falls(catalog):
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)
    done = compacted(
        catalog, topic_partition, segment(catalog, old[:2], "s1"), segment(catalog, old[3:], "s2")
    )
    catalog.write(commit_compaction, done, now_ms=9)
    highs = catalog.rows("SELECT high_timestamp FROM extents ORDER BY base_offset")
    assert [row[0] for row in highs] == [9, 12, 12]
    found = catalog.read(extents.first_with_timestamp, topic_partition, 10)
    assert found.base_offset == 10
    assert catalog.read(extents.first_with_timestamp, topic_partition, 2).base_offset == 0
    assert catalog.read(extents.with_newest_timestamp, topic_partition).base_offset == 10


def test_objects_that_nothing_refers_to_any_more_are_released(catalog):
    topic_partition = filled(catalog, times=())
    for key in ("j1", "j1", "j2", "j2", "j2"):
        catalog.append_one(topic_partition, 5, to=catalog.object(key, sealed=True))
    old = facts(catalog, topic_partition)
    done = compacted(
        catalog, topic_partition, segment(catalog, old[:3], "s1"), segment(catalog, old[3:4], "s2")
    )
    catalog.write(commit_compaction, done, now_ms=9)
    counts = dict(catalog.rows("SELECT key, extents FROM objects"))
    assert counts == {"j1": 0, "j2": 1, "s1": 1, "s2": 1}
    assert [key for _, key in catalog.read(objects.collectable, dead_before_ms=9, limit=9)] == ["j1"]


@pytest.mark.parametrize("change", ["removed", "merged", "compacted", "deleted"])
def test_if_anything_changed_nothing_is_done(catalog, change):
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)
    done = compacted(
        catalog, topic_partition, segment(catalog, old[:2], "s1"), segment(catalog, old[3:], "s2")
    )
    if change == "removed":
        catalog.write(extents.remove_below, topic_partition, 5, limit=1, now_ms=1)
    elif change == "merged":
        theirs = segment(catalog, old[3:], "theirs")
        catalog.write(extents.replace, old[3:], theirs.row, theirs.new_object, now_ms=1)
    elif change == "compacted":
        catalog.write(compactions.write, topic_partition, [CompactionPoint(3, 3)])
    else:
        catalog.write(topics.delete, "orders", now_ms=1)
        catalog.write(extents.remove_below, topic_partition, 99, limit=9, now_ms=1)
        catalog.write(topics.forget, topic_partition.topic_id)
    before = state(catalog, topic_partition) if change != "deleted" else None
    with pytest.raises(ExtentsChanged):
        catalog.write(commit_compaction, done, now_ms=9)
    if before is not None:
        assert state(catalog, topic_partition) == before
    assert catalog.rows("SELECT key FROM objects WHERE key IN (?, ?)", "s1", "s2") == []


@pytest.mark.parametrize("is_removed", [True, False])
def test_what_expired_meanwhile_does_not_undo_it(catalog, is_removed):
    """The log start has moved; what lies below it may still be there, or has been removed."""
    topic_partition = filled(catalog, to=catalog.object("j1", sealed=True))
    old = facts(catalog, topic_partition)
    deeds = [
        segment(catalog, old[:1], "s1"),
        segment(catalog, old[1:3], "s2"),
        segment(catalog, old[4:], "s3"),
    ]
    done = compacted(catalog, topic_partition, *deeds)
    catalog.write(partitions.advance_log_start, topic_partition, 12)
    if is_removed:
        assert catalog.write(extents.remove_below, topic_partition, 12, limit=9, now_ms=1) == 2
    assert catalog.write(commit_compaction, done, now_ms=9) == ["s1"]
    found = [(e.base_offset, e.end_offset, e.key, e.length) for e in facts(catalog, topic_partition)]
    assert found == [(5, 15, "s2", 30), (15, 20, "j1", 100), (20, 25, "s3", 30)]
    assert catalog.partition(topic_partition).bytes == 160
    counts = dict(catalog.rows("SELECT key, extents FROM objects"))
    assert counts == {"j1": 1, "s2": 1, "s3": 1}
    highs = catalog.rows("SELECT high_timestamp FROM extents ORDER BY base_offset")
    assert [row[0] for row in highs] == [12, 12, 12]


def test_when_everything_has_expired_no_row_is_left(catalog):
    topic_partition = filled(catalog)
    done = compacted(catalog, topic_partition, segment(catalog, facts(catalog, topic_partition), "s1"))
    catalog.write(partitions.advance_log_start, topic_partition, 25)
    assert catalog.write(commit_compaction, done, now_ms=9) == ["s1"]
    assert (facts(catalog, topic_partition), catalog.partition(topic_partition).bytes) == ([], 0)
    assert catalog.rows("SELECT key FROM objects") == []


def test_an_extent_that_holds_the_log_start_must_be_as_it_was(catalog):
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)
    done = compacted(catalog, topic_partition, segment(catalog, old, "s1"))
    catalog.write(partitions.advance_log_start, topic_partition, 12)
    catalog.write(extents.remove_below, topic_partition, 15, limit=9, now_ms=1)
    before = state(catalog, topic_partition)
    with pytest.raises(ExtentsChanged):
        catalog.write(commit_compaction, done, now_ms=9)
    assert state(catalog, topic_partition) == before


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({"cleanup.policy": "delete"}, True),
        ({"cleanup.policy": None}, True),
        ({"cleanup.policy": "compact,delete"}, False),
        ({"delete.retention.ms": "99"}, True),
        ({"min.compaction.lag.ms": "1"}, True),
        ({"min.cleanable.dirty.ratio": "1"}, False),
    ],
)
def test_configs_must_still_ask_for_it(catalog, changes, is_refused):
    topic_partition = filled(catalog)
    done = compacted(catalog, topic_partition)
    catalog.write(topics.alter_config, "orders", changes)
    if is_refused:
        with pytest.raises(ExtentsChanged):
            catalog.write(commit_compaction, done, now_ms=9)
    else:
        catalog.write(commit_compaction, done, now_ms=9)
    assert (catalog.read(compactions.read, topic_partition) == ()) == is_refused


def test_what_a_topic_does_not_set_is_what_its_broker_says(catalog):
    topic_partition = filled(catalog)
    defaults = {"cleanup.policy": "compact", "delete.retention.ms": "5"}
    catalog.write(topics.alter_config, "orders", {"cleanup.policy": None})
    catalog.write(
        commit_compaction, compacted(catalog, topic_partition, clean_end=20, defaults=defaults), now_ms=9
    )
    done = compacted(catalog, topic_partition, defaults=defaults)
    catalog.write(topics.alter_config, "orders", {"delete.retention.ms": "5"})
    catalog.write(commit_compaction, done, now_ms=9)
    assert catalog.read(compactions.read, topic_partition)[-1] == (25, 9)


def test_points_alone_are_not_written_for_a_topic_that_is_gone(catalog):
    topic_partition = filled(catalog)
    done = compacted(catalog, topic_partition)
    catalog.write(topics.delete, "orders", now_ms=1)
    catalog.write(topics.forget, topic_partition.topic_id)
    with pytest.raises(ExtentsChanged):
        catalog.write(commit_compaction, done, now_ms=9)
    assert catalog.rows("SELECT * FROM compactions") == []


def test_a_compaction_that_changed_no_extent_still_moves_the_point(catalog):
    topic_partition = filled(catalog)
    before = facts(catalog, topic_partition)
    for clean_end, first_tombstone, now_ms in ((10, NO_TOMBSTONE, 8), (25, 12, 9)):
        done = compacted(catalog, topic_partition, clean_end=clean_end, first_tombstone=first_tombstone)
        assert catalog.write(commit_compaction, done, now_ms=now_ms) == []
    assert catalog.read(compactions.read, topic_partition) == ((10, TOMBSTONES_REMOVED), (25, 9))
    assert facts(catalog, topic_partition) == before


def test_of_two_compactions_of_the_same_state_one_wins(durable_catalog):
    """Even if neither replaces an extent of the other's: the points tell."""
    catalog = durable_catalog
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)
    deeds = [
        compacted(catalog, topic_partition, segment(catalog, old[:2], "s1"), clean_end=20),
        compacted(catalog, topic_partition, segment(catalog, old[3:], "s2"), clean_end=24),
        compacted(catalog, topic_partition, clean_end=25),
    ]
    together, outcomes = threading.Barrier(len(deeds)), []

    def commit(done):
        together.wait()
        try:
            catalog.write(commit_compaction, done, now_ms=9)
            outcomes.append(((done.clean_end, 9),))
        except ExtentsChanged:
            outcomes.append(None)

    threads = [threading.Thread(target=commit, args=(done,)) for done in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 3
    [winner] = [points for points in outcomes if points is not None]
    assert catalog.read(compactions.read, topic_partition) == winner


def test_appends_go_on_around_it(catalog):
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)
    done = compacted(catalog, topic_partition, segment(catalog, old, "s1", 10))
    assert catalog.append_one(topic_partition, 2).base_offset == 25
    catalog.write(commit_compaction, done, now_ms=9)
    assert catalog.append_one(topic_partition, 2).base_offset == 27
    assert catalog.partition(topic_partition).bytes == 210


def test_the_state_is_read_with_what_is_stable(catalog):
    topic_partition = filled(catalog)
    found = catalog.read(read_state, topic_partition)
    assert found.last_stable_offset == catalog.read(last_stable_offset, topic_partition, 25) == 25
    assert [e.base_offset for e in found.extents] == [0, 5, 10, 15, 20]
    assert (found.row, found.points, found.aborted) == (catalog.partition(topic_partition), (), ())


def test_points_of_other_partitions_are_their_own(catalog):
    topic = catalog.topic(count=2)
    one, other = catalog.topic_partition(topic, 0), catalog.topic_partition(topic, 1)
    catalog.write(compactions.write, one, [CompactionPoint(5, 1), CompactionPoint(9, 2)])
    catalog.write(compactions.write, other, [CompactionPoint(7, 3)])
    catalog.write(compactions.write, one, [CompactionPoint(9, 0)])
    assert catalog.read(compactions.read, one) == ((9, 0),)
    assert catalog.read(compactions.read, other) == ((7, 3),)


def test_every_compaction_leaves_another_mark(catalog):
    topic_partition = filled(catalog)
    catalog.write(partitions.claim, topic_partition, "me")
    seen = [catalog.read(compactions.marks, "me")]
    assert seen == [{}]
    for points in ([(5, 1)], [(5, 1), (9, 2)], [(9, TOMBSTONES_REMOVED)], [(9, TOMBSTONES_REMOVED), (12, 3)]):
        catalog.write(compactions.write, topic_partition, [CompactionPoint(*point) for point in points])
        mark = catalog.read(compactions.marks, "me")
        assert list(mark) == [topic_partition]
        assert catalog.read(compactions.marks, "another") == {}
        assert mark not in seen
        seen.append(mark)


def test_points_do_not_pile_up_and_none_is_pushed_ahead_for_long():
    retention = 32_000
    apart = retention // POINTS_PER_RETENTION
    points: list[CompactionPoint] = []
    for now in range(1, 3 * retention, 100):
        points = [p for p in points if p.compacted_at + retention > now]
        points = thinned([*points, CompactionPoint(now, now)], retention)
        assert len(points) <= 2 * POINTS_PER_RETENTION + 2
        assert points[-1] == (now, now)
        for before, after in itertools.pairwise(points):
            assert after.end_offset - before.end_offset <= apart + 100
