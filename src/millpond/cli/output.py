"""Output of commands: tables, JSON, and readable numbers."""

import json
import select
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import click

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
NUMBER: Final = (int, float)


def print_json(facts: Any) -> None:
    click.echo(json.dumps(facts, indent=2, ensure_ascii=False))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, to_stderr: bool = False) -> None:
    """Columns are as wide as necessary, and numbers are right-aligned. Nothing is truncated."""
    cells = [list(row) for row in rows]
    texts = [[_text(cell) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    right = [any(isinstance(row[at], NUMBER) for row in cells) for at in range(len(titles))]
    for row in [list(titles), *texts]:
        aligned = (
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, right, strict=True)
        )
        click.echo("  ".join(aligned).rstrip(), err=to_stderr)


def size_text(size: float) -> str:
    for unit in UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"


def time_text(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")


def count_text(count: int, what: str = "message") -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def print_note(sentence: str) -> None:
    """Print a sentence for the user to stderr, separate from the output."""
    click.echo(sentence, err=True)


def print_bytes(data: bytes) -> None:
    """Write everything: with PYTHONUNBUFFERED a single write may be partial."""
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def check_reader() -> None:
    """Detect that the reader of a pipe has closed it, even if there is nothing to write."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0)):
        raise BrokenPipeError


class Stopwatch:
    def __init__(self) -> None:
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return max(time.perf_counter() - self._started, 1e-9)

    def rate(self, count: int) -> str:
        return f"{count / self.seconds:,.0f}/s"


def stderr_is_terminal() -> bool:
    """Whether stderr is a terminal: progress bars are shown only there."""
    return sys.stderr.isatty()


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
