"""The file store where the disk fails: nothing is acknowledged that is not there, and nothing acknowledged changes."""

import errno
import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from millpond.model.errors import (
    CorruptObject,
    DataDirectoryUnusable,
    StoreFull,
    StoreUnavailable,
)
from millpond.model.ids import Session
from millpond.objects import files
from millpond.objects.disk_reserve import Reserve
from millpond.objects.file_store import TEMPORARIES, FileStore
from millpond.objects.retrying import Retrying

SESSION = Session("s1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(root: Path) -> Iterator[FileStore]:
    store = FileStore(root, SESSION)
    yield store
    store.close()


def failing(code: int, calls: list[int] | None = None) -> Callable[..., int]:
    """A system call that fails; it notes which descriptors it was called with."""

    def call(descriptor: int, *_: object) -> int:
        if calls is not None:
            calls.append(os.fstat(descriptor).st_ino)
        raise OSError(code, os.strerror(code))

    return call


def short_writes(at_most: int) -> Callable[[int, Sequence[bytes], int], int]:
    def pwritev(descriptor: int, parts: Sequence[bytes], position: int) -> int:
        return os.pwrite(descriptor, b"".join(parts)[:at_most], position)

    return pwritev


class TestRolling:
    def test_appends_share_a_file_until_it_is_full(self, root: Path) -> None:
        store = FileStore(root, SESSION, roll_bytes=100)
        places = [store.append([bytes(40)]) for _ in range(5)]
        assert [(place.key[-1], place.position) for place in places] == [
            ("0", 0), ("0", 40), ("1", 0), ("1", 40), ("2", 0)
        ]  # fmt: skip
        assert [store.is_open(place.key) for place in places] == [False, False, False, False, True]

    def test_a_file_may_be_filled_exactly(self, root: Path) -> None:
        store = FileStore(root, SESSION, roll_bytes=80)
        places = [store.append([bytes(40)]) for _ in range(3)]
        assert [(place.key[-1], place.position) for place in places] == [("0", 0), ("0", 40), ("1", 0)]

    def test_an_append_larger_than_a_file_has_its_own(self, root: Path) -> None:
        store = FileStore(root, SESSION, roll_bytes=100)
        places = [store.append([bytes(length)]) for length in (1000, 10)]
        assert places[0].key != places[1].key
        assert store.size(places[0].key) == 1000

    def test_a_new_start_takes_a_new_file(self, root: Path) -> None:
        first = FileStore(root, SESSION)
        before = first.append([b"before"])
        first.close()
        second = FileStore(root, SESSION)
        after = second.append([b"after"])
        assert after.key != before.key
        assert second.read(before.key, before.position, before.length) == b"before"

    def test_nothing_is_made_before_the_first_append(self, store: FileStore) -> None:
        assert list(store.list("")) == []

    def test_closing_releases_the_file(self, store: FileStore, root: Path) -> None:
        location = store.append([b"x"])
        store.close()
        held = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
        assert str(root / location.key) not in held


class TestDurability:
    """What is synced, by watching the calls."""

    @pytest.fixture
    def synced(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        names: list[str] = []

        def watch(name: str) -> None:
            real = getattr(os, name)

            def call(descriptor: int) -> None:
                names.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
                real(descriptor)

            monkeypatch.setattr(os, name, call)

        watch("fsync")
        watch("fdatasync")
        return names

    def test_a_new_journal(self, synced: list[str], store: FileStore, root: Path) -> None:
        synced.clear()
        key = store.append([b"x"]).key
        folder = (root / key).parent
        assert synced == [str(folder.parent), str(root), str(folder), str(root / key)]

    def test_a_further_append(self, synced: list[str], store: FileStore, root: Path) -> None:
        key = store.append([b"x"]).key
        synced.clear()
        store.append([b"y"])
        assert synced == [str(root / key)]

    def test_a_put(self, synced: list[str], store: FileStore, root: Path) -> None:
        synced.clear()
        store.put("segments/a/b", [b"x"])
        temporary, *rest = synced
        assert Path(temporary).parent == root / TEMPORARIES
        assert rest == [str(root / "segments"), str(root), str(root / "segments/a")]

    def test_a_new_root(self, synced: list[str], tmp_path: Path) -> None:
        FileStore(tmp_path / "new" / "deep", SESSION)
        assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new/deep")} <= set(synced)


class TestFailedFsync:
    def test_the_file_is_abandoned(
        self,
        store: FileStore,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        before = store.append([b"acknowledged"])
        inode = os.stat(root / before.key).st_ino
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", failing(errno.EIO))
            with caplog.at_level(logging.ERROR), pytest.raises(StoreUnavailable):
                store.append([b"lost"])
        assert "file abandoned" in caplog.text
        assert not store.is_open(before.key)

        synced: list[int] = []
        real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(os.fstat(fd).st_ino), real(fd))[1])
        after = [store.append([b"next"]), store.append([b"and next"])]
        assert all(place.key != before.key for place in after)
        assert inode not in synced
        assert store.read(before.key, before.position, before.length) == b"acknowledged"
        assert store.read(after[0].key, after[0].position, after[0].length) == b"next"

    def test_every_time(self, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
        inodes: list[int] = []
        monkeypatch.setattr(os, "fdatasync", failing(errno.EIO, inodes))
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                store.append([b"lost"])
        assert len(set(inodes)) == 3

    def test_a_retry_never_syncs_the_same_file(
        self, store: FileStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inodes: list[int] = []
        monkeypatch.setattr(os, "fdatasync", failing(errno.EIO, inodes))
        with pytest.raises(StoreUnavailable):
            Retrying(store, sleep=lambda _: None).append([b"lost"])
        assert len(inodes) == len(set(inodes)) == 6

    def test_of_a_new_journals_directory(self, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", failing(errno.EIO))
            with pytest.raises(StoreUnavailable):
                store.append([b"lost"])
        location = store.append([b"kept"])
        assert store.read(location.key, location.position, location.length) == b"kept"

    def test_of_a_put(self, store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", failing(errno.EIO))
            with pytest.raises(StoreUnavailable):
                store.put("payloads/a", [b"lost"])
        assert list(store.list("")) == []
        assert list((root / TEMPORARIES).iterdir()) == []
        store.put("payloads/a", [b"kept"])

    def test_of_a_puts_directory_is_not_hidden_by_a_retry(
        self, store: FileStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The name was linked but not made durable: the retry must link and sync it anew, not find it there."""
        store.put("payloads/first", [b"x"])
        failures, events = [OSError(errno.EIO, "once")], []
        real_sync, real_link = files.sync_directory, os.link

        def sync(path: Path) -> None:
            if failures:
                raise failures.pop()
            real_sync(path)
            events.append("synced")

        def link(source: Path, target: Path) -> None:
            real_link(source, target)
            events.append("linked")

        monkeypatch.setattr(files, "sync_directory", sync)
        monkeypatch.setattr(os, "link", link)
        Retrying(store, sleep=lambda _: None).put("payloads/second", [b"y"])
        assert events == ["linked", "linked", "synced"]
        assert store.read("payloads/second", 0, 1) == b"y"


class TestReleasedReserve:
    """While the reserve of its disk is released."""

    @pytest.fixture
    def reserve(self, tmp_path: Path) -> Reserve:
        reserve = Reserve(tmp_path, 1024 * 1024)
        reserve.renew()
        return reserve

    @pytest.fixture
    def store(self, root: Path, reserve: Reserve) -> Iterator[FileStore]:
        store = FileStore(root, SESSION, reserve=reserve)
        yield store
        store.close()

    def test_nothing_is_taken_and_everything_is_read_and_deleted(
        self, store: FileStore, reserve: Reserve
    ) -> None:
        place = store.append([b"before"])
        store.put("payloads/a", [b"put before"])
        reserve.release()
        for call in (lambda: store.append([b"x"]), lambda: store.put("payloads/b", [b"x"])):
            with pytest.raises(StoreFull, match="is full"):
                call()
        assert store.read(place.key, 0, 6) == b"before"
        store.copy("payloads/a", "payloads/c")
        store.delete(["payloads/a", "payloads/c", place.key])
        assert list(store.list("")) == []

    def test_the_journal_is_left_so_that_it_can_be_collected(
        self, store: FileStore, reserve: Reserve
    ) -> None:
        before = store.append([b"before"])
        assert store.is_open(before.key)
        reserve.release()
        assert not store.is_open(before.key)
        reserve.renew()
        assert not store.is_open(before.key), "what has been left stays left"
        after = store.append([b"after"])
        assert after.key != before.key
        assert store.is_open(after.key)
        assert store.read(before.key, 0, 6) == b"before"

    def test_it_is_left_also_if_there_is_no_reserve_and_an_append_found_no_room(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = FileStore(root, SESSION)
        before = store.append([b"before"])
        with monkeypatch.context() as broken:
            broken.setattr(os, "pwritev", failing(errno.ENOSPC))
            with pytest.raises(StoreFull):
                store.append([b"x"])
        assert not store.is_open(before.key)
        after = store.append([b"after"])
        assert after.key != before.key
        assert store.is_open(after.key)


class TestFailedWrite:
    @pytest.mark.parametrize(
        ("code", "kind"),
        [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreUnavailable)],
    )
    def test_the_error_says_what_it_was(
        self, store: FileStore, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
    ) -> None:
        monkeypatch.setattr(os, "pwritev", failing(code))
        for call in (lambda: store.append([b"x"]), lambda: store.put("payloads/a", [b"x"])):
            with pytest.raises(kind) as caught:
                call()
            assert type(caught.value) is kind

    def test_torn_bytes_are_overwritten(
        self, store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = store.append([b"before"])

        def torn(descriptor: int, parts: Sequence[bytes], position: int) -> int:
            os.pwrite(descriptor, b"TORN BYTES", position)
            raise OSError(errno.ENOSPC, "no room")

        with monkeypatch.context() as broken:
            broken.setattr(os, "pwritev", torn)
            with pytest.raises(StoreFull):
                store.append([b"x" * 100])
        assert store.size(before.key) == before.length
        assert (root / before.key).stat().st_size == before.length, "their room is given back"
        with pytest.raises(CorruptObject):
            store.read(before.key, 0, before.length + 1)
        after = store.append([b"after"])
        assert (after.key, after.position) == (before.key, before.length)
        assert store.read(before.key, 0, 11) == b"beforeafter"

    def test_bytes_on_their_way_are_not_read(self, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
        before = store.append([b"before"])
        seen: list[object] = []
        real = os.fdatasync

        def look(descriptor: int) -> None:
            seen.append(store.size(before.key))
            with pytest.raises(CorruptObject):
                store.read(before.key, before.length, 1)
            real(descriptor)

        monkeypatch.setattr(os, "fdatasync", look)
        store.append([b"unsynced"])
        assert seen == [before.length]

    @pytest.mark.parametrize("at_most", [1, 3, 7, 1000])
    def test_short_writes_go_on(
        self, store: FileStore, monkeypatch: pytest.MonkeyPatch, at_most: int
    ) -> None:
        monkeypatch.setattr(os, "pwritev", short_writes(at_most))
        parts = [b"", b"one", b"", b"twenty", b"x" * 50, b""]
        store.append([b"start"])
        location = store.append(parts)
        store.put("payloads/a", parts)
        assert store.read(location.key, location.position, location.length) == b"".join(parts)
        assert store.read("payloads/a", 0, 59) == b"".join(parts)

    def test_a_file_that_takes_nothing(self, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "pwritev", short_writes(0))
        with pytest.raises(StoreUnavailable):
            store.append([b"x"])

    def test_short_reads_go_on(self, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
        location = store.append([b"0123456789"])
        real = os.pread
        monkeypatch.setattr(os, "pread", lambda fd, length, start: real(fd, min(length, 3), start))
        assert store.read(location.key, 0, 10) == b"0123456789"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mountpoint = tmp_path / "small"
    mountpoint.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mountpoint)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a file system cannot be mounted here: {error}")
    yield mountpoint
    subprocess.run(["umount", "-l", str(mountpoint)], check=True, capture_output=True)


class TestFullDisk:
    def test_errors_then_recovery(self, small_disk: Path) -> None:
        store = FileStore(small_disk / "data", SESSION, roll_bytes=64 << 10)
        kept = []

        def fill() -> None:
            for number in range(100):
                content = bytes([number]) * 10_000
                kept.append((store.append([content]), content))

        with pytest.raises(StoreFull):
            fill()
        assert len(kept) > 10
        with pytest.raises(StoreFull):
            store.put("payloads/large", [bytes(100_000)])
        assert "payloads/large" not in list(store.list(""))
        for location, content in kept:
            assert store.read(location.key, location.position, location.length) == content

        store.delete([kept[0][0].key])
        location = store.append([b"room again" * 1000])
        assert store.read(location.key, location.position, location.length) == b"room again" * 1000
        store.close()

    def test_a_read_only_disk_cannot_be_opened(self, small_disk: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, capture_output=True)
        with pytest.raises(DataDirectoryUnusable, match="Read-only"):
            FileStore(small_disk / "data", SESSION)
