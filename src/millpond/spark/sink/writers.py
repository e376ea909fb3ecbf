"""The writer objects that Spark calls. Spark pickles them: it creates them in one process, runs `write` in
tasks, and runs `commit` in a separate process, where it creates a stream's writer again. So they hold only
options, and what a commit needs comes with the tasks' messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from millpond.catalog.sinks import batch_sink, one_time_sink, stream_sink
from millpond.model.errors import Defect, InvalidRequest
from millpond.spark.place import database, prepare
from millpond.spark.sink.messages import TaskCommit
from millpond.spark.sink.options import SinkOptions
from millpond.spark.sink.schema import check_schema
from millpond.spark.sink.sink_commit import abandon, commit
from millpond.spark.sink.topics import find_or_create

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
CommitMessages = list[WriterCommitMessage | None]


def writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "BatchWriter":
    """For `df.write.format("millpond")`. Raises before anything is written if the write cannot succeed."""
    if overwrite:
        raise InvalidRequest(reason="a topic cannot be overwritten: use mode('append')")
    return BatchWriter(_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "StreamWriter":
    """For `df.writeStream.format("millpond")`. As with Spark's Kafka sink, output mode `complete` appends the
    whole result each time; that is what `overwrite` means here."""
    checked = _checked(options, schema)
    if checked.transaction is not None:
        raise InvalidRequest(reason="txnAppId and txnVersion are for batches: a stream numbers its own")
    return StreamWriter(checked)


def _checked(options: Mapping[str, str], schema: "StructType") -> SinkOptions:
    parsed = SinkOptions.parse(options)
    check_schema(schema, topic=parsed.topic)
    catalog = prepare(parsed.place)
    if parsed.topic is not None:
        find_or_create(catalog, parsed.topic, parsed.creation)
    return parsed


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._sink, self._batch = _batch_identity(options)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self._options, iterator)

    def commit(self, messages: CommitMessages) -> None:
        commit(database(self._options.place), self._sink, self._batch, _tasks(messages))

    def abort(self, messages: CommitMessages) -> None:
        _abandon(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        query, batch = _running_batch()
        return replace(_write(self._options, iterator), query=query, batch=batch)

    def commit(self, messages: CommitMessages, batchId: int) -> None:  # noqa: N803  # Spark's name
        tasks = _tasks(messages)
        if tasks:  # without tasks there are no rows, and nothing identifies the query
            sink = stream_sink(_query_of(tasks, batchId), self._options.topic)
            commit(database(self._options.place), sink, batchId, tasks)

    def abort(self, messages: CommitMessages, batchId: int) -> None:  # noqa: N803
        _abandon(self._options, messages)


def _batch_identity(options: SinkOptions) -> tuple[str, int]:
    """An unnamed write is a sink with a unique name and a single batch."""
    if options.transaction is None:
        return one_time_sink(), 0
    name, version = options.transaction
    return batch_sink(name, options.topic), version


def _running_batch() -> tuple[str, int]:
    """The streaming query and batch that this task belongs to. The query's id is kept in its checkpoint."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context else None
    batch = context.getLocalProperty(BATCH_PROPERTY) if context else None
    if query is None or batch is None:
        raise Defect(reason="Spark does not say which streaming query and batch a task works for")
    return query, int(batch)


def _query_of(tasks: Sequence[TaskCommit], batch: int) -> str:
    """The query of a batch. Tasks and driver must agree on the batch: with a wrong number, rows would be
    skipped or appended twice."""
    found = {(task.query, task.batch) for task in tasks}
    if len(found) != 1 or next(iter(found))[1] != batch:
        raise Defect(reason=f"batch {batch} is committed with the tasks of {sorted(map(str, found))}")
    return str(tasks[0].query)


def _write(options: SinkOptions, iterator: "Iterator[pa.RecordBatch]") -> TaskCommit:
    from millpond.spark.sink.task import write_task  # imports numba, which a commit does not need

    context = TaskContext.get()
    return write_task(options, iterator, round_robin=context.partitionId() if context else 0)


def _abandon(options: SinkOptions, messages: CommitMessages) -> None:
    abandon(database(options.place), _tasks(messages))


def _tasks(messages: CommitMessages) -> list[TaskCommit]:
    return [cast("TaskCommit", message) for message in messages if message is not None]
