"""One Spark session for all of these tests. Without Java they say so and skip."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from millpond.spark import place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def closed_places() -> Iterator[None]:
    """Each test has catalogs of its own; left open they would use up this process's file descriptors."""
    yield
    place.close_all()


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from millpond.spark import session

    work = tmp_path_factory.mktemp("spark")
    built = session(
        "millpond-tests",
        master="local[2]",
        fast_start=True,
        config={
            "spark.local.dir": str(work / "local"),
            "spark.sql.warehouse.dir": str(work / "warehouse"),
            "spark.sql.streaming.minBatchesToRetain": "5",
            "spark.driver.memory": "1g",
        },
    )
    yield built
    built.stop()
