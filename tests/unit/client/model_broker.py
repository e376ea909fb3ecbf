"""A broker reduced to its rule for producers, and the wires to it: what is on its way may arrive late or never."""

from collections import deque

from millpond.model.errors import (
    Defect,
    InvalidRecord,
    MillpondError,
    OutcomeUnknown,
    StoreUnavailable,
)
from millpond.model.producers import ProducerState, SequencedBatch, check_sequence
from millpond.records import iter_records, read_header

POISON = b"poison"


class ModelBroker:
    """Stores values; the number of one is its place, from 1 on. Knows nothing of earlier failures: it is harsher than
    ours, which remembers for a while that a producer's last batch has failed."""

    def __init__(self):
        self.stored = []
        self._states = {}

    def handle(self, data, failure=None):
        """The number of the first message, or an error. `failure` is what befalls the batch."""
        values = [record.value for record in iter_records(data, decompressed_bytes_max=1 << 20)]
        if any(value.startswith(POISON) for value in values):
            return InvalidRecord(reason="poison")
        if isinstance(failure, StoreUnavailable | Defect):
            return failure
        header = read_header(data)
        batch = SequencedBatch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            0,
            False,
            len(self.stored),
        )
        state = self._states.get(header.producer_id)
        try:
            known = check_sequence(state, batch)
        except MillpondError as refusal:
            return refusal
        if known is not None:
            return known.offset + 1
        before = state or ProducerState(header.producer_id, header.producer_epoch)
        self._states[header.producer_id] = before.after(batch)
        self.stored.extend(values)
        return failure if isinstance(failure, OutcomeUnknown) else batch.offset + 1


class Wire:
    """A connection: batches go in and answers come out, each in order. Once it is cut no more answers come, but what
    is on its way may still arrive."""

    def __init__(self, broker):
        self._broker = broker
        self.requests = deque()
        self.answers = deque()

    def send(self, data):
        self.requests.append(data)

    def deliver(self, failure=None):
        self.answers.append(self._broker.handle(self.requests.popleft(), failure))
