"""The README: its code runs as it stands, apart from the address, and its figures are the measured ones."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from millpond.testing import running_broker

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs/explanation/performance.md"


def the_code() -> str:
    [code] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return code


async def test_the_twelve_lines_work() -> None:
    async with running_broker(grpc=True) as broker:
        code = re.sub(
            r'(Producer|Consumer)\("hello"', rf'\1("hello", address="{broker.listeners["grpc"]}"', the_code()
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.decode().splitlines() == [
        "the first has number 1",
        "1 b'k' b'one'",
        "2 None b'two'",
        "3 None b'three'",
    ]


def test_they_are_about_twelve() -> None:
    assert sum(1 for line in the_code().splitlines() if line.strip()) <= 12


def test_its_figures_are_those_of_the_page_that_the_benchmark_wrote() -> None:
    part = README.read_text().partition("## Measured beside Apache Kafka")[2].partition("\n## ")[0]
    shown = [line for line in part.splitlines() if line.startswith("| ") and "measure" not in line]
    measured = PERFORMANCE.read_text().partition("## On the disk")[2].splitlines()
    assert len(shown) >= 8
    for line in shown:
        plain = line.replace("**", "")
        assert any(each.startswith(plain.rstrip("|")) for each in measured), f"measured again? {line}"


def test_it_marks_the_best_of_each_row() -> None:
    part = README.read_text().partition("## Measured beside Apache Kafka")[2].partition("\n## ")[0]
    for measure, *cells in (line.strip("| ").split(" | ") for line in part.splitlines() if "**" in line):
        values = [float(cell.replace("*", "").replace(",", "")) for cell in cells]
        best = (max if "MB/s" in measure else min)(values)
        assert [cell.startswith("**") for cell in cells] == [value == best for value in values], measure


def test_its_sections_come_in_the_order_a_newcomer_needs() -> None:
    assert re.findall(r"^## (.*)$", README.read_text(), re.MULTILINE) == [
        "What it replaces, and when to use it",
        "How it works",
        "Try it",
        "Twelve lines of Python",
        "Beside other systems",
        "Measured beside Apache Kafka",
        "Security",
        "Limits",
        "Status",
        "Read on",
    ]
