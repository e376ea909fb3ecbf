"""A comparison as a table and as JSON."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from tests.peers.times.comparison import Comparison, Row, Verdict

COLUMNS = ("case", "codecs", "produced", "log start", "headers after append", "verdict")


def as_text(found: Comparison) -> str:
    return "\n".join([*_table(found.rows), "", *_known(found.rows), *_problems(found)])


def as_json(found: Comparison) -> dict[str, Any]:
    return {
        "ok": not found.problems,
        "problems": list(found.problems),
        "rows": [
            {
                "case": row.case.name,
                "codec": row.codec.name.lower(),
                "verdict": row.verdict.value,
                "kafka": row.kafka,
                "millpond": row.ours,
                "differences": row.differences,
                "expired_early_ms": row.expired_early_ms,
                "reasons": [each.reason for each in row.known],
            }
            for row in found.rows
        ],
    }


# -- the table ------------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """One line for the codecs of a case that have the same result."""
    lines = [COLUMNS, *(_cells(list(same)) for _, same in groupby(rows, _result))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    for number, line in enumerate(lines):
        yield " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        if not number:
            yield "-|-".join("-" * width for width in widths)


def _result(row: Row) -> tuple[Any, ...]:
    return row.case.name, row.kafka, row.ours, row.problems


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    row = rows[0]
    codecs = "all" if len(rows) == 5 else " ".join(each.codec.name.lower() for each in rows)
    times = sum(name.startswith(("stored: ", "kept: ")) for name in row.kafka)
    verdict = f"{row.verdict.value}: {len(row.differences)} of {times} offsets and headers"
    return (
        row.case.name,
        codecs,
        _pair(row, "produced"),
        _pair(row, "kept: start"),
        _pair(row, "headers"),
        f"equal ({times} offsets by time)" if row.verdict is Verdict.EQUAL else verdict,
    )


def _pair(row: Row, name: str) -> str:
    kafka, ours = row.kafka[name], row.ours[name]
    return kafka if kafka == ours else f"Kafka {kafka}; ours {ours}"


def _known(rows: Sequence[Row]) -> Iterator[str]:
    for _, same in groupby((row for row in rows if row.known), lambda row: row.case.name):
        row = next(iter(same))
        yield f"known difference: {row.case.name}"
        for each in row.known:
            yield f"  {each.reason}"
            for name, (kafka, ours) in each.fields.items():
                yield f"    {name}: Kafka {kafka}, ours {ours}"


def _problems(found: Comparison) -> Iterator[str]:
    early_ms = max(row.expired_early_ms for row in found.rows)
    yield ""
    yield f"expired early at most: {early_ms / 1_000:.1f} s"
    for each in found.problems:
        yield f"FAILED {each}"
    yield f"{len(found.rows)} partitions, {len(found.problems)} problems"
