"""What goes wrong under a SQLite catalog, each with a clear error and nothing acknowledged lost."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest
from tests.disks import count_open_files

from millpond.catalog import appends, extents, partitions, topics
from millpond.catalog.sqlite import SqliteDatabase
from millpond.model.errors import CatalogFailed, CatalogUnavailable, CorruptCatalog, DataDirectoryUnusable
from millpond.model.ids import TopicPartition


def mounted(path, *options):
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    done = subprocess.run(["mount", *options, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted(disk, "-t", "tmpfs", "-o", "size=2m", "tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def made(path):
    database = SqliteDatabase(path)
    database.migrate()
    with database.write() as tx:
        topic_partition = TopicPartition(topics.create(tx, "orders", 1, {}, now_ms=1).id, 0)
    return database, topic_partition


def append(database, topic_partition, length=16_384):
    share = appends.AppendShare(topic_partition, appends.FOREIGN, 0, length, 1, 0, 0, inline=bytes(length))
    with database.write() as tx:
        return appends.append(tx, [share], None, now_ms=1)[0].base_offset


def append_until_refused(database, topic_partition):
    acknowledged = []
    while True:
        try:
            acknowledged.append(append(database, topic_partition))
        except CatalogUnavailable as refused:
            return acknowledged, refused


def test_a_full_disk_refuses_writes_serves_reads_and_recovers_when_there_is_room(small_disk):
    (small_disk / "ballast").write_bytes(bytes(1_000_000))
    database, topic_partition = made(small_disk / "catalog.db")
    acknowledged, refused = append_until_refused(database, topic_partition)
    assert not isinstance(refused, CatalogFailed)
    assert "full" in str(refused)
    with database.read() as tx:
        assert partitions.read(tx, topic_partition).end_offset == len(acknowledged) == acknowledged[-1] + 1
        assert len(extents.facts(tx, topic_partition, 0, 1000)) == len(acknowledged)
    with pytest.raises(CatalogUnavailable):
        append(database, topic_partition)
    (small_disk / "ballast").unlink()
    assert append(database, topic_partition) == len(acknowledged)
    database.close()


def test_a_disk_that_fills_up_inside_one_operation_of_many_is_a_clear_error(small_disk):
    from millpond.catalog import writers
    from millpond.catalog.commits import Committer
    from millpond.model.ids import new_session

    database, topic_partition = made(small_disk / "catalog.db")
    session = new_session()
    with database.write() as tx:
        writers.register(tx, session, kind="broker", address="", lease_ms=1000)
        tx.rows("PRAGMA max_page_count = 60")
    large = appends.AppendShare(topic_partition, appends.FOREIGN, 0, 1, 1, 0, 0, inline=bytes(300_000))
    operation = lambda tx: appends.encode_results(appends.append(tx, [large], None, now_ms=1))  # noqa: E731
    committer = Committer(database, session, sleep=lambda _: None)
    with pytest.raises(CatalogUnavailable, match="full"):
        committer.commit([lambda tx: 1, operation, lambda tx: 2])
    assert append(database, topic_partition, 100) == 0
    database.close()


def test_a_directory_that_cannot_be_written_is_named(small_disk):
    mounted(small_disk, "-o", "remount,ro")
    with pytest.raises(DataDirectoryUnusable, match=str(small_disk)):
        SqliteDatabase(small_disk / "catalog.db")


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataDirectoryUnusable, match="missing cannot be used: No such file"):
        SqliteDatabase(tmp_path / "missing" / "catalog.db")


def test_a_directory_in_the_place_of_the_file_is_a_clear_error(tmp_path):
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(CatalogUnavailable, match="cannot be written"):
        SqliteDatabase(tmp_path / "catalog.db")


def test_a_file_that_cannot_be_written_is_a_clear_error(small_disk):
    path = small_disk / "catalog.db"
    database, topic_partition = made(path)
    database.close()
    mounted(path, "--bind", str(path))
    try:
        mounted(path, "-o", "remount,bind,ro")
        database = SqliteDatabase(path)
        with pytest.raises(CatalogUnavailable, match="cannot be written"):
            append(database, topic_partition)
        database.close()
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_file_that_is_no_database_is_called_damaged_and_left_alone(tmp_path):
    path = tmp_path / "catalog.db"
    path.write_bytes(b"this was never a catalog" * 1000)
    with pytest.raises(CorruptCatalog, match=r"The catalog is damaged: .*not a database"):
        SqliteDatabase(path)
    assert path.read_bytes() == b"this was never a catalog" * 1000


@pytest.mark.parametrize("damage", ["garbage", "cut"])
def test_a_damaged_catalog_is_called_damaged(tmp_path, damage):
    path = tmp_path / "catalog.db"
    database, topic_partition = made(path)
    for _ in range(40):
        append(database, topic_partition, 3000)
    database.close()
    size = path.stat().st_size
    if damage == "cut":
        os.truncate(path, size // 8192 * 4096)
    else:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(size - 4096))

    def use():
        database = SqliteDatabase(path)
        try:
            with database.read() as tx:
                return [
                    extents.find(tx, topic_partition, n, bytes_max=10**9, extents_max=100) for n in (0, 39)
                ]
        finally:
            database.close()

    with pytest.raises(CorruptCatalog):
        use()


def test_opening_in_vain_leaves_no_file_open(tmp_path):
    (tmp_path / "catalog.db").write_bytes(b"x" * 5000)
    before = count_open_files(tmp_path)
    for _ in range(5):
        with suppress(CorruptCatalog):
            SqliteDatabase(tmp_path / "catalog.db")
    assert count_open_files(tmp_path) == before


def test_a_reader_that_outlives_close_leaves_no_file_open(tmp_path):
    before = count_open_files(tmp_path)
    database, _ = made(tmp_path / "catalog.db")
    with database.read() as tx:
        database.close()
        with suppress(CatalogUnavailable):
            tx.rows("SELECT 1")
    assert count_open_files(tmp_path) == before


FSYNC_FAILS = """
import sys
from pathlib import Path
from millpond.catalog import topics
from millpond.catalog.sqlite import SqliteDatabase
from millpond.model.errors import MillpondError

database = SqliteDatabase(Path(sys.argv[1]))
database.migrate()
written, refused = 0, []
for number in range(60):
    try:
        with database.write() as tx:
            topics.create(tx, f"t{number}", 1, {}, now_ms=1)
        written += 1
        assert not refused, "acknowledged after a failed fsync"
    except MillpondError as error:
        refused.append(type(error).__name__)
with database.read() as tx:
    assert len(topics.all_topics(tx)) == written
print(written, set(refused))
"""


def test_after_one_failed_fsync_nothing_is_acknowledged_any_more(tmp_path):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("failing an fsync needs strace")
    inject = ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=30"]
    command = [strace, "-f", "-o", "/dev/null", *inject, sys.executable, "-c", FSYNC_FAILS]
    done = subprocess.run(
        [*command, str(tmp_path / "catalog.db")], capture_output=True, text=True, timeout=60, check=False
    )
    if "PTRACE" in done.stderr:
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr
    written, refused = done.stdout.split(maxsplit=1)
    assert 0 < int(written) < 60
    assert refused.strip() == "{'CatalogFailed'}"
