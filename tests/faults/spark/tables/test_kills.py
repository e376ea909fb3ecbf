"""`kill -9` of the driver at named points: after the next run every record is in the table, once."""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.spark.tables import killed
from tests.spark.tables.tabling import fill_with, job_on, origins_of

from millpond.spark.pipelines.table import run
from millpond.spark.tables.model import Format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 180
ROOT = Path(__file__).parents[4]
PARTITIONS = 2
RECORDS_PER_KILL = 250
"""A killed run makes one or two steps, of 120 records each."""
RECORDS_LEFT = 150


def is_bad(n: int) -> bool:
    return n % 7 == 3


def value(n: int) -> bytes:
    return b"\xff%d" % n if is_bad(n) else b"%d" % n


def origins(numbers: Iterable[int]) -> list[tuple[int, int]]:
    return sorted((n % PARTITIONS, n // PARTITIONS) for n in numbers)


def kill_at(point: str, kind: Format, data: Path, place: Path, work: Path) -> None:
    command = [sys.executable, "-m", killed.__name__, str(data), str(place), str(kind), point, str(work)]
    said = work.with_suffix(".log")
    with said.open("wb") as log:  # a file: a pipe would stay open until the orphaned JVM has noticed
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=TIMEOUT_S, check=False)
    assert done.returncode == -signal.SIGKILL, said.read_text()[-2_000:]


async def check(
    points: list[str], kind: Format, tmp_path: Path, spark: "SparkSession", figures: list[str]
) -> None:
    data, place = tmp_path / "data", tmp_path / "t"
    numbers = range(RECORDS_PER_KILL * len(points) + RECORDS_LEFT)
    await fill_with(data, "orders", [value(n) for n in numbers], partitions=PARTITIONS, per_batch=20)
    for point in points:
        kill_at(point, kind, data, place, tmp_path / "work")
    report = run(job_on(data, spark), killed.request_for(str(kind), str(place)))
    assert report["rows"] > 0, "the killed runs must leave something to do"
    rows, bad = origins_of(place, spark), origins_of(f"{place}_quarantine", spark)
    good = origins(n for n in numbers if not is_bad(n))
    assert rows == good
    assert bad == origins(n for n in numbers if is_bad(n))
    figures.append(
        f"table into {kind}, driver killed at {', '.join(points)}: {len(rows)} rows = {len(set(rows))} distinct = "
        f"{len(good)} expected; {len(bad)} quarantined"
    )


@pytest.mark.parametrize(("kind", "point"), [(Format.DELTA, "written"), (Format.ICEBERG, "committed")])
async def test_a_killed_run_loses_nothing_and_repeats_nothing(
    kind: Format, point: str, tmp_path: Path, spark: "SparkSession", figures: list[str]
):
    await check([point], kind, tmp_path, spark, figures)


@pytest.mark.long
@pytest.mark.parametrize("kind", list(Format))
async def test_killed_at_every_point_it_loses_nothing_and_repeats_nothing(
    kind: Format, tmp_path: Path, spark: "SparkSession", figures: list[str]
):
    await check(list(itertools.chain(killed.POINTS, reversed(killed.POINTS))), kind, tmp_path, spark, figures)
