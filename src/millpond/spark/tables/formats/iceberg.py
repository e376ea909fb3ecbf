"""Iceberg: files and positions in one change of its metadata, through pyiceberg.

Positions are a table property, so that they outlive the expiry of snapshots. The property is set in the
transaction that adds the snapshot; the snapshot's summary holds the positions too, as history. A commit
asserts that the branch has not moved. By default pyiceberg rebases a commit that lost a race, which would add
the same records twice. So the property `commit.retry.num-retries` is 0 on these tables, and the pipeline
receives the conflict.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millpond.model.errors import InvalidRequest
from millpond.model.topics import Topic
from millpond.spark.tables.model import DAY, Overtaken, TableProgress, TableTarget, WrittenFile
from millpond.spark.tables.paths import as_url, is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as Iceberg
    from pyspark.sql import DataFrame, SparkSession

POSITIONS: Final = "millpond.positions"
RETRIES: Final = "commit.retry.num-retries"
CATALOG_FILE: Final = "catalog.db"
NAMESPACE: Final = "default"
QUARANTINE_SUFFIX: Final = "_quarantine"


class IcebergTable:
    """`catalog` holds pyiceberg's catalog properties; without any, the catalog is an SQLite file in the
    table's own folder."""

    def __init__(
        self, root: str, *, by_day: bool, catalog: Mapping[str, str] | None = None, name: str = ""
    ) -> None:
        self._root = root
        self._by_day = by_day
        self._name = name or f"{NAMESPACE}.{Path(root).name}"
        self._properties = dict(catalog or {})
        self._catalog: Catalog | None = None
        self._table: Iceberg | None = None

    @property
    def target(self) -> TableTarget:
        return TableTarget(self._root, "data", self._by_day)

    def progress(self, topics: Sequence[Topic]) -> dict[str, TableProgress]:
        self._table = self._open()
        if self._table is None:
            return {}
        stored = json.loads(self._table.properties.get(POSITIONS, "{}"))
        return {topic.name: _progress(stored[topic.name]) for topic in topics if topic.name in stored}

    def check_schema(self, schema: "pa.Schema") -> None:
        found = self._open()
        if found is None:
            return
        names = [field.name for field in found.schema().fields]
        if names != schema.names or found.spec().is_unpartitioned() == self._by_day:
            raise InvalidRequest(reason=f"the table has other columns ({', '.join(names)})")

    def commit(
        self,
        schema: "pa.Schema",
        files: Sequence[WrittenFile],
        positions: Mapping[str, TableProgress],
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException

        table = self._table or self._create(schema)
        stored = json.loads(table.properties.get(POSITIONS, "{}"))
        text = json.dumps({**stored, **{topic: _stored(progress) for topic, progress in positions.items()}})
        paths = [f"{as_url(self._root)}/{file.path}" for file in files]
        try:
            _commit(table, paths, text)
        except CommitFailedException as error:
            raise Overtaken from error
        except ValueError as error:
            raise InvalidRequest(reason=f"the table does not take these rows: {error}") from error
        self._table = self._open()

    def committed_paths(self, files: Sequence[WrittenFile]) -> set[str]:
        found = self._open()
        known = set() if found is None else {task.file.file_path for task in found.scan().plan_files()}
        return {file.path for file in files if f"{as_url(self._root)}/{file.path}" in known}

    def version(self) -> str:
        found = self._open()
        snapshot = None if found is None else found.current_snapshot()
        return "" if snapshot is None else str(snapshot.snapshot_id)

    def small_files(self, smaller_than: int) -> int:
        found = self._open()
        tasks = [] if found is None else found.scan().plan_files()
        return sum(task.file.file_size_in_bytes < smaller_than for task in tasks)

    def compact(self, spark: "SparkSession", smaller_than: int) -> int:
        """Not supported: pyiceberg cannot rewrite files in one change; an engine with `rewrite_data_files`
        can."""
        return 0

    def read(self, spark: "SparkSession") -> "DataFrame":
        """Spark reads the Parquet files itself. A table with deleted rows or changed columns is read through
        Arrow."""
        found = self._open()
        if found is None:
            raise InvalidRequest(reason=f"there is no Iceberg table {self._name!r} at {self._root!r}")
        tasks = list(found.scan().plan_files())
        is_plain = len(found.schemas()) == 1 and not any(task.delete_files for task in tasks)
        if not tasks or not is_plain or not is_local(self._root):
            return spark.createDataFrame(found.scan().to_arrow())
        return spark.read.parquet(*(task.file.file_path for task in tasks)).select(
            *(f"`{field.name}`" for field in found.schema().fields)
        )

    def _load_catalog(self) -> "Catalog":
        from pyiceberg.catalog import load_catalog

        if self._catalog is None:
            properties = self._properties
            if not properties:
                folder = Path(self._root.removesuffix(QUARANTINE_SUFFIX))
                folder.mkdir(parents=True, exist_ok=True)
                properties = {"type": "sql", "uri": f"sqlite:///{folder / CATALOG_FILE}"}
            self._catalog = load_catalog("millpond", **{"warehouse": as_url(self._root), **properties})
        return self._catalog

    def _open(self) -> "Iceberg | None":
        from pyiceberg.exceptions import NoSuchTableError

        if not self._properties and not self._has_catalog_file():
            return None
        try:
            return self._load_catalog().load_table(self._name)
        except NoSuchTableError:
            return None

    def _has_catalog_file(self) -> bool:
        return Path(self._root.removesuffix(QUARANTINE_SUFFIX), CATALOG_FILE).exists()

    def _create(self, schema: "pa.Schema") -> "Iceberg":
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.transforms import DayTransform

        catalog = self._load_catalog()
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        try:
            with catalog.create_table_transaction(
                self._name, schema, location=as_url(self._root), properties={RETRIES: "0"}
            ) as tx:
                if self._by_day:
                    with tx.update_spec() as spec:
                        spec.add_field("timestamp", DayTransform(), DAY)
        except (TableAlreadyExistsError, CommitFailedException) as error:
            raise Overtaken from error
        made = catalog.load_table(self._name)
        if made.current_snapshot() is not None:
            raise Overtaken  # another writer has committed since; its positions were not read
        return made


def _commit(table: "Iceberg", paths: list[str], positions: str) -> None:
    if table.properties.get(RETRIES) != "0":
        with table.transaction() as tx:
            tx.set_properties({RETRIES: "0"})
        raise Overtaken  # the table was created by other software; read it again after the change
    with table.transaction() as tx:
        tx.set_properties({POSITIONS: positions})
        if paths:
            tx.add_files(paths, snapshot_properties={POSITIONS: positions}, check_duplicate_files=False)
        else:  # an empty snapshot moves the branch, so that a concurrent writer notices
            with tx.update_snapshot(snapshot_properties={POSITIONS: positions}).fast_append():
                pass


def _progress(stored: Mapping[str, object]) -> TableProgress:
    offsets = stored["offsets"]
    assert isinstance(offsets, dict)
    return TableProgress(
        str(stored["topic_id"]), {int(partition): offset for partition, offset in offsets.items()}
    )


def _stored(progress: TableProgress) -> dict[str, object]:
    return {
        "topic_id": progress.topic_id,
        "offsets": {str(p): offset for p, offset in progress.offsets.items()},
    }
