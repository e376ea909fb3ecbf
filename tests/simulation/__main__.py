"""`python -m tests.simulation --seed 1234 [--seeds 1000] [--bug ack_before_commit]`."""

import argparse
import sys

from tests.simulation.bugs import BUGS
from tests.simulation.figures import Figures, failure
from tests.simulation.simulation import simulate


def main() -> int:
    options = _options()
    figures = Figures()
    for seed in range(options.seed, options.seed + options.seeds):
        report = simulate(seed, options.bug)
        figures.add(report)
        if options.seeds == 1:
            print("\n".join(report.trace))
            print(f"trace {report.hash}")
        if not report.ok:
            print(failure(report, options.bug), flush=True)
    print("\n".join(figures.lines()))
    return 1 if figures.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one; 1 if none is given")
    parser.add_argument("--seeds", type=int, default=1, help="how many; one alone shows its trace")
    parser.add_argument("--bug", choices=sorted(BUGS), default="none", help="a bug that should be found")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
