"""A transactional producer, and questions about what it left in the catalog."""

from millpond.catalog import extents, transactions
from millpond.catalog.appends import AppendedShare
from millpond.catalog.transactions import (
    PRODUCER_EPOCH_MAX,
    TransactionalProducer,
)
from millpond.model.errors import (
    FlushFailed,
)
from millpond.records import read_header, read_marker


class Client:
    """A transactional producer: keeps its sequences and its epoch."""

    def __init__(self, catalog, transactional_id="tx", timeout_ms=1000, now_ms=1, known=None):
        self.catalog = catalog
        begun = catalog.write(
            transactions.begin_producer, transactional_id, timeout_ms, now_ms=now_ms, known=known
        )
        self.producer = begun.producer
        self.sequences = {}

    def add(self, *topic_partitions, now_ms=1):
        self.catalog.write(transactions.add_partitions, self.producer, topic_partitions, now_ms=now_ms)

    def add_offsets(self, group, *offsets, opens=True):
        self.catalog.write(transactions.add_offsets, self.producer, group, offsets, now_ms=1, opens=opens)

    def send(self, topic_partition):
        sequence = self.sequences.get(topic_partition, 0)
        batch = self.catalog.batch(
            (self.producer.producer_id, self.producer.epoch), sequence, sequence, transactional=True
        )
        result = self.catalog.append_one(topic_partition, sequences=[batch])
        if isinstance(result, AppendedShare):
            self.sequences[topic_partition] = sequence + 1
        return result

    def end(self, *, commit, bump_epoch=False):
        ended = self.catalog.write(
            transactions.end, self.producer, commit=commit, bump_epoch=bump_epoch, now_ms=5
        )
        if ended.producer != self.producer:
            self.producer, self.sequences = ended.producer, {}
        return offsets(ended.markers)


def offsets(markers):
    return (
        {marker.topic_partition: marker.offset for marker in markers.partition_markers}
        if markers is not None
        else {}
    )


def is_fenced(result):
    """The owner of the partition should have known, so it is told that its view was stale."""
    return isinstance(result, FlushFailed) and "has been replaced by epoch" in str(result)


def stable(catalog, topic_partition):
    return catalog.read(
        transactions.last_stable_offset, topic_partition, catalog.partition(topic_partition).end_offset
    )


def aborted(catalog, topic_partition, start=0, end=10**6):
    return catalog.read(transactions.aborted, topic_partition, start, end)


def last_marker(catalog, topic_partition):
    (extent,) = catalog.read(
        extents.find,
        topic_partition,
        catalog.partition(topic_partition).end_offset - 1,
        bytes_max=1,
        extents_max=1,
    )
    header = read_header(extent.inline, 0)
    return read_marker(extent.inline), header.producer_id, header.producer_epoch


def exhausted(catalog, epoch=PRODUCER_EPOCH_MAX):
    client = Client(catalog)
    with catalog.database.write() as tx:
        tx.rows("UPDATE transactions SET producer_epoch = ?", (epoch,))
    client.producer = TransactionalProducer("tx", client.producer.producer_id, epoch)
    return client
