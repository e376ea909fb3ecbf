"""Runs a make target several times in a row and reports each run's wall time and failed tests.

    python -m tests.repeat 10                      # `make test`, ten times
    python -m tests.repeat 3 --busy 2              # the same beside two processes that each keep a core busy
    python -m tests.repeat 5 --target test-faults

Exits with 1 if any run failed. The output of each run is kept in a directory that is printed first.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BURN = "while True: sum(range(100_000))"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
COUNTS = re.compile(r"(?:\d+ \w+, )*\d+ (?:passed|failed|errors?)\b[^=\n]*")


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    exit_code: int
    failed: tuple[str, ...]
    counts: str

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        outcome = "passed" if self.exit_code == 0 else f"FAILED (exit code {self.exit_code})"
        return f"{minutes}:{seconds:02d} min  {outcome}  {self.counts}"


def parse(output: str, *, seconds: float, exit_code: int) -> Run:
    """The facts of one run, from what pytest printed."""
    counts = COUNTS.findall(output)
    return Run(
        seconds, exit_code, tuple(FAILED.findall(output)), counts[-1].strip() if counts else "no summary"
    )


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def run_once(command: Sequence[str], output: Path) -> Run:
    started = time.monotonic()
    with output.open("w") as file:
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    return parse(output.read_text(), seconds=time.monotonic() - started, exit_code=done.returncode)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.repeat", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("times", type=int, help="Number of runs.")
    parser.add_argument("--target", default="test", help="Make target to run (default: test).")
    parser.add_argument(
        "--busy", type=int, default=0, metavar="CORES", help="Processes that use a core each."
    )
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="millpond-repeat-"))
    print(f"output: {folder}", flush=True)
    runs = []
    with busy_cores(given.busy):
        for number in range(1, given.times + 1):
            run = run_once(["make", "-s", given.target], folder / f"run-{number}.log")
            runs.append(run)
            print(f"run {number:2d}: {run}", flush=True)
            for test in run.failed:
                print(f"        {test}", flush=True)
    failed = sum(run.exit_code != 0 for run in runs)
    slowest = max((run.seconds for run in runs), default=0.0)
    print(f"{len(runs)} runs, {failed} failed, slowest {slowest / 60:.1f} min", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
