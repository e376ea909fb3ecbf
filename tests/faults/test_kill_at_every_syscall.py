"""SIGKILL at every system call of a publish and of a merge that can change a file (reliability test 2).

strace attaches to the thread that does the work. Once it only counts; then, in a fresh copy each time, it kills the
process on entry to the first, second, … call of each kind, so that every call of the thread is a point. The call
itself does not happen. Then a broker starts on what is left.
"""

import collections
import re
import shutil

import pytest

from millpond.catalog import objects
from millpond.testing import running_broker

SYSCALLS = (
    "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,fallocate,openat,ftruncate,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,close,flock,fchmod,mmap,munmap"
)
SMALL, MEDIUM, LARGE = 120, 9_000, 20_000
"""Inline; inline, and of one tier with the large when merged; through a file."""

WORK = {
    "inline publish": (["append", 99, SMALL], "millpond-writer"),
    "file publish": (["append", 99, LARGE], "millpond-writer"),
    "merge, its object": (["merge"], "millpond-read"),
    "merge, its commit": (["merge"], "millpond-writer"),
}


async def prepare(data_dir):
    """A topic with ten messages, some inline and some in a file; a merge of them is due."""
    async with running_broker(data_dir) as broker:
        for number in range(10):
            await broker.produce("steps", value_of(number, LARGE if number % 5 == 4 else MEDIUM))


def value_of(number, size):
    name = b"0:%d:" % number
    return name + bytes([number % 251]) * (size - len(name))


async def check(data_dir, acknowledged, is_merge):
    """All ten are there; the eleventh if it was acknowledged, else whole or not at all; the log goes on."""
    async with running_broker(data_dir, garbage_grace=0) as broker:
        records = await broker.read("steps")
        expected = [value_of(number, LARGE if number % 5 == 4 else MEDIUM) for number in range(10)]
        assert [record.offset for record in records] == list(range(len(records)))
        assert [record.value for record in records[:10]] == expected
        assert len(records) == 10 or (len(records) == 11 and not is_merge)
        assert all(
            record.value[:5] == b"0:99:" and len(record.value) in (SMALL, LARGE) for record in records[10:]
        )
        assert acknowledged is None or len(records) == 11 or is_merge
        assert (await broker.produce("steps", b"next")).base_offset == len(records)
        await broker.maintenance.garbage.run_once()
        await check_no_orphans(broker)
        assert [record.value for record in await broker.read("steps")][:10] == expected


async def check_no_orphans(broker):
    """Every object left in the store has a row: what the dead process stored without one is collected."""
    known = {row[0] for row in await broker.log.read(lambda tx: tx.rows("SELECT key FROM objects"))}
    assert set(broker.store.list("")) == known
    assert "segment" not in await broker.log.read(objects.totals) or known


@pytest.mark.parametrize("work", WORK)
async def test_kill_at_every_syscall(tmp_path, work, start, strace, figures):
    (action, *arguments), thread = WORK[work]
    await prepare(tmp_path / "prepared")

    async def run(*options):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "prepared", copy)
        child = start(copy)
        child.trace(*options, threads=child.thread(thread))
        answer = child.tell(action, *arguments)
        child.close()
        await check(copy, answer, is_merge=action == "merge")
        shutil.rmtree(copy)
        return answer

    counted = tmp_path / "counted"
    done = await run("-o", str(counted), "-e", f"trace={SYSCALLS}")
    assert done == ["done", 10], "ten extents are merged, or the eleventh message gets offset ten"
    calls = collections.Counter(re.findall(r"^(?:\d+ +)?(\w+)\(", counted.read_text(), re.MULTILINE))
    assert calls["fdatasync"] + calls["fsync"] > 0
    for call, count in calls.items():
        for number in range(1, count + 1):
            answer = await run("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
            assert answer is None, f"{call} {number} of {count} was never made"
    kinds = ", ".join(f"{count} {call}" for call, count in calls.most_common())
    figures.append(f"kill at every syscall, {work}: {calls.total()} points covered ({kinds}), lost 0")
