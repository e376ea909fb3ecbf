"""What administrators see of producers and transactions, over every catalog."""

from tests.contract.catalog.transactional import Client

from millpond.catalog.transaction_status import (
    KEYS_PER_STATEMENT,
    ActiveProducer,
    TransactionStatus,
    active_producers,
    find_transactions,
    list_transactions,
    partitions_of_open,
)
from millpond.catalog.transactions import TransactionState
from millpond.model.ids import TopicPartition


def test_a_producer_is_active_with_its_last_sequence_and_the_start_of_its_transaction(catalog):
    topic = catalog.topic(count=3)
    first, second, third = (catalog.topic_partition(topic, number) for number in range(3))
    client = Client(catalog)
    client.add(first, second)
    for topic_partition in (first, first, second):
        client.send(topic_partition)
    found = catalog.read(active_producers, [second, third, first])
    timestamp = catalog.batch((1, 0), 0, 0).timestamp
    producer_id, epoch = client.producer.identity
    assert found == [
        [ActiveProducer(producer_id, epoch, 0, timestamp, 0)],
        [],
        [ActiveProducer(producer_id, epoch, 1, timestamp, 0)],
    ]
    client.end(commit=True)
    assert [each.first_offset for each in catalog.read(active_producers, [first])[0]] == [None]


def test_a_marker_of_a_new_epoch_leaves_no_sequence_but_its_time(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.send(topic_partition)
    client.end(commit=False, bump_epoch=True)
    producer_id, epoch = client.producer.identity
    assert catalog.read(active_producers, [topic_partition]) == [
        [ActiveProducer(producer_id, epoch, None, 5, None)]
    ]


def test_more_keys_than_one_statement_takes_keep_their_order(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.send(topic_partition)
    missing = [
        TopicPartition(topic_partition.topic_id, number) for number in range(1, KEYS_PER_STATEMENT + 5)
    ]
    found = catalog.read(active_producers, [*missing, topic_partition])
    assert len(found) == len(missing) + 1
    assert [number for number, each in enumerate(found) if each] == [len(missing)]
    names = [f"id-{number}" for number in range(KEYS_PER_STATEMENT + 5)]
    assert list(catalog.read(find_transactions, [*names, "tx"])) == ["tx"]


def test_transactions_are_listed_and_found_with_what_is_open(catalog):
    topic = catalog.topic(count=2)
    first, second = catalog.topic_partition(topic, 0), catalog.topic_partition(topic, 1)
    idle, busy = Client(catalog, "b"), Client(catalog, "a", timeout_ms=7_000)
    busy.add(second, first, now_ms=3)
    statuses = [
        TransactionStatus("a", *busy.producer.identity, TransactionState.ONGOING, 7_000, 3),
        TransactionStatus("b", *idle.producer.identity, TransactionState.EMPTY, 1_000, None),
    ]
    assert catalog.read(list_transactions) == statuses
    assert catalog.read(find_transactions, ["b", "c", "a"]) == {"a": statuses[0], "b": statuses[1]}
    ids = [idle.producer.producer_id, busy.producer.producer_id]
    assert catalog.read(partitions_of_open, ids) == dict(zip(ids, [[], [first, second]], strict=True))
    busy.end(commit=True)
    [ended, _] = catalog.read(list_transactions)
    assert (ended.state, ended.started_at) == (TransactionState.COMMITTED, None)
