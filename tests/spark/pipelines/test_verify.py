"""`verify`: whatever is wrong with stored data is found and named, and nothing else is reported."""

import asyncio
import shutil

import pytest
from tests.spark.pipelines.maintaining import (
    change,
    collect_at,
    extents,
    job_at,
    merge_extents,
    partition,
    rows,
)
from tests.spark.topics import append, fill, serving

from millpond.model.extents import Extent
from millpond.model.ids import TopicId, TopicPartition, new_session
from millpond.records import Record, build_batch
from millpond.rewriting.verification import check_journal_extent
from millpond.segments.frame import FRAME_BYTES, pack_frame
from millpond.segments.keys import segment_key
from millpond.spark.pipelines import merge, verify
from millpond.spark.pipelines.merge import MergeRequest
from millpond.spark.pipelines.verify import VerifyRequest
from millpond.spark.place import Place, store
from millpond.spark.task_writer import TaskWriter

ALL = VerifyRequest()


@pytest.fixture(scope="module")
def template(spark, tmp_path_factory):
    """Partition 0 is one segment, partition 1 a segment and journals, partition 2 lies inline."""

    async def make(path):
        async with serving(path, inline_bytes_max=0) as broker:
            await fill(broker, "orders", 2, 400, per_batch=20)
        await asyncio.to_thread(merge.run, job_at(path, spark), MergeRequest())
        async with serving(path, inline_bytes_max=0) as broker:
            for n in range(5):
                await append(broker, "orders", 1, [Record(b"journal %d" % n, b"key", timestamp=5_000)] * 10)
        async with serving(path) as broker:
            await broker.log.add_partitions("orders", 3)
            for n in range(5):
                await append(broker, "orders", 2, [Record(b"inline %d" % n, b"key", timestamp=5_000)] * 10)
        await collect_at(path)

    path = tmp_path_factory.mktemp("template")
    asyncio.run(make(path))
    return path


@pytest.fixture
def data(template, tmp_path):
    """The same for every test, and its own to damage."""
    return shutil.copytree(template, tmp_path / "data")


def verified(path, spark, request=ALL):
    return verify.run(job_at(path, spark), request)


def object_of(path, number, base=0):
    """(file, position, length) of the extent of a partition at a base offset."""
    [(key, position, length)] = rows(
        path,
        "SELECT o.key, e.position, e.length FROM extents e JOIN objects o ON o.id = e.object_id"
        " WHERE e.partition = ? AND e.base_offset = ?",
        number,
        base,
    )
    return key, path / "objects" / key, position, length


def flip(file, position):
    data = bytearray(file.read_bytes())
    data[position] ^= 0x10
    file.write_bytes(data)


async def test_sound_data_is_found_sound(data, spark):
    report = verified(data, spark)
    assert (report["state"], report["findings"]) == ("ok", 0)
    assert report["lost"] == report["damaged"] == report["inconsistent"] == []
    assert (report["topics"], report["partitions"], report["extents"]) == (1, 3, 12)
    assert report["records"] == 400 + 450 + 50
    assert report["bytes"] == rows(data, "SELECT sum(length) FROM extents")[0][0]
    assert (report["orphaned"], report["dead"], report["on_their_way"]) == (0, 0, 0)


async def test_a_lost_object_is_named_with_the_offsets_that_were_in_it(data, spark):
    key, file, _, _ = object_of(data, 0)
    file.unlink()
    report = verified(data, spark)
    [lost] = report["lost"]
    assert report["state"] == "damaged"
    assert (lost["topic"], lost["partition"], lost["key"]) == ("orders", 0, key)
    assert (lost["base_offset"], lost["end_offset"]) == (0, 400)
    assert report["damaged"] == report["inconsistent"] == []


async def test_a_flipped_byte_in_a_batch_of_a_journal_is_found_at_its_batch(data, spark):
    key, file, position, _ = object_of(data, 1, 420)
    flip(file, position + 70)
    [damaged] = verified(data, spark)["damaged"]
    assert (damaged["key"], damaged["position"], damaged["base_offset"]) == (key, position, 420)
    assert damaged["end_offset"] == 430
    assert "CRC32C" in damaged["reason"]


async def test_a_flipped_byte_in_a_frame_is_found(data, spark):
    key, file, position, _ = object_of(data, 1, 410)
    flip(file, position - FRAME_BYTES + 10)
    [damaged] = verified(data, spark)["damaged"]
    assert (damaged["key"], damaged["position"]) == (key, position - FRAME_BYTES)
    assert "frame" in damaged["reason"]
    assert (damaged["base_offset"], damaged["end_offset"]) == (410, 420)


async def test_a_flipped_byte_in_a_segment_is_found_with_its_batch(data, spark):
    key, file, position, length = object_of(data, 0)
    flip(file, position + length - 1)
    found = verified(data, spark)["damaged"]
    assert {each["key"] for each in found} == {key}
    assert any(each["base_offset"] == 380 and "CRC32C" in each["reason"] for each in found)


@pytest.mark.parametrize("from_end", [1, 10, 20, 40])
async def test_a_flipped_byte_in_a_footer_is_found(data, spark, from_end):
    key, file, _, _ = object_of(data, 0)
    flip(file, file.stat().st_size - from_end)
    [damaged] = verified(data, spark)["damaged"]
    assert damaged["key"] == key
    assert (damaged["base_offset"], damaged["end_offset"]) == (0, 400)


@pytest.mark.parametrize(("number", "base"), [(0, 0), (1, 440)])
async def test_an_object_that_was_cut_is_found(data, spark, number, base):
    key, file, position, length = object_of(data, number, base)
    with file.open("r+b") as handle:
        handle.truncate(position + length - 5)
    found = verified(data, spark)["damaged"]
    assert {(each["partition"], each["key"], each["base_offset"]) for each in found} == {(number, key, base)}


async def test_flipped_inline_bytes_are_found(data, spark):
    [(inline,)] = rows(data, "SELECT inline FROM extents WHERE partition = 2 AND base_offset = 20")
    changed = bytearray(inline)
    changed[-1] ^= 1
    change(data, "UPDATE extents SET inline = ? WHERE partition = 2 AND base_offset = 20", bytes(changed))
    [damaged] = verified(data, spark)["damaged"]
    assert (damaged["partition"], damaged["base_offset"], damaged["key"]) == (2, 20, "(inline)")


async def test_a_row_that_was_dropped_leaves_a_hole(data, spark):
    change(data, "DELETE FROM extents WHERE partition = 2 AND base_offset = 20")
    found = verified(data, spark)["inconsistent"]
    hole = {"topic": "orders", "partition": 2, "base_offset": 20, "end_offset": 30}
    assert {**hole, "reason": "no extent holds these offsets"} in found
    assert any("bytes" in each["reason"] for each in found)


async def test_a_row_dropped_at_either_end_leaves_a_hole(data, spark):
    change(data, "DELETE FROM extents WHERE partition = 2 AND base_offset IN (0, 40)")
    found = verified(data, spark)["inconsistent"]
    holes = [(e["base_offset"], e["end_offset"]) for e in found if "no extent" in e["reason"]]
    assert holes == [(0, 10), (40, 50)]


async def test_rows_that_overlap_or_lie_past_the_end_are_found(data, spark):
    change(data, "UPDATE extents SET end_offset = 25 WHERE partition = 2 AND base_offset = 10")
    change(data, "UPDATE partitions SET end_offset = 440 WHERE partition = 1")
    found = verified(data, spark)["inconsistent"]
    spans = {
        (e["partition"], e["reason"], e["base_offset"], e["end_offset"]) for e in found if "key" not in e
    }
    assert (2, "two extents overlap", 20, 25) in spans
    assert (1, "an extent lies past the end of its partition", 440, 450) in spans


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_wrong_count_of_records_is_found(data, spark, number):
    change(data, "UPDATE extents SET records = records + 1 WHERE partition = ?", number)
    found = verified(data, spark)["inconsistent"]
    assert {each["partition"] for each in found} == {number}
    assert any("records are expected" in each["reason"] for each in found)


async def test_a_row_that_does_not_say_what_its_segment_says_is_found(data, spark):
    change(data, "UPDATE extents SET min_timestamp = 0 WHERE partition = 0")
    [found] = verified(data, spark)["inconsistent"]
    assert (found["partition"], found["base_offset"]) == (0, 0)
    assert found["reason"] == "the segment describes itself otherwise"


def test_a_row_that_points_at_the_bytes_of_another_partition_is_found():
    batch = build_batch([Record(b"value", timestamp=5)] * 3, now_ms=5)
    topic_partition, other = TopicPartition(TopicId(b"t" * 16), 1), TopicPartition(TopicId(b"t" * 16), 2)
    extent = Extent(topic_partition, 10, 13, 0, 64, len(batch), 3, 5, 5, False, "journal/s/0", None)
    assert check_journal_extent(extent, pack_frame(topic_partition, 1, 3, len(batch)) + batch) == []
    [found] = check_journal_extent(extent, pack_frame(other, 1, 3, len(batch)) + batch)
    assert (found.reason, found.base_offset) == ("the frame before its bytes speaks of others", 10)


async def test_an_object_that_counts_its_extents_wrongly_is_found(data, spark):
    key, *_ = object_of(data, 0)
    change(data, "UPDATE objects SET extents = 0, dead_since = 1 WHERE key = ?", key)
    [found] = verified(data, spark)["inconsistent"]
    assert (found["key"], found["reason"]) == (key, "the object counts 0 extents, and 1 are in it")


async def test_an_extent_whose_object_has_no_row_is_lost(data, spark):
    change(data, "DELETE FROM objects WHERE key = ?", object_of(data, 0)[0])
    [lost] = verified(data, spark)["lost"]
    assert (lost["partition"], lost["base_offset"], lost["end_offset"]) == (0, 0, 400)


async def test_an_index_that_points_between_batches_is_found(spark, tmp_path):
    async with serving(tmp_path, inline_bytes_max=0) as broker:
        await fill(broker, "orders", 1, 3_000, per_batch=10)
    merge.run(job_at(tmp_path, spark), MergeRequest())
    [(index,)] = rows(tmp_path, "SELECT sparse_index FROM extents")
    changed = bytearray(index)
    changed[-13 + 4] ^= 1  # in the position of the last entry
    change(tmp_path, "UPDATE extents SET sparse_index = ?", bytes(changed))
    reasons = [each["reason"] for each in verified(tmp_path, spark)["inconsistent"]]
    assert "its index points where no batch begins" in reasons


async def test_aborted_transactions_must_end_with_their_markers(data, spark):
    topic_partition = partition(data, "orders", 2)
    insert = "INSERT INTO aborted_txns (topic_id, partition, first_offset, last_offset, producer_id) VALUES (?,?,?,?,?)"
    change(data, insert, *topic_partition, 10, 12, 77)
    change(data, insert, *topic_partition, 40, 99, 78)
    found = verified(data, spark)["inconsistent"]
    assert [(e["base_offset"], e["end_offset"]) for e in found if "77" in e["reason"]] == [(10, 13)]
    assert [(e["base_offset"], e["end_offset"]) for e in found if "78" in e["reason"]] == [(40, 100)]


async def test_orphans_are_told_from_objects_on_their_way_and_neither_is_damage(data, spark):
    topic_partition = partition(data, "orders")
    dead, unknown = new_session(), new_session()
    place = Place.at(data)
    keys = [segment_key(session, *topic_partition, 0, 1) for session in (dead, unknown)]
    for key in keys:
        store(place).put(key, [b"left over"])
    change(
        data, "INSERT INTO writers (session, lane, kind, address, clock, expires_at, dead_since)"
        " VALUES (?, 0, 'spark', '', '', 0, 1)", dead,
    )  # fmt: skip
    with TaskWriter(place) as writer:
        writer.store.put(segment_key(writer.session, *topic_partition, 0, 1), [b"on its way"])
        report = verified(data, spark)
    assert report["state"] == "ok"
    assert (report["orphaned"], report["on_their_way"]) == (2, 1)
    assert sorted(report["orphaned_keys"]) == sorted(keys)
    assert report["orphaned_by_session"] == {dead: 1, unknown: 1}


async def test_dead_objects_that_wait_for_collection_are_counted(spark, tmp_path):
    async with serving(tmp_path, inline_bytes_max=0) as broker:
        await fill(broker, "orders", 1, 400, per_batch=20)
    merge.run(job_at(tmp_path, spark), MergeRequest())
    report = verified(tmp_path, spark)
    assert report["state"] == "ok"
    assert (report["objects"], report["dead"]) == (2, 1)
    assert report["dead_bytes"] > 0


async def test_only_the_topics_asked_for_are_looked_at(data, spark):
    async with serving(data) as broker:
        await fill(broker, "payments", 1, 10)
    object_of(data, 0)[1].unlink()
    assert verified(data, spark, VerifyRequest(("payments",)))["state"] == "ok"
    assert verified(data, spark, VerifyRequest(("orders",)))["state"] == "damaged"


async def test_a_dry_run_says_how_much_there_is_to_read(data):
    report = verify.run(job_at(data, is_dry_run=True), ALL)
    assert (report["extents"], report["partitions"]) == (12, 3)
    assert report["bytes"] == rows(data, "SELECT sum(length) FROM extents")[0][0]


async def test_large_partitions_are_cut_into_items_that_miss_nothing(data, spark, monkeypatch):
    monkeypatch.setattr(verify, "ITEM_BYTES_MAX", 1_000)
    monkeypatch.setattr(verify, "EXTENTS_PER_PAGE", 2)
    job = job_at(data, spark)
    items = [
        item for n in range(3) for item in verify.plan(job.database, job.place, partition(data, "orders", n))
    ]
    assert len(items) > 4
    report = verified(data, spark)
    assert (report["extents"], report["records"], report["state"]) == (12, 900, "ok")


async def test_what_is_merged_away_under_the_check_is_no_damage(data, spark, monkeypatch):
    """The small extents are replaced, and their objects deleted, after their rows were read and before their bytes
    are."""
    job = job_at(data)
    places = [partition(data, "orders", n) for n in range(3)]
    items = [
        item for topic_partition in places for item in verify.plan(job.database, job.place, topic_partition)
    ]
    genuine = verify._check
    raced = []

    def check_late(objects, extent, aborted):
        if not raced and extent.topic_partition.partition == 1 and not extent.stamped:
            raced.append(extent.key)
            merge.run(job_at(data, spark), MergeRequest())
            asyncio.run(collect_at(data))
        return genuine(objects, extent, aborted)

    async with serving(data) as broker:
        for _ in range(40):
            await append(broker, "orders", 1, [Record(b"more", b"key", timestamp=5_000)] * 10)
    monkeypatch.setattr(verify, "_check", check_late)
    results = await asyncio.to_thread(lambda: [verify.work(item) for item in items])
    assert [finding for result in results for finding in result.findings] == []
    assert raced
    assert not (data / "objects" / raced[0]).exists()
    assert len(extents(data, "orders", 1)) < 45


async def test_what_is_merged_of_extents_checked_and_unchecked_is_checked(data, monkeypatch):
    """Partition 1 is a segment and five journals, looked up two by two."""
    monkeypatch.setattr(verify, "EXTENTS_PER_READ", 1)
    [item] = verify.plan((job := job_at(data)).database, job.place, partition(data, "orders", 1))
    genuine, checked = verify._check, []

    def check(objects, extent, aborted):
        checked.append((extent.base_offset, extent.end_offset))
        found = genuine(objects, extent, aborted)
        if len(checked) == 3:
            merge_extents(data, "orders", 1, slice(1, 6))
        return found

    monkeypatch.setattr(verify, "_check", check)
    result = verify.work(item)
    assert checked == [(0, 400), (400, 410), (410, 420), (400, 450)]
    assert (result.extents, result.findings) == (3, ())
    later_item = verify.VerifyItem(job.place, item.topic_partition, 420, item.end, 3, 0)
    verify.work(later_item)
    assert checked[4:] == [(400, 450)]
