"""Memory that is used again when nothing refers to it any more."""

import gc
import os
import threading

import pytest

from millpond.objects.recycled import KEPT_BYTES_MAX, LARGE, SMALL, RecycledMemory, rounded


@pytest.fixture
def memory():
    return RecycledMemory()


def test_a_view_has_the_length_that_was_asked_for_and_can_be_written(memory):
    for length in (0, 1, SMALL - 1, SMALL, SMALL + 1, 1_000_000, LARGE, LARGE + 1):
        view = memory.take(length)
        assert (len(view), view.format, view.readonly) == (length, "B", False)
        view[:] = bytes(length)


def test_memory_is_used_again_when_the_last_part_of_a_view_is_gone(memory):
    view = memory.take(SMALL)
    part = view[10:20][5:]
    part[:] = b"12345"
    del view
    assert (memory.lent, memory.kept_bytes) == (1, 0)
    other = memory.take(SMALL)
    assert bytes(other[15:20]) == bytes(5)
    assert bytes(part) == b"12345"
    del part
    assert (memory.lent, memory.kept_bytes) == (1, SMALL)
    assert bytes(memory.take(SMALL)[15:20]) == b"12345"


def test_a_forked_process_does_not_change_the_memory(memory):
    view = memory.take(SMALL)
    child = os.fork()
    if child == 0:
        view[:] = b"\xff" * SMALL
        os._exit(0)
    os.waitpid(child, 0)
    assert bytes(view) == bytes(SMALL)


def test_two_views_never_share_memory(memory):
    views = [memory.take(SMALL) for _ in range(50)]
    for number, view in enumerate(views):
        view[:] = bytes([number]) * SMALL
    del views[::2]
    again = [memory.take(SMALL) for _ in range(25)]
    for view in again:
        view[:] = b"\xff" * SMALL
    assert [bytes(view) for view in views] == [bytes([2 * number + 1]) * SMALL for number in range(25)]


def test_no_more_than_the_limit_is_kept(memory):
    views = [memory.take(LARGE) for _ in range(4)]
    views.clear()
    assert memory.kept_bytes == KEPT_BYTES_MAX
    assert memory.lent == 0


def test_little_is_wasted():
    for length in (*range(SMALL, 2 * SMALL, 997), *range(SMALL, LARGE, 99_991), LARGE):
        assert length <= rounded(length) <= max(length * 5 // 4, SMALL)


def test_small_and_huge_memory_is_not_kept(memory):
    memory.take(SMALL - 1)
    memory.take(LARGE + 1)
    assert (memory.lent, memory.kept_bytes) == (0, 0)


def test_threads_take_and_end_views_at_the_same_time(memory):
    failures = []

    def work(number):
        mine = bytes([number]) * 1_000
        held = []
        for turn in range(2_000):
            view = memory.take(SMALL + 1_000 * (turn % 3))
            view[:1_000] = mine
            held.append(view[:1_000])
            if len(held) == 5:
                failures.extend(1 for each in held if bytes(each) != mine)
                held.clear()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    gc.collect()
    assert not failures
    assert memory.lent == 0
