"""Results as Markdown: the machine, the date, the command, and both sides of each comparison."""

import datetime as dt
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


class Report:
    def __init__(self, title: str, command: str) -> None:
        self._lines = [f"# {title}", "", f"`{command}`, {today()}, {machine()}.", ""]

    def section(self, title: str, text: str = "") -> None:
        self._add("", f"## {title}", "")
        if text:
            self._add(text, "")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self._add("| " + " | ".join(header) + " |", "|" + "---|" * len(header))
        self._add(*("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), "")

    def line(self, text: str) -> None:
        self._add(text, "")

    def write(self, name: str) -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text("\n".join(self._lines).rstrip() + "\n")

    def _add(self, *lines: str) -> None:
        self._lines.extend(lines)
        print(*lines, sep="\n", flush=True)


def quantiles_ms(samples: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds, from samples in seconds."""
    cuts = statistics.quantiles(samples, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"
