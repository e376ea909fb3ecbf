"""The file store's directory: opened or refused, shared with other processes, cleaned after crashed ones."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.model.errors import DataDirectoryUnusable, ObjectExists, ObjectMissing, StoreUnavailable
from millpond.model.ids import Session, new_session
from millpond.objects import files
from millpond.objects.file_store import TEMPORARIES, FileStore

SESSION = Session("s1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(root: Path) -> Iterator[FileStore]:
    store = FileStore(root, SESSION)
    yield store
    store.close()


class TestRoot:
    def test_a_file_is_no_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        for root in (tmp_path / "file", tmp_path / "file" / "below"):
            with pytest.raises(DataDirectoryUnusable) as caught:
                FileStore(root, SESSION)
            assert caught.value.facts["path"] == str(root)

    def test_a_directory_that_cannot_be_synced(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fsync(_: int) -> None:
            raise OSError(errno.EIO, "the disk is gone")

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(DataDirectoryUnusable):
            FileStore(root, SESSION)


class TestLeftovers:
    def test_of_a_crash_are_invisible_and_removed_at_the_next_start(
        self, store: FileStore, root: Path
    ) -> None:
        leftover = root / TEMPORARIES / "dead.0123"
        leftover.write_bytes(b"half an obj")
        assert list(store.list("")) == []
        FileStore(root, new_session())
        assert not leftover.exists()

    def test_of_the_living_stay(self, store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another process starts while a put is under way here."""
        real = os.link

        def link(source: Path, target: Path) -> None:
            FileStore(root, new_session()).close()
            real(source, target)

        monkeypatch.setattr(os, "link", link)
        store.put("payloads/a", [b"x"])
        assert store.read("payloads/a", 0, 1) == b"x"
        assert list((root / TEMPORARIES).iterdir()) == []

    def test_a_temporary_file_taken_for_a_leftover_before_it_is_locked_costs_nothing(
        self, store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another process starts just when a put has made its file and not locked it yet."""
        real, made = files.new_file, []

        def new_file(path: Path) -> int:
            descriptor = real(path)
            made.append(path)
            if len(made) == 1:
                FileStore(root, new_session())
            return descriptor

        monkeypatch.setattr(files, "new_file", new_file)
        store.put("segments/a", [b"whole"])
        assert not made[0].exists()
        assert store.read("segments/a", 0, 5) == b"whole"
        assert list((root / TEMPORARIES).iterdir()) == []

    def test_a_torn_tail_of_a_dead_process_harms_nobody(self, store: FileStore, root: Path) -> None:
        location = store.append([b"acknowledged"])
        with (root / location.key).open("ab") as file:
            file.write(b"torn")
        other = FileStore(root, new_session())
        assert other.read(location.key, location.position, location.length) == b"acknowledged"
        assert store.size(location.key) == location.length
        assert not other.is_open(location.key)

    def test_emptied_folders_go(self, store: FileStore, root: Path) -> None:
        store.put("segments/s/t/0/1", [b"x"])
        store.put("segments/s/t/1/1", [b"x"])
        store.delete(["segments/s/t/0/1"])
        assert not (root / "segments/s/t/0").exists()
        store.delete(["segments/s/t/1/1"])
        assert not (root / "segments").exists()
        assert root.exists()
        store.put("segments/s/t/0/1", [b"again"])
        assert store.read("segments/s/t/0/1", 0, 5) == b"again"

    def test_folders_removed_by_others_are_made_again(self, store: FileStore, root: Path) -> None:
        store.put("segments/s/1", [b"x"])
        FileStore(root, new_session()).delete(["segments/s/1"])
        store.put("segments/s/2", [b"y"])
        assert store.read("segments/s/2", 0, 1) == b"y"

    def test_a_put_does_not_chase_its_folder_for_ever(
        self, store: FileStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(source: Path, target: Path) -> None:
            raise FileNotFoundError(errno.ENOENT, "gone")

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(StoreUnavailable):
            store.put("payloads/a", [b"x"])

    def test_a_journal_folder_removed_by_others_is_made_again(self, root: Path) -> None:
        store = FileStore(root, SESSION, roll_bytes=1)
        first = store.append([b"x"])
        FileStore(root, new_session()).delete([first.key])
        second = store.append([b"y"])
        assert store.read(second.key, 0, 1) == b"y"


def test_foreign_files_are_not_listed(store: FileStore, root: Path) -> None:
    (root / "catalog.db").write_bytes(b"")
    (root / "lost+found.d").mkdir()
    assert list(store.list("")) == []


def test_an_existing_object_is_said_by_name(store: FileStore) -> None:
    store.put("payloads/a", [b"x"])
    with pytest.raises(ObjectExists, match="payloads/a"):
        store.put("payloads/a", [b"x"])
    with pytest.raises(ObjectMissing, match="payloads/b"):
        store.size("payloads/b")
