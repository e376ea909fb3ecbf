"""A store or a catalog that fails in the middle of a read: an error with topic, partition and offset, no fewer rows."""

import os

import pytest
from tests.spark.source.reads import batch_reader, options, read_all
from tests.spark.topics import fill, serving

from millpond.model.errors import CatalogUnavailable, CorruptObject, StoreUnavailable
from millpond.objects.store import ObjectStore
from millpond.spark import Place, place
from millpond.spark.source import schema, tasks
from millpond.testing import Faults, FaultyStore

LARGE = 40_000


@pytest.fixture
async def data(tmp_path):
    """A topic of several reads."""
    path = tmp_path / "data"
    async with serving(path, inline_bytes_max=0, tail_bytes_max=0) as broker:
        await fill(broker, "orders", 1, LARGE, per_batch=10_000)
    return path


@pytest.fixture
def faults(data, monkeypatch):
    """Of the store that tasks of this process read, a little at a time."""
    monkeypatch.setattr(tasks, "READ_BYTES", 64 * 1024)
    found = Faults()
    where = Place.at(data)
    faulty: ObjectStore = FaultyStore(place.store(where), found)
    monkeypatch.setitem(place._stores, (os.getpid(), where), faulty)
    return found


def rows_of(data):
    chosen = options(data, subscribe="orders")
    reader = batch_reader(data, subscribe="orders")
    return read_all(reader, reader.partitions(), schema(chosen))


def test_without_a_fault_every_row_is_there(data, faults):
    assert len(rows_of(data)) == LARGE


def test_a_store_that_is_away_fails_the_task_and_says_where(data, faults):
    faults.let_through("read")
    faults.fail_before("read", times=50)
    with pytest.raises(StoreUnavailable, match="'orders', partition 0, offset"):
        rows_of(data)


def test_a_store_that_is_away_for_long_is_not_taken_for_an_empty_topic(data, faults):
    faults.fail_before("read", times=50)
    with pytest.raises(StoreUnavailable, match="'orders', partition 0, offset 0"):
        rows_of(data)


def test_the_task_that_is_run_again_reads_everything(data, faults):
    faults.fail_before("read")
    with pytest.raises(StoreUnavailable):
        rows_of(data)
    assert [row["offset"] for row in rows_of(data)] == list(range(LARGE))


def test_bytes_that_are_cut_short_are_damage(data, faults):
    journals = sorted(each for each in (data / "objects" / "journal").rglob("*") if each.is_file())
    os.truncate(journals[-1], journals[-1].stat().st_size - 1_000)
    with pytest.raises(CorruptObject, match="'orders', partition 0, offset"):
        rows_of(data)


def test_an_object_that_is_gone_is_named(data, faults):
    journals = sorted(each for each in (data / "objects" / "journal").rglob("*") if each.is_file())
    for journal in journals:
        journal.unlink()
    with pytest.raises(CorruptObject, match=r"'orders', partition 0, offset 0.*journal/"):
        rows_of(data)


def test_a_catalog_that_is_away_fails_the_task_and_says_where(data, monkeypatch):
    reader = batch_reader(data, subscribe="orders")
    splits = reader.partitions()
    database = place.database(Place.at(data))

    def away():
        raise CatalogUnavailable(reason="it is being restarted")

    monkeypatch.setattr(database, "read", away)
    with pytest.raises(CatalogUnavailable, match=r"'orders', partition 0, offset 0.*being restarted"):
        read_all(reader, splits)
