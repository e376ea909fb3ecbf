"""The formats of the log: one line for each record, whatever its fields are, in text and in JSON."""

import io
import json
import logging
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.observability import logs
from millpond.observability.logs import FORMATS, RESERVED, JsonFormatter, TextFormatter, set_up_logging

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Unprintable:
    def __str__(self):
        raise ZeroDivisionError


def record(event="it failed", /, **attributes):
    common = {"msg": event, "levelno": logging.WARNING, "levelname": "WARNING", "name": "millpond.test"}
    return logging.makeLogRecord(common | attributes)


def as_json(given_record):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(JsonFormatter().format(given_record), parse_constant=refuse)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.text(st.characters(categories=["Cs", "Cc", "Zl", "Zp", "Ll"])),
    st.binary(),
    st.binary().map(bytearray),
    st.binary().map(memoryview),
    st.text().map(OSError),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.floats()),
    st.builds(Unprintable),
)
names = st.text(min_size=1).filter(lambda name: name not in STANDARD)
any_fields = st.dictionaries(names, values, max_size=5)


class TestText:
    def test_time_level_logger_event_and_fields(self):
        line = TextFormatter().format(record("retention failed; will retry", topic="orders", partition=0))
        assert re.fullmatch(
            rf"{TIME} WARNING millpond\.test retention failed; will retry topic=orders partition=0", line
        )

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("orders", "orders"),
            ("two words", '"two words"'),
            ("", '""'),
            ('no "room"\nleft', '"no \\"room\\"\\nleft"'),
            ("a=b", '"a=b"'),
            ("c:\\d", '"c:\\\\d"'),
            ("\u2028\ud800\x1b[31m", '"\\u2028\\ud800\\x1b[31m"'),
            ("Zürich", "Zürich"),
            (b"\xec\x55", '"\\\\xecU"'),
            (2.5, "2.5"),
            (True, "True"),
            (TimeoutError(), "TimeoutError"),
            (OSError(28, "no room"), '"OSError: [Errno 28] no room"'),
            (Unprintable(), '"<unprintable Unprintable>"'),
        ],
    )
    def test_a_value_is_quoted_if_it_is_not_one_plain_word(self, value, shown):
        assert TextFormatter().format(record(value=value)).endswith(f"it failed value={shown}")

    def test_a_field_without_a_value_is_left_out(self):
        assert TextFormatter().format(record(topic=None)).endswith("it failed")

    def test_a_traceback_follows(self):
        with pytest.raises(ZeroDivisionError) as raised:
            raise ZeroDivisionError("oh")
        text = TextFormatter().format(record(exc_info=raised._excinfo, topic="orders"))
        assert "it failed topic=orders\n  Traceback" in text
        assert text.endswith("\n  ZeroDivisionError: oh")

    def test_a_traceback_cannot_forge_an_event(self):
        with pytest.raises(ValueError, match="oh") as raised:
            raise ValueError("oh\n2026-01-31T12:00:00.000Z CRITICAL millpond.log forged")
        text = TextFormatter().format(record(exc_info=raised._excinfo))
        assert all(line.startswith("  ") for line in text.split("\n")[1:])

    def test_an_error_is_its_type_and_a_bounded_message_without_the_bytes_it_could_not_decode(self):
        undecodable = UnicodeDecodeError("utf-8", b"secret", 0, 1, "invalid start byte")
        assert "secret" not in TextFormatter().format(record(error=undecodable))
        assert "error=KeyError" in TextFormatter().format(record(error=KeyError()))
        assert len(TextFormatter().format(record(error=ValueError("x" * 10_000)))) < 1000

    @given(st.text(), names, any_fields)
    def test_any_fields_give_one_line(self, event, name, fields):
        line = TextFormatter().format(record(event, **fields | {"name": name}))
        assert line.isprintable()
        assert len(line.splitlines()) == 1


class TestJson:
    def test_time_level_logger_event_and_fields(self):
        found = as_json(record(topic="orders", partition=0, ratio=0.5, full=True, error=None))
        assert re.fullmatch(TIME, found.pop("time"))
        assert found == {
            "level": "WARNING",
            "logger": "millpond.test",
            "event": "it failed",
            "topic": "orders",
            "partition": 0,
            "ratio": 0.5,
            "full": True,
        }

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (math.nan, "nan"),
            (-math.inf, "-inf"),
            (b"\xecU", "\\xecU"),
            pytest.param(10**5_000, "<unprintable int>", id="very large"),
            (2**64, str(2**64)),
            (2**63, 2**63),
            ("\ud800", "\ud800"),
            (TimeoutError(), "TimeoutError"),
            ([1, math.nan], "[1, nan]"),
            (Unprintable(), "<unprintable Unprintable>"),
        ],
    )
    def test_values_that_json_does_not_have_are_strings(self, value, shown):
        assert as_json(record(value=value))["value"] == shown

    def test_a_traceback_is_a_field(self):
        with pytest.raises(ZeroDivisionError) as raised:
            raise ZeroDivisionError("oh")
        found = as_json(record(exc_info=raised._excinfo))
        assert found["traceback"].startswith("Traceback (most recent call last)")
        assert found["traceback"].endswith("ZeroDivisionError: oh")

    def test_a_stack_is_a_traceback_too(self):
        assert as_json(record(stack_info="Stack (most recent call last)"))["traceback"].startswith("Stack")

    @pytest.mark.parametrize("name", RESERVED)
    def test_a_field_cannot_replace_what_every_line_has(self, name):
        found = as_json(record(**{name: "forged"}))
        assert found.get(name) != "forged"
        assert found[f"{name}_"] == "forged"

    @given(st.text(), names, any_fields)
    @example("event", "name", {"event": 2**70, "b": math.nan, "c": "\ud800\u2028\n"})
    def test_any_fields_give_one_line_that_parses_back(self, event, name, fields):
        line = JsonFormatter().format(record(event, **fields | {"name": name}))
        assert line.isascii()
        assert "\n" not in line
        found = json.loads(line)
        assert (found["event"], found["logger"], found["level"]) == (event, name, "WARNING")
        for field, value in fields.items():
            shown = found.get(f"{field}_" if field in RESERVED else field)
            if value is None:
                assert shown is None
            elif isinstance(value, bool):
                assert shown is value
            elif isinstance(value, str):  # JSON joins two surrogates that make up a character
                assert shown == json.loads(json.dumps(value))
            else:
                assert shown is not None


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_message_whose_arguments_do_not_fit_is_not_lost(log_format):
    wrong = record("%d of %d", args=("x",))
    assert "%d of %d" in FORMATS[log_format]().format(wrong)


class TestSettingUp:
    @pytest.fixture
    def stream(self):
        return io.StringIO()

    @pytest.fixture(autouse=True)
    def restored(self, monkeypatch):
        for name in (None, logs.ROOT):
            logger = logging.getLogger(name)
            monkeypatch.setattr(logger, "handlers", [*logger.handlers])
            monkeypatch.setattr(logger, "level", logger.level)
        yield
        logging.getLogger().manager._clear_cache()

    def test_called_again_it_replaces_what_it_set_up(self, stream):
        set_up_logging("info", stream=stream)
        set_up_logging("info", stream=stream)
        logging.getLogger("millpond.test").warning("it failed", extra={"attempt": 2})
        logging.getLogger("millpond.test").debug("not shown")
        assert stream.getvalue().endswith(" WARNING millpond.test it failed attempt=2\n")
        assert stream.getvalue().count("\n") == 1

    def test_json(self, stream):
        set_up_logging("info", "json", stream)
        logging.getLogger("millpond.test").info("done", extra={"topic": "orders"})
        assert json.loads(stream.getvalue())["topic"] == "orders"

    def test_other_packages_log_in_the_same_format_from_warning_on(self, stream):
        set_up_logging("debug", "json", stream)
        for name in ("asyncio", "concurrent.futures", "uvicorn.error"):
            logging.getLogger(name).info("not shown")
            logging.getLogger(name).warning("%s of %s", "two", "kinds")
        found = [json.loads(line) for line in stream.getvalue().splitlines()]
        assert [each["event"] for each in found] == ["two of kinds"] * 3
        assert [each["logger"] for each in found] == ["asyncio", "concurrent.futures", "uvicorn.error"]

    def test_other_packages_can_be_left_alone(self, stream):
        """A command that starts Spark leaves Spark's logs to Spark."""
        set_up_logging("info", stream=stream)
        set_up_logging("warning", stream=stream, others=False)
        logging.getLogger("py4j").error("not shown")
        logging.getLogger("millpond.test").warning("it failed", extra={"topic": "orders"})
        assert stream.getvalue().endswith(" WARNING millpond.test it failed topic=orders\n")
        assert stream.getvalue().count("\n") == 1

    def test_grpc_says_nothing_about_clients_that_disconnect(self, stream):
        set_up_logging("debug", stream=stream)
        logging.getLogger("grpc._cython.cygrpc").error("ExecuteBatchError raised in core by servicer method")
        logging.getLogger("grpcio_tools").error("shown")
        assert stream.getvalue().endswith(" ERROR grpcio_tools shown\n")
        assert stream.getvalue().count("\n") == 1

    def test_other_packages_are_no_louder_than_asked_for(self, stream):
        set_up_logging("error", stream=stream)
        logging.getLogger("asyncio").warning("not shown")
        assert stream.getvalue() == ""

    def test_a_level_that_does_not_exist_is_refused_and_changes_nothing(self, stream):
        before = logging.getLogger().handlers[:]
        with pytest.raises(ValueError, match="LOUD"):
            set_up_logging("loud", stream=stream)
        assert logging.getLogger().handlers == before
