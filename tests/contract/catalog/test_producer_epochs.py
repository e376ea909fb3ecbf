"""Epochs of transactional producers: on the partitions they wrote to, and going on under the next one."""

import pytest
from tests.contract.catalog.transactional import Client, exhausted, last_marker, stable

from millpond.catalog import producers
from millpond.catalog.appends import AppendedShare
from millpond.catalog.transactions import (
    PRODUCER_EPOCH_MAX,
    ProducerEpoch,
    TransactionalProducer,
)
from millpond.model.errors import (
    InvalidTransactionState,
    ProducerFenced,
)

# -- epochs on the partitions ---------------------------------------------------------------------------------


def remembered(catalog, topic_partition, client):
    found = catalog.read(producers.load, topic_partition).get(client.producer.producer_id)
    return (found.epoch, len(found.batches)) if found is not None else None


@pytest.mark.parametrize("commit", [True, False])
def test_a_bump_raises_the_epoch_on_every_partition_and_sequences_begin_anew(catalog, commit):
    topic = catalog.topic(count=3)
    written, added, other = (catalog.topic_partition(topic, number) for number in range(3))
    client = Client(catalog)
    client.add(written, added)
    client.send(written)
    client.send(written)
    client.end(commit=commit, bump_epoch=True)
    assert remembered(catalog, written, client) == remembered(catalog, added, client) == (1, 0)
    assert remembered(catalog, other, client) is None
    _, _, epoch = last_marker(catalog, written)
    assert epoch == 1
    client.add(written)
    assert isinstance(client.send(written), AppendedShare)
    assert remembered(catalog, written, client) == (1, 1)


def test_without_a_bump_sequences_go_on_and_a_partition_that_was_not_written_remembers_nothing(catalog):
    topic = catalog.topic(count=2)
    written, added = catalog.topic_partition(topic), catalog.topic_partition(topic, 1)
    client = Client(catalog)
    client.add(written, added)
    client.send(written)
    client.end(commit=True)
    assert (remembered(catalog, written, client), remembered(catalog, added, client)) == ((0, 1), None)
    client.add(written)
    assert isinstance(client.send(written), AppendedShare)
    assert remembered(catalog, written, client) == (0, 2)


def test_a_late_marker_does_not_lower_an_epoch(catalog):
    topic_partition = catalog.topic_partition()
    catalog.append_one(topic_partition, sequences=[catalog.batch((7, 5), 0, 0)])
    catalog.write(producers.raise_epochs, [topic_partition], 7, 5, now_ms=1)
    catalog.write(producers.raise_epochs, [topic_partition], 7, 4, now_ms=1)
    state = catalog.read(producers.load, topic_partition)[7]
    assert (state.epoch, len(state.batches)) == (5, 1)


def test_the_marker_that_exhausts_the_epochs_fences_the_old_producer_id(catalog):
    topic_partition = catalog.topic_partition()
    old = exhausted(catalog)
    old.add(topic_partition)
    old.send(topic_partition)
    Client(catalog)
    assert remembered(catalog, topic_partition, old) == (PRODUCER_EPOCH_MAX + 1, 0)


# -- going on under another epoch (KIP-360, KIP-890) ----------------------------------------------------------


def test_a_known_producer_goes_on_under_the_next_epoch_and_aborts_its_own_transaction(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.send(topic_partition)
    again = Client(catalog, known=client.producer.identity)
    assert again.producer == TransactionalProducer("tx", client.producer.producer_id, 1)
    assert stable(catalog, topic_partition) == 2
    again.add(topic_partition)
    assert isinstance(again.send(topic_partition), AppendedShare)


def test_a_known_producer_that_asks_again_gets_the_same_answer(catalog):
    topic_partition = catalog.topic_partition()
    identity = Client(catalog).producer.identity
    first = Client(catalog, known=identity)
    assert Client(catalog, known=identity).producer == first.producer
    first.add(topic_partition)
    first.send(topic_partition)
    assert Client(catalog, known=identity).producer == first.producer
    assert stable(catalog, topic_partition) == 0  # its transaction is left alone


def test_a_known_producer_is_fenced_once_another_instance_has_come(catalog):
    topic_partition = catalog.topic_partition()
    old = Client(catalog)
    new = Client(catalog)
    new.add(topic_partition)
    new.send(topic_partition)
    for stale in (old.producer.identity, ProducerEpoch(999, 0), ProducerEpoch(old.producer.producer_id, 7)):
        with pytest.raises(ProducerFenced):
            Client(catalog, known=stale)
    assert stable(catalog, topic_partition) == 0  # and nothing was aborted


def test_a_known_producer_whose_transactional_id_was_forgotten_begins_anew(catalog):
    assert Client(catalog, known=ProducerEpoch(999, 3)).producer.epoch == 0


def test_a_known_producer_past_the_last_epoch_gets_a_new_id_and_may_ask_again(catalog):
    old = exhausted(catalog)
    fresh = Client(catalog, known=old.producer.identity).producer
    assert (fresh.producer_id != old.producer.producer_id, fresh.epoch) == (True, 0)
    assert Client(catalog, known=old.producer.identity).producer == fresh


def test_a_producer_that_lost_the_answer_to_an_end_with_a_bump_may_begin_again(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    before = client.producer
    client.end(commit=True, bump_epoch=True)
    assert Client(catalog, known=before.identity).producer == client.producer


def test_an_abort_of_nothing_bumps_the_epoch_only_for_clients_that_can_be_told(catalog):
    client = Client(catalog)
    with pytest.raises(InvalidTransactionState):
        client.end(commit=False)
    with pytest.raises(InvalidTransactionState):
        client.end(commit=True, bump_epoch=True)
    before = client.producer
    assert client.end(commit=False, bump_epoch=True) == {}
    assert client.producer.epoch == 1
    client.producer = before  # its answer was lost
    client.end(commit=False, bump_epoch=True)
    assert client.producer.epoch == 1
    client.end(commit=False, bump_epoch=True)
    assert client.producer.epoch == 2


@pytest.mark.parametrize("commit", [True, False])
def test_an_abort_of_nothing_after_an_end_is_no_repeat_of_it(catalog, commit):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.end(commit=commit)
    client.end(commit=False, bump_epoch=True)
    assert client.producer.epoch == 1
    client.add(topic_partition)
    assert isinstance(client.send(topic_partition), AppendedShare)
