"""Runs on executors: reads ranges of offsets from the store and yields them as Arrow.

A task holds in memory the result of one read (`READ_BYTES`), its batches uncompressed (`GROUP_BYTES` and at
most one batch more) and one record batch. If an object was merged away, the reader looks up the offset again.
Every error names topic, partition and offset; nothing is silently left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from millpond.catalog import partitions, transactions
from millpond.catalog.transactions import Aborted
from millpond.model.errors import CorruptObject, MillpondError, UnknownPartition
from millpond.reading.reader import StoreReader
from millpond.reading.visible import visible
from millpond.records import Buffer
from millpond.spark.kernels.batches import check_and_stamp, messages_in_groups
from millpond.spark.kernels.sections import Sections, to_section_groups
from millpond.spark.place import EXTENTS_PER_READ, Place, database, store
from millpond.spark.source.data_loss import DataLossHandler
from millpond.spark.source.offsets import NamedPartition
from millpond.spark.source.planning import ReadRange
from millpond.spark.source.rows import RowMaker

READ_BYTES: Final = 4 * 1024 * 1024
READ_BYTES_MIN: Final = 64 * 1024
GROUP_BYTES: Final = 1024 * 1024
"""Number of bytes decoded at a time: small enough for a core's cache."""


class RangeReader:
    """Reads one range after another, each once. `schema` is an Arrow schema."""

    def __init__(
        self, place: Place, schema: Any, *, committed_only: bool, data_loss: DataLossHandler
    ) -> None:
        self._database = database(place)
        self._reader = StoreReader(
            self._database, store(place), extents_per_read=EXTENTS_PER_READ, check_and_stamp=check_and_stamp
        )
        self._schema = schema
        self._committed_only = committed_only
        self._data_loss = data_loss

    def read(self, wanted: ReadRange) -> Iterator[Any]:
        """The record batches of the range."""
        maker = RowMaker(wanted.name, self._schema)
        with with_partition_context(wanted.name, wanted.start):
            start, aborted = self._begin(wanted)
            for sections in self._groups(self._buffers(wanted, start), aborted):
                yield from maker.record_batches(sections, start, wanted.end)

    def _groups(self, buffers: Iterator[Buffer], aborted: list[Aborted]) -> Iterator[Sections]:
        """The batches that a reader may see. Without aborted transactions, batches need no individual check."""
        if aborted:
            return to_section_groups(visible(buffers, aborted), bytes_max=GROUP_BYTES)
        return messages_in_groups(buffers, bytes_max=GROUP_BYTES)

    def _begin(self, wanted: ReadRange) -> tuple[int, list[Aborted]]:
        """Where reading starts, and the aborted transactions in the range. The list is read before the log
        start: retention removes its entries together with their records, so below the log start it is
        incomplete."""
        aborted: list[Aborted] = []
        with self._database.read() as tx:
            if self._committed_only:
                aborted = transactions.aborted(tx, wanted.topic_partition, wanted.start, wanted.end)
        return self._resume_position(wanted, wanted.start), aborted

    def _buffers(self, wanted: ReadRange, start: int) -> Iterator[Buffer]:
        """Whole batches in order. The first may begin below the start, and the last may end past the end."""
        position, room = start, max(wanted.bytes, READ_BYTES_MIN)
        while position < wanted.end:
            with with_partition_context(wanted.name, position):
                runs = self._reader.read_runs(wanted.topic_partition, position, min(room, READ_BYTES))
                if not runs or runs[0].base_offset > position:
                    position = self._skip_gap(wanted, position, bool(runs))
            for run in runs:
                if run.base_offset < wanted.end:
                    yield run.data
                position = max(position, run.end_offset)
                room = max(room - len(run.data), READ_BYTES_MIN)

    def _skip_gap(self, wanted: ReadRange, position: int, more_follows: bool) -> int:
        """The position after a gap. A gap is normal, unless retention created it or nothing follows it."""
        resume = self._resume_position(wanted, position)
        if resume == position and not more_follows:
            raise CorruptObject(
                f"The catalog has no extent for offset {position}, though its log goes on up to {wanted.end} at least.",
                offset=position,
            )
        return resume

    def _resume_position(self, wanted: ReadRange, position: int) -> int:
        """The position, or the log start if that is higher, but never past the end of the range."""
        try:
            with self._database.read() as tx:
                log_start = partitions.read(tx, wanted.topic_partition).log_start
        except UnknownPartition:
            self._data_loss.partition_gone(wanted.name)
            return wanted.end
        if position < log_start:
            self._data_loss.expired(wanted.name, position, log_start)
        return min(max(position, log_start), wanted.end)


@contextmanager
def with_partition_context(name: NamedPartition, offset: int) -> Iterator[None]:
    """Add topic, partition and offset to any error raised inside."""
    try:
        yield
    except MillpondError as error:
        if "topic" in error.facts:
            raise
        facts = {"offset": offset, **error.facts, "topic": name.topic, "partition": name.partition}
        location = f"Topic {name.topic!r}, partition {name.partition}, offset {facts['offset']}"
        raise type(error)(f"{location}: {error}", **facts) from error
