"""Plain Parquet: a folder of files, and a commit log that defines which of them belong to the table.

`_millpond/commits/<number>.json` is the source of truth: the files that a commit adds and removes, and the
positions. The first writer to link a number wins it, so of two concurrent commits one fails. Tasks write
under `_millpond/staging`, which readers of the folder do not see. Files are moved to their final place
*after* the commit that names them, and the next process that opens the table finishes interrupted moves. So a
reader of the bare folder never sees an uncommitted row.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from millpond.model.errors import InvalidRequest
from millpond.model.topics import Topic
from millpond.spark.pipelines.tasks import perform
from millpond.spark.tables.model import Overtaken, TableProgress, TableTarget, WrittenFile
from millpond.spark.tables.paths import as_url, is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OURS: Final = "_millpond"
COMMITS: Final = f"{OURS}/commits"
STAGING: Final = f"{OURS}/staging"
LEFTOVER_AGE_S: Final = 24 * 60 * 60
"""Files in staging that no commit has named for this long were left by a killed run."""
FILES_PER_REWRITE: Final = 64
CHECKPOINT_EVERY: Final = 50
"""Every commit whose number is a multiple of this lists all files, so that opening a table reads at most this
many entries."""


@dataclass(frozen=True, slots=True)
class ParquetState:
    """The result of all commits."""

    number: int
    files: Mapping[str, int]
    """Final path to size in bytes."""
    topics: Mapping[str, Any]
    columns: Mapping[str, str]
    by_day: bool


class ParquetTable:
    def __init__(self, root: str, *, by_day: bool) -> None:
        if not is_local(root):
            raise InvalidRequest(
                reason="a Parquet table lies in a folder; in an object store, use Delta or Iceberg"
            )
        self._root = Path(root)
        self._by_day = by_day
        self._state: ParquetState | None = None

    @property
    def target(self) -> TableTarget:
        return TableTarget(str(self._root), STAGING, self._by_day)

    def progress(self, topics: Sequence[Topic]) -> dict[str, TableProgress]:
        self._state = self._recover()
        stored = self._state.topics if self._state else {}
        return {
            topic.name: TableProgress(
                stored[topic.name]["topic_id"],
                {int(p): offset for p, offset in stored[topic.name]["offsets"].items()},
            )
            for topic in topics
            if topic.name in stored
        }

    def check_schema(self, schema: "pa.Schema") -> None:
        found = _load(self._root)
        if found and (found.columns != _columns(schema) or found.by_day != self._by_day):
            shown = ", ".join(f"{name} {kind}" for name, kind in found.columns.items())
            raise InvalidRequest(reason=f"the table has other columns ({shown})")

    def commit(
        self,
        schema: "pa.Schema",
        files: Sequence[WrittenFile],
        positions: Mapping[str, TableProgress],
    ) -> None:
        topics = {
            name: {
                "topic_id": progress.topic_id,
                "offsets": {str(p): offset for p, offset in progress.offsets.items()},
            }
            for name, progress in positions.items()
        }
        before = self._state.topics if self._state else {}
        added = {_in_place(file): file.bytes for file in files}
        self._append(_columns(schema), {**before, **topics}, added, [])

    def committed_paths(self, files: Sequence[WrittenFile]) -> set[str]:
        found = _load(self._root)
        return {file.path for file in files if found and _in_place(file) in found.files}

    def version(self) -> str:
        found = _load(self._root)
        return "" if found is None else str(found.number)

    def small_files(self, smaller_than: int) -> int:
        found = _load(self._root)
        return sum(size < smaller_than for size in found.files.values()) if found else 0

    def compact(self, spark: "SparkSession", smaller_than: int) -> int:
        """Merge the small files of a day into one. Readers of the bare folder may miss rows while files are
        moved."""
        self._state = self._recover()
        groups = _groups(self._state.files, smaller_than) if self._state else []
        if self._state is None or not groups:
            return 0
        results = list(perform(spark, [(str(self._root), group) for group in groups], _rewrite))
        removed = [path for group in groups for path in group]
        try:
            self._append(self._state.columns, self._state.topics, dict(results), removed)
        except Overtaken:
            return 0  # another writer committed first; the next run tries again
        return len(removed)

    def read(self, spark: "SparkSession") -> "DataFrame":
        found = _load(self._root)
        if found is None:
            return spark.read.parquet(as_url(str(self._root)))  # a folder that other software wrote
        finish(self._root)
        if not found.files:
            raise InvalidRequest(reason=f"the table at {str(self._root)!r} has no rows yet")
        paths = [as_url(str(self._root / path)) for path in found.files]
        return spark.read.option("basePath", as_url(str(self._root))).parquet(*paths)

    def _append(
        self, columns: Mapping[str, str], topics: Mapping[str, Any], added: dict[str, int], removed: list[str]
    ) -> None:
        number = self._state.number + 1 if self._state else 0
        entry = {
            "columns": columns,
            "by_day": self._by_day,
            "topics": topics,
            "add": added,
            "remove": removed,
        }
        if number % CHECKPOINT_EVERY == 0:
            entry["files"] = _changed(self._state.files if self._state else {}, entry)
        _link_new(self._root / COMMITS / _name(number), json.dumps(entry).encode())
        self._state = self._recover()

    def _recover(self) -> ParquetState | None:
        """Load first and finish afterwards: then all files in `_state` are in their final place, and a
        checkpoint may drop the entries that added them."""
        state = _load(self._root)
        finish(self._root)
        _delete_leftovers(self._root / STAGING)
        return state


def _in_place(file: WrittenFile) -> str:
    """The final path of a staged file."""
    return file.path.removeprefix(f"{STAGING}/")


def finish(root: Path) -> None:
    """Move every committed file to its final place and delete every removed one. Safe to repeat and to run
    concurrently."""
    removed: set[str] = set()
    for _, entry in reversed(list(_entries(root))):
        for path in entry["add"]:
            staged, place = root / STAGING / path, root / path
            if path in removed:
                staged.unlink(missing_ok=True)
            elif staged.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                _move(staged, place)
        removed.update(entry["remove"])
    for path in removed:
        (root / path).unlink(missing_ok=True)


def _move(staged: Path, place: Path) -> None:
    try:
        staged.rename(place)
    except FileNotFoundError:
        assert place.exists(), f"{staged} is committed, and it is gone"


def _load(root: Path) -> ParquetState | None:
    state: ParquetState | None = None
    for number, entry in _entries(root):
        files = entry.get("files") or _changed(state.files if state else {}, entry)
        state = ParquetState(number, files, entry["topics"], entry["columns"], entry["by_day"])
    return state


def _changed(files: Mapping[str, int], entry: Mapping[str, Any]) -> dict[str, int]:
    removed = set(entry["remove"])
    return {path: size for path, size in {**files, **entry["add"]}.items() if path not in removed}


def _entries(root: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The entries from the newest checkpoint on."""
    numbers = [int(path.stem) for path in (root / COMMITS).glob("[0-9]*.json")]
    newest = max(numbers, default=0)
    for number in range(newest - newest % CHECKPOINT_EVERY, newest + 1) if numbers else ():
        yield number, json.loads((root / COMMITS / _name(number)).read_bytes())


def _name(number: int) -> str:
    return f"{number:020d}.json"


def _link_new(path: Path, data: bytes) -> None:
    """Write the file completely and durably, then link it to its name. Raises `Overtaken` if the name exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid4().hex}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise Overtaken from error
    finally:
        temporary.unlink()
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _delete_leftovers(staging: Path) -> None:
    too_old = time.time() - LEFTOVER_AGE_S
    for path in staging.rglob("*.parquet"):
        if path.stat().st_mtime < too_old:
            path.unlink(missing_ok=True)


def _groups(files: Mapping[str, int], smaller_than: int) -> list[list[str]]:
    """Groups of small files to merge into one each: of the same day, at most `FILES_PER_REWRITE` files."""
    by_folder: dict[str, list[str]] = {}
    for path, size in sorted(files.items()):
        if size < smaller_than:
            by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    pieces = [
        paths[start : start + FILES_PER_REWRITE]
        for paths in by_folder.values()
        for start in range(0, len(paths), FILES_PER_REWRITE)
    ]
    return [piece for piece in pieces if len(piece) > 1]


def _rewrite(item: tuple[str, list[str]]) -> tuple[str, int]:
    """Runs in a task: merges several files into one, in staging. Returns its final path and its size."""
    import pyarrow.parquet as pq

    root, paths = Path(item[0]), item[1]
    path = f"{paths[0].rpartition('/')[0]}/part-{uuid4().hex}.parquet".lstrip("/")
    staged = root / STAGING / path
    staged.parent.mkdir(parents=True, exist_ok=True)
    schema = pq.read_schema(root / paths[0])
    with pq.ParquetWriter(staged, schema, compression="zstd") as writer:
        for each in paths:
            with pq.ParquetFile(root / each) as file:
                writer.write_table(file.read())
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    return path, staged.stat().st_size


def _columns(schema: "pa.Schema") -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}
