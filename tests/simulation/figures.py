"""Many stories, added up."""

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.simulation import Report
from tests.simulation.writer import ZOMBIES


@dataclass(slots=True)
class Figures:
    seeds: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failovers: list[float] = field(default_factory=list)
    failed: list[Report] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.seconds += report.seconds
        self.faults.update(report.faults)
        self.counts.update(report.counts)
        self.failovers += report.failovers
        if not report.ok:
            self.failed.append(report)

    def summary(self) -> str:
        return (
            f"{self.seeds} seeds, {self.seconds / 3600:.2f} simulated hours, {self.faults.total()} faults, "
            f"{self.counts['records acknowledged']} records acknowledged, {self.counts['commits']} commits, "
            f"{self.counts[ZOMBIES]} of replaced owners refused, {len(self.failed)} failed"
        )

    def lines(self) -> Iterable[str]:
        yield self.summary()
        yield "faults: " + _listed(self.faults)
        yield "counted: " + _listed(self.counts)
        if len(self.failovers) > 1:
            ordered = sorted(self.failovers)
            yield (
                f"failover after a crash or a pause (lease 2 or 3 s): n {len(ordered)}, "
                f"p50 {statistics.median(ordered):.2f} s, p99 {ordered[int(len(ordered) * 0.99)]:.2f} s"
            )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def failure(report: Report, bug: str = "none") -> str:
    """What a failing seed says: the command that replays it first."""
    command = f"python -m tests.simulation --seed {report.seed}" + (f" --bug {bug}" if bug != "none" else "")
    shown = "\n".join(f"  {each}" for each in report.violations[:10])
    return f"seed {report.seed} failed; replay it with:\n  {command}\n{shown}"
