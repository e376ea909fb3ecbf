"""Declarations: Kafka's version notation, and mistakes that are found in them."""

import re
from pathlib import Path

import pytest

from millpond.protocol import REQUESTS, Versions
from millpond.protocol.schema import (
    VERSION_MAX,
    Bytes,
    Int32,
    Records,
    Request,
    Response,
    String,
    Struct,
    check,
    field,
    fields_in,
    request,
    response,
    struct,
)

PAGE = Path(__file__).parents[3] / "docs/formats/kafka-wire.md"


def test_the_page_lists_every_message_and_its_versions():
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\d-]+) \| ([\d+]*) +\|$", PAGE.read_text(), re.MULTILINE)
    listed = {
        int(key): (f"{name}Request", Versions.parse(versions), Versions.parse(flexible or "none"))
        for key, name, versions, flexible in rows
    }
    assert listed == {key: (kind.__name__, kind.versions, kind.flexible) for key, kind in REQUESTS.items()}


def test_every_request_has_a_response_of_the_same_key_and_versions():
    for key, kind in REQUESTS.items():
        answer = kind.response
        assert answer.__name__ == re.sub("Request$", "Response", kind.__name__)
        assert (answer.api_key, answer.versions, answer.flexible) == (key, kind.versions, kind.flexible)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0+", (0, VERSION_MAX)), ("3-7", (3, 7)), ("4", (4, 4)), ("none", (0, -1)), ("12+", (12, VERSION_MAX))],
)
def test_versions_are_written_as_kafka_writes_them(text, expected):
    assert Versions.parse(text) == expected


def test_a_version_is_in_its_range():
    assert [version for version in range(10) if version in Versions.parse("3-7")] == [3, 4, 5, 6, 7]
    assert 0 not in Versions.parse("none")
    assert "3" not in Versions.parse("0+")


@struct
class Inner(Struct):
    late: Int32 = field("2+", default=0)
    text: String | None = field("1+", nullable="2+", default="")


def test_fields_are_those_of_the_version():
    assert [spec.name for spec in fields_in(Inner, 0)] == []
    assert [(spec.name, spec.nullable) for spec in fields_in(Inner, 1)] == [("text", False)]
    assert [(spec.name, spec.nullable) for spec in fields_in(Inner, 2)] == [("late", False), ("text", True)]


def declared(**annotations):
    """A message class with these fields: a type, or a type and a `field()`."""
    body = {"__annotations__": {}}
    for name, what in annotations.items():
        kind, *default = what if isinstance(what, tuple) else (what,)
        body["__annotations__"][name] = kind
        if default:
            body[name] = default[0]
    made = request(key=998, versions="1-3", flexible="2+")(type("Declared", (Request,), body))
    check(made, made.versions)
    return made


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"x": (Int32, field("2+"))}, "Declared.x needs a default: not every version has it"),
        ({"x": (Int32, field("0-2"))}, "Declared.x needs a default"),
        ({"x": (Int32, field("0+", tag=0))}, "Declared.x needs a default"),
        (
            {"x": (String, field(nullable="2+"))},
            "Declared.x is nullable in some versions, but its type is not",
        ),
        ({"x": Int32 | None}, "Declared.x has no null on the wire"),
        ({"x": (Records | None, field("2+", tag=0, default=None))}, "Declared.x cannot be tagged"),
        ({"x": int}, "is not a type of the wire"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(fields, complaint):
    with pytest.raises(TypeError, match=re.escape(complaint)):
        declared(**fields)


@pytest.mark.parametrize("asked", REQUESTS.values(), ids=lambda asked: asked.__name__)
def test_every_declaration_can_work(asked):
    check(asked, asked.versions)
    check(asked.response, asked.response.versions)


def test_a_field_in_all_versions_of_the_message_needs_no_default():
    assert [spec.name for spec in fields_in(declared(x=(Bytes, field("1-3"))), 3)] == ["x"]


def test_nested_declarations_are_checked_too():
    @struct
    class Lacking(Struct):
        x: Int32 = field("2+")

    with pytest.raises(TypeError, match=re.escape("Lacking.x needs a default")):
        declared(inner=list[Lacking])
    declared(inner=(list[Lacking], field("2+", factory=list)))


def test_a_response_is_numbered_as_its_request():
    asked = declared(x=Int32)

    @response(to=asked)
    class Answer(Response):
        y: Int32

    assert asked.response is Answer
    assert (Answer.api_key, Answer.versions, Answer.flexible) == (998, (1, 3), (2, VERSION_MAX))
