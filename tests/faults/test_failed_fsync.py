"""fsync says EIO, once (reliability test 6): under the catalog, under a journal file, under a directory.

After a failed fsync the kernel may call lost pages clean, so the next one succeeds and lies. So nothing that the
failed one covered is ever acknowledged, and the file is not trusted again: a journal file is left for a new one; a
catalog cannot be left, so the process writes no more and says so.
"""

import time

import pytest

from millpond.testing import running_broker

SMALL, LARGE = 120, 20_000
REFUSAL_SECONDS = 0.25
ALL_SYNCS = "fsync,fdatasync,sync_file_range"


def append_many(child, sizes):
    """[(what was said, offset or error)] for a series of appends; a refusal is given time to pass."""
    answers = []
    for number, size in enumerate(sizes):
        answers.append(child.tell("append", number, size))
        if answers[-1][0] == "refused":
            child.tell("merge")
            while child.tell("read", 0)[0] == "refused":
                pass
            time.sleep(REFUSAL_SECONDS)
    return answers


async def check_survivors(data_dir, answers):
    """A restart finds every acknowledged record at its offset, and the log goes on."""
    async with running_broker(data_dir) as broker:
        records = {record.offset: record.value for record in await broker.read("steps")}
        for number, answer in enumerate(answers):
            if answer[0] == "done":
                assert records[answer[1]].startswith(b"0:%d:" % number)
        assert sorted(records) == list(range(len(records)))
        assert (await broker.produce("steps", b"next")).base_offset == len(records)


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["inline", "file"])
async def test_of_the_catalog_ends_all_writing_and_is_reported(tmp_path, start, strace, figures, nth, size):
    async with running_broker(tmp_path) as broker:
        await broker.log.create_topic("steps")
    child = start(tmp_path)
    wal = str(tmp_path / "catalog.db-wal")
    inject = f"inject={ALL_SYNCS}:error=EIO:when={nth}"
    child.trace("-P", wal, "-e", f"trace={ALL_SYNCS}", "-e", inject, threads=child.thread("millpond-writer"))
    answers = append_many(child, [size] * (nth + 3))
    child.close()
    kinds = [answer[0] for answer in answers]
    assert kinds == ["done"] * (nth - 1) + ["refused"] * 4
    for _, error, retriable, has_failed, message in answers[nth - 1 :]:
        assert (error, retriable, has_failed) == ("CatalogFailed", True, True)
        assert "stops writing" in message
    await check_survivors(tmp_path, answers)
    figures.append(
        f"fsync EIO on the catalog (sync {nth}): acknowledged {nth - 1}, refused 4 of 4 after it, lost 0"
    )


async def test_of_a_journal_file_fails_its_append_and_the_next_takes_a_new_file(
    tmp_path, start, strace, figures
):
    async with running_broker(tmp_path) as broker:
        await broker.log.create_topic("steps")
    child = start(tmp_path)
    folder = tmp_path / "objects" / "journal" / child.facts["session"]
    first = str(folder / "0000000000000000")
    inject = f"inject={ALL_SYNCS}:error=EIO:when=3"
    child.trace(
        "-P", first, "-e", f"trace={ALL_SYNCS}", "-e", inject, threads=child.thread("millpond-writer")
    )
    answers = append_many(child, [LARGE] * 6)
    assert [answer[0] for answer in answers] == ["done", "done", "refused", "done", "done", "done"]
    assert answers[2][1:4] == ["StoreUnavailable", True, False]
    assert [answer[1] for answer in answers if answer[0] == "done"] == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in folder.iterdir()) == ["0000000000000000", "0000000000000001"]
    child.close()
    await check_survivors(tmp_path, answers)
    figures.append("fsync EIO on a journal file: acknowledged 5, refused 1, new file taken, lost 0")


async def test_of_the_journals_directory_fails_its_append_and_the_next_goes_on(tmp_path, start, strace):
    async with running_broker(tmp_path) as broker:
        await broker.log.create_topic("steps")
    child = start(tmp_path)
    folder = str(tmp_path / "objects" / "journal" / child.facts["session"])
    inject = f"inject={ALL_SYNCS}:error=EIO:when=1"
    child.trace(
        "-P", folder, "-e", f"trace={ALL_SYNCS}", "-e", inject, threads=child.thread("millpond-writer")
    )
    answers = append_many(child, [LARGE] * 3)
    assert [answer[0] for answer in answers] == ["refused", "done", "done"]
    assert answers[0][1] == "StoreUnavailable"
    child.close()
    await check_survivors(tmp_path, answers)
