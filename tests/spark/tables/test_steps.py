"""What a run would read, from a real broker's catalog and without Spark."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from tests.spark.topics import append, fill, serving

from millpond.model.errors import OffsetOutOfRange, TopicReplaced
from millpond.records import Record
from millpond.spark.pipelines.job import PipelineJob
from millpond.spark.place import Place
from millpond.spark.tables.model import TableProgress
from millpond.spark.tables.steps import (
    TableRange,
    advanced,
    ahead_of_log,
    max_positions,
    next_step,
    offsets_json,
    read_bounds,
    rewound,
    starting_positions,
)


def job_on(path: Path) -> PipelineJob:
    def refuse() -> None:
        raise AssertionError("no Spark is needed to plan")

    return PipelineJob(Place.at(path), refuse)


def begin(job: PipelineJob, topic: str, progress: Mapping[str, TableProgress] | None = None, **allowed: bool):
    topics = job.topics([topic])
    ends = read_bounds(job.database, topics)
    options = {"restart": False, "allow_gaps": False, **allowed}
    return (*starting_positions(topics, progress or {}, ends, **options), ends)


async def test_steps_cover_every_offset_once_and_none_is_much_larger_than_asked(tmp_path: Path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 2, 500, per_batch=50)
        job = job_on(tmp_path)
        positions, gaps, ends = begin(job, "orders")
        assert gaps == []
        seen: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        steps = 0
        while step := next_step(job.database, positions, ends, 3_000):
            steps += 1
            assert sum(each.bytes for each in step) <= 3_100
            for each in step:
                seen[each.partition].append((each.start, each.end))
            positions = advanced(positions, step)
    assert steps >= 4
    for ranges in seen.values():
        assert ranges[0][0] == 0
        assert ranges[-1][1] == 500
        assert all(before[1] == after[0] for before, after in pairwise(ranges))


async def test_even_a_byte_a_step_gets_somewhere(tmp_path: Path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 1, 3)
    job = job_on(tmp_path)
    positions, _, ends = begin(job, "orders")
    (first,) = next_step(job.database, positions, ends, 1)
    assert (first.start, first.end) == (0, 1)


async def test_one_step_takes_all_when_there_is_room(tmp_path: Path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 2, 30)
    job = job_on(tmp_path)
    positions, _, ends = begin(job, "orders")
    step = next_step(job.database, positions, ends, 10**9)
    assert [(each.start, each.end) for each in step] == [(0, 30), (0, 30)]
    assert next_step(job.database, advanced(positions, step), ends, 10**9) == []


async def test_nothing_past_the_last_stable_offset_is_read(tmp_path: Path):
    from millpond.catalog import transactions

    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 1, 10)
        job = job_on(tmp_path)
        topic_partition = broker.log.topics.partition("orders", 0)
        with job.database.write() as tx:
            tx.rows(transactions.ADD_PARTITION, (*topic_partition, 1, 0))
            tx.rows("UPDATE txn_partitions SET first_offset = 4")
        assert read_bounds(job.database, job.topics(["orders"]))["orders"][0].end == 4


async def test_records_that_expired_unread_are_an_error_or_a_gap_that_is_told(tmp_path: Path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 1, 10)
        await broker.log.delete_records(broker.log.topics.partition("orders", 0), 6)
    job = job_on(tmp_path)
    (topic,) = job.topics(["orders"])
    progress = {"orders": TableProgress(topic.id.hex(), {0: 2})}
    with pytest.raises(
        OffsetOutOfRange, match=r"Partition 0 of topic 'orders'.* offsets 2 to 5 have expired"
    ):
        begin(job, "orders", progress)
    positions, gaps, _ = begin(job, "orders", progress, allow_gaps=True)
    assert positions["orders"].offsets == {0: 6}
    assert [(gap.start, gap.end) for gap in gaps] == [(2, 6)]
    fresh, gaps, _ = begin(job, "orders")
    assert (fresh["orders"].offsets, gaps) == ({0: 6}, []), "a new table begins with what there is"


async def test_a_topic_made_anew_is_refused_unless_restarted(tmp_path: Path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 1, 3)
    job = job_on(tmp_path)
    progress = {"orders": TableProgress("00" * 16, {0: 2})}
    with pytest.raises(TopicReplaced, match=r"'orders'.*restart"):
        begin(job, "orders", progress)
    positions, _, _ = begin(job, "orders", progress, restart=True)
    assert positions["orders"].offsets == {0: 0}


async def test_a_partition_added_later_is_read_from_its_first_offset(tmp_path: Path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 2, 3)
        await append(broker, "orders", 1, [Record(b"more")])
    job = job_on(tmp_path)
    (topic,) = job.topics(["orders"])
    positions, _, _ = begin(job, "orders", {"orders": TableProgress(topic.id.hex(), {0: 2})})
    assert positions["orders"].offsets == {0: 2, 1: 0}


def test_offsets_are_written_as_sparks_kafka_source_writes_them():
    step = [TableRange("a", 0, 1, 5, 0), TableRange("a", 1, 2, 6, 0), TableRange("b", 0, 3, 7, 0)]
    assert offsets_json(step, is_end=False) == '{"a": {"0": 1, "1": 2}, "b": {"0": 3}}'
    assert offsets_json(step, is_end=True) == '{"a": {"0": 5, "1": 6}, "b": {"0": 7}}'


async def test_a_table_that_is_ahead_of_the_log_is_told_or_moved_back(tmp_path: Path):
    async with serving(tmp_path) as broker:
        await fill(broker, "orders", 2, 10)
    job = job_on(tmp_path)
    topics = job.topics(["orders"])
    ends = read_bounds(job.database, topics)
    progress = {"orders": TableProgress(topics[0].id.hex(), {0: 50, 1: 10})}
    cuts = ahead_of_log(topics, progress, ends)
    assert [(cut.partition, cut.start, cut.end) for cut in cuts] == [(0, 50, 10)], "1 is where its log ends"
    with pytest.raises(OffsetOutOfRange, match=r"0 of topic 'orders'.* offset 50, .* ends at 10") as caught:
        rewound(progress, cuts, ends, restart=False, allow_gaps=False)
    assert "restart" in str(caught.value)
    back = rewound(progress, cuts, ends, restart=False, allow_gaps=True)
    assert back["orders"].offsets == {0: 10, 1: 10}
    assert rewound(progress, cuts, ends, restart=True, allow_gaps=False) == {}
    older = {"orders": TableProgress("00" * 16, {0: 50})}
    assert ahead_of_log(topics, older, ends) == [], "another topic of that name"
    assert rewound(progress, [], ends, restart=False, allow_gaps=False) == progress


def test_positions_of_a_quarantine_never_move_backwards():
    after = {"a": TableProgress("1", {0: 5, 1: 9}), "b": TableProgress("2", {0: 3})}
    before = {"a": TableProgress("1", {0: 7, 1: 2}), "b": TableProgress("old", {0: 8})}
    assert max_positions(after, before) == {
        "a": TableProgress("1", {0: 7, 1: 9}),
        "b": TableProgress("2", {0: 3}),
    }
    assert max_positions(after, {}) == after
