"""One task of a sink: gathers rows up to a size, packs and stores them, and returns what the commit needs."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final

import pyarrow as pa

from millpond.model.clock import Clock, SystemClock
from millpond.spark.place import database
from millpond.spark.sink.messages import Flushed, TaskCommit
from millpond.spark.sink.options import SinkOptions
from millpond.spark.sink.packing import Packed, Packer, placed_at
from millpond.spark.sink.topics import TopicNumbers
from millpond.spark.task_writer import TaskWriter

FLUSH_BYTES: Final = 32 * 1024 * 1024
"""Rows are gathered up to this size and stored together. A task needs about four times as much memory: the
rows as received, concatenated, encoded, and in flight to the store."""


def write_task(
    options: SinkOptions,
    batches: Iterable[pa.RecordBatch],
    *,
    round_robin: int = 0,
    clock: Clock | None = None,
    flush_bytes: int = FLUSH_BYTES,
) -> TaskCommit:
    """Store all rows. They become visible only when the driver commits them."""
    clock = clock or SystemClock()
    topics = TopicNumbers(database(options.place), options.creation)
    packer = Packer(topics, codec=options.codec, topic=options.topic, round_robin=round_robin)
    flushes: list[Flushed] = []
    session = None
    with ExitStack() as stack:
        writer: TaskWriter | None = None
        for table in gathered(batches, flush_bytes):
            packed = packer.pack(table, now_ms=clock.now_ms())
            writer = writer or stack.enter_context(TaskWriter(options.place, clock=clock))
            flushes.append(_store(writer, packed))
            session = writer.session
    return TaskCommit(session, tuple(flushes), tuple((topic.id, topic.name) for topic in topics.known))


def gathered(batches: Iterable[pa.RecordBatch], flush_bytes: int) -> Iterator[pa.Table]:
    """Non-empty tables of about `flush_bytes`."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for piece in _pieces(batches, flush_bytes):
        if waiting and size + piece.nbytes > flush_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += piece.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _pieces(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch that exceeds `bytes_max`."""
    for batch in batches:
        slices = batch.nbytes // bytes_max + 1
        rows = max(1, -(-batch.num_rows // slices))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _store(writer: TaskWriter, packed: Packed) -> Flushed:
    location = writer.store.append(packed.parts)
    writer.renew()
    return Flushed(location.key, location.length, tuple(placed_at(packed.shares, location.position)))
