"""Distributes maintenance work on Spark: items go to tasks, and results return to the driver one by one.

Items and results are plain picklable values. Tasks store objects and return what a commit needs to know about
them; only the driver commits. Items are sent in waves of a few per core, two waves at a time, so that no core
waits for the last task of a wave, and so that results are committed soon, before another writer changes what
the task read.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

SCHEMA: Final = "result binary"
TASKS_PER_CORE: Final = 2
CONCURRENT_WAVES: Final = 2
CORES_UNKNOWN: Final = 8
"""Assumed for a Spark Connect session, which does not report its cores."""


def perform(spark: "SparkSession", items: Sequence[Item], work: Callable[[Item], Result]) -> Iterator[Result]:
    """Run one task per item. Yields the results in the order of the items, as soon as their wave is done. An
    error in a task ends the iteration after the running tasks have finished."""
    in_flight: deque[Future[list[Result]]] = deque()
    start = 0
    with ThreadPoolExecutor(CONCURRENT_WAVES, thread_name_prefix="millpond-wave") as pool:
        while start < len(items) or in_flight:
            while start < len(items) and len(in_flight) < CONCURRENT_WAVES:
                wave = items[start : start + TASKS_PER_CORE * _cores(spark)]
                in_flight.append(pool.submit(_perform_wave, spark, wave, work))
                start += len(wave)
            yield from in_flight.popleft().result()


def _perform_wave(
    spark: "SparkSession", items: Sequence[Item], work: Callable[[Item], Result]
) -> list[Result]:
    numbers = spark.range(0, len(items), 1, len(items))
    done = numbers.mapInArrow(_worker([pickle.dumps(item) for item in items], work), SCHEMA).collect()
    return [pickle.loads(row["result"]) for row in done]  # noqa: S301  # produced by our own tasks


def _cores(spark: "SparkSession") -> int:
    """Read again for each wave, because a cluster may grow during the run."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  # a Connect session has no context, and raises one of several errors
        return CORES_UNKNOWN


def _worker(
    items: Sequence[bytes], work: Callable[[Item], Result]
) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def run(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0):
                result = work(pickle.loads(items[number.as_py()]))  # noqa: S301  # produced by our own driver
                yield pa.RecordBatch.from_arrays(
                    [pa.array([pickle.dumps(result)], type=pa.binary())], names=["result"]
                )

    return run
