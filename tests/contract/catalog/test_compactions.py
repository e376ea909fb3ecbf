"""Compaction in the catalog: many extents for many in one transaction, the points with them, all or nothing."""

import dataclasses
import itertools
import threading

import pytest

from millpond.catalog import compactions, extents, objects, partitions, topics
from millpond.catalog.compactions import POINTS_PER_RETENTION, TOMBSTONES_GONE, CompactionPoint, thinned
from millpond.catalog.extents import NewExtent
from millpond.catalog.transactions import last_stable_offset
from millpond.model.errors import ExtentsChanged
from millpond.model.topics import TopicConfig
from millpond.rewriting.compaction import Compacted, CompactedSegment, plan_compaction, read_state
from millpond.rewriting.compaction_commit import register
from millpond.rewriting.compaction_keys import NO_TOMBSTONE


def filled(catalog, times=(9, 3, 12, 4, 5), **named):
    where = catalog.where(catalog.topic(**{"cleanup.policy": "compact"}))
    for newest in times:
        catalog.append_one(where, 5, times=(0, newest), **named)
    return where


def facts(catalog, where):
    return catalog.read(extents.facts, where, 0, 100)


def segment(catalog, old, key, length=30):
    """`old` extents become one of this length."""
    row = NewExtent(
        old[0].where,
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


def compacted(catalog, where, *segments, clean_end=25, first_tombstone=3, defaults=None):
    """A deed by a plan of the time 1."""
    named = {"broker_defaults": defaults} if defaults else {}
    config = config_of(catalog, where, defaults or {})
    plan = plan_compaction(catalog.read(read_state, where), config, now_ms=1, force=True, **named)
    return Compacted(plan, segments, clean_end, first_tombstone, 0, 0, 0)


def config_of(catalog, where, defaults) -> TopicConfig:
    topic = next(t for t in catalog.read(topics.all_topics) if t.id == where.topic_id)
    return dataclasses.replace(topic, broker_defaults=defaults).config()


def state(catalog, where):
    return (
        facts(catalog, where),
        catalog.partition(where),
        catalog.read(compactions.read, where),
        catalog.rows("SELECT key, extents, dead_since FROM objects ORDER BY key"),
    )


def test_several_segments_take_the_place_of_several_extents_and_the_rest_stays(catalog):
    where = filled(catalog)
    old = facts(catalog, where)
    done = compacted(catalog, where, segment(catalog, old[:2], "s1"), segment(catalog, old[3:], "s2", 0))
    catalog.write(register, done, now_ms=9)
    found = [(e.base_offset, e.end_offset, e.key, e.length) for e in facts(catalog, where)]
    assert found == [(0, 10, "s1", 30), (10, 15, None, 100), (15, 25, "s2", 0)]
    assert catalog.partition(where).bytes == 130
    assert catalog.read(compactions.read, where) == ((25, 9),)


def test_what_is_newest_up_to_an_extent_never_falls(catalog):
    where = filled(catalog)
    old = facts(catalog, where)
    done = compacted(catalog, where, segment(catalog, old[:2], "s1"), segment(catalog, old[3:], "s2"))
    catalog.write(register, done, now_ms=9)
    highs = catalog.rows("SELECT high_timestamp FROM extents ORDER BY base_offset")
    assert [row[0] for row in highs] == [9, 12, 12]
    found = catalog.read(extents.first_with_timestamp, where, 10)
    assert found.base_offset == 10
    assert catalog.read(extents.first_with_timestamp, where, 2).base_offset == 0
    assert catalog.read(extents.with_newest_timestamp, where).base_offset == 10


def test_objects_that_nothing_refers_to_any_more_are_released(catalog):
    where = filled(catalog, times=())
    for key in ("j1", "j1", "j2", "j2", "j2"):
        catalog.append_one(where, 5, to=catalog.object(key, sealed=True))
    old = facts(catalog, where)
    done = compacted(catalog, where, segment(catalog, old[:3], "s1"), segment(catalog, old[3:4], "s2"))
    catalog.write(register, done, now_ms=9)
    counts = dict(catalog.rows("SELECT key, extents FROM objects"))
    assert counts == {"j1": 0, "j2": 1, "s1": 1, "s2": 1}
    assert [key for _, key in catalog.read(objects.collectable, dead_before_ms=9, limit=9)] == ["j1"]


@pytest.mark.parametrize("change", ["removed", "merged", "compacted", "deleted"])
def test_if_anything_changed_nothing_is_done(catalog, change):
    where = filled(catalog)
    old = facts(catalog, where)
    done = compacted(catalog, where, segment(catalog, old[:2], "s1"), segment(catalog, old[3:], "s2"))
    if change == "removed":
        catalog.write(extents.remove_below, where, 5, limit=1, now_ms=1)
    elif change == "merged":
        theirs = segment(catalog, old[3:], "theirs")
        catalog.write(extents.replace, old[3:], theirs.row, theirs.new_object, now_ms=1)
    elif change == "compacted":
        catalog.write(compactions.write, where, [CompactionPoint(3, 3)])
    else:
        catalog.write(topics.delete, "orders", now_ms=1)
        catalog.write(extents.remove_below, where, 99, limit=9, now_ms=1)
        catalog.write(topics.forget, where.topic_id)
    before = state(catalog, where) if change != "deleted" else None
    with pytest.raises(ExtentsChanged):
        catalog.write(register, done, now_ms=9)
    if before is not None:
        assert state(catalog, where) == before
    assert catalog.rows("SELECT key FROM objects WHERE key IN (?, ?)", "s1", "s2") == []


@pytest.mark.parametrize("is_removed", [True, False])
def test_what_expired_meanwhile_does_not_undo_it(catalog, is_removed):
    """The log start has moved; what lies below it may still be there, or has been removed."""
    where = filled(catalog, to=catalog.object("j1", sealed=True))
    old = facts(catalog, where)
    deeds = [
        segment(catalog, old[:1], "s1"),
        segment(catalog, old[1:3], "s2"),
        segment(catalog, old[4:], "s3"),
    ]
    done = compacted(catalog, where, *deeds)
    catalog.write(partitions.advance_log_start, where, 12)
    if is_removed:
        assert catalog.write(extents.remove_below, where, 12, limit=9, now_ms=1) == 2
    assert catalog.write(register, done, now_ms=9) == ["s1"]
    found = [(e.base_offset, e.end_offset, e.key, e.length) for e in facts(catalog, where)]
    assert found == [(5, 15, "s2", 30), (15, 20, "j1", 100), (20, 25, "s3", 30)]
    assert catalog.partition(where).bytes == 160
    counts = dict(catalog.rows("SELECT key, extents FROM objects"))
    assert counts == {"j1": 1, "s2": 1, "s3": 1}
    highs = catalog.rows("SELECT high_timestamp FROM extents ORDER BY base_offset")
    assert [row[0] for row in highs] == [12, 12, 12]


def test_when_everything_has_expired_no_row_is_left(catalog):
    where = filled(catalog)
    done = compacted(catalog, where, segment(catalog, facts(catalog, where), "s1"))
    catalog.write(partitions.advance_log_start, where, 25)
    assert catalog.write(register, done, now_ms=9) == ["s1"]
    assert (facts(catalog, where), catalog.partition(where).bytes) == ([], 0)
    assert catalog.rows("SELECT key FROM objects") == []


def test_an_extent_that_holds_the_log_start_must_be_as_it_was(catalog):
    where = filled(catalog)
    old = facts(catalog, where)
    done = compacted(catalog, where, segment(catalog, old, "s1"))
    catalog.write(partitions.advance_log_start, where, 12)
    catalog.write(extents.remove_below, where, 15, limit=9, now_ms=1)
    before = state(catalog, where)
    with pytest.raises(ExtentsChanged):
        catalog.write(register, done, now_ms=9)
    assert state(catalog, where) == before


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
    where = filled(catalog)
    done = compacted(catalog, where)
    catalog.write(topics.alter_config, "orders", changes)
    if is_refused:
        with pytest.raises(ExtentsChanged):
            catalog.write(register, done, now_ms=9)
    else:
        catalog.write(register, done, now_ms=9)
    assert (catalog.read(compactions.read, where) == ()) == is_refused


def test_what_a_topic_does_not_set_is_what_its_broker_says(catalog):
    where = filled(catalog)
    defaults = {"cleanup.policy": "compact", "delete.retention.ms": "5"}
    catalog.write(topics.alter_config, "orders", {"cleanup.policy": None})
    catalog.write(register, compacted(catalog, where, clean_end=20, defaults=defaults), now_ms=9)
    done = compacted(catalog, where, defaults=defaults)
    catalog.write(topics.alter_config, "orders", {"delete.retention.ms": "5"})
    catalog.write(register, done, now_ms=9)
    assert catalog.read(compactions.read, where)[-1] == (25, 9)


def test_points_alone_are_not_written_for_a_topic_that_is_gone(catalog):
    where = filled(catalog)
    done = compacted(catalog, where)
    catalog.write(topics.delete, "orders", now_ms=1)
    catalog.write(topics.forget, where.topic_id)
    with pytest.raises(ExtentsChanged):
        catalog.write(register, done, now_ms=9)
    assert catalog.rows("SELECT * FROM compactions") == []


def test_a_compaction_that_changed_no_extent_still_moves_the_point(catalog):
    where = filled(catalog)
    before = facts(catalog, where)
    for clean_end, first_tombstone, now_ms in ((10, NO_TOMBSTONE, 8), (25, 12, 9)):
        done = compacted(catalog, where, clean_end=clean_end, first_tombstone=first_tombstone)
        assert catalog.write(register, done, now_ms=now_ms) == []
    assert catalog.read(compactions.read, where) == ((10, TOMBSTONES_GONE), (25, 9))
    assert facts(catalog, where) == before


def test_of_two_compactions_of_the_same_state_one_wins(durable_catalog):
    """Even if neither replaces an extent of the other's: the points tell."""
    catalog = durable_catalog
    where = filled(catalog)
    old = facts(catalog, where)
    deeds = [
        compacted(catalog, where, segment(catalog, old[:2], "s1"), clean_end=20),
        compacted(catalog, where, segment(catalog, old[3:], "s2"), clean_end=24),
        compacted(catalog, where, clean_end=25),
    ]
    together, outcomes = threading.Barrier(len(deeds)), []

    def commit(done):
        together.wait()
        try:
            catalog.write(register, done, now_ms=9)
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
    assert catalog.read(compactions.read, where) == winner


def test_appends_go_on_around_it(catalog):
    where = filled(catalog)
    old = facts(catalog, where)
    done = compacted(catalog, where, segment(catalog, old, "s1", 10))
    assert catalog.append_one(where, 2).base_offset == 25
    catalog.write(register, done, now_ms=9)
    assert catalog.append_one(where, 2).base_offset == 27
    assert catalog.partition(where).bytes == 210


def test_the_state_is_read_with_what_is_stable(catalog):
    where = filled(catalog)
    found = catalog.read(read_state, where)
    assert found.last_stable_offset == catalog.read(last_stable_offset, where, 25) == 25
    assert [e.base_offset for e in found.extents] == [0, 5, 10, 15, 20]
    assert (found.row, found.points, found.aborted) == (catalog.partition(where), (), ())


def test_points_of_other_partitions_are_their_own(catalog):
    topic = catalog.topic(count=2)
    one, other = catalog.where(topic, 0), catalog.where(topic, 1)
    catalog.write(compactions.write, one, [CompactionPoint(5, 1), CompactionPoint(9, 2)])
    catalog.write(compactions.write, other, [CompactionPoint(7, 3)])
    catalog.write(compactions.write, one, [CompactionPoint(9, 0)])
    assert catalog.read(compactions.read, one) == ((9, 0),)
    assert catalog.read(compactions.read, other) == ((7, 3),)


def test_every_compaction_leaves_another_mark(catalog):
    where = filled(catalog)
    catalog.write(partitions.claim, where, "me")
    seen = [catalog.read(compactions.marks, "me")]
    assert seen == [{}]
    for points in ([(5, 1)], [(5, 1), (9, 2)], [(9, TOMBSTONES_GONE)], [(9, TOMBSTONES_GONE), (12, 3)]):
        catalog.write(compactions.write, where, [CompactionPoint(*point) for point in points])
        mark = catalog.read(compactions.marks, "me")
        assert list(mark) == [where]
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
