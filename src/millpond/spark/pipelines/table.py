"""`table`: writes a topic to a table, exactly once, one step at a time.

Each step reads a bounded range of every partition, up to the topic's end when the run began. Tasks decode the
records and write Parquet files; one commit adds the files and moves the positions. Bad rows are committed to
the quarantine first, which has its own positions: if a run dies between the two commits, the next run reads
the step again and leaves out the rows that the quarantine already has.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from millpond.catalog import topics as catalog_topics
from millpond.model.errors import Conflict, InvalidRecord, InvalidRequest, TopicReplaced
from millpond.model.topics import Topic
from millpond.spark.pipelines.job import PipelineJob, Report, run_recorded
from millpond.spark.place import Place
from millpond.spark.tables.columns import nullable, quarantine_schema, table_schema
from millpond.spark.tables.file_writer import TaskOrder, TaskResult, write_files
from millpond.spark.tables.formats.open import open_quarantine, open_table
from millpond.spark.tables.model import DAY, Format, Overtaken, TableProgress, WrittenFile
from millpond.spark.tables.paths import absolute, delete_files
from millpond.spark.tables.steps import (
    Ends,
    Gap,
    TableRange,
    advanced,
    ahead_of_log,
    assign_json,
    max_positions,
    next_step,
    offsets_json,
    read_bounds,
    rewound,
    starting_positions,
)
from millpond.spark.tables.values import jsons
from millpond.spark.tables.values.plain import described
from millpond.spark.tables.values.spec import ValueFormat, Values, decoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MIB: Final = 1024 * 1024
CONFLICTS_MAX: Final = 20
"""Maximum number of times in a run that another writer commits to the table first, before this run gives up."""


class OnBad(StrEnum):
    """What to do with a record whose value cannot be decoded."""

    QUARANTINE = "quarantine"
    SKIP = "skip"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class TableRequest:
    topics: tuple[str, ...]
    """Names or patterns; all matching topics go into one table."""
    location: str
    format: Format = Format.DELTA
    values: Values = field(default_factory=Values)
    is_nested: bool = False
    """Keep decoded values in one column, `value`, instead of one column per field."""
    keys_are_text: bool = False
    on_bad: OnBad = OnBad.QUARANTINE
    partition_by: str = ""
    """`day`, or empty."""
    bytes_per_step: int = 512 * MIB
    restart: bool = False
    """Continue if a topic was deleted and created again."""
    allow_gaps: bool = False
    """Continue if records expired before they were read."""
    small_files_max: int = 100
    """Compact the table when more than this many files are small; 0: never."""
    small_file_bytes: int = 32 * MIB
    iceberg_catalog: Mapping[str, str] = field(default_factory=dict)
    iceberg_table: str = ""


@dataclass(slots=True)
class _Counts:
    steps: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    quarantined: int = 0
    skipped: int = 0
    compacted: int = 0
    compaction_error: str = ""
    """Why small files were not compacted. The rows are in the table anyway, and the next run tries again."""


def run(job: PipelineJob, request: TableRequest) -> Report:
    if request.partition_by not in ("", DAY):
        raise InvalidRequest(
            reason=f"a table is partitioned by {DAY!r} or not at all, not by {request.partition_by!r}"
        )
    if not request.topics or request.bytes_per_step < 1:
        raise InvalidRequest(reason="name at least one topic, and at least one byte for a step")
    topics = job.topics(request.topics)
    names = [topic.name for topic in topics]
    return run_recorded(job, "table", names, lambda: _Run(job, request, topics).perform())


class _Run:
    def __init__(self, job: PipelineJob, request: TableRequest, topics: Sequence[Topic]) -> None:
        self._job, self._request, self._topics = job, request, topics
        self._started_ms = job.clock.now_ms()
        self._by_day = request.partition_by == DAY
        iceberg = {"catalog": request.iceberg_catalog, "name": request.iceberg_table}
        self._table = open_table(request.format, request.location, by_day=self._by_day, **iceberg)  # type: ignore[arg-type]
        self._quarantine = open_quarantine(request.format, request.location, **iceberg)  # type: ignore[arg-type]
        self._counts = _Counts()
        self._gaps: list[Gap] = []
        self._conflicts = 0

    def perform(self) -> Report:
        ends = read_bounds(self._job.database, self._topics)
        positions = self._positions(ends)
        total = _remaining_offsets(positions, ends)
        if self._job.is_dry_run:
            return self._plan(positions, ends)
        schema = self._schema() if total else None
        while step := next_step(self._job.database, positions, ends, self._request.bytes_per_step):
            assert schema is not None
            positions = self._step(step, positions, schema, ends)
            self._job.progress(total - _remaining_offsets(positions, ends), total, self._request.location)
        self._compact()
        return self._report(positions)

    def _positions(self, ends: Ends) -> dict[str, TableProgress]:
        """The table's positions as they are now. Another run may have moved them, even past our `ends`."""
        allowed = {"restart": self._request.restart, "allow_gaps": self._request.allow_gaps}
        progress, cuts = self._table.progress(self._topics), []
        if ahead_of_log(self._topics, progress, ends):
            newest = read_bounds(self._job.database, self._topics)
            cuts = ahead_of_log(self._topics, progress, newest)
            progress = rewound(progress, cuts, newest, **allowed)
        positions, gaps = starting_positions(self._topics, progress, ends, **allowed)
        self._gaps.extend(gap for gap in [*cuts, *gaps] if gap not in self._gaps)
        if not cuts or self._job.is_dry_run:
            return positions
        try:
            self._rewind(positions, {cut.topic for cut in cuts})
        except Overtaken:
            self._count_conflict()
            return self._positions(ends)
        return positions

    def _rewind(self, positions: Mapping[str, TableProgress], cut: set[str]) -> None:
        """Commit the positions immediately: new appends begin at the log's current end, and must be read. The
        quarantine is committed first, so that a run that dies between the two commits repeats both."""
        schema = self._schema()
        quarantine_progress = self._quarantine.progress(self._topics)
        if quarantine_progress:
            others = {topic: progress for topic, progress in quarantine_progress.items() if topic not in cut}
            self._quarantine.commit(quarantine_schema(), [], max_positions(positions, others))
        self._table.commit(schema, [], positions)

    def _schema(self) -> "pa.Schema":
        values = self._request.values
        kind = value_type(self._job, values)
        schema = table_schema(
            kind, keys_are_text=self._request.keys_are_text, is_nested=self._request.is_nested
        )
        self._table.check_schema(schema)
        return schema

    def _step(
        self, step: Sequence[TableRange], positions: dict[str, TableProgress], schema: "pa.Schema", ends: Ends
    ) -> dict[str, TableProgress]:
        """Read, write and commit one step. Returns the table's positions afterwards. If another run committed
        first, they are that run's positions, and our step is discarded."""
        keeps_bad = self._request.on_bad is OnBad.QUARANTINE
        quarantine_progress = self._quarantine.progress(self._topics) if keeps_bad else {}
        results = self._perform(step, schema, _offsets_of(quarantine_progress, positions))
        self._check_bad(results)
        self._check_topics()
        after = advanced(positions, step)
        files = [file for result in results for file in result.files]
        bad_files = [file for result in results for file in result.quarantine_files]
        try:
            self._commit_bad(bad_files, quarantine_progress, after)
            bad_files = []
            self._commit(schema, files, positions, after, ends)
        except Overtaken:
            if self._delete_uncommitted(files, bad_files) and files:
                self._count(results, files)  # it was our own commit, whose response was lost
            else:
                self._count_conflict()
            return self._positions(ends)
        self._count(results, files)
        return after

    def _commit_bad(
        self,
        files: Sequence[WrittenFile],
        progress: Mapping[str, TableProgress],
        after: Mapping[str, TableProgress],
    ) -> None:
        """Commit the bad rows. A run that died may have quarantined more than this step reads, so positions
        never move backwards."""
        if files:
            self._quarantine.commit(quarantine_schema(), files, max_positions(after, progress))
            self._counts.quarantined += sum(file.rows for file in files)

    def _perform(
        self, step: Sequence[TableRange], schema: "pa.Schema", quarantined: Mapping[tuple[str, int], int]
    ) -> list[TaskResult]:
        request = self._request
        order = TaskOrder(
            schema=schema,
            values=request.values,
            keys_are_text=request.keys_are_text,
            is_nested=request.is_nested,
            target=self._table.target,
            quarantine=self._quarantine.target if request.on_bad is OnBad.QUARANTINE else None,
            quarantined=quarantined,
        )
        frame = decoded(self._job, read_ranges(self._job, step), request.values)
        rows = frame.mapInArrow(write_files(order), "result binary").collect()
        return [pickle.loads(row["result"]) for row in rows]  # noqa: S301  # produced by our own tasks

    def _commit(
        self,
        schema: "pa.Schema",
        files: Sequence[WrittenFile],
        before: Mapping[str, TableProgress],
        after: Mapping[str, TableProgress],
        ends: Ends,
    ) -> None:
        """Commit, and retry if another writer changed the table but not its positions: a user who deletes
        rows, or a compaction."""
        while True:
            try:
                return self._table.commit(schema, files, after)
            except Overtaken:
                if self._positions(ends) != before:
                    raise
                self._count_conflict()

    def _count_conflict(self) -> None:
        self._conflicts += 1
        if self._conflicts > CONFLICTS_MAX:
            raise Conflict(f"Other writers of the table {self._request.location!r} are always quicker.")

    def _check_bad(self, results: Sequence[TaskResult]) -> None:
        bad = [result.first_bad for result in results if result.first_bad is not None]
        if not bad or self._request.on_bad is not OnBad.FAIL:
            return
        self._delete_uncommitted([file for result in results for file in result.files], [])
        first = min(bad, key=lambda each: (each.topic, each.partition, each.offset))
        reason = (
            f"offset {first.offset} of partition {first.partition} of topic {first.topic!r} cannot be decoded: "
            f"{first.error}"
        )
        raise InvalidRecord(reason=reason)

    def _check_topics(self) -> None:
        """Topics are read by name and committed by id, so each must still be the same topic."""
        with self._job.database.read() as tx:
            for topic in self._topics:
                if catalog_topics.find(tx, topic.name).id != topic.id:
                    raise TopicReplaced(topic=topic.name)

    def _delete_uncommitted(self, files: Sequence[WrittenFile], bad_files: Sequence[WrittenFile]) -> bool:
        """Delete the files that no commit contains. Returns whether the table contains all of `files` after
        all."""
        kept = self._table.committed_paths(files)
        delete_files(self._table.target.root, [file.path for file in files if file.path not in kept])
        bad_kept = self._quarantine.committed_paths(bad_files)
        delete_files(
            self._quarantine.target.root, [file.path for file in bad_files if file.path not in bad_kept]
        )
        return len(kept) == len(files)

    def _count(self, results: Sequence[TaskResult], files: Sequence[WrittenFile]) -> None:
        counts = self._counts
        counts.steps += 1
        counts.rows += sum(file.rows for file in files)
        counts.bytes += sum(file.bytes for file in files)
        counts.files += len(files)
        if self._request.on_bad is OnBad.SKIP:
            counts.skipped += sum(result.bad for result in results)

    def _compact(self) -> None:
        request = self._request
        if not request.small_files_max or not self._counts.files:
            return
        try:
            if self._table.small_files(request.small_file_bytes) > request.small_files_max:
                self._counts.compacted = self._table.compact(self._job.spark, request.small_file_bytes)
        except Exception as error:  # noqa: BLE001  # the rows are committed in any case
            self._counts.compaction_error = described(error)

    def _plan(self, positions: Mapping[str, TableProgress], ends: Ends) -> Report:
        everything = next_step(self._job.database, positions, ends, 2**62)
        return {
            "table": absolute(self._request.location),
            "format": str(self._request.format),
            "dry_run": True,
            "bytes": sum(each.bytes for each in everything),
            "read": [asdict(each) for each in everything],
            "gaps": [asdict(gap) for gap in self._gaps],
        }

    def _report(self, positions: Mapping[str, TableProgress]) -> Report:
        return {
            "table": absolute(self._request.location),
            "format": str(self._request.format),
            "version": self._table.version(),
            **asdict(self._counts),
            "overtaken": self._conflicts,
            "gaps": [asdict(gap) for gap in self._gaps],
            "positions": {
                topic: {str(p): offset for p, offset in progress.offsets.items()}
                for topic, progress in positions.items()
            },
            "duration_ms": self._job.clock.now_ms() - self._started_ms,
        }


def value_type(job: PipelineJob, values: Values) -> "pa.DataType":
    """The type of the value column. Raises `InvalidRequest` if the schema is invalid."""
    import pyarrow as pa

    if values.kind is ValueFormat.JSON:
        return nullable(jsons.column_type(job.spark, values.schema))
    if values.kind in (ValueFormat.BINARY, ValueFormat.STRING):
        return pa.string() if values.kind is ValueFormat.STRING else pa.binary()
    kind: pa.DataType = decoder(values).type  # type: ignore[attr-defined]
    return nullable(kind)


def read_ranges(job: PipelineJob, step: Sequence[TableRange]) -> "DataFrame":
    reader = job.spark.read.format("millpond").options(**place_options(job.place))
    return reader.options(
        assign=assign_json(step),
        startingOffsets=offsets_json(step, is_end=False),
        endingOffsets=offsets_json(step, is_end=True),
        includeHeaders="true",
        **{"kafka.isolation.level": "read_committed"},
    ).load()


def decoded(job: PipelineJob, frame: "DataFrame", values: Values) -> "DataFrame":
    """Decode JSON. The original values are passed on to the tasks too, because a task may still find a row
    bad because of its key or its timestamps."""
    columns = ["topic", "partition", "offset", "timestamp", "key", "headers"]
    if values.kind is not ValueFormat.JSON:
        return frame.select(*columns, "value")
    found = jsons.decode(frame, jsons.parse_ddl(job.spark, values.schema))
    return found.select(*columns, jsons.DECODED, jsons.REASON, "value")


def place_options(place: Place) -> dict[str, str]:
    """The options with which the data source finds the same data."""
    settings = {f"storage.{name}": value for name, value in place.storage_config}
    return {"catalog": place.catalog, "storage": place.storage, **settings}


def _offsets_of(
    progress: Mapping[str, TableProgress], positions: Mapping[str, TableProgress]
) -> dict[tuple[str, int], int]:
    """The quarantine's offsets, without those of an older topic of the same name."""
    return {
        (topic, partition): offset
        for topic, each in progress.items()
        if each.topic_id == positions[topic].topic_id
        for partition, offset in each.offsets.items()
    }


def _remaining_offsets(positions: Mapping[str, TableProgress], ends: Ends) -> int:
    return sum(
        max(0, ends[topic][partition].end - offset)
        for topic, progress in positions.items()
        for partition, offset in progress.offsets.items()
    )
