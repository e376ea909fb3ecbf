"""Compaction against a list in memory: whatever is appended, decided, deleted and compacted, in whatever order."""

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.rewriting.paper import PLENTY, Paper

from millpond.records import Codec
from millpond.rewriting.compaction_keys import PlainKeys

KEY = st.sampled_from([None, b"", b"a", b"b", b"c", b"d", b"e" * 200])
VALUE = st.one_of(st.none(), st.binary(max_size=4))
RECORDS = st.lists(st.tuples(KEY, VALUE), min_size=1, max_size=5)
RETENTION_MS = 1_000

APPEND = st.tuples(
    st.just("append"),
    RECORDS,
    st.sampled_from([None, None, 1, 2]),
    st.sampled_from(list(Codec)),
    st.booleans(),
)
FINISH = st.tuples(st.just("finish"), st.sampled_from([1, 2]), st.booleans())
COMPACT = st.tuples(
    st.just("compact"),
    st.sampled_from([1, 400, 900, PLENTY, PLENTY]),
    st.sampled_from([1, 300, PLENTY]),
    st.sampled_from([1, 200, PLENTY]),
)
WAIT = st.tuples(st.just("wait"), st.sampled_from([1, 100, RETENTION_MS, 5 * RETENTION_MS]))
DELETE = st.tuples(st.just("delete"), st.integers(0, 60))
STEPS = st.lists(st.one_of(APPEND, APPEND, APPEND, FINISH, COMPACT, COMPACT, WAIT, DELETE), max_size=25)


def play(steps):
    """A partition after these steps. What must hold after every compaction is checked on the way."""
    paper = Paper()
    for name, *arguments in steps:
        if name == "append":
            records, producer, codec, joined = arguments
            paper.append(*records, producer=producer, codec=codec, joined=joined)
        elif name == "finish":
            paper.finish(arguments[0], commit=arguments[1])
        elif name == "wait":
            paper.now_ms += arguments[0]
        elif name == "delete":
            paper.delete_below(arguments[0])
        else:
            compact_and_check(paper, *arguments)
    return paper


def compact_and_check(paper, keys_bytes=PLENTY, chunk_bytes=PLENTY, segment_bytes=PLENTY):
    table, markers, before = paper.table(), paper.control_offsets(), paper.stored()
    done = paper.compact(
        keys=PlainKeys(keys_bytes),
        chunk_bytes=chunk_bytes,
        segment_bytes_max=segment_bytes,
        delete_retention_ms=RETENTION_MS,
    )
    after = paper.stored()
    if done is None:
        return None
    event(f"segments: {min(len(done.segments), 3)}, cut short: {done.clean_end < done.plan.clean_end}")
    assert {o: r for o, r in after.items() if o >= paper.log_start} == paper.expected()
    assert after.items() <= before.items()
    assert {o: r for o, r in before.items() if o >= done.clean_end}.items() <= after.items()
    assert done.clean_end <= max(paper.stable, done.plan.dirty_start)
    assert done.clean_end > done.plan.dirty_start or done.plan.clean_end == done.plan.dirty_start
    assert paper.control_offsets() == markers == paper.markers
    assert paper.table() == table
    assert paper.points[-1].end_offset == done.clean_end
    return done


def settle(paper):
    """Compact until there is nothing to do."""
    for _ in range(10):
        if compact_and_check(paper) is None:
            return
    raise AssertionError("there is always something to do")


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_exactly_what_the_rules_say_is_kept_and_every_reader_sees_the_same_table(steps):
    play(steps)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_compacting_again_changes_nothing_more(steps):
    paper = play(steps)
    settle(paper)
    bytes_before, points = [data for _, data in paper.extents], paper.points
    assert paper.compact(delete_retention_ms=RETENTION_MS) is None
    assert ([data for _, data in paper.extents], paper.points) == (bytes_before, points)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_below_the_safe_point_each_key_has_one_record(steps):
    paper = play(steps)
    done = compact_and_check(paper)
    if done is None:
        return
    keys = [key for offset, (key, _) in paper.stored().items() if paper.log_start <= offset < done.clean_end]
    assert len(keys) == len(set(keys))
    assert None not in keys


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 60))
def test_a_reader_at_any_offset_is_given_what_is_left_from_there_on(steps, start):
    paper = play(steps)
    compact_and_check(paper)
    everything = paper.committed()
    assert paper.committed(start) == [each for each in everything if each[0] >= start]


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_tombstones_wait_for_their_retention_and_not_much_longer(steps):
    """Counted from the compaction that removed what they delete."""
    paper = play(steps)
    for entry in paper.entries:
        if entry.is_gone and entry.value is None and entry.compacted_at is not None:
            later = [e for e in paper.entries if e.key == entry.key and e.offset > entry.offset]
            waited = paper.now_ms - entry.compacted_at >= RETENTION_MS
            assert waited or later or entry.offset < paper.log_start
    settle(paper)
    paper.now_ms += RETENTION_MS * 2
    settle(paper)
    end = paper.points[-1].end_offset if paper.points else 0
    assert [e for e in paper.stored().items() if paper.log_start <= e[0] < end and e[1][1] is None] == []
