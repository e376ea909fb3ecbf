"""Selects the stored batches that a `read_committed` reader may see, and decodes them for readers of single messages.

Kafka's rule: a transactional batch is hidden if its transaction was aborted, and a producer's transaction
extends up to its marker. Markers belong to the broker, and readers never see them. Selecting decodes nothing: it works
on whole batches.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from millpond.catalog.transactions import Aborted
from millpond.records import BatchHeader, Buffer, Record, iter_records, walk

PlacedBatch = tuple[Buffer, int, BatchHeader]
"""A buffer, the position of a batch in it, and the batch's header."""


def visible(batches: Iterable[Buffer], aborted: Sequence[Aborted]) -> Iterator[PlacedBatch]:
    """The batches that hold messages, in order."""
    ahead = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    hidden: set[int] = set()
    for buffer in batches:
        for position, header in walk(buffer):
            while ahead and ahead[-1].first_offset <= header.last_offset:
                hidden.add(ahead.pop().producer_id)
            if header.is_control:
                hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                yield buffer, position, header


class VisibleBatch(NamedTuple):
    """A batch that a reader may see. `data` is a view of its bytes; nothing is copied."""

    header: BatchHeader
    data: memoryview

    def records_from(self, start: int, *, decompressed_bytes_max: int) -> Iterator[Record]:
        """The records at `start` and later, decoded while they are iterated. Iterating raises `InvalidInput` where the
        batch cannot be decoded; the records before that are valid."""
        records = iter_records(self.data, decompressed_bytes_max=decompressed_bytes_max)
        if self.header.base_offset >= start:
            return records
        return (record for record in records if record.offset >= start)


def visible_from(batches: Iterable[Buffer], aborted: Sequence[Aborted], start: int) -> Iterator[VisibleBatch]:
    """The visible batches that end at `start` or later, in order. The first one may begin below `start`."""
    for buffer, position, header in visible(batches, aborted):
        if header.last_offset >= start:
            yield VisibleBatch(header, memoryview(buffer)[position : position + header.size])
