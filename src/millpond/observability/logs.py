"""Log formats: how a record looks on stderr, as text or as JSON.

Code logs an event: a fixed message, with everything that varies as fields in `extra`. A field that is None is left out.
Records of other packages come out in the same format. No field can break a line or forge another field. In text, the
lines of a traceback are indented, so that none of them looks like an event.
"""

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from textwrap import indent
from typing import Any, Final, TextIO

ROOT: Final = "millpond"
TEXT: Final = "text"
JSON: Final = "json"
RESERVED: Final = ("time", "level", "logger", "event", "traceback")
"""The keys that every JSON line may have beside its fields."""
INTEGER_BITS_MAX: Final = 64
"""Larger integers are strings: few readers of JSON have them, and Python refuses to print very large ones."""
SILENT: Final = "grpc."
"""gRPC's loggers are not printed: for each client that disconnects before it has its response they log an error with a
traceback, and without a handler on the root logger they print nothing. `frontends/rpc` logs errors of our methods."""
ERROR_CHARS_MAX: Final = 500
"""An error that is a field is cut to this length; its traceback is not."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]")


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z WARNING millpond.log event text key=value other="two words"`; a traceback follows."""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f" {_NOT_IN_NAMES.sub('_', name)}={_quoted(value)}" for name, value in _fields(record)]
        event = _escaped(_event(record))
        line = f"{_time(record)} {record.levelname} {_escaped(record.name)} {event}{''.join(fields)}"
        traceback = _traceback(self, record)
        return f"{line}\n{indent(traceback, '  ')}" if traceback else line


class JsonFormatter(logging.Formatter):
    """One object on one line, in ASCII: `time`, `level`, `logger`, `event`, the fields, and `traceback` where there is
    one. A field named like one of these has `_` behind its name."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": _event(record),
        }
        for name, value in _fields(record):
            content[f"{name}_" if name in RESERVED else name] = _plain(value)
        if traceback := _traceback(self, record):
            content["traceback"] = traceback
        return json.dumps(content)


FORMATS: Final[Mapping[str, Callable[[], logging.Formatter]]] = {TEXT: TextFormatter, JSON: JsonFormatter}


class _LogHandler(logging.StreamHandler[Any]):
    """What `set_up_logging` adds, and replaces when it is called again."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.name.startswith(SILENT) and bool(super().filter(record))


def set_up_logging(
    level: str = "INFO", log_format: str = TEXT, stream: TextIO | None = None, *, others: bool = True
) -> None:
    """Send logs to the stream (stderr by default): those of Millpond from `level` on and, with `others`, those of other
    packages from WARNING on. `ValueError` if there is no such level."""
    own, root = logging.getLogger(ROOT), logging.getLogger()
    own.setLevel(level.upper())
    for logger in (own, root):
        for handler in logger.handlers[:]:
            if isinstance(handler, _LogHandler):
                logger.removeHandler(handler)
    handler = _LogHandler(stream or sys.stderr)
    handler.setFormatter(FORMATS[log_format]())
    (root if others else own).addHandler(handler)
    if others:
        root.setLevel(max(own.level, logging.WARNING))


def _time(record: logging.LogRecord) -> str:
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{second}.{int(record.msecs):03d}Z"


def _event(record: logging.LogRecord) -> str:
    """The message. Arguments that do not fit it, as other packages may pass them, must not lose it."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # formatting calls any code of any argument
        return _text(record.msg)


def _fields(record: logging.LogRecord) -> list[tuple[str, object]]:
    """What `extra` added to the record."""
    found = vars(record).items()
    return [(str(name), value) for name, value in found if name not in _STANDARD and value is not None]


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[1] is not None:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def _plain(value: object) -> object:
    """As JSON has it: numbers, strings and booleans as they are, everything else as text."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int) and value.bit_length() <= INTEGER_BITS_MAX:
        return int(value)
    return _text(value)


def _text(value: object) -> str:
    """Never raises. Bytes are read as UTF-8, and what is not UTF-8 is escaped."""
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).decode(errors="backslashreplace")
        return _error_text(value) if isinstance(value, BaseException) else str(value)
    except Exception:  # noqa: BLE001  # any object may be logged, and its own code may fail
        return f"<unprintable {type(value).__name__}>"


def _error_text(error: BaseException) -> str:
    """Type and message. Not `repr`, which for some errors contains all the bytes that could not be decoded."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return text if len(text) <= ERROR_CHARS_MAX else text[:ERROR_CHARS_MAX] + "…"


def _quoted(value: object) -> str:
    """Bare if it is one plain word, otherwise in quotes."""
    text = _text(value)
    if text and text.isprintable() and not any(character in text for character in ' "=\\'):
        return text
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    """On one line, whatever is in it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
