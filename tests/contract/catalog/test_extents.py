"""Extents: found by offset within budgets, removed, replaced and counted."""

import dataclasses

import pytest

from millpond.catalog import appends, extents, objects, partitions, topics
from millpond.catalog.extents import NewExtent
from millpond.model.errors import ExtentsChanged
from millpond.model.extents import NO_APPEND_TIME, IndexEntry
from millpond.segments.index import pack_index

PLENTY = {"bytes_max": 10**9, "extents_max": 100}


def find(catalog, topic_partition, offset, **budget):
    return [
        e.base_offset for e in catalog.read(extents.find, topic_partition, offset, **{**PLENTY, **budget})
    ]


def filled(catalog, records=(5, 5, 5, 5), **named):
    topic_partition = catalog.topic_partition()
    for count in records:
        catalog.append_one(topic_partition, count, **named)
    return topic_partition


def merged(topic_partition, old, length=50):
    first, last = old[0], old[-1]
    return NewExtent(
        topic_partition, first.base_offset, last.end_offset, 0, None, 0, length, 1, 0, 0, 0, True, None, None
    )


def replace(catalog, topic_partition, old, key="segment", length=50):
    new = merged(topic_partition, old, length)
    catalog.write(extents.replace, old, new, catalog.object(key, kind="segment", sealed=True), now_ms=9)


def facts(catalog, topic_partition):
    return catalog.read(extents.facts, topic_partition, 0, 100)


@pytest.mark.parametrize(
    ("offset", "first"), [(0, 0), (4, 0), (5, 5), (9, 5), (12, 10), (19, 15), (20, None), (99, None)]
)
def test_a_search_begins_with_the_extent_that_holds_the_offset(catalog, offset, first):
    topic_partition = filled(catalog)
    found = find(catalog, topic_partition, offset)
    assert found == ([] if first is None else list(range(first, 20, 5)))


def test_an_empty_partition_and_one_that_is_not_there_have_no_extents(catalog):
    topic = catalog.topic()
    assert find(catalog, catalog.topic_partition(topic), 0) == []
    assert find(catalog, catalog.topic_partition(topic, 5), 0) == []


def test_a_search_does_not_see_its_neighbours(catalog):
    topic = catalog.topic(count=3)
    for number in (0, 2):
        catalog.append_one(catalog.topic_partition(topic, number), 3)
    assert find(catalog, catalog.topic_partition(topic, 1), 0) == []


@pytest.mark.parametrize(("bytes_max", "count"), [(0, 1), (1, 1), (100, 1), (101, 2), (200, 2), (10**9, 4)])
def test_a_search_stops_when_its_bytes_are_used_up_but_never_comes_back_empty(catalog, bytes_max, count):
    topic_partition = filled(catalog)
    assert len(find(catalog, topic_partition, 0, bytes_max=bytes_max)) == count


def test_a_search_stops_at_its_number_of_extents(catalog):
    topic_partition = filled(catalog)
    assert find(catalog, topic_partition, 7, extents_max=2) == [5, 10]
    assert find(catalog, topic_partition, 0, extents_max=1) == [0]


def test_an_offset_in_a_gap_finds_the_next_extent(catalog):
    topic_partition = filled(catalog)
    gone = facts(catalog, topic_partition)[1]
    with catalog.database.write() as tx:
        tx.rows("DELETE FROM extents WHERE base_offset = ?", (gone.base_offset,))
    assert find(catalog, topic_partition, 7) == [10, 15]
    assert find(catalog, topic_partition, 7, extents_max=1) == [10]
    assert find(catalog, topic_partition, 4, extents_max=2) == [0, 10]


def test_offsets_below_the_first_extent_find_it(catalog):
    topic_partition = filled(catalog)
    catalog.write(extents.remove_below, topic_partition, 10, limit=9, now_ms=1)
    assert find(catalog, topic_partition, 3) == [10, 15]


def test_a_merge_while_a_search_is_under_way_hides_nothing(durable_catalog):
    catalog = durable_catalog
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)[:3]

    class Interrupted:
        """After the first statement somebody merges the extents that were being looked for."""

        def __init__(self, tx):
            self._tx, self._merged = tx, False

        def rows(self, *arguments):
            rows = self._tx.rows(*arguments)
            if not self._merged:
                self._merged = True
                replace(catalog, topic_partition, old)
            return rows

    found = catalog.read(lambda tx: extents.find(Interrupted(tx), topic_partition, 12, **PLENTY))
    assert found[0].base_offset <= 12 < found[0].end_offset


def test_facts_leave_inline_bytes_behind(catalog):
    topic_partition = filled(catalog, [5, 5, 5])
    found = catalog.read(extents.facts, topic_partition, 5, 1)
    assert [(e.base_offset, e.length, e.inline) for e in found] == [(5, 100, None)]


def test_a_sparse_index_is_kept(catalog):
    topic_partition = catalog.topic_partition()
    index = (IndexEntry(0, 0, 5), IndexEntry(3, 70_000, 9))
    share = dataclasses.replace(catalog.share(topic_partition, 9), sparse_index=pack_index(index))
    catalog.append(share)
    assert facts(catalog, topic_partition)[0].index == index
    [outline] = catalog.read(extents.outlines, topic_partition, 9)
    assert outline == dataclasses.replace(facts(catalog, topic_partition)[0], index=())


def test_removing_takes_the_oldest_whole_extents_and_their_bytes(catalog):
    topic_partition = filled(catalog)
    assert catalog.write(extents.remove_below, topic_partition, 14, limit=9, now_ms=1) == 2
    assert find(catalog, topic_partition, 0) == [10, 15]
    assert catalog.partition(topic_partition).bytes == 200
    assert catalog.partition(topic_partition).end_offset == 20
    assert catalog.write(extents.remove_below, topic_partition, 14, limit=9, now_ms=1) == 0


def test_removing_stops_at_its_limit_oldest_first(catalog):
    topic_partition = filled(catalog)
    assert catalog.write(extents.remove_below, topic_partition, 20, limit=3, now_ms=1) == 3
    assert find(catalog, topic_partition, 0) == [15]
    assert catalog.partition(topic_partition).bytes == 100


def test_an_emptied_partition_keeps_its_next_offset(catalog):
    topic_partition = filled(catalog)
    assert catalog.write(extents.remove_below, topic_partition, 20, limit=9, now_ms=1) == 4
    assert catalog.partition(topic_partition).bytes == 0
    assert catalog.append_one(topic_partition).base_offset == 20


def test_removing_reads_no_further_than_what_it_removes(file_catalog):
    """A partition may have a million extents that stay."""
    with file_catalog.database.read() as tx:
        plan = tx.rows(f"EXPLAIN QUERY PLAN {extents.OLDEST}", (b"", 0, 0, 0, 0))
    assert "base_offset<?" in plan[0][3]


def test_a_replacement_takes_the_place_of_several_extents(catalog):
    topic_partition = filled(catalog)
    replace(catalog, topic_partition, facts(catalog, topic_partition)[1:3])
    assert find(catalog, topic_partition, 12) == [5, 15]
    found = facts(catalog, topic_partition)[1]
    assert (found.base_offset, found.end_offset, found.key, found.length) == (5, 15, "segment", 50)
    assert catalog.partition(topic_partition).end_offset == 20


def test_a_replacement_keeps_the_count_of_bytes_true(catalog):
    topic_partition = filled(catalog)
    replace(catalog, topic_partition, facts(catalog, topic_partition)[1:3], length=50)
    assert catalog.partition(topic_partition).bytes == 250
    catalog.write(extents.remove_below, topic_partition, 20, limit=9, now_ms=1)
    assert catalog.partition(topic_partition).bytes == 0


def test_a_replacement_releases_the_objects_it_empties(catalog):
    topic_partition = catalog.topic_partition()
    for key in ("j1", "j1", "j2"):
        catalog.append_one(topic_partition, to=catalog.object(key, sealed=True))
    replace(catalog, topic_partition, facts(catalog, topic_partition)[1:])
    counts = dict(catalog.rows("SELECT key, extents FROM objects"))
    assert counts == {"j1": 1, "j2": 0, "segment": 1}
    assert [key for _, key in catalog.read(objects.collectable, dead_before_ms=9, limit=9)] == ["j2"]


def test_a_replacement_keeps_the_high_timestamp_of_its_last_extent(catalog):
    topic_partition = catalog.topic_partition()
    for newest in (9, 3, 12, 4):
        catalog.append_one(topic_partition, times=(0, newest))
    replace(catalog, topic_partition, facts(catalog, topic_partition)[1:3])
    highs = catalog.rows("SELECT high_timestamp FROM extents ORDER BY base_offset")
    assert [row[0] for row in highs] == [9, 12, 12]


@pytest.mark.parametrize("change", ["removed", "merged", "moved"])
def test_a_replacement_fails_if_anything_changed_and_changes_nothing(catalog, change):
    topic_partition = filled(catalog)
    old = facts(catalog, topic_partition)[:2]
    if change == "removed":
        catalog.write(extents.remove_below, topic_partition, 5, limit=1, now_ms=1)
    elif change == "merged":
        replace(catalog, topic_partition, old, key="theirs")
    else:  # the same run of bytes in another object: only the object tells
        replace(catalog, topic_partition, old[:1], key="theirs", length=100)
    before, row = facts(catalog, topic_partition), catalog.partition(topic_partition)
    with pytest.raises(ExtentsChanged):
        replace(catalog, topic_partition, old, key="mine")
    assert facts(catalog, topic_partition) == before
    assert catalog.partition(topic_partition) == row
    assert catalog.rows("SELECT key FROM objects WHERE key = ?", "mine") == []


def test_an_extent_in_an_object_can_be_replaced_too(catalog):
    topic_partition = catalog.topic_partition()
    catalog.append_one(topic_partition, 3, to=catalog.object("j1", sealed=True))
    replace(catalog, topic_partition, facts(catalog, topic_partition))
    assert [e.key for e in facts(catalog, topic_partition)] == ["segment"]


def test_the_first_small_extent_of_each_partition_is_named(catalog):
    topic = catalog.topic(count=4)
    for number, sizes in ((0, [500, 10, 500, 10]), (1, [500, 500]), (2, [10, 10]), (3, [10])):
        for size in sizes:
            catalog.append_one(catalog.topic_partition(topic, number), length=size)
    topic_partitions = [catalog.topic_partition(topic, number) for number in range(3)]
    assert catalog.read(extents.first_small, topic_partitions, 100) == {
        topic_partitions[0]: 1,
        topic_partitions[2]: 0,
    }
    assert catalog.read(extents.first_small, [], 100) == {}


def test_totals_tell_inline_bytes_from_stored_ones(catalog):
    assert catalog.read(extents.totals) == extents.ExtentTotals(0, 0, 0)
    topic_partition = catalog.topic_partition()
    catalog.append_one(topic_partition, length=30)
    catalog.append_one(topic_partition, length=40)
    catalog.append_one(topic_partition, length=99, to=catalog.object("j"))
    assert catalog.read(extents.totals) == extents.ExtentTotals(3, 2, 70)


def test_the_log_start_does_not_remove_extents_by_itself(catalog):
    topic_partition = filled(catalog)
    catalog.write(partitions.advance_log_start, topic_partition, 10)
    assert len(facts(catalog, topic_partition)) == 4


# -- append times ---------------------------------------------------------------------------------------------------


def append_at(catalog, topic_partition, *times):
    for now_ms in times:
        catalog.write(appends.append, [catalog.share(topic_partition)], None, now_ms=now_ms)


def append_times(catalog, topic_partition):
    return [extent.appended_at for extent in facts(catalog, topic_partition)]


def test_an_extent_has_the_time_of_its_commit(catalog):
    topic_partition = catalog.topic_partition()
    append_at(catalog, topic_partition, 70, 90)
    assert append_times(catalog, topic_partition) == [70, 90]
    assert [e.appended_at for e in catalog.read(extents.find, topic_partition, 0, **PLENTY)] == [70, 90]
    assert [e.appended_at for e in catalog.read(extents.outlines, topic_partition, 10)] == [70, 90]


def test_one_that_replaces_others_has_the_newest_of_their_times(catalog):
    topic_partition = catalog.topic_partition()
    append_at(catalog, topic_partition, 70, 90, 80, 95)
    replace(catalog, topic_partition, facts(catalog, topic_partition)[:3])
    assert append_times(catalog, topic_partition) == [90, 95]


def test_each_of_several_that_replace_others_has_the_newest_of_its_own(catalog):
    topic_partition = catalog.topic_partition()
    append_at(catalog, topic_partition, 90, 70, 80, 60)
    old = facts(catalog, topic_partition)
    new = [
        (merged(topic_partition, some), catalog.object(key, kind="segment", sealed=True))
        for key, some in (("a", old[:2]), ("b", old[2:]))
    ]
    catalog.write(extents.replace_all, topic_partition, old, new, now_ms=9)
    assert append_times(catalog, topic_partition) == [90, 80]


def test_one_that_replaces_another_without_an_append_time_has_none(catalog):
    topic_partition = catalog.topic_partition()
    append_at(catalog, topic_partition, 70, NO_APPEND_TIME, 90)
    replace(catalog, topic_partition, facts(catalog, topic_partition))
    assert append_times(catalog, topic_partition) == [NO_APPEND_TIME]


def test_an_examined_extent_has_its_true_times(catalog):
    topic_partition = catalog.topic_partition()
    append_at(catalog, topic_partition, NO_APPEND_TIME, 90)
    first, second = facts(catalog, topic_partition)
    catalog.write(extents.examined, first, 3, 7, appended_at=50)
    found = facts(catalog, topic_partition)
    assert (found[0].min_timestamp, found[0].max_timestamp, found[0].appended_at) == (3, 7, 50)
    assert found[1] == second


def test_what_was_examined_meanwhile_is_neither_replaced_nor_examined_again(catalog):
    """A merge that was planned before would put the old timestamps back."""
    topic_partition = catalog.topic_partition()
    append_at(catalog, topic_partition, NO_APPEND_TIME, 90)
    planned = facts(catalog, topic_partition)
    catalog.write(extents.examined, planned[0], 3, 7, appended_at=50)
    with pytest.raises(ExtentsChanged):
        replace(catalog, topic_partition, planned)
    with pytest.raises(ExtentsChanged):
        catalog.write(extents.examined, planned[0], 0, 0, appended_at=60)
    assert append_times(catalog, topic_partition) == [50, 90]


def test_an_extent_of_a_partition_that_is_gone_is_not_examined(catalog):
    topic_partition = catalog.topic_partition()
    append_at(catalog, topic_partition, NO_APPEND_TIME)
    [planned] = facts(catalog, topic_partition)
    catalog.write(topics.delete, "orders", now_ms=1)
    with pytest.raises(ExtentsChanged):
        catalog.write(extents.examined, planned, 3, 7, appended_at=50)
