"""Power loss, simulated (reliability test 7): what was not synced may be there, in part, out of order, or not at all.

Everything a broker does to files is recorded: writes, truncations, names made and removed, syncs of files and of
directories; of SQLite through a VFS of our own, of the file store through `os`. Then power is lost after any event:
each file has what its last sync covered, and of what was written later a random subset of sectors; a name that
was made or removed since its directory was last synced is there or not. A broker that starts on such a state must
have everything that was acknowledged before.
"""
# ruff: noqa: N802  # SQLite's names for what a VFS does

import asyncio
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from millpond.testing import running_broker

SECTOR = 512
LARGE = 20_000


@dataclass
class Disk:
    """All events below a directory, in order. Paths are as text."""

    root: str
    events: list[tuple] = field(default_factory=list)

    def note(self, kind, path, *details):
        path = os.path.abspath(path)
        if path == self.root or path.startswith(self.root + "/"):
            self.events.append((kind, path, *details))


class RecordingFile(apsw.VFSFile):
    def __init__(self, disk, name, flags):
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data, offset):
        super().xWrite(data, offset)
        self._disk.note("write", self._path, offset, bytes(data))

    def xTruncate(self, size):
        super().xTruncate(size)
        self._disk.note("truncate", self._path, size)

    def xSync(self, flags):
        super().xSync(flags)
        self._disk.note("sync", self._path)
        if self._path.endswith(("-wal", "-journal")):
            # SQLite's own VFS also syncs the directory when it first syncs a log or a journal it has made.
            self._disk.note("sync directory", os.path.dirname(self._path))


class RecordingVfs(apsw.VFS):
    def __init__(self, disk):
        super().__init__("recording", "unix", makedefault=True)
        self._disk = disk

    def xOpen(self, name, flags):
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if not os.path.exists(path):
            self._disk.note("make", path)
        return RecordingFile(self._disk, name, flags)

    def xDelete(self, path, sync_directory):
        super().xDelete(path, sync_directory)
        self._disk.note("remove", path)
        if sync_directory:
            self._disk.note("sync directory", os.path.dirname(path))


def path_of(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}")


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """An empty disk at `tmp_path/disk`, with every change to it recorded."""
    (tmp_path / "disk").mkdir()
    disk = Disk(str(tmp_path / "disk"))
    real = {name: getattr(os, name) for name in RECORDED}

    def patched(name):
        def call(*arguments, **options):
            existed = name == "open" and os.path.lexists(arguments[0])
            result = real[name](*arguments, **options)
            RECORDED[name](disk, result, existed, *arguments)
            return result

        return call

    for name in RECORDED:
        monkeypatch.setattr(os, name, patched(name))
    vfs = RecordingVfs(disk)
    yield disk
    vfs.unregister()


def _pwritev(disk, written, _, descriptor, parts, position):
    disk.note("write", path_of(descriptor), position, b"".join(parts)[:written])


def _open(disk, _, existed, path, flags, *rest):
    if flags & os.O_CREAT and not existed:
        disk.note("make", path)


def _sync(disk, _, __, descriptor):
    path = path_of(descriptor)
    disk.note("sync directory" if os.path.isdir(path) else "sync", path)


RECORDED = {
    "pwritev": _pwritev,
    "open": _open,
    "fsync": _sync,
    "fdatasync": _sync,
    "ftruncate": lambda disk, _, __, descriptor, size: disk.note("truncate", path_of(descriptor), size),
    "mkdir": lambda disk, _, __, path, *rest: disk.note("make directory", path),
    "rmdir": lambda disk, _, __, path: disk.note("remove directory", path),
    "unlink": lambda disk, _, __, path: disk.note("remove", path),
    "link": lambda disk, _, __, source, target: disk.note("link", target, os.path.abspath(source)),
}


@dataclass
class Content:
    """A file's bytes, apart from its name: what is synced, and what was done to it since."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple] = field(default_factory=list)

    def change(self, event):
        self.pending.append(event)

    def sync(self):
        for kind, *details in self.pending:
            apply(self.synced, kind, *details)
        self.pending = []

    def after_power_loss(self, rng):
        """Some of the pending sectors, each file with its own luck: none, all, or any of them."""
        luck = rng.choice((0.0, 0.5, 1.0, rng.random()))
        content = bytearray(self.synced)
        for kind, *details in self.pending:
            if kind == "truncate":
                if rng.random() < luck:
                    apply(content, kind, *details)
                continue
            offset, data = details
            start = offset
            while start < offset + len(data):
                end = min((start // SECTOR + 1) * SECTOR, offset + len(data))
                if rng.random() < luck:
                    apply(content, "write", start, data[start - offset : end - offset])
                start = end
        return bytes(content)


def apply(content, kind, *details):
    if kind == "truncate":
        (size,) = details
        del content[size:]
        content.extend(bytes(size - len(content)))
        return
    offset, data = details
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Model:
    """The disk as a power cut leaves it. Names and contents become durable separately."""

    def __init__(self, root):
        self.root = root
        self.names = {}
        self.durable = {}

    def play(self, kind, path, *details):
        match kind:
            case "make":
                self.names[path] = Content()
            case "make directory":
                self.names[path] = None
            case "remove" | "remove directory":
                self.names.pop(path, None)
            case "link":
                self.names[path] = self.names[details[0]]
            case "write" | "truncate":
                self.names[path].change((kind, *details))
            case "sync":
                self.names[path].sync()
            case "sync directory":
                inside = {name for name in (*self.names, *self.durable) if os.path.dirname(name) == path}
                for name in inside:
                    self.durable.pop(name, None)
                    if name in self.names:
                        self.durable[name] = self.names[name]

    def write_out(self, target, rng):
        """Make the state a power cut now could leave, below another directory."""
        luck = rng.choice((0.0, 0.5, 1.0))
        kept = {
            name: content
            for name, content in {**self.names, **self.durable}.items()
            if (self.names.get(name, 0) is self.durable.get(name, 0))
            or (rng.random() < luck) == (name in self.names)
        }
        for name in sorted(kept):
            place = Path(target + name.removeprefix(self.root))
            if not place.parent.is_dir():
                continue  # its directory's own name was lost
            if kept[name] is None:
                place.mkdir()
            elif not name.endswith("-shm"):
                place.write_bytes(kept[name].after_power_loss(rng))


async def live(data_dir, disk):
    """A short life with every kind of write. An acknowledgement is an event like the others."""
    async with running_broker(data_dir, garbage_grace=0, retention=-1) as broker:
        if not broker.log.topics.all():
            await broker.log.create_topic("topic", 2)

        async def produce(value, partition):
            result = await broker.produce("topic", value, partition=partition)
            disk.events.append(("acknowledged", partition, result.base_offset, value))

        for number in range(24):
            size = LARGE if number % 6 == 5 else 50
            sends = [produce(b"%d/%d:" % (number, p) + bytes([number]) * size, p) for p in (0, 1)]
            await asyncio.gather(*sends)
            if number % 9 == 8:
                await broker.maintenance.merging.run_once()
                await broker.maintenance.garbage.run_once()
            if number == 15:
                broker.database._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                disk.events.append(("checkpointed", ""))


async def check_state(data_dir, acknowledged):
    async with running_broker(data_dir) as broker:
        for partition, expected in acknowledged.items():
            offset, found = 0, {}
            while records := await broker.read("topic", offset, partition=partition):
                found |= {record.offset: record.value for record in records}
                offset = records[-1].offset + 1
            assert expected.items() <= found.items()
            assert sorted(found) == list(range(len(found)))
            assert all(value.endswith(bytes([int(value.split(b"/")[0])])) for value in found.values())
        if acknowledged:
            result = await broker.produce("topic", b"next", partition=0)
            assert result.base_offset >= len(acknowledged.get(0, {}))


@pytest.mark.parametrize("states", [300, pytest.param(6_000, marks=pytest.mark.long)])
async def test_power_loss_after_any_event_loses_nothing_acknowledged(
    tmp_path, recorded, states, figures, monkeypatch
):
    for _ in range(2):
        await live(tmp_path / "disk" / "data", recorded)
    events = list(recorded.events)
    monkeypatch.undo()
    rng = random.Random(states)
    chosen = sorted(rng.choices(range(1, len(events) + 1), k=states))
    model, acknowledged, played = Model(recorded.root), {}, 0
    for number, moment in enumerate(chosen):
        for event in events[played:moment]:
            if event[0] == "acknowledged":
                acknowledged.setdefault(event[1], {})[event[2]] = event[3]
            elif event[0] != "checkpointed":
                model.play(*event)
        played = moment
        place = tmp_path / f"state-{number}"
        place.mkdir()
        model.write_out(str(place), rng)
        await check_state(place / "data", acknowledged)
        shutil.rmtree(place)
    total = sum(map(len, acknowledged.values()))
    figures.append(
        f"power loss: {states} states explored over {len(events)} events, acknowledged {total}, lost 0"
    )


async def test_the_simulation_notices_a_sync_left_out(tmp_path, recorded, monkeypatch):
    """A property no mutant trips is not testing: without the journal's fdatasync the same check must fail."""
    synced = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    async with running_broker(tmp_path / "disk" / "data", inline_bytes_max=0) as broker:
        await broker.log.create_topic("topic", 1)
        await broker.produce("topic", b"0/0:\x00")
    monkeypatch.setattr(os, "fdatasync", synced)
    model = Model(recorded.root)
    for event in list(recorded.events):
        model.play(*event)
    place = tmp_path / "state"
    place.mkdir()
    for name, content in model.names.items():
        if "/journal/" in name and content is not None:
            assert content.pending
    rng = random.Random(1)
    monkeypatch.setattr(rng, "choice", lambda choices: choices[0])  # nothing that was not synced survives
    model.write_out(str(place), rng)
    with pytest.raises(Exception, match=r"gone|damaged|missing|CorruptObject"):
        await check_state(place / "data", {0: {0: b"0/0:\x00"}})
