"""Plain Parquet: a folder of files, and beside them a log that says which of them count.

`_millpond/commits/<number>.json` is the truth: the files that a commit adds and removes, and the positions. A number
is taken by whoever links it first, so of two commits one wins. Tasks write under `_millpond/staging`, which readers of
the folder do not see; files are moved to their place *after* the commit that names them, and whoever opens the table
next finishes what was left. So a reader of the bare folder never sees a row that does not count.
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
from millpond.spark.tables.model import Held, Overtaken, Target, WrittenFile
from millpond.spark.tables.place import as_url, is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OURS: Final = "_millpond"
COMMITS: Final = f"{OURS}/commits"
STAGING: Final = f"{OURS}/staging"
LEFTOVER_AGE_S: Final = 24 * 60 * 60
"""Files in staging that no commit named for so long were left by a run that was killed."""
FILES_PER_REWRITE: Final = 64
CHECKPOINT_EVERY: Final = 50
"""Every so many commits one lists all files, so that opening a table reads at most so many entries."""


@dataclass(frozen=True, slots=True)
class State:
    """All commits, added up."""

    number: int
    files: Mapping[str, int]
    """Path (in its place) to bytes."""
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
        self._state: State | None = None

    @property
    def target(self) -> Target:
        return Target(str(self._root), STAGING, self._by_day)

    def held(self, topics: Sequence[Topic]) -> dict[str, Held]:
        self._state = self._recover()
        stored = self._state.topics if self._state else {}
        return {
            topic.name: Held(
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
        positions: Mapping[str, Held],
    ) -> None:
        topics = {
            name: {
                "topic_id": held.topic_id,
                "offsets": {str(p): offset for p, offset in held.offsets.items()},
            }
            for name, held in positions.items()
        }
        before = self._state.topics if self._state else {}
        added = {_in_place(file): file.bytes for file in files}
        self._append(_columns(schema), {**before, **topics}, added, [])

    def listed(self, files: Sequence[WrittenFile]) -> set[str]:
        found = _load(self._root)
        return {file.path for file in files if found and _in_place(file) in found.files}

    def version(self) -> str:
        found = _load(self._root)
        return "" if found is None else str(found.number)

    def small_files(self, smaller_than: int) -> int:
        found = _load(self._root)
        return sum(size < smaller_than for size in found.files.values()) if found else 0

    def compact(self, spark: "SparkSession", smaller_than: int) -> int:
        """Small files of a day become one. Readers of the bare folder may miss rows while files change places."""
        self._state = self._recover()
        groups = _groups(self._state.files, smaller_than) if self._state else []
        if self._state is None or not groups:
            return 0
        results = list(perform(spark, [(str(self._root), group) for group in groups], _rewrite))
        removed = [path for group in groups for path in group]
        try:
            self._append(self._state.columns, self._state.topics, dict(results), removed)
        except Overtaken:
            return 0  # another writer was quicker; the next run tries again
        return len(removed)

    def read(self, spark: "SparkSession") -> "DataFrame":
        found = _load(self._root)
        if found is None:
            return spark.read.parquet(as_url(str(self._root)))  # a folder of somebody else's
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

    def _recover(self) -> State | None:
        """Load first, finish after: what `_state` knows of is then in its place, and a checkpoint may forget it."""
        state = _load(self._root)
        finish(self._root)
        _delete_leftovers(self._root / STAGING)
        return state


def _in_place(file: WrittenFile) -> str:
    """Where a staged file goes."""
    return file.path.removeprefix(f"{STAGING}/")


def finish(root: Path) -> None:
    """Put every committed file in its place and take every removed one away. Safe to repeat, and side by side."""
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


def _load(root: Path) -> State | None:
    state: State | None = None
    for number, entry in _entries(root):
        files = entry.get("files") or _changed(state.files if state else {}, entry)
        state = State(number, files, entry["topics"], entry["columns"], entry["by_day"])
    return state


def _changed(files: Mapping[str, int], entry: Mapping[str, Any]) -> dict[str, int]:
    removed = set(entry["remove"])
    return {path: size for path, size in {**files, **entry["add"]}.items() if path not in removed}


def _entries(root: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """From the newest checkpoint on."""
    numbers = [int(path.stem) for path in (root / COMMITS).glob("[0-9]*.json")]
    newest = max(numbers, default=0)
    for number in range(newest - newest % CHECKPOINT_EVERY, newest + 1) if numbers else ():
        yield number, json.loads((root / COMMITS / _name(number)).read_bytes())


def _name(number: int) -> str:
    return f"{number:020d}.json"


def _link_new(path: Path, data: bytes) -> None:
    """Write it whole and durably, then give it its name, which fails if that is taken."""
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
    """Small files that may become one: of the same day, and not too many at once."""
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
    """In a task: several files to one, in staging. Returns its place to be and its bytes."""
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
