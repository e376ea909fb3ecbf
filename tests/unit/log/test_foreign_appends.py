"""What other processes commit: it is noticed, and readers at the tail see it in its place."""

import asyncio
import random
import subprocess
import sys

from millpond.records import iter_records

HANG_S = 60


FOREIGN_PROCESS = """
import sys
from pathlib import Path
from millpond.catalog import appends
from millpond.catalog.sqlite import SqliteDatabase
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import Record, build_batch

database = SqliteDatabase(Path(sys.argv[1]))
topic_partition = TopicPartition(TopicId(bytes.fromhex(sys.argv[2])), 0)
for number in range(int(sys.argv[3])):
    data = build_batch([Record(b"foreign %d" % number)], now_ms=number)
    share = appends.AppendShare(topic_partition, appends.FOREIGN, 0, len(data), 1, number, number, inline=data)
    with database.write() as tx:
        [appended] = appends.append(tx, [share], None, now_ms=number)
    print(appended.base_offset, flush=True)
"""


async def test_an_append_by_another_process_is_read_and_never_skipped_by_a_reader_at_the_tail(
    start, tmp_path
):
    """Each append here follows one over there, so that the two alternate."""
    engine = await start(tmp_path)
    many = 30
    catalog = str(tmp_path / "catalog.db")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FOREIGN_PROCESS, catalog, engine.topic_id.hex(), str(many)),
        stdout=subprocess.PIPE,
    )

    async def follow():
        offset, found = 0, []
        while len(found) < 2 * many:
            result = await engine.fetch(offset, wait_ms=60_000)
            records = [r for d in result.batches for r in iter_records(d, decompressed_bytes_max=0)]
            assert [record.offset for record in records] == list(range(offset, result.next_offset))
            found += [record.value for record in records]
            offset = result.next_offset
        return found

    async with (
        asyncio.timeout(HANG_S),
        asyncio.TaskGroup() as tasks,
    ):  # a failure here must end the reader, too
        following = tasks.create_task(follow())
        for number in range(many):
            assert await process.stdout.readline()
            await engine.append(b"own %d" % number)
        await process.wait()
    found = following.result()
    assert [v for v in found if v.startswith(b"foreign")] == [b"foreign %d" % n for n in range(many)]
    assert [v for v in found if v.startswith(b"own")] == [b"own %d" % n for n in range(many)]


async def test_the_tail_never_serves_stale_or_skipped_data_when_foreign_appends_interleave(start, tmp_path):
    engine = await start(tmp_path)
    choice, model = random.Random(5), []
    for number in range(120):
        what = choice.choice(["own", "own", "foreign", "refresh", "read"])
        if what == "own":
            assert (await engine.append(b"own %d" % number)).base_offset == len(model)
            model.append(b"own %d" % number)
        elif what == "foreign":
            assert engine.append_from_another_broker(b"foreign %d" % number).base_offset == len(model)
            model.append(b"foreign %d" % number)
        elif what == "refresh":
            await engine.log.refresh()
            assert await engine.values() == model
        end = engine.partition().end_offset
        offset = choice.randint(max(0, end - 4), end)
        found = await engine.values(offset)
        assert found == model[offset : offset + len(found)]
        assert len(found) >= end - offset
    await engine.log.refresh()
    assert await engine.values() == model


async def test_a_foreign_append_that_commits_between_two_of_ours_leaves_a_hole_and_not_a_skip(
    start, tmp_path
):
    """Offsets 0 and 2 are ours, 1 is another process's and not yet known here: a reader at 1 does not get 2."""
    engine = await start(tmp_path, tail_bytes_max=1 << 20)
    await engine.append(b"0")
    engine.append_from_another_broker(b"1")
    await engine.append(b"2")
    assert engine.partition().tail.start == 2
    assert await engine.values(1) == [b"1", b"2"]
    assert await engine.values(0) == [b"0", b"1", b"2"]
