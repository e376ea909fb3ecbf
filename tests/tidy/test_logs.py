"""Log calls: each is an event with a fixed text and named fields; every WARNING or above is explained to operators."""

import ast
import logging
import re
from pathlib import Path

import pytest
from tests.each import for_each
from tests.tidy.test_documents import GENERATOR, REFERENCE, ROOT

from millpond.observability.events import EVENTS, FIELDS
from millpond.observability.logs import RESERVED

CALLS = GENERATOR.log_calls()
LISTED = [call for call in CALLS if call.is_listed]
RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What a log record has by itself: a field of such a name is refused by `logging`, when it is too late."""
LITERARY = re.compile(
    r"\b(nobody|whoever|somebody|foresaw|anybody|everybody|of one's own|let go|takes? in|met a)\b",
    re.IGNORECASE,
)


def mistakes(call):
    """What is wrong with the form of one call."""
    if call.method not in GENERATOR.LEVELS:
        yield f"`{call.method}` is not one of {', '.join(GENERATOR.LEVELS)}"
    if not call.event or len(call.node.args) != 1:
        yield "the text of an event is one literal, without arguments"
    if re.search(r"%|\{|\.$|^[A-Z](?!afka)", call.event):
        yield "the text has no placeholders, no capital and no full stop"
    if LITERARY.search(call.event):
        yield "the text uses the field's ordinary words"
    if {each.arg for each in call.node.keywords} - {"extra", "exc_info"}:
        yield "there is only `extra` and `exc_info`"
    if call.extra is not None and (
        not isinstance(call.extra, ast.Dict) or len(call.fields) != len(call.extra.keys)
    ):
        yield "`extra` is written out, with literal names"
    if unknown := set(call.fields) - FIELDS.keys():
        yield f"{unknown} are not in FIELDS"


def test_every_call_is_an_event_with_fields():
    assert len(CALLS) > 80, "the calls are found"
    wrong = [
        f"{call.path.relative_to(ROOT)}:{call.line}: {what}" for call in CALLS for what in mistakes(call)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "mistake"),
    [
        ('logger.warning("it failed; will retry", extra={"topic": name, "error": str(error)})', None),
        ('logger.exception("unexpected error in flush")', None),
        ('logger.warning("it failed: %s", error)', "one literal"),
        ('logger.warning("it failed %s")', "placeholders"),
        ('logger.warning(f"{name} failed")', "one literal"),
        ('logger.warning("it failed: " + name)', "one literal"),
        ("logger.warning(text)", "one literal"),
        ('logger.warning("It failed.")', "full stop"),
        ('logger.warning("nobody foresaw it")', "ordinary words"),
        ('logger.warning("it failed", extra=facts)', "written out"),
        ('logger.warning("it failed", extra={**facts})', "written out"),
        ('logger.warning("it failed", extra={name: 1})', "written out"),
        ('logger.warning("it failed", extra={"topik": 1})', "FIELDS"),
        ('logger.log(30, "it failed")', "is not one of"),
        ('logging.warning("it failed: %s", error)', "one literal"),
        ('logging.getLogger("x").warning("it failed: %s", error)', "one literal"),
        ('other = logging.getLogger("x")\nother.warning("it failed: %s", error)', "one literal"),
    ],
)
def test_a_call_that_is_not_such_an_event_is_found(code, mistake):
    path = ROOT / "src/millpond/example.py"
    [call] = GENERATOR.calls_in(path, code)
    found = " ".join(mistakes(call))
    assert found == "" if mistake is None else mistake in found


def test_what_is_no_logger_is_no_log_call():
    code = 'self._log.write(x)\nmath.log(2)\nself.log.append(batch)\nprint("x")'
    assert GENERATOR.calls_in(Path("example.py"), code) == []


def test_every_warning_and_worse_is_explained():
    unexplained = {call.event for call in LISTED} - EVENTS.keys()
    assert unexplained == set(), "add them to observability/events.py"


def test_every_explanation_is_of_an_event_that_is_logged():
    assert EVENTS.keys() - {call.event for call in LISTED} == set()


def test_an_event_has_one_level():
    levels = {}
    for call in CALLS:
        levels.setdefault(call.event, set()).add(call.level)
    assert [event for event, found in levels.items() if len(found) > 1] == []


@for_each("event", EVENTS)
def test_an_explanation_is_whole_plain_sentences(event):
    for text in EVENTS[event]:
        assert text[0].isupper() or text.startswith("`")
        assert text.endswith(".")
        assert not LITERARY.search(text)


def test_unexpected_errors_have_a_traceback_and_failures_say_why():
    for call in LISTED:
        has_traceback = call.method == "exception" or any(k.arg == "exc_info" for k in call.node.keywords)
        if call.event.startswith("unexpected error"):
            assert has_traceback, call
        if (
            re.search(r"\bunexpected error\b|\bfailed\b", call.event)
            and call.event != "message handler failed"
        ):
            assert "error" in call.fields, call


def test_every_field_is_used_and_clashes_with_nothing():
    assert FIELDS.keys() - {name for call in CALLS for name in call.fields} == set()
    assert FIELDS.keys() & RECORD == set()
    assert FIELDS.keys() & set(RESERVED) == set()
    for name, meaning in FIELDS.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert meaning.endswith(".")


def test_loggers_are_called_logger():
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        names = re.findall(r"^(\w+) = logging\.getLogger\(__name__\)", path.read_text(), re.MULTILINE)
        found += [f"{path.relative_to(ROOT)}: {name}" for name in names if name != "logger"]
    assert found == []


def test_the_page_has_every_event_with_its_level_and_fields():
    page = (REFERENCE / "logs.md").read_text()
    for call in LISTED:
        section = page.partition(f"### {call.event}\n")[2].partition("\n###")[0]
        assert section.strip().startswith(f"{call.level}, from ")
        for name in call.fields:
            assert f"`{name}`" in section
