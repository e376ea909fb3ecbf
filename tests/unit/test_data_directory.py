"""The data directory: one broker at a time, and no trace of one that could not start."""

import os

import pytest
from tests.ports import free_address

from millpond.broker import Broker
from millpond.data_directory import lock_data_dir
from millpond.model.errors import DataDirectoryLocked, InvalidSettings, PortUnavailable
from millpond.settings import Settings
from millpond.testing import running_broker

QUIET = {"kafka_listen": "", "grpc_listen": "", "http_listen": ""}


async def fails_to_start(data_dir, **settings):
    broker = Broker(Settings(data_dir=data_dir, **{**QUIET, **settings}), listen=True)
    with pytest.raises(InvalidSettings) as refused:
        await broker.start()
    return refused.value


async def test_a_broker_that_cannot_start_leaves_no_directory(tmp_path):
    async with running_broker(http=True) as other:
        error = await fails_to_start(tmp_path / "a" / "b", http_listen=other.listeners["http"])
    assert isinstance(error, PortUnavailable)
    assert os.listdir(tmp_path) == []


async def test_nor_does_one_whose_catalog_was_made_already(tmp_path):
    """The catalog is opened before the store, which cannot be."""
    await fails_to_start(tmp_path / "new", storage="ftp://nowhere")
    assert os.listdir(tmp_path) == []


async def test_a_directory_that_was_there_before_stays(tmp_path):
    await fails_to_start(tmp_path, storage="ftp://nowhere")
    assert "catalog.db" in os.listdir(tmp_path)


async def test_one_that_has_served_stays_when_it_cannot_start_again(tmp_path):
    async with running_broker(tmp_path / "data") as broker:
        await broker.produce("t", b"kept")
    await fails_to_start(tmp_path / "data", storage="ftp://nowhere")
    async with running_broker(tmp_path / "data") as broker:
        assert [each.value for each in await broker.read("t")] == [b"kept"]


@pytest.mark.parametrize("name", ["notes.txt", "objects/journal/1"])
def test_what_a_broker_that_did_not_start_cannot_have_made_stays(tmp_path, name):
    directory = lock_data_dir(tmp_path / "data")
    file = tmp_path / "data" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    directory.remove_if_created()
    directory.unlock()
    assert file.read_text() == "mine"
    assert (tmp_path / "data/broker.lock").exists()


def test_a_second_broker_is_refused_and_removes_nothing(tmp_path):
    directory = lock_data_dir(tmp_path / "data")
    with pytest.raises(DataDirectoryLocked):
        lock_data_dir(tmp_path / "data")
    directory.unlock()
    lock_data_dir(tmp_path / "data").unlock()


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_taken_again(tmp_path, monkeypatch):
    """Another start fails, and removes the directory between our opening of the lock file and our locking it."""
    from millpond import data_directory as module

    really = module.fcntl.flock
    removed = []

    def remove_first(descriptor, how):
        if not removed:
            removed.append(True)
            (tmp_path / "data/broker.lock").unlink()
            (tmp_path / "data").rmdir()
        really(descriptor, how)

    monkeypatch.setattr(module.fcntl, "flock", remove_first)
    mine = lock_data_dir(tmp_path / "data")
    monkeypatch.undo()
    with pytest.raises(DataDirectoryLocked):
        lock_data_dir(tmp_path / "data")
    mine.unlock()


async def test_the_workers_supervisor_leaves_none_either(tmp_path):
    from millpond.cli.workers import Supervisor
    from millpond.model.errors import CannotStart

    settings = Settings(
        data_dir=tmp_path / "data", **{**QUIET, "grpc_listen": free_address()}, storage="ftp://nowhere"
    )
    with pytest.raises(CannotStart):
        await Supervisor(settings, 1, on_ready=lambda _: None).run()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("mode", "security", "is_reported"),
    [
        (0o755, True, True),
        (0o750, True, True),
        (0o711, True, True),
        (0o700, True, False),
        (0o755, False, False),
    ],
)
async def test_a_secured_broker_reports_a_directory_that_others_can_open(
    tmp_path, caplog, mode, security, is_reported
):
    tmp_path.chmod(mode)
    async with running_broker(data_dir=tmp_path, security=security):
        pass
    found = [each for each in caplog.records if each.message == "other users can open the data directory"]
    assert [each.path for each in found] == ([str(tmp_path)] if is_reported else [])
    assert tmp_path.stat().st_mode & 0o777 == mode


async def test_the_new_directory_of_a_secured_broker_is_for_its_user_only(tmp_path, caplog):
    async with running_broker(data_dir=tmp_path / "new", security=True):
        pass
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert "other users can open the data directory" not in caplog.messages
