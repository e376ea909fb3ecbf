"""The rounds of one row of the table. Totals are added first and divided last, so that the columns agree.

With a separate median or mean for each column, flushes per second times bytes per flush would not be the
rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Round:
    """The counts of one round: at full load, at a moderate rate, and at rest."""

    brokers: int
    seconds: float
    megabytes: float
    cpu_s: float
    database_s: float
    flushes: float
    flushed_bytes: float
    puts: float
    paced_seconds: float
    paced_puts: float
    rest_seconds: float
    rest_puts: float


def pooled(rounds: Sequence[Round]) -> dict[str, float]:
    """The columns of a row, from several rounds with the same number of brokers."""
    total = {each.name: sum(getattr(one, each.name) for one in rounds) for each in fields(Round)}
    brokers = rounds[0].brokers
    return {
        "mb_per_s": total["megabytes"] / total["seconds"],
        "cpu": total["cpu_s"] / total["seconds"],
        "database": total["database_s"] / total["seconds"],
        "cpu_s_per_gb": (total["cpu_s"] + total["database_s"]) / total["megabytes"] * 1000,
        "commits": total["flushes"] / total["seconds"],
        "kb": total["flushed_bytes"] / 1000 / max(total["flushes"], 1),
        "puts": total["puts"] / total["seconds"] / brokers,
        "paced_puts": total["paced_puts"] / total["paced_seconds"] / brokers,
        "rest_puts": total["rest_puts"] / total["rest_seconds"] / brokers,
    }
