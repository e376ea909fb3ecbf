"""Delta: files and positions in one entry of its log, through delta-rs.

A position is a Delta application transaction: `millpond/<topic>/<topic id>/<partition>`, whose version is the
next offset. `millpond/<topic>` holds the topic's id, cut to the 63 bits of a version, so that a topic that
was deleted and created again is detected. delta-rs refuses a commit if another one has moved an application
transaction of the same name since.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from millpond.model.errors import InvalidRequest
from millpond.model.topics import Topic
from millpond.spark.tables.model import DAY, Overtaken, TableProgress, TableTarget, WrittenFile
from millpond.spark.tables.paths import as_url, is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as Delta
    from deltalake import Schema, Transaction
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession

EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # displayed without its zone, which is UTC


class DeltaTable:
    def __init__(self, root: str, *, by_day: bool) -> None:
        self._root = root
        self._by_day = by_day
        self._delta: Delta | None = None

    @property
    def target(self) -> TableTarget:
        return TableTarget(self._root, "", self._by_day)

    def progress(self, topics: Sequence[Topic]) -> dict[str, TableProgress]:
        self._delta = self._open()
        if self._delta is None:
            return {}
        found = {topic.name: _progress(self._delta, topic) for topic in topics}
        return {name: progress for name, progress in found.items() if progress is not None}

    def check_schema(self, schema: "pa.Schema") -> None:
        found = self._open()
        if found is None:
            return
        wanted = _fields(_schema(schema, by_day=self._by_day))
        if _fields(found.schema()) != wanted or bool(found.metadata().partition_columns) != self._by_day:
            raise InvalidRequest(reason=f"the table has other columns ({_shown(found.schema())})")

    def commit(
        self,
        schema: "pa.Schema",
        files: Sequence[WrittenFile],
        positions: Mapping[str, TableProgress],
    ) -> None:
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError

        wanted = _schema(schema, by_day=self._by_day)
        delta = self._delta or self._create(wanted)
        try:
            delta.create_write_transaction(
                [_added(file) for file in files],
                "append",
                wanted,
                [DAY] if self._by_day else [],
                commit_properties=CommitProperties(app_transactions=list(_transactions(positions))),
            )
        except CommitFailedError as error:
            raise Overtaken from error
        self._delta = self._open()

    def committed_paths(self, files: Sequence[WrittenFile]) -> set[str]:
        found = self._open()
        known = set() if found is None else {unquote(path) for path in _paths(found)}
        return {file.path for file in files} & known

    def version(self) -> str:
        found = self._open()
        return "" if found is None else str(found.version())

    def small_files(self, smaller_than: int) -> int:
        found = self._open()
        sizes: list[int] = [] if found is None else _sizes(found)
        return sum(size < smaller_than for size in sizes)

    def compact(self, spark: "SparkSession", smaller_than: int) -> int:
        """Done by delta-rs, in this process. The old files stay for time travel until the user runs `vacuum`."""
        from deltalake.exceptions import CommitFailedError

        found = self._open()
        if found is None:
            return 0
        try:
            removed: int = found.optimize.compact(target_size=smaller_than)["numFilesRemoved"]
        except CommitFailedError:
            return 0  # another writer committed first; the next run tries again
        return removed

    def read(self, spark: "SparkSession") -> "DataFrame":
        """Spark reads the Parquet files itself. A table with deleted rows or renamed columns is read through
        Arrow."""
        found = self._open()
        if found is None:
            raise InvalidRequest(reason=f"there is no Delta table at {self._root!r}")
        if found.protocol().min_reader_version > 1 or not is_local(self._root) or not found.file_uris():
            return spark.createDataFrame(found.to_pyarrow_table())
        names = [field.name for field in found.schema().fields]
        files = [f"{as_url(self._root)}/{unquote(path)}" for path in _paths(found)]
        frame = spark.read.option("basePath", as_url(self._root)).parquet(*files)
        return frame.select(*(f"`{name}`" for name in names))

    def _open(self) -> "Delta | None":
        from deltalake import DeltaTable as Delta

        return Delta(self._root) if Delta.is_deltatable(self._root) else None

    def _create(self, schema: "Schema") -> "Delta":
        """Create the table empty. If two writers do so at the same time, the second finds the first one's
        table and continues with it."""
        from deltalake import DeltaTable as Delta
        from deltalake.exceptions import DeltaError

        try:
            Delta.create(self._root, schema, mode="ignore", partition_by=[DAY] if self._by_day else [])
        except DeltaError as error:
            if not Delta.is_deltatable(self._root):
                raise
            raise Overtaken from error
        made = Delta(self._root)
        if made.version() > 0:
            raise Overtaken  # another writer has committed since; its positions were not read
        return made


def _progress(delta: "Delta", topic: Topic) -> TableProgress | None:
    mark = delta.transaction_version(_mark_id(topic.name))
    if mark is None:
        return None
    topic_id = topic.id.hex()
    if mark != _mark(topic_id):
        return TableProgress("", {})
    offsets = {
        p: delta.transaction_version(_app_id(topic.name, topic_id, p)) for p in range(topic.partitions)
    }
    return TableProgress(topic_id, {p: offset for p, offset in offsets.items() if offset is not None})


def _transactions(positions: Mapping[str, TableProgress]) -> "Iterable[Transaction]":
    from deltalake import Transaction

    for topic, progress in positions.items():
        yield Transaction(_mark_id(topic), _mark(progress.topic_id))
        for partition, offset in progress.offsets.items():
            yield Transaction(_app_id(topic, progress.topic_id, partition), offset)


def _mark_id(topic: str) -> str:
    return f"millpond/{topic}"


def _app_id(topic: str, topic_id: str, partition: int) -> str:
    return f"millpond/{topic}/{topic_id}/{partition}"


def _mark(topic_id: str) -> int:
    return int(topic_id[:16], 16) >> 1


def _added(file: WrittenFile) -> "AddAction":
    from deltalake.transaction import AddAction

    statistics = {
        "numRecords": file.rows,
        "minValues": {name: _shown_value(name, value) for name, value in file.low.items()},
        "maxValues": {name: _shown_value(name, value, is_high=True) for name, value in file.high.items()},
        "nullCount": dict.fromkeys(file.low, 0),
    }
    values = {} if file.day is None else {DAY: file.day}
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return AddAction(file.path, file.bytes, values, now_ms, True, json.dumps(statistics))


def _shown_value(name: str, value: Any, *, is_high: bool = False) -> Any:
    """Delta's statistics are in milliseconds, so a maximum is rounded up."""
    if name != "timestamp":
        return value
    millis = -(-value // 1_000) if is_high else value // 1_000
    moment = EPOCH + timedelta(milliseconds=millis)
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def _schema(schema: "pa.Schema", *, by_day: bool) -> "Schema":
    import pyarrow as pa
    from deltalake import Schema

    return Schema.from_arrow(schema.append(pa.field(DAY, pa.date32())) if by_day else schema)


def _fields(schema: "Schema") -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in schema.fields]


def _shown(schema: "Schema") -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _fields(schema))


def _sizes(delta: "Delta") -> list[int]:
    sizes: list[int] = _actions(delta).column("size_bytes").to_pylist()
    return sizes


def _paths(delta: "Delta") -> list[str]:
    paths: list[str] = _actions(delta).column("path").to_pylist()
    return paths


def _actions(delta: "Delta") -> "pa.Table":
    import pyarrow as pa

    return pa.table(delta.get_add_actions(flatten=True))
