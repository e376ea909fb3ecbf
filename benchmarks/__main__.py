"""`python -m benchmarks [PART] [--quick]`: run one part, or all."""

import argparse
import sys

from benchmarks import backfill, cluster, engine, groups, interfaces, kafka, queues, reads, security, spark

PARTS = {
    "backfill": backfill.run,
    "cluster": cluster.run,
    "engine": engine.run,
    "interfaces": interfaces.run,
    "groups": groups.run,
    "kafka": kafka.run,
    "queue": queues.run,
    "reads": reads.run,
    "security": security.run,
    "spark": spark.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=sorted(PARTS), help="which part; all if left out")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    parser.add_argument("--only", help="run only the sections whose name contains this; nothing is written")
    options = parser.parse_args()
    for name in [options.part] if options.part else sorted(PARTS):
        PARTS[name](quick=options.quick, only=options.only)


if __name__ == "__main__":
    sys.exit(main())
