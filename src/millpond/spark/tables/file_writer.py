"""Runs in tasks: reads records, writes Parquet files, and returns to the driver what a commit needs to know
about them.

It works in one pass: each batch is decoded, its good rows go to the table's files and its bad rows to the
quarantine's. Every file has a unique name, so files of a failed or repeated task are in no commit and cause
no conflict.
"""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from millpond.spark.tables import times
from millpond.spark.tables.columns import ERROR, ORIGIN, VALUE, quarantine_schema
from millpond.spark.tables.model import DAY, TableTarget, WrittenFile
from millpond.spark.tables.paths import filesystem, is_local
from millpond.spark.tables.values.jsons import DECODED, REASON
from millpond.spark.tables.values.plain import as_is, as_text
from millpond.spark.tables.values.spec import ValueFormat, Values, decoder

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
ROW_GROUP_ROWS: Final = 250_000
OPEN_FILES_MAX: Final = 64
"""For a table by day: a task that sees more days closes its files and opens new ones."""
STATISTICS: Final = ("partition", "offset", "timestamp")
COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class BadRecord:
    topic: str
    partition: int
    offset: int
    error: str


@dataclass(frozen=True, slots=True)
class TaskResult:
    files: tuple[WrittenFile, ...]
    quarantine_files: tuple[WrittenFile, ...]
    bad: int
    first_bad: BadRecord | None


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """Everything that a task needs."""

    schema: "pa.Schema"
    values: Values
    keys_are_text: bool
    is_nested: bool
    target: TableTarget
    quarantine: TableTarget | None
    """Where bad rows go; None: they are only counted."""
    quarantined: Mapping[tuple[str, int], int]
    """The offset of each (topic, partition) up to which the quarantine is already complete."""


def write_files(order: TaskOrder) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For `mapInArrow`: yields one row, a pickled `TaskResult`."""

    def run(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        result = TaskWork(order).perform(batches)
        yield pa.RecordBatch.from_arrays(
            [pa.array([pickle.dumps(result)], type=pa.binary())], names=["result"]
        )

    return run


class TaskWork:
    """One task's open and finished files."""

    def __init__(self, order: TaskOrder) -> None:
        self._order = order
        is_json = order.values.kind is ValueFormat.JSON
        self._decode = _already_decoded if is_json else _decode_with(decoder(order.values))
        self._decode_keys = as_text if order.keys_are_text else as_is
        self._files = _Files(order.target, order.schema)
        self._bad_files = _Files(order.quarantine, quarantine_schema()) if order.quarantine else None
        self._bad = 0
        self._first_bad: BadRecord | None = None

    def perform(self, batches: "Iterable[pa.RecordBatch]") -> TaskResult:
        for batch in batches:
            if batch.num_rows:
                self._take(batch)
        bad_files = self._bad_files.finish() if self._bad_files else ()
        return TaskResult(self._files.finish(), bad_files, self._bad, self._first_bad)

    def _take(self, batch: "pa.RecordBatch") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        decoded, errors = self._decode(batch)
        keys, key_errors = self._decode_keys(batch.column("key"))
        errors = pc.coalesce(
            errors,
            pc.binary_join_element_wise("key: ", key_errors, ""),
            times.record_errors(batch.column("timestamp")),
            times.value_errors(decoded),
        )
        table = pa.Table.from_arrays(self._columns(batch, keys, decoded), names=self._order.schema.names)
        if errors.null_count == len(errors):
            self._files.add(table.cast(self._order.schema))
            return
        is_good = pc.is_null(errors)
        self._files.add(table.filter(is_good).cast(self._order.schema))
        self._write_bad(batch, errors, pc.invert(is_good))

    def _columns(self, batch: "pa.RecordBatch", keys: "pa.Array", decoded: "pa.Array") -> "list[pa.Array]":
        import pyarrow as pa

        before = [keys if name == "key" else batch.column(name) for name in ORIGIN]
        if pa.types.is_struct(decoded.type) and not self._order.is_nested:
            return [*before, *decoded.flatten()]
        return [*before, decoded]

    def _write_bad(self, batch: "pa.RecordBatch", errors: "pa.Array", is_bad: "pa.Array") -> None:
        import pyarrow as pa

        schema = quarantine_schema()
        others = {ERROR: errors, "timestamp": times.clamped(batch.column("timestamp"))}
        columns = [others[name] if name in others else batch.column(name) for name in schema.names]
        bad = pa.Table.from_arrays(columns, names=schema.names).filter(is_bad).cast(schema)
        self._bad += bad.num_rows
        if self._first_bad is None:
            first = bad.slice(0, 1).to_pylist()[0]
            self._first_bad = BadRecord(first["topic"], first["partition"], first["offset"], first[ERROR])
        if self._bad_files is not None:
            self._bad_files.add(_not_yet_quarantined(bad, self._order.quarantined))


def _not_yet_quarantined(bad: "pa.Table", quarantined: Mapping[tuple[str, int], int]) -> "pa.Table":
    """Without the rows that the quarantine already has, from a run that stopped before it committed the
    table."""
    import pyarrow as pa

    places = zip(*(bad.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return bad.filter(pa.array([offset >= quarantined.get((topic, p), 0) for topic, p, offset in places]))


def _already_decoded(batch: "pa.RecordBatch") -> "tuple[pa.Array, pa.Array]":
    return batch.column(DECODED), batch.column(REASON)


def _decode_with(decode: Any) -> "Callable[[pa.RecordBatch], tuple[pa.Array, pa.Array]]":
    def run(batch: "pa.RecordBatch") -> "tuple[pa.Array, pa.Array]":
        found: tuple[pa.Array, pa.Array] = decode(batch.column(VALUE))
        return found

    return run


class _Files:
    """The open files of one task: one per day, or just one."""

    def __init__(self, target: TableTarget, schema: "pa.Schema") -> None:
        self._target = target
        self._schema = schema
        self._open: dict[str | None, _File] = {}
        self._finished: list[WrittenFile] = []

    def add(self, table: "pa.Table") -> None:
        for day, rows in _by_day(table) if self._target.by_day else [(None, table)]:
            if rows.num_rows:
                self._file(day).add(rows)

    def finish(self) -> tuple[WrittenFile, ...]:
        self._finished.extend(file.close() for file in self._open.values())
        self._open.clear()
        return tuple(self._finished)

    def _file(self, day: str | None) -> "_File":
        if day not in self._open:
            if len(self._open) >= OPEN_FILES_MAX:
                self.finish()
            self._open[day] = _File(self._target, self._schema, day)
        return self._open[day]


def _by_day(table: "pa.Table") -> "Iterator[tuple[str | None, pa.Table]]":
    import pyarrow as pa
    import pyarrow.compute as pc

    days = table.column("timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    found = pc.unique(days)
    if len(found) == 1:
        yield found[0].as_py().isoformat(), table
        return
    for day in found:
        yield day.as_py().isoformat(), table.filter(pc.equal(days, day))


class _File:
    """A Parquet file being written; rows are buffered until they fill a row group."""

    def __init__(self, target: TableTarget, schema: "pa.Schema", day: str | None) -> None:
        import pyarrow.parquet as pq

        name = f"part-{uuid4().hex}.parquet"
        self._path = "/".join(part for part in (target.folder, f"{DAY}={day}" if day else "", name) if part)
        self._root, self._day, self._schema = target.root, day, schema
        self._files, base = filesystem(target.root)
        self._full = f"{base}/{self._path}"
        self._files.create_dir(self._full.rpartition("/")[0], recursive=True)
        self._stream = self._files.open_output_stream(self._full)
        self._writer: pq.ParquetWriter = pq.ParquetWriter(self._stream, schema, compression=COMPRESSION)
        self._waiting: list[pa.Table] = []
        self._rows = self._waiting_rows = self._waiting_bytes = 0
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}

    def add(self, rows: "pa.Table") -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self._rows += rows.num_rows
        self._note(rows)
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write()

    def close(self) -> WrittenFile:
        self._write()
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        if is_local(self._root):
            _sync(self._full)
        return WrittenFile(self._path, self._day, self._rows, size, self._low, self._high)

    def _write(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _note(self, rows: "pa.Table") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        for name in STATISTICS:
            column = rows.column(name)
            found = pc.min_max(column.cast(pa.int64()) if name == "timestamp" else column).as_py()
            self._low[name] = min(self._low.get(name, found["min"]), found["min"])
            self._high[name] = max(self._high.get(name, found["max"]), found["max"])


def _sync(path: str) -> None:
    """Flush the file to disk: a commit must not refer to bytes that are only in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
