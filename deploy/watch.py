"""`python deploy/watch.py FOLDER COMMAND …` runs a command, and runs it anew whenever a Python file in the folder
changes. For development: it looks twice a second, and asks the command to end before it starts the next one."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

LOOK_SECONDS = 0.5
STOP_SECONDS_MAX = 30.0
Snapshot = dict[Path, int]


def main(folder: str, *command: str) -> int:
    """A signal is only noted: one that interrupted the start of the command would leave it running."""
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    while True:
        run_until_changed(Path(folder), command, told)
        if told:
            return 128 + told[0]
        print(f"{folder} has changed: starting again", file=sys.stderr, flush=True)


def run_until_changed(folder: Path, command: Sequence[str], told: Sequence[int]) -> None:
    """Or until told to end. A command that ends by itself, because it was broken, is waited for like one that goes
    on."""
    before = snapshot(folder)
    process = subprocess.Popen(command)
    try:
        while not told and snapshot(folder) == before:
            time.sleep(LOOK_SECONDS)
    finally:
        stop(process)


def snapshot(folder: Path) -> Snapshot:
    return {path: when for path in folder.rglob("*.py") if (when := changed_at(path))}


def changed_at(path: Path) -> int:
    """In nanoseconds; 0 for a file that was removed while the folder was listed."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
