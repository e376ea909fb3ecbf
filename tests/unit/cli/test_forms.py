"""What commands read and print, without processes: places, JSON lines, sources, tables, sentences."""

import io
import json
import os
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.cli import input_files
from millpond.cli.input_files import InputFile
from millpond.cli.interruption import Interruption
from millpond.cli.main import sentence_of
from millpond.cli.messages import from_line, to_line
from millpond.cli.output import count_text, print_table, size_text
from millpond.cli.positions import StartPosition, parse_position
from millpond.client import Message
from millpond.model.errors import InvalidRecord, InvalidRequest, Unreachable

maybe_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(names, maybe_bytes), max_size=3).map(tuple))
def test_whatever_is_printed_is_read_back(value, key, headers):
    line = to_line(Message(7, value, key, headers, 1_700_000_000_000, 3))
    assert b"\n" not in line
    again = from_line(line)
    assert (again.value, again.key, again.headers) == (value, key, headers)
    assert again.timestamp_ms == 1_700_000_000_000
    shown = json.loads(line)
    assert (shown["partition"], shown["offset"], shown["number"]) == (3, 6, 7)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b'{"value": 1}',
        b'{"value": {"base64": "x"}}',
        b'{"value": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_json_that_is_no_message(line):
    with pytest.raises(InvalidRecord):
        from_line(line)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("oldest", StartPosition("oldest")),
        ("earliest", StartPosition("oldest")),
        ("newest", StartPosition("newest")),
        ("latest", StartPosition("newest")),
        ("17", StartPosition("number", 17)),
        ("-17", StartPosition("last", 17)),
        ("-1h30m", StartPosition("ago", 5_400_000)),
        ("2023-11-14T22:13:20Z", StartPosition("time", 1_700_000_000_000)),
        ("2023-11-14", StartPosition("time", int(datetime(2023, 11, 14).astimezone().timestamp() * 1000))),
    ],
)
def test_places(text, place):
    assert parse_position(text) == place


@pytest.mark.parametrize("text", ["0", "", "-", "-x", "1h", "later", "99999999999999999999"])
def test_what_is_no_place(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_position(text)


@given(st.text("ab\n", max_size=60).map(str.encode), st.integers(1, 20))
def test_lines_do_not_depend_on_how_they_are_read(content, step):
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    source = InputFile.__new__(InputFile)
    source._path, source._prefix, source._file = "-", "", io.BufferedReader(io.FileIO(read), 16)
    with Interruption() as interruption, pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_files, "READ_BYTES", step)
        lines = [line for piece in source.lines(interruption) for line in piece.lines]
    source._file.close()
    expected = content.removesuffix(b"\n").split(b"\n") if content else []
    assert [line.content for line in lines] == expected
    assert [line.location for line in lines] == [f"line {number}" for number in range(1, len(expected) + 1)]


def test_a_line_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "BATCH_BYTES_MAX", 1000)
    file = tmp_path / "endless"
    file.write_bytes(b"fine\n" + bytes(1001))
    for read in (InputFile.lines, InputFile.whole):
        source = InputFile(str(file))
        with Interruption() as interruption, pytest.raises(InvalidRequest, match="more than 1000 bytes"):
            list(read(source, interruption))
        source.close()


def test_tables_align(capsys):
    print_table(("NAME", "COUNT"), [("a", 1), ("longer", 12345)])
    assert capsys.readouterr().out == "NAME     COUNT\na            1\nlonger  12,345\n"


def test_figures_for_people():
    assert [size_text(size) for size in (0, 1023, 1024, 1536, 5 * 1024**4)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 TiB")
    ]
    assert (count_text(1), count_text(2000)) == ("1 message", "2,000 messages")


def test_a_sentence_that_says_what_to_do():
    reason = "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: Connection refused"
    sentence = sentence_of(Unreachable(address="1.2.3.4:5", reason=reason))
    assert sentence.startswith(
        "No broker responds at 1.2.3.4:5: Connection refused. Start one with `millpond serve`"
    )
