"""Messages to and from what HTTP carries, byte for byte."""

import base64
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.frontends.web import convert
from millpond.frontends.web.convert import (
    binary_record,
    encoded_as,
    from_base64,
    headers_of,
    json_records,
    message_of,
    raw_record,
    record_of,
    to_base64,
)
from millpond.frontends.web.schemas import Base64Json, NewMessageJson
from millpond.model.errors import InvalidRequest
from millpond.records import NO_OFFSET, Record

bytes_or_null = st.none() | st.binary(max_size=50)
header_names = st.text(max_size=10).filter(lambda name: name.isprintable())
records = st.builds(
    Record,
    value=bytes_or_null,
    key=bytes_or_null,
    headers=st.lists(st.tuples(header_names, bytes_or_null), max_size=3).map(tuple),
    timestamp=st.integers(0, 2**60),
    offset=st.just(NO_OFFSET),
)


@pytest.mark.parametrize("shown", ["auto", "base64"])
@given(record=records)
def test_a_message_shown_as_json_can_be_sent_again_and_is_the_same(shown, record):
    shown_again = msgspec.json.decode(msgspec.json.encode(message_of(0, record, shown)))
    for name in ("partition", "offset", "number"):
        del shown_again[name]
    assert record_of(msgspec.convert(shown_again, NewMessageJson)) == record


@given(data=st.binary(max_size=100))
def test_auto_is_text_exactly_where_the_bytes_are_utf8(data):
    shown = encoded_as(data, "auto")
    if isinstance(shown, Base64Json):
        assert base64.b64decode(shown.base64) == data
        with pytest.raises(UnicodeDecodeError):
            data.decode()
    else:
        assert shown.encode() == data


def test_text_is_always_text():
    assert encoded_as(b"a\xffb", "text") == "a\ufffdb"


@pytest.mark.parametrize(
    ("body", "key", "value"),
    [
        (b"key:value", b"key", b"value"),
        (b"key:a:b", b"key", b"a:b"),
        (b":value", b"", b"value"),
        (b"key:", b"key", b""),
        (b"value", None, b"value"),
        (b"", None, b""),
        (b"a%20b+c=d&e\n\x00:\xff\r\n", b"a%20b+c=d&e\n\x00", b"\xff\r\n"),
    ],
)
def test_a_raw_body_is_split_at_the_first_colon_and_nothing_else_is_touched(body, key, value):
    assert raw_record(body) == Record(value=value, key=key)


def test_a_binary_body_has_the_rest_in_headers():
    headers = [
        (b"host", b"pond"),
        (b"x-millpond-key", b"k\xc3\xa4y"),
        (b"x-millpond-header-trace", b"1"),
        (b"x-millpond-header-trace", b"2"),
        (b"x-millpond-timestamp", b"1700000000000"),
    ]
    assert binary_record(headers, b"a:b\x00") == Record(
        value=b"a:b\x00",
        key="käy".encode(),
        headers=(("trace", b"1"), ("trace", b"2")),
        timestamp=1_700_000_000_000,
    )


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-millpond-key", b"a"), (b"x-millpond-key-base64", b"YQ==")],
        [(b"x-millpond-key", b"a"), (b"x-millpond-key", b"b")],
        [(b"x-millpond-key-base64", b"YQ")],
        [(b"x-millpond-key-base64", b"\xff\xff\xff\xff")],
        [(b"x-millpond-timestamp", b"-1")],
        [(b"x-millpond-timestamp", b"1"), (b"x-millpond-timestamp", b"2")],
        [(b"x-millpond-timestamp", b"9" * 30)],
    ],
)
def test_headers_that_make_no_message_are_refused(headers):
    with pytest.raises(InvalidRequest):
        binary_record(headers, b"")


@pytest.fixture(params=["at once", "in pieces"])
def both_ways(request, monkeypatch):
    if request.param == "in pieces":
        monkeypatch.setattr(convert, "ONE_STEP_BYTES_MAX", 0)


def taken(body, messages_max=1_000, parts_max=1_000):
    def check_count(count):
        if count > messages_max:
            raise InvalidRequest(reason="too many")

    return json_records(body, check_count, parts_max)


@pytest.mark.usefixtures("both_ways")
def test_json_has_one_message_or_many():
    one, is_batch = taken(b'{"value": "a", "key": "k", "headers": {"h": null}}')
    assert one == [Record(value=b"a", key=b"k", headers=(("h", None),))]
    assert not is_batch
    many, is_batch = taken(b'{"messages": [{"value": null}, {"value": "YQ==", "encoding": "base64"}]}')
    assert many == [Record(value=None), Record(value=b"a")]
    assert is_batch


@pytest.mark.usefixtures("both_ways")
def test_a_value_may_speak_of_messages():
    assert taken(b'{"value": "{\\"messages\\": []}"}') == ([Record(value=b'{"messages": []}')], False)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"]",
        b'"',
        b'"\\',
        b"[]",
        b"null",
        b"{}",
        b'{"key": "a value is missing"}',
        b'{"value": 1}',
        b'{"value": {"base64": 1}}',
        b'{"value": {"base64": "a"}}',
        b'{"value": {"base64": "YQ==", "more": 1}}',
        b'{"value": "not base64", "encoding": "base64"}',
        b'{"value": "", "encoding": "latin-1"}',
        b'{"value": "", "timestamp_ms": -1}',
        b'{"value": "", "timestamp_ms": 9223372036854775808}',
        b'{"value": "", "unknown": 1}',
        b'{"value": "\xff"}',
        b'{"value": "\\ud800"}',
        b'{"value": "a"} {"value": "b"}',
        b'{"messages": []}',
        b'{"messages": {}}',
        b'{"messages": [',
        b'{"messages": [{"value": "a"}',
        b'{"messages": [{"value": "a"},]}',
        b'{"messages": [{"value": "a"} {"value": "b"}]}',
        b'{"messages": [{"value": "a"]}]}',
        b'{"messages": [{"value": "a"}, "b"]}',
        b'{"messages": [{"value": "a"}]} x',
        b'{"messages": [{"value": "a\\"}]}',
        b'{"messages": [{"value": "a\\',
        b'{"messages": [{"value": "a"}], "value": "b"}',
        b'{"value": ' + b"[" * 100_000,
        b'{"messages": ' + b"[" * 100_000,
        b'{"headers": ' + b'{"a":' * 100_000,
    ],
)
def test_json_that_makes_no_message_is_refused(body):
    with pytest.raises(InvalidRequest):
        taken(body)


@given(
    values=st.lists(st.text(alphabet='a"\\\n{}[],é ', max_size=20), min_size=1, max_size=5),
    indent=st.sampled_from([None, 2]),
    piece=st.sampled_from([2, 3, 7, 64]),
)
def test_a_batch_in_pieces_is_the_batch(values, indent, piece):
    messages = [{"key": value, "value": value, "headers": {value: value}} for value in values]
    body = json.dumps({"messages": messages}, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        expected = taken(body)
        patch.setattr(convert, "ONE_STEP_BYTES_MAX", 0)
        patch.setattr(convert, "SCAN_PIECE", piece)
        assert taken(body) == expected
    assert [each.value for each in expected[0]] == [value.encode() for value in values]


def test_too_many_messages_are_refused_before_any_is_decoded(monkeypatch):
    monkeypatch.setattr(convert, "ONE_STEP_BYTES_MAX", 0)
    decoded = []
    monkeypatch.setattr(convert, "decode_json", lambda _, body: decoded.append(body))
    with pytest.raises(InvalidRequest, match="too many"):
        taken(b'{"messages": [%s]}' % b",".join([b'{"value": ""}'] * 11), messages_max=10)
    assert decoded == []


@pytest.mark.parametrize(
    "headers",
    [b"[%s]" % b",".join([b'{"name": "", "value": ""}'] * 50), b"{%s}" % b",".join([b'"": ""'] * 50)],
)
@pytest.mark.parametrize("whole", [b"%s", b'{"messages": [%s]}'])
def test_a_message_of_too_many_parts_is_refused_before_it_is_decoded(monkeypatch, headers, whole):
    monkeypatch.setattr(convert, "ONE_STEP_BYTES_MAX", 0)
    body = whole % (b'{"value": "", "headers": %s}' % headers)
    assert len(taken(body)[0]) == 1
    with pytest.raises(InvalidRequest, match="more than 100 parts"):
        taken(body, parts_max=100)


@settings(max_examples=50)
@given(data=st.binary(max_size=2_000), piece=st.sampled_from([4, 8, 64]))
def test_base64_in_pieces_is_base64(data, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "BASE64_PIECE", piece)
        patch.setattr(convert, "BYTES_PIECE", piece // 4 * 3)
        assert to_base64(data) == base64.b64encode(data).decode()
        assert from_base64(base64.b64encode(data).decode()) == data


@pytest.mark.parametrize(
    "text", ["YQ==YWFh", "YWF=YWFh", "YWFh\n", "YWFhY", "YW h", "ä" * 4, "YWF-", "YQ=="[:3]]
)
def test_what_is_not_base64_is_refused_however_it_is_cut(text, monkeypatch):
    with pytest.raises(InvalidRequest):
        from_base64(text)
    monkeypatch.setattr(convert, "BASE64_PIECE", 4)
    with pytest.raises(InvalidRequest):
        from_base64(text)


def test_an_answer_names_what_its_headers_cannot_carry():
    record = Record(
        value=b"",
        key=b"\x00",
        headers=(("plain", b"text"), ("Upper", b"x"), ("null", None), ("line", b"a\r\nb"), ("ä", b"")),
        timestamp=5,
        offset=7,
    )
    assert headers_of(record, 100) == [
        (b"x-millpond-offset", b"7"),
        (b"x-millpond-timestamp", b"5"),
        (b"x-millpond-key-base64", b"AA=="),
        (b"x-millpond-header-plain", b"text"),
        (b"x-millpond-left-out", b"headers"),
    ]
    assert headers_of(Record(value=b"", key=b"k" * 101), 100)[-1] == (b"x-millpond-left-out", b"key")
    long = Record(value=b"", headers=(("a", b"x" * 60), ("b", b"x" * 60)))
    assert headers_of(long, 100)[-1] == (b"x-millpond-left-out", b"headers")
