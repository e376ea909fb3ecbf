"""The read cache of lagging readers."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.log.cache import ReadCache
from millpond.model.ids import TopicId, TopicPartition
from millpond.reading.runs import Run

WHERE = TopicPartition(TopicId(b"t" * 16), 0)
OTHER = TopicPartition(TopicId(b"t" * 16), 1)


def run(base, end, size=10):
    return Run(base, end, bytearray(size))


def read_together(*bases, size=10):
    """Runs that are parts of one memory."""
    whole = memoryview(bytearray(size * len(bases)))
    return [
        Run(base, base + 1, whole[size * number : size * (number + 1)]) for number, base in enumerate(bases)
    ]


def test_a_run_is_found_by_any_of_its_offsets():
    cache = ReadCache(100)
    kept = run(5, 8)
    cache.put(WHERE, kept)
    assert [cache.find(WHERE, offset) is kept for offset in range(4, 9)] == [False, True, True, True, False]
    assert cache.find(OTHER, 5) is None


def test_the_least_recently_used_goes_first():
    cache = ReadCache(30)
    for base in (0, 1, 2):
        cache.put(WHERE, run(base, base + 1))
    cache.find(WHERE, 0)
    cache.put(OTHER, run(0, 1))
    assert [cache.find(WHERE, offset) is not None for offset in (0, 1, 2)] == [True, False, True]
    assert cache.bytes == 30


def test_the_same_run_again_counts_once():
    cache = ReadCache(30)
    cache.put(WHERE, run(0, 1))
    cache.put(WHERE, run(0, 3, size=20))
    assert cache.bytes == 20
    assert cache.find(WHERE, 2) is not None


def test_what_is_larger_than_the_budget_is_not_kept():
    cache = ReadCache(30)
    cache.put(WHERE, run(0, 1))
    cache.put(WHERE, run(1, 2, size=31))
    assert cache.find(WHERE, 1) is None
    assert cache.find(WHERE, 0) is not None


def test_a_forgotten_partition_is_gone_and_its_neighbours_are_not():
    cache = ReadCache(100)
    for base in range(3):
        cache.put(WHERE, run(base, base + 1))
    cache.put(OTHER, run(0, 1))
    cache.forget(WHERE)
    cache.forget(WHERE)
    assert cache.find(WHERE, 1) is None
    assert cache.find(OTHER, 0) is not None
    assert cache.bytes == 10


def test_the_whole_memory_counts_as_long_as_one_of_its_runs_is_kept():
    cache = ReadCache(100)
    for each in read_together(0, 1, 2):
        cache.put(WHERE, each)
    assert cache.bytes == 30
    [small, *_] = read_together(3, 4, 5)
    cache.put(OTHER, small)
    assert cache.bytes == 60
    cache.forget(WHERE)
    assert cache.bytes == 30
    cache.forget(OTHER)
    assert cache.bytes == 0


def test_runs_that_were_read_together_are_evicted_together():
    """Else one of them that is used again and again would keep the memory of all."""
    cache = ReadCache(60)
    for bases in ((0, 1, 2), (3, 4, 5)):
        for each in read_together(*bases):
            cache.put(WHERE, each)
    cache.find(WHERE, 1)
    cache.put(WHERE, run(6, 7))
    assert [cache.find(WHERE, offset) is not None for offset in range(7)] == [True] * 3 + [False] * 3 + [True]
    assert cache.bytes == 40


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 5), st.integers(1, 40)), max_size=60)
)
def test_what_is_found_holds_the_offset_and_the_budget_is_kept(steps):
    cache = ReadCache(100)
    for put, offset, length, size in steps:
        if put:
            cache.put(WHERE, run(offset, offset + length, size))
            assert cache.find(WHERE, offset).base_offset == offset
        found = cache.find(WHERE, offset)
        assert found is None or found.base_offset <= offset < found.end_offset
        assert cache.bytes <= 100
        assert cache.bytes == sum(each.size for each in cache._memories.values())
        assert all(each.runs for each in cache._memories.values())
