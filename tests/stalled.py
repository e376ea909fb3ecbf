"""Run tests on a machine that stands still now and then: one of their processes after the other is stopped for up to
1.3 s and goes on, as happens to all of them on a busy machine. What fails here may fail for anybody. For Linux.

    python -m tests.stalled [--seed NUMBER] pytest's arguments …
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PAUSES_S = (0.3, 2.5)
"""Between one stall and the next."""
STALLS_S = (0.1, 0.3, 0.6, 1.0, 1.3)
STOPPED_OR_DEAD = "TtZX"
"""By somebody else: it is theirs to go on with."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.stalled")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given, arguments = parser.parse_known_args()
    tests = subprocess.Popen([sys.executable, "-m", "pytest", *arguments])
    stalls = stall_randomly(tests, random.Random(given.seed))
    print(f"{stalls} stalls, seed {given.seed}")
    if not stalls:
        print(
            "nothing was stalled, so nothing was shown: run it with -n, or with more tests", file=sys.stderr
        )
        return 1
    return tests.returncode


def stall_randomly(tests: subprocess.Popen[bytes], dice: random.Random) -> int:
    """Until they are over. Returns how many there were."""
    stalls = 0
    while True:
        try:
            tests.wait(dice.uniform(*PAUSES_S))
        except subprocess.TimeoutExpired:
            running = list(descendants(tests.pid))
            stalls += bool(running) and stall(dice.choice(running), dice.choice(STALLS_S))
        else:
            return stalls


def stall(pid: int, seconds: float) -> bool:
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> Iterator[int]:
    """Those that run: children, their children, and so on."""
    for task in _listed(Path(f"/proc/{pid}/task")):
        for child in map(int, _read(task / "children").split()):
            state = _read(Path(f"/proc/{child}/stat")).rpartition(")")[2].split()[:1]
            if state and state[0] not in STOPPED_OR_DEAD:
                yield child
            yield from descendants(child)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it has just ended
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
