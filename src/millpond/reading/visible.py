"""Selects the stored batches that a `read_committed` reader may see. Works on whole batches: nothing is decoded.

Kafka's rule: a transactional batch is hidden if its transaction was aborted, and a producer's transaction
extends up to its marker. Markers belong to the broker, and readers never see them.
"""

from collections.abc import Iterable, Iterator, Sequence

from millpond.catalog.transactions import Aborted
from millpond.records import BatchHeader, Buffer, walk

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
