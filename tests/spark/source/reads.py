"""Reading without Spark: what Spark would call, and what it would see."""

import pickle
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from millpond.spark import source

EVERYTHING = ReadAllAvailable()


def options(path: Path, **given: object) -> dict[str, str]:
    """Option names with a dot are written with two underscores."""
    named = {name.replace("__", "."): str(value) for name, value in given.items()}
    return {"path": str(path), **named}


def batch_reader(path: Path, *, schema: StructType | None = None, **given: object):
    chosen = options(path, **given)
    return pickle.loads(pickle.dumps(source.reader(chosen, schema or source.schema(chosen))))


def stream_reader(path: Path, **given: object):
    chosen = options(path, **given)
    return source.stream_reader(chosen, source.schema(chosen))


def read_all(reader, splits, schema: StructType | None = None) -> list[dict]:
    """The rows of all splits, each read by a copy of the reader, as on an executor."""
    rows: list[dict] = []
    for split in splits:
        reader_there, split_there = pickle.loads(pickle.dumps((reader, split)))
        for batch in reader_there.read(split_there):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.num_rows <= 10_000
            if schema is not None:
                assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


def batch_rows(path: Path, **given: object) -> list[dict]:
    reader = batch_reader(path, **given)
    return read_all(reader, reader.partitions(), source.schema(options(path, **given)))


def batch_offsets(path: Path, **given: object) -> dict[int, list[int]]:
    """The offsets read, by partition."""
    found: dict[int, list[int]] = {}
    for row in batch_rows(path, **given):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def stream_rows(reader, start: dict, end: dict) -> list[dict]:
    return read_all(reader, reader.partitions(start, end))


def stream_offsets(reader, start: dict, end: dict) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in stream_rows(reader, start, end))
