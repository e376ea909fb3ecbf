"""Finding extents by time, against a naive scan: timestamps run backwards, retention takes prefixes, merging
replaces runs, extents get a newer newest time than they had, and refused shares come between."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.catalog import appends, extents, topics

TIMES = range(13)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 12), st.integers(1, 4)),
    st.tuples(st.just("refused"), st.integers(0, 12), st.integers(1, 4)),
    st.tuples(st.just("remove"), st.integers(0, 40), st.integers(1, 5)),
    st.tuples(st.just("merge"), st.integers(0, 6), st.integers(1, 4)),
    st.tuples(st.just("correct"), st.integers(0, 6), st.integers(0, 12)),
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def step(catalog, tx, topic_partition, serial, kind, first, second):
    if kind == "append":
        appends.append(tx, [catalog.share(topic_partition, second, times=(0, first))], None, now_ms=1)
    elif kind == "refused":
        closed = catalog.batch((1, 0), 0, 0, transactional=True)
        appends.append(
            tx, [catalog.share(topic_partition, second, times=(0, first), sequences=[closed])], None, now_ms=1
        )
    elif kind == "remove":
        extents.remove_below(tx, topic_partition, first, limit=second, now_ms=1)
    else:
        count = second if kind == "merge" else 1
        merge(
            catalog,
            tx,
            topic_partition,
            f"{topic_partition.topic_id.hex()}/{serial}",
            extents.facts(tx, topic_partition, 0, 100)[first:][:count],
            newest=0 if kind == "merge" else second,
        )


def merge(catalog, tx, topic_partition, key, old, newest):
    if not old:
        return
    newest = max(newest, *(e.max_timestamp for e in old))
    new = extents.NewExtent(
        topic_partition,
        old[0].base_offset,
        old[-1].end_offset,
        0,
        None,
        0,
        9,
        1,
        0,
        newest,
        0,
        True,
        None,
        None,
    )
    extents.replace(tx, old, new, catalog.object(key, kind="segment", sealed=True), now_ms=1)


@QUICK
@given(steps=st.lists(STEPS, max_size=25))
def test_a_time_is_found_where_a_scan_would_find_it(catalog, steps):
    with catalog.database.write() as tx:
        topic = topics.create(tx, f"t{len(topics.all_topics(tx))}", 1, {}, now_ms=1)
        topic_partition = catalog.topic_partition(topic)
        for serial, each in enumerate(steps):
            step(catalog, tx, topic_partition, serial, *each)
        left = extents.facts(tx, topic_partition, 0, 100)
        for time in TIMES:
            expected = next((e.base_offset for e in left if e.max_timestamp >= time), None)
            found = extents.first_with_timestamp(tx, topic_partition, time)
            assert (found and found.base_offset) == expected, time
        newest = max((e.max_timestamp for e in left), default=None)
        expected = next((e.base_offset for e in left if e.max_timestamp == newest), None)
        found = extents.with_newest_timestamp(tx, topic_partition)
        assert (found and found.base_offset) == expected


def test_a_search_by_time_takes_few_statements_in_a_long_partition(memory_catalog):
    catalog = memory_catalog
    topic_partition = catalog.topic_partition()
    with catalog.database.write() as tx:
        for time in range(2000):
            appends.append(tx, [catalog.share(topic_partition, 3, times=(time, time))], None, now_ms=1)

    class Counting:
        statements = 0

        def __init__(self, tx):
            self._tx = tx

        def rows(self, *arguments):
            Counting.statements += 1
            return self._tx.rows(*arguments)

    found = catalog.read(lambda tx: extents.first_with_timestamp(Counting(tx), topic_partition, 1234))
    assert found.base_offset == 1234 * 3
    assert Counting.statements <= 16


@pytest.mark.parametrize(
    "search", [extents.with_newest_timestamp, lambda *a: extents.first_with_timestamp(*a, 5)]
)
@pytest.mark.parametrize("after", range(4))
def test_retention_between_the_statements_of_a_search_is_no_error(durable_catalog, search, after):
    catalog = durable_catalog
    topic_partition = catalog.topic_partition()
    for time in (5, 9, 5, 5, 9, 5):
        catalog.append_one(topic_partition, 2, times=(0, time))

    class Emptied:
        """All extents go after so many statements."""

        def __init__(self, tx):
            self._tx, self._left = tx, after

        def rows(self, *arguments):
            rows = self._tx.rows(*arguments)
            if self._left == 0:
                catalog.write(extents.remove_below, topic_partition, 12, limit=9, now_ms=1)
            self._left -= 1
            return rows

    catalog.read(lambda tx: search(Emptied(tx), topic_partition))


@QUICK
@given(
    steps=st.lists(STEPS, max_size=15),
    start=st.sampled_from(TIMES),
    end=st.sampled_from(TIMES),
    offset=st.integers(0, 30),
)
def test_spans_and_the_oldest_time_are_those_of_a_scan(catalog, steps, start, end, offset):
    with catalog.database.write() as tx:
        topic = topics.create(tx, f"t{len(topics.all_topics(tx))}", 1, {}, now_ms=1)
        topic_partition = catalog.topic_partition(topic)
        for serial, each in enumerate(steps):
            step(catalog, tx, topic_partition, serial, *each)
        left = extents.facts(tx, topic_partition, 0, 100)
        oldest = min((each.min_timestamp for each in left), default=None)
        assert extents.oldest_timestamp(tx, topic.id) == oldest
        spans = [
            (each.base_offset, each.end_offset)
            for each in left
            if each.end_offset > offset and each.min_timestamp <= end and each.max_timestamp >= start
        ]
        found = extents.spans_in_time(tx, topic_partition, start, end, offset=offset, limit=100)
        assert found == spans
        assert extents.spans_in_time(tx, topic_partition, start, end, offset=offset, limit=2) == spans[:2]


def test_an_extent_without_a_time_may_be_of_any(catalog):
    topic_partition = catalog.topic_partition()
    catalog.append_one(topic_partition, 2, times=(-1, -1))
    catalog.append_one(topic_partition, 2, times=(5, 5))
    assert catalog.read(extents.spans_in_time, topic_partition, 7, 9, offset=0, limit=9) == [(0, 2)]
    assert catalog.read(extents.oldest_timestamp, topic_partition.topic_id) == -1
    assert catalog.read(extents.oldest_timestamp, b"nobody's topic..") is None
