"""`python -m tests.peers.times [--json]`: compares both brokers; exits with 1 if they differ in an unexpected way."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.peers.times import comparison, report, run

from peers import Unavailable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.peers.times", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="millpond-times-") as folder:
            found = comparison.compare(run.observe(Path(folder)))
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 1
    print(json.dumps(report.as_json(found), indent=1) if given.json else report.as_text(found))
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
