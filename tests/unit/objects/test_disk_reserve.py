"""The disk's reserve: made while there is room, released when the disk is full, made again when there is real room."""

import errno
import os
import threading

import pytest

from millpond.model.errors import StoreFull
from millpond.objects.disk_reserve import LOW_BYTES, MAKING, RELEASED, RESERVE, DiskSpace, Reserve, space_of

MIB = 1024 * 1024
SIZE = 4 * MIB


class Disk:
    """As large and as full as the test says. A quota may allow less than is free."""

    def __init__(self, folder, free=100 * MIB, total=1000 * MIB):
        self.folder, self.free, self.total, self.quota = folder, free, total, None
        self.allocated = []

    def measure(self, _):
        return DiskSpace(self.free, self.total)

    def allocate(self, descriptor, start, length):
        if length > (self.free if self.quota is None else self.quota):
            raise OSError(errno.ENOSPC if self.quota is None else errno.EDQUOT, "no room")
        os.posix_fallocate(descriptor, start, length)
        self.allocated.append(length)

    def reserve(self, size=SIZE):
        """As one process sees it."""
        return Reserve(self.folder, size, measure=self.measure, allocate=self.allocate)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path)


def test_it_occupies_its_size_once_it_is_made(disk):
    reserve = disk.reserve()
    reserve.prepare()
    assert disk.names() == []  # a broker that fails to start leaves nothing
    reserve.renew()
    assert disk.names() == [RESERVE]
    found = (disk.folder / RESERVE).stat()
    assert found.st_size == reserve.held_bytes == SIZE
    assert found.st_blocks * 512 >= SIZE
    reserve.check()
    reserve.renew()
    assert disk.allocated == [SIZE]


def test_released_it_frees_its_space_and_appends_are_refused(disk, caplog):
    reserve = disk.reserve()
    reserve.renew()
    disk.free = 0
    reserve.release()
    assert disk.names() == [RELEASED]
    assert (disk.folder / RELEASED).stat().st_size == reserve.held_bytes == 0
    with pytest.raises(StoreFull, match="is full, and nothing is appended until 8MiB are free"):
        reserve.check()
    reserve.release()
    assert [each.message for each in caplog.records] == ["disk full; reserve released, appends refused"]


def test_it_is_made_again_only_if_as_much_again_stays_free(disk):
    reserve = disk.reserve()
    reserve.renew()
    reserve.release()
    disk.free = 2 * SIZE
    reserve.renew()
    assert reserve.is_released
    disk.free = 2 * SIZE + 1
    reserve.renew()
    assert not reserve.is_released
    assert disk.names() == [RESERVE]
    assert reserve.held_bytes == SIZE
    assert disk.allocated == [SIZE, 2 * SIZE]
    reserve.check()


def test_room_that_a_quota_does_not_give_is_no_room(disk):
    reserve = disk.reserve()
    reserve.renew()
    reserve.release()
    disk.quota = 2 * SIZE - 1
    reserve.renew()
    assert reserve.is_released
    assert disk.names() == [RELEASED]
    disk.quota = 2 * SIZE
    reserve.renew()
    assert not reserve.is_released


def test_every_process_on_the_directory_sees_the_same(disk):
    one, other = disk.reserve(), disk.reserve()
    one.renew()
    other.renew()
    assert disk.allocated == [SIZE]
    one.release()
    assert other.is_released
    other.release()
    assert disk.names() == [RELEASED]
    other.renew()
    assert not one.is_released


def test_several_that_make_it_at_once_make_one(disk):
    gate = threading.Barrier(4)

    def make():
        reserve = disk.reserve()
        gate.wait(60)
        reserve.renew()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert disk.names() == [RESERVE]
    assert disk.allocated == [SIZE]


def test_a_release_waits_for_one_that_is_being_made(disk):
    """Else a disk that fills up at that moment would be left with neither the space nor the refusal."""
    inside, go_on = threading.Event(), threading.Event()

    def slowly(descriptor, start, length):
        inside.set()
        assert go_on.wait(60)
        disk.allocate(descriptor, start, length)

    slow = Reserve(disk.folder, SIZE, measure=disk.measure, allocate=slowly)
    making = threading.Thread(target=slow.renew)
    making.start()
    assert inside.wait(60)
    releasing = threading.Thread(target=disk.reserve().release)
    releasing.start()
    go_on.set()
    making.join()
    releasing.join()
    assert disk.names() == [RELEASED]


def test_one_that_has_no_room_is_missed_once_in_the_log_and_nothing_is_refused(disk, caplog):
    disk.free = SIZE - 1
    reserve = disk.reserve()
    for _ in range(3):
        reserve.renew()
    assert [each.message for each in caplog.records] == ["no room for the disk reserve"]
    assert disk.names() == []
    reserve.check()
    reserve.release()
    assert not reserve.is_released  # there was nothing to release
    disk.free = SIZE + 1
    reserve.renew()
    assert reserve.held_bytes == SIZE


def test_a_disk_that_is_full_at_the_start_gets_its_reserve_back_before_anything_else(disk):
    disk.reserve().renew()
    disk.free = LOW_BYTES
    disk.reserve().prepare()
    assert disk.names() == [RESERVE]
    disk.free = LOW_BYTES - 1
    again = disk.reserve()
    again.prepare()
    assert disk.names() == [RELEASED]
    assert again.is_released


@pytest.mark.parametrize("names", [(RELEASED, MAKING), (RESERVE, MAKING), (RELEASED, RESERVE, MAKING)])
def test_what_a_crash_left_half_done_is_finished_at_the_next_start(disk, names):
    """Released and not yet emptied; being made; made, and still called released."""
    for name in names:
        (disk.folder / name).write_bytes(bytes(SIZE))
    disk.reserve().prepare()
    kept = RESERVE if RESERVE in names else RELEASED
    assert disk.names() == [kept]
    assert (disk.folder / kept).stat().st_size == (SIZE if kept == RESERVE else 0)


def test_another_size_takes_the_place_of_the_old_one(disk):
    disk.reserve().renew()
    for size in (2 * SIZE, MIB):
        disk.reserve(size).renew()
        assert disk.names() == [RESERVE]
        assert disk.reserve(size).held_bytes == size
    disk.free = 0
    disk.reserve(SIZE).renew()
    assert disk.reserve().held_bytes == MIB  # better than none


@pytest.mark.parametrize("state", [RESERVE, RELEASED])
def test_size_0_keeps_none_and_removes_one_that_is_there(disk, state):
    (disk.folder / state).write_bytes(bytes(SIZE if state == RESERVE else 0))
    reserve = disk.reserve(0)
    reserve.prepare()
    reserve.renew()
    reserve.check()
    assert disk.names() == []


def test_on_a_small_disk_it_is_a_twentieth_of_it(disk):
    disk.total = 40 * MIB
    reserve = disk.reserve()
    reserve.renew()
    assert reserve.held_bytes == reserve.size == 2 * MIB


def test_the_space_of_a_real_disk_is_what_the_system_says(tmp_path):
    found = os.statvfs(tmp_path)
    space = space_of(tmp_path)
    assert space.total == found.f_blocks * found.f_frsize
    assert 0 < space.free <= space.total


def test_a_directory_that_is_gone_makes_no_reserve_and_no_error(tmp_path):
    disk = Disk(tmp_path / "gone")
    reserve = disk.reserve()
    reserve.renew()
    reserve.release()
    reserve.check()
