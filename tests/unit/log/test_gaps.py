"""Extents with gaps, as compaction will leave them: a gap between two entries of the sparse index leads nobody
back to where it came from."""

import asyncio

import pytest

from millpond.catalog import extents
from millpond.log import FetchRequest
from millpond.reading.plan import slice_extent
from millpond.records import Record, iter_records
from millpond.segments.index import build_index, pack_index

TIMES = {0: 900, 1: 100, 10: 200, 11: 300, 30: 400}
"""Offset and time of what is left. One entry of the index for each batch: 0-1, 10-11, 30."""
END = 40


@pytest.fixture
async def engine(start, make_batch):
    engine = await start(tail_bytes_max=0, cache_bytes_max=0)
    batches = [
        make_batch(*(Record(b"%d" % at, timestamp=TIMES[at], offset=at) for at in offsets))
        for offsets in ((0, 1), (10, 11), (30,))
    ]
    data, places = b"", []
    for base, batch in zip((0, 10, 30), batches, strict=True):
        newest = max(time for at, time in TIMES.items() if base <= at < base + 10)
        places.append((base, len(data), newest))
        data += batch
    made = extents.NewExtent(
        topic_partition=engine.topic_partition(),
        base_offset=0,
        end_offset=END,
        epoch=1,
        object_id=None,
        position=0,
        length=len(data),
        records=len(TIMES),
        min_timestamp=min(TIMES.values()),
        max_timestamp=max(TIMES.values()),
        high_timestamp=max(TIMES.values()),
        stamped=True,
        sparse_index=pack_index(build_index(places, 1)),
        inline=data,
    )
    with engine.broker.database.write() as tx:
        extents.insert(tx, [made])
        tx.rows("UPDATE partitions SET end_offset = ?, bytes = ?", (END, len(data)))
    await engine.log.refresh()
    return engine


async def run_off_loop_if_large(awaitable):
    return await asyncio.wait_for(awaitable, 60)


async def test_a_slice_reaches_to_where_the_next_one_begins(engine):
    [extent] = await engine.log.in_pool(
        lambda: engine.log._reader.find_extents(engine.topic_partition(), 0, 1)
    )
    pieces = [slice_extent(extent, offset, 1) for offset in (0, 5, 10, 29, 30, 39)]
    assert [(each.base_offset, each.end_offset) for each in pieces] == [
        *((0, 10), (0, 10)),
        *((10, 30), (10, 30)),
        *((30, 40), (30, 40)),
    ]
    assert slice_extent(extent, 0, 100_000).end_offset == END


@pytest.mark.parametrize("offset", [0, 1, 2, 9, 10, 12, 29, 30])
async def test_a_reader_in_a_gap_comes_to_what_follows(engine, offset):
    def read():
        """As small as it goes: one stretch of the index at a time."""
        at, found = offset, []
        while runs := engine.log._reader.read_runs(engine.topic_partition(), at, 1):
            found += iter_records(runs[0].data, decompressed_bytes_max=0)
            assert runs[0].end_offset > at
            at = runs[0].end_offset
        return [record.offset for record in found if record.offset >= offset]

    assert await run_off_loop_if_large(engine.log.in_pool(read)) == [at for at in TIMES if at >= offset]
    assert await run_off_loop_if_large(engine.values(offset)) == [b"%d" % at for at in TIMES if at >= offset]
    request = FetchRequest(engine.topic_partition(), offset, 1)
    [result] = await run_off_loop_if_large(engine.log.fetch([request], bytes_max=1))
    assert result.batches


@pytest.mark.parametrize("log_start", [0, 1, 2, 10, 11, 12, 30, 31])
async def test_offsets_by_time_are_found_across_gaps(engine, log_start):
    await engine.log.delete_records(engine.topic_partition(), log_start)
    retained = {at: time for at, time in TIMES.items() if at >= log_start}
    newest = max(retained.items(), key=lambda each: each[1], default=None)
    found = await run_off_loop_if_large(engine.log.newest_offset(engine.topic_partition()))
    assert (found and (found.offset, found.timestamp)) == newest
    for wanted in (1, 150, 250, 350, 401, 901):
        first = next(((at, time) for at, time in retained.items() if time >= wanted), None)
        found = await run_off_loop_if_large(engine.log.offset_at(engine.topic_partition(), wanted))
        assert (found and (found.offset, found.timestamp)) == first
