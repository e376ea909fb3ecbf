"""Whether there is room for a rewrite, and how a lack of room is reported."""

import logging

import pytest

from millpond.maintenance.disk_space import SpaceCheck
from millpond.observability.metrics import Metrics


class Disk:
    free = 1000


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def space(metrics):
    return SpaceCheck(lambda: Disk.free, metrics.maintenance)


@pytest.fixture(autouse=True)
def an_empty_disk():
    Disk.free = 1000


def waiting(metrics, duty):
    return metrics.registry.get_sample_value("millpond_maintenance_waiting_bytes", {"duty": duty})


def test_what_fits_has_room(space):
    assert space.has_room("merging", 1000)
    assert not space.has_room("merging", 1001)


def test_a_store_that_is_no_disk_has_room_for_anything(metrics):
    assert SpaceCheck(lambda: None, metrics.maintenance).has_room("merging", 10**15)


def test_who_waits_is_in_the_metric_for_as_long_as_it_waits(space, metrics):
    space.has_room("merging", 5000)
    space.has_room("compaction", 7000)
    assert (waiting(metrics, "merging"), waiting(metrics, "compaction")) == (5000, 7000)
    Disk.free = 6000
    for duty, needed in (("merging", 5000), ("compaction", 7000)):
        space.end_pass(duty)
        space.has_room(duty, needed)
        space.end_pass(duty)
    assert (waiting(metrics, "merging"), waiting(metrics, "compaction")) == (0, 7000)


def test_it_is_logged_once_for_each_time_that_room_ran_out(space, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        space.has_room("merging", 5000)
        space.has_room("compaction", 5000)
    assert len(caplog.records) == 2
    Disk.free = 5000
    for _ in range(3):
        space.end_pass("merging")
        space.has_room("merging", 5000)
    space.end_pass("merging")
    Disk.free = 0
    space.has_room("merging", 5000)
    assert [(each.message, each.duty) for each in caplog.records] == [
        ("not enough room on the disk; maintenance waits", "merging"),
        ("not enough room on the disk; maintenance waits", "compaction"),
        ("room on the disk again; maintenance goes on", "merging"),
        ("not enough room on the disk; maintenance waits", "merging"),
    ]
    assert caplog.records[0].needed_bytes == 5000


def test_a_large_rewrite_waits_beside_small_ones_that_fit(space, metrics, caplog):
    """Else it would be reported in each pass."""
    caplog.set_level(logging.INFO)
    for _ in range(3):
        assert space.has_room("merging", 10)
        assert not space.has_room("merging", 5000)
        assert not space.has_room("merging", 3000)
        assert space.has_room("merging", 10)
        space.end_pass("merging")
        assert waiting(metrics, "merging") == 5000
    assert len(caplog.records) == 1
    space.end_pass("merging")  # it is no longer due
    assert waiting(metrics, "merging") == 0
