"""Exactly once, shown by killing: a streaming job dies by `kill -9` at a chosen place, again and again, and goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.spark.sink.rows import make_place, make_topic, values

HERE = Path(__file__).parent
PLACES = (
    "inside write",
    "before the commit",
    "after the commit",
    "between offset log and commit log",
)
FURTHER_PLACES = ("inside the commit",)
ROWS_PER_FILE = 200
SECONDS_MAX = 120


class Job:
    """A streaming job that can be started, trapped and killed. It has one batch for each file of rows."""

    def __init__(self, root: Path, files: int) -> None:
        self._root = root
        self.place = make_place(root / "data")
        self.expected = [b"%d-%d" % (file, row) for file in range(files) for row in range(ROWS_PER_FILE)]
        self._checkpoint = root / "checkpoint"
        self._trap = root / "trap"
        self._process: subprocess.Popen | None = None
        make_topic(self.place, "t", 3)
        (root / "rows").mkdir()
        for file in range(files):
            lines = "".join(f"{file}-{row}\n" for row in range(ROWS_PER_FILE))
            (root / "rows" / f"{file:04d}.txt").write_text(lines)

    def start(self) -> None:
        environment = {
            **os.environ,
            "MILLPOND_TRAP": str(self._trap),
            "PYTHONPATH": os.pathsep.join([str(HERE / "traps"), os.environ.get("PYTHONPATH", "")]),
        }
        arguments = [self._root / "rows", self._root / "data", self._checkpoint]
        with open(self._root / "log", "a") as log:
            self._process = subprocess.Popen(
                [sys.executable, HERE / "driver.py", *map(str, arguments)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the JVM is in its group: both die at once
            )

    def kill_at(self, place: str, *, after_a_batch: bool) -> tuple[int, int]:
        """Stop at the place, and kill: in the batch with which it starts, or when that has gone through. Returns the
        numbers of batches that Spark has begun and that it has noted as done."""
        done = self._logged("commits")
        if not after_a_batch:
            self._trap.write_text(place)
        self.start()
        if after_a_batch:
            self._wait(lambda: self._logged("commits") > done)
            self._trap.write_text(place)
        reached = Path(f"{self._trap}.reached")
        self._wait(reached.exists)
        os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(int(reached.read_text()), signal.SIGKILL)
        self._process.wait()
        reached.unlink()
        return self._logged("offsets"), self._logged("commits")

    def finish(self) -> None:
        self.start()
        assert self._process.wait(timeout=SECONDS_MAX) == 0, self.log()

    def log(self) -> str:
        return (self._root / "log").read_text()[-5000:]

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _logged(self, name: str) -> int:
        """How many batches are in one of the checkpoint's two logs."""
        folder = self._checkpoint / name
        numbers = (
            [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
        )
        return max(numbers, default=-1) + 1

    def _wait(self, condition) -> None:
        give_up = time.monotonic() + SECONDS_MAX
        while not condition():
            assert self._process.poll() is None, f"the driver ended by itself: {self.log()}"
            assert time.monotonic() < give_up, f"it took too long: {self.log()}"
            time.sleep(0.005)


def kill_again_and_again(root: Path, places: list[str], figures: list[str]) -> None:
    """Every other kill hits the batch that was killed before; it then has died at two places."""
    job = Job(root, files=len(places) + 6)
    try:
        for number, place in enumerate(places):
            begun, noted = job.kill_at(place, after_a_batch=number % 2 == 0)
            assert begun == noted + 1, f"{place}: Spark will run the last batch again"
        job.finish()
        found = values(job.place, "t")
    finally:
        job.stop()
    counts = Counter(places)
    kills = ", ".join(f"{count} {place}" for place, count in sorted(counts.items()))
    figures.append(
        f"spark sink: {len(places)} kills ({kills}): rows {len(found)},"
        f" distinct {len(set(found))}, expected {len(job.expected)}"
    )
    assert sorted(found) == sorted(job.expected)


def test_no_row_is_lost_or_twice_wherever_the_driver_is_killed(java, tmp_path, figures):
    kill_again_and_again(tmp_path, list(PLACES), figures)


@pytest.mark.long
def test_no_row_is_lost_or_twice_in_many_kills(java, tmp_path, figures):
    places = [*PLACES, *FURTHER_PLACES] * 5
    random.Random(6).shuffle(places)
    kill_again_and_again(tmp_path, places, figures)
