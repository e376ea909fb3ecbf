"""`python -m tests.peers.differential HOST:PORT [PROBE…]`: what that broker answers, as JSON."""

import json
import sys

from tests.peers.differential.observing import observe

if __name__ == "__main__":
    json.dump(observe(sys.argv[1], sys.argv[2:]), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
