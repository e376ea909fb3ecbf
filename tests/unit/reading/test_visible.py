"""What a reader of committed messages sees, against a model: random transactions of several producers."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.catalog.transactions import Aborted
from millpond.reading.visible import visible, visible_from
from millpond.records import MarkerKind, Record, build_batch, build_control_batch, iter_records

LIMIT = 1 << 20
steps = st.lists(
    st.tuples(
        st.integers(1, 3), st.sampled_from(["write", "write", "plain", "commit", "abort"]), st.integers(1, 3)
    ),
    max_size=40,
)


class Model:
    """A partition's log, whose transactions are decided as they come."""

    def __init__(self):
        self.batches, self.aborted, self.end = [], [], 0
        self._open = {}
        self._fates = []

    def write(self, producer, count, *, transactional):
        values = [b"%d" % (self.end + delta) for delta in range(count)]
        fate = {"seen": True}
        if transactional:
            _, fate = self._open.setdefault(producer, (self.end, {"seen": True}))
        self._fates.append((values, fate))
        records = [Record(value) for value in values]
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
        self._add(
            build_batch(records, base_offset=self.end, transactional=transactional, now_ms=1, **options),
            count,
        )

    def end_transaction(self, producer, *, commit):
        if producer not in self._open:
            return
        first, fate = self._open.pop(producer)
        if not commit:
            fate["seen"] = False
            self.aborted.append(Aborted(producer_id=producer, first_offset=first, last_offset=self.end))
        marker = bytearray(
            build_control_batch(MarkerKind.COMMIT if commit else MarkerKind.ABORT, producer, 0, 1)
        )
        marker[:8] = self.end.to_bytes(8, "big")
        self._add(bytes(marker), 1)

    def _add(self, data, count):
        self.batches.append((self.end, data))
        self.end += count

    def expected(self, start):
        return [
            value for values, fate in self._fates if fate["seen"] for value in values if int(value) >= start
        ]


@given(steps, st.randoms(use_true_random=False), st.integers(0, 60))
def test_visible_is_what_was_not_aborted(given_steps, dice, start):
    model = Model()
    for producer, action, count in given_steps:
        if action in ("write", "plain"):
            model.write(producer, count, transactional=action == "write")
        else:
            model.end_transaction(producer, commit=action == "commit")
    for producer in (1, 2, 3):
        model.end_transaction(producer, commit=dice.random() < 0.5)
    buffers = joined([data for base, data in model.batches if base >= start], dice)
    relevant = [each for each in model.aborted if each.last_offset >= start]  # as the catalog gives them
    dice.shuffle(relevant)
    found = [
        record.value
        for buffer, position, header in visible(buffers, relevant)
        for record in iter_records(
            memoryview(buffer)[position : position + header.size], decompressed_bytes_max=LIMIT
        )
    ]
    first = next((base for base, _ in model.batches if base >= start), model.end)
    assert found == model.expected(first)
    messages = [
        record.value
        for batch in visible_from(joined([data for _, data in model.batches], dice), model.aborted, start)
        for record in batch.records_from(start, decompressed_bytes_max=LIMIT)
    ]
    assert messages == model.expected(start)


def joined(batches, dice):
    """Some batches come in one buffer, as they lie in an object."""
    buffers = []
    for data in batches:
        if buffers and dice.random() < 0.5:
            buffers[-1] += data
        else:
            buffers.append(data)
    return buffers
