"""Lines that clients cause before they have authenticated: a number per minute, and the rest counted."""

from millpond.observability.line_limit import WINDOW_S, LineLimit


def test_lines_beyond_the_limit_are_counted_and_reported_with_the_next_one():
    now = 0.0
    limit = LineLimit(2, lambda: now)
    assert [limit.admits() for _ in range(5)] == [True, True, False, False, False]
    now = WINDOW_S - 0.1
    assert not limit.admits()
    now = WINDOW_S
    assert limit.admits()
    assert (limit.take_unlogged(), limit.take_unlogged()) == (4, None)
    assert [limit.admits(), limit.admits()] == [True, False]
