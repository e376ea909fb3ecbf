"""Reasons of failing messages: one printable line each, the last ones, in bounded memory."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.each import for_each

from millpond.queues.deadletters import LETTER_OVERHEAD_BYTES
from millpond.queues.dispatcher_results import Retry
from millpond.queues.failure_reasons import NO_REASON, FailureReasons, printable_line
from millpond.queues.limits import ReasonLimits

LINES = {
    "as it is": "as it is",
    "": "",
    "two\nlines\r\n\tand tabs": "two lines and tabs",
    "a bell \x07, an escape \x1b[31m, NUL \x00, C1 \x9b": "a bell , an escape [31m, NUL , C1",
    "\u2028 \u202e reversed \ud800 surrogate": "reversed surrogate",
    "grün, 漢字, 🦆": "grün, 漢字, 🦆",
    "x" * 41: "x" * 37 + "…",
    "漢" * 14: "漢" * 12 + "…",
    "x" * 36 + "🦆🦆": "x" * 36 + "…",
    " " * 1_000 + "far away": "…",
}
SMALL = ReasonLimits(kept_max=3, reason_bytes_max=20, total_bytes_max=100, crowded_bytes_max=8)


@for_each("text", LINES)
def test_a_reason_is_one_printable_line(text):
    assert printable_line(text, 40) == LINES[text]


@given(st.text(st.characters(), max_size=60), st.integers(8, 40))
def test_a_reason_can_be_stored_and_printed_whatever_it_is(text, bytes_max):
    line = printable_line(text, bytes_max)
    assert line.isprintable()
    assert len(line.encode()) <= bytes_max
    assert printable_line(line, bytes_max) == line
    assert json.loads(json.dumps([line], ensure_ascii=False)) == [line]


def test_the_last_reasons_are_kept_and_those_without_one_say_so():
    reasons = FailureReasons(SMALL, {7: Retry(2, 0, ("a", "b")), 9: Retry(1, 0)})
    reasons.add(7, "c")
    reasons.add(7, "\x00")
    assert (reasons.of(7), reasons.of(9), reasons.of(1)) == (("b", "c", NO_REASON), (), ())
    assert (reasons.first(1), reasons.first(5)) == ([7], [7, 9])
    reasons.forget(7)
    reasons.forget(7)
    assert (reasons.first(5), reasons.size) == ([9], 0)


def test_many_failing_messages_keep_only_short_reasons():
    reasons = FailureReasons(SMALL, {})
    for offset in range(1_000):
        for each in range(4):
            reasons.add(offset, f"{each} is a long reason")
    assert len(reasons) == 1_000
    assert reasons.of(0) == ("1 is a long reason", "2 is a long reason", "3 is a long reason")
    assert reasons.of(999) == ("3 is…",)
    assert reasons.size <= SMALL.total_bytes_max + 1_000 * SMALL.crowded_bytes_max
    for offset in range(1_000):
        reasons.forget(offset)
    assert reasons.size == 0
    reasons.add(5, "there is room again")
    assert reasons.of(5) == ("there is room again",)


def test_the_limits_leave_room_in_a_dead_letter():
    """Its headers have every reason, and the last one twice; a quote takes two bytes in JSON."""
    limits = ReasonLimits()
    assert 2 * limits.reason_bytes_max * (limits.kept_max + 1) < LETTER_OVERHEAD_BYTES
