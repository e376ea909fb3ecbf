"""A failed fsync of the file store: nothing it covered is acknowledged, and nothing is replaced."""

import asyncio
import errno
import os

import pytest

from millpond.model.errors import StoreUnavailable
from millpond.testing import running_broker


class FailingSync:
    """os.fsync or os.fdatasync that fails for chosen paths, as often as told."""

    def __init__(self, real, choose, times):
        self._real, self._choose, self.left = real, choose, times

    def __call__(self, descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.left and self._choose(path):
            self.left -= 1
            raise OSError(errno.EIO, "Input/output error")
        return self._real(descriptor)


@pytest.mark.parametrize(
    ("call", "choose"),
    [
        ("fdatasync", lambda path: "/journal/" in path),
        ("fsync", lambda path: path.endswith("/journal")),
        ("fsync", lambda path: path.endswith("/objects")),
        ("fsync", lambda path: "/journal/" in path),
    ],
    ids=["file", "journal directory", "objects directory", "session directory"],
)
async def test_nothing_is_acknowledged_by_a_sync_that_failed(tmp_path, monkeypatch, call, choose):
    async with running_broker(tmp_path, inline_bytes_max=0) as broker:
        await broker.log.create_topic("topic")
        failing = FailingSync(getattr(os, call), choose, times=2)
        monkeypatch.setattr(os, call, failing)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="Input/output error"):
                await broker.produce("topic", b"refused")
            await asyncio.sleep(0.25)
        assert failing.left == 0
        assert (await broker.produce("topic", b"taken")).base_offset == 0
        assert [record.value for record in await broker.read("topic")] == [b"taken"]


async def test_a_merge_whose_sync_fails_replaces_nothing(tmp_path, monkeypatch):
    async with running_broker(tmp_path) as broker:
        for number in range(20):
            await broker.produce("topic", b"%d" % number)
        for choose in (lambda path: "/.temporary/" in path, lambda path: "/segments/" in path):
            failing = FailingSync(os.fsync, choose, times=1)
            monkeypatch.setattr(os, "fsync", failing)
            with pytest.raises(StoreUnavailable):
                await broker.maintenance.merging.run_once()
            monkeypatch.undo()
            assert failing.left == 0
            assert len(await broker.read("topic")) == 20
        assert await broker.maintenance.merging.run_once() == 20
    async with running_broker(tmp_path) as broker:
        assert [record.value for record in await broker.read("topic")] == [b"%d" % n for n in range(20)]
