"""Logging as plain stdlib loggers under `millpond`, one `key=value` line each.

Code logs a short fixed message and puts what varies into `extra`; a value that needs quotes gets them.
"""

import logging
import sys
import time
from typing import TextIO

ROOT = "millpond"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class KeyValueFormatter(logging.Formatter):
    """`time=2026-01-31T12:00:00.123Z level=info logger=millpond.log message="..." key=value`, UTC."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self._time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        line = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line

    def _time(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{second}.{int(record.msecs):03d}Z"


def set_up_logging(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send `millpond.*` to the stream (stderr by default). Calling it again replaces what it set up."""
    logger = logging.getLogger(ROOT)
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


def _quoted(value: object) -> str:
    """Bare if it is one plain word. What would break the line is escaped: a value cannot forge another."""
    text = str(value)
    if text and text.isprintable() and not any(character in text for character in ' "=\\'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped) + '"'
