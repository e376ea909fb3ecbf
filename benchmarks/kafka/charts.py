"""Generates the page docs/explanation/performance.md and its charts from results/kafka.json only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "performance.md"
COLOURS = {"millpond": "#1f77b4", "kafka": "#b0b0b0", "kafka, fsync": "#707070"}
OTHER = "#d9c77e"
BAR, GAP, LEFT, WIDTH = 14, 10, 190, 760


def write_page(found: Mapping[str, Any]) -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    parts = [_head(found)]
    for place, measured in found["places"].items():
        slug = place.lower().replace(" ", "-")
        for verb in ("produce", "consume"):
            name = f"performance-{slug}-{verb}.svg"
            (PAGE.parent / name).write_text(_chart(f"{verb}, MB/s, {place}", measured["medians"], verb))
            parts.append(f"![{verb} on the {place}]({name})\n")
        parts.append(_table(place, measured))
    PAGE.write_text("\n".join(parts))


def _head(found: Mapping[str, Any]) -> str:
    return f"""# Beside Apache Kafka

Made by `{found["command"]}` on {found["date"]} ({found["machine"]}); do not edit. Medians of {found["rounds"]}
interleaved rounds of one run, through librdkafka on the same machine as the brokers, so client and broker share its
cores. "kafka" is Apache Kafka 4.3 as it comes, which does not fsync; "kafka, fsync" has
`log.flush.interval.messages=1`, which does what Millpond always does: an acknowledged message is on the disk. The
raw values of every round are in [benchmarks/results/kafka.json](../../benchmarks/results/kafka.json).
On a RAM disk the code decides; on the disk mostly the disk does, so plain write + fdatasync stands beside it.
"""


def _table(place: str, measured: Mapping[str, Any]) -> str:
    names = list(measured["start_s"])
    columns = [*names, "plain write + fdatasync"]
    lines = [
        f"## On the {place}",
        "",
        "| measure | " + " | ".join(columns) + " | ratio to kafka | to kafka, fsync |",
    ]
    lines.append("|---|" + "---:|" * (len(columns) + 2))
    rows = {
        "start to serving, s": measured["start_s"],
        "resident when idle, MB": measured["resident_idle_mb"],
        "resident after the load, MB": measured["resident_loaded_mb"],
        **measured["medians"],
    }
    lines += [_row(measure, sides, columns) for measure, sides in rows.items()]
    return "\n".join([*lines, ""])


def _row(measure: str, sides: Mapping[str, float], columns: list[str]) -> str:
    cells = [_number(sides[name]) if name in sides else "" for name in columns]
    ratios = [
        f"{sides['millpond'] / sides[other]:.2f}" if sides.get(other) and "millpond" in sides else ""
        for other in ("kafka", "kafka, fsync")
    ]
    return "| " + " | ".join([measure, *cells, *ratios]) + " |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _chart(title: str, medians: Mapping[str, Mapping[str, float]], verb: str) -> str:
    """Horizontal bars: one group for each shape, one bar for each side."""
    groups = {
        measure.removeprefix(f"{verb} ").removesuffix(", MB/s"): sides
        for measure, sides in medians.items()
        if measure.startswith(verb) and measure.endswith("MB/s")
    }
    largest = max((value for sides in groups.values() for value in sides.values()), default=1.0)
    y, bars = 40, []
    for label, sides in groups.items():
        middle = y + len(sides) * BAR / 2 + 4
        bars.append(f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{label}</text>')
        for name, value in sides.items():
            bars.append(_bar(y, name, value, (WIDTH - LEFT - 230) * value / largest))
            y += BAR
        y += GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" font-family="sans-serif"'
    )
    background = f'<rect width="{WIDTH}" height="{y + 10}" fill="white"/>'
    caption = f'<text x="{LEFT}" y="24" font-size="14">{title}</text>'
    return "\n".join([f'{head} font-size="11">', background, caption, *bars, "</svg>", ""])


def _bar(y: int, name: str, value: float, length: float) -> str:
    colour = COLOURS.get(name, OTHER)
    bar = f'<rect x="{LEFT}" y="{y}" width="{length:.0f}" height="{BAR - 2}" fill="{colour}"/>'
    return f'{bar}<text x="{LEFT + length + 5:.0f}" y="{y + BAR - 4}">{_number(value)} {name}</text>'
