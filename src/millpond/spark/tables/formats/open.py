"""Opens a table by format and location: the only module that knows all formats."""

from collections.abc import Mapping

from millpond.model.errors import InvalidRequest
from millpond.spark.tables.formats.delta import DeltaTable
from millpond.spark.tables.formats.iceberg import QUARANTINE_SUFFIX, IcebergTable
from millpond.spark.tables.formats.parquet import COMMITS, ParquetTable
from millpond.spark.tables.model import Format, Table
from millpond.spark.tables.paths import absolute, filesystem


def open_table(
    kind: Format,
    location: str,
    *,
    by_day: bool = False,
    catalog: Mapping[str, str] | None = None,
    name: str = "",
) -> Table:
    """`catalog` and `name` are for Iceberg: pyiceberg's catalog properties, and the table's name in it."""
    root = absolute(location)
    if kind is Format.DELTA:
        return DeltaTable(root, by_day=by_day)
    if kind is Format.ICEBERG:
        return IcebergTable(root, by_day=by_day, catalog=catalog, name=name)
    return ParquetTable(root, by_day=by_day)


def open_quarantine(
    kind: Format, location: str, *, catalog: Mapping[str, str] | None = None, name: str = ""
) -> Table:
    """The table of bad rows, next to the table itself."""
    beside = f"{absolute(location)}{QUARANTINE_SUFFIX}"
    return open_table(kind, beside, catalog=catalog, name=f"{name}{QUARANTINE_SUFFIX}" if name else "")


def find_table(location: str) -> Table:
    """Open the table at this location, with its format detected. Raises `InvalidRequest` if there is no
    table."""
    root = absolute(location)
    marks = {"_delta_log": Format.DELTA, COMMITS: Format.PARQUET, "catalog.db": Format.ICEBERG}
    for mark, kind in marks.items():
        if _exists(f"{root}/{mark}"):
            return open_table(kind, root)
    if root.endswith(QUARANTINE_SUFFIX) and _exists(f"{root.removesuffix(QUARANTINE_SUFFIX)}/catalog.db"):
        return open_table(Format.ICEBERG, root)
    if _exists(root):
        return open_table(Format.PARQUET, root)
    raise InvalidRequest(reason=f"there is no table at {location!r}")


def _exists(path: str) -> bool:
    from pyarrow.fs import FileType

    files, inside = filesystem(path)
    return bool(files.get_file_info(inside).type != FileType.NotFound)
