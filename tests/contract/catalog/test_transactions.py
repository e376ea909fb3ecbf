"""Transactions: no batch behind its marker, aborted records listed, offsets published only by a commit."""

import json

import pytest
from tests.contract.catalog.transactional import (
    Client,
    aborted,
    exhausted,
    is_fenced,
    last_marker,
    offsets,
    stable,
)

from millpond.catalog import groups, transactions
from millpond.catalog.appends import AppendedShare
from millpond.catalog.transactions import (
    PRODUCER_EPOCH_MAX,
    Aborted,
    PartitionTransactions,
    TransactionalProducer,
    decode_transition,
    encode_transition,
)
from millpond.model.errors import (
    FlushFailed,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    UnknownPartition,
)
from millpond.model.ids import TopicPartition


def test_a_transactional_id_gets_a_producer_and_each_instance_a_higher_epoch(catalog):
    first, second, other = Client(catalog), Client(catalog), Client(catalog, "other")
    assert second.producer == TransactionalProducer(
        "tx", first.producer.producer_id, first.producer.epoch + 1
    )
    assert other.producer.producer_id != first.producer.producer_id


def test_a_batch_is_appended_only_while_its_partition_is_in_the_transaction(catalog):
    topic = catalog.topic(count=2)
    client = Client(catalog)
    assert isinstance(client.send(catalog.topic_partition(topic)), InvalidTransactionState)
    client.add(catalog.topic_partition(topic))
    assert client.send(catalog.topic_partition(topic)) == AppendedShare(0, 0, 0)
    assert isinstance(client.send(catalog.topic_partition(topic, 1)), InvalidTransactionState)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bump_epoch", [True, False])
def test_a_batch_of_an_ended_transaction_is_refused(catalog, commit, bump_epoch):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.send(topic_partition)
    late = catalog.batch((client.producer.producer_id, client.producer.epoch), 1, 1, transactional=True)
    client.end(commit=commit, bump_epoch=bump_epoch)
    refused = FlushFailed if bump_epoch else InvalidTransactionState
    assert isinstance(catalog.append_one(topic_partition, sequences=[late]), refused)
    assert stable(catalog, topic_partition) == catalog.partition(topic_partition).end_offset == 2


def test_adding_a_partition_twice_changes_nothing(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.send(topic_partition)
    client.add(topic_partition)
    assert stable(catalog, topic_partition) == 0


def test_a_partition_that_is_not_there_cannot_be_added_and_opens_nothing(catalog):
    topic = catalog.topic()
    client = Client(catalog)
    with pytest.raises(UnknownPartition):
        client.add(catalog.topic_partition(topic), TopicPartition(topic.id, 9))
    with pytest.raises(InvalidTransactionState):
        client.end(commit=True)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_written_to_every_partition_of_the_transaction(catalog, commit):
    topic = catalog.topic(count=3)
    topic_partitions = [catalog.topic_partition(topic, number) for number in range(3)]
    client = Client(catalog)
    client.add(topic_partitions[2], topic_partitions[0])
    client.send(topic_partitions[0])
    markers = client.end(commit=commit)
    assert markers == {topic_partitions[0]: 1, topic_partitions[2]: 0}
    assert catalog.partition(topic_partitions[1]).end_offset == 0
    marker, producer_id, epoch = last_marker(catalog, topic_partitions[0])
    assert (marker.kind.name == "COMMIT") is commit
    assert (producer_id, epoch) == (client.producer.producer_id, 0)


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(catalog):
    topic_partition = catalog.topic_partition()
    first, second = Client(catalog, "a"), Client(catalog, "b")
    catalog.append_one(topic_partition, 5)
    assert stable(catalog, topic_partition) == 5
    for client in (first, second):
        client.add(topic_partition)
    assert stable(catalog, topic_partition) == 5
    second.send(topic_partition)
    first.send(topic_partition)
    first.send(topic_partition)
    assert stable(catalog, topic_partition) == 5
    second.end(commit=True)
    assert stable(catalog, topic_partition) == 6
    first.end(commit=False)
    assert stable(catalog, topic_partition) == catalog.partition(topic_partition).end_offset == 10


def test_the_last_stable_offset_is_never_past_the_end_that_was_asked_about(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    catalog.append_one(topic_partition, 3)
    client.send(topic_partition)
    assert catalog.read(transactions.last_stable_offset, topic_partition, 2) == 2


def test_aborted_transactions_are_listed_with_their_first_and_marker_offsets(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    for commit in (True, False, False):
        client.add(topic_partition)
        client.send(topic_partition)
        client.send(topic_partition)
        client.end(commit=commit)
    pid = client.producer.producer_id
    assert aborted(catalog, topic_partition) == [Aborted(pid, 3, 5), Aborted(pid, 6, 8)]
    assert aborted(catalog, topic_partition, 5, 6) == [Aborted(pid, 3, 5)]
    assert aborted(catalog, topic_partition, 6, 7) == [Aborted(pid, 6, 8)]
    assert aborted(catalog, topic_partition, 0, 3) == []
    assert aborted(catalog, topic_partition, 9, 20) == []


def test_a_partition_that_was_added_but_not_written_lists_no_aborted_transaction(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.end(commit=False)
    assert aborted(catalog, topic_partition) == []


def test_aborted_transactions_below_the_log_start_are_forgotten(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    for _ in range(2):
        client.add(topic_partition)
        client.send(topic_partition)
        client.end(commit=False)
    catalog.write(transactions.forget_aborted, topic_partition, 1)
    assert len(aborted(catalog, topic_partition)) == 2
    catalog.write(transactions.forget_aborted, topic_partition, 2)
    assert [each.first_offset for each in aborted(catalog, topic_partition)] == [2]


@pytest.mark.parametrize("commit", [True, False])
def test_group_offsets_are_published_by_a_commit_and_dropped_by_an_abort(catalog, commit):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    catalog.write(groups.commit_offsets, "g1", [groups.GroupOffset(topic_partition, 1)], now_ms=1)
    client.add_offsets("g1", groups.GroupOffset(topic_partition, 5, 2, "five"))
    client.add_offsets("g1", groups.GroupOffset(topic_partition, 6, 3, "six"))
    client.add_offsets("g2", groups.GroupOffset(topic_partition, 7))
    assert catalog.read(groups.committed_offsets, "g1") == [groups.GroupOffset(topic_partition, 1)]
    client.end(commit=commit)
    after = (
        groups.GroupOffset(topic_partition, 6, 3, "six") if commit else groups.GroupOffset(topic_partition, 1)
    )
    assert catalog.read(groups.committed_offsets, "g1") == [after]
    assert len(catalog.read(groups.committed_offsets, "g2")) == commit
    client.add(topic_partition)
    client.end(commit=True)
    assert catalog.read(groups.committed_offsets, "g1") == [after]


def test_a_new_instance_aborts_what_the_former_one_left_open(catalog):
    topic_partition = catalog.topic_partition()
    old = Client(catalog)
    old.add(topic_partition)
    old.send(topic_partition)
    Client(catalog)
    assert aborted(catalog, topic_partition) == [Aborted(old.producer.producer_id, 0, 1)]
    assert stable(catalog, topic_partition) == 2
    assert is_fenced(old.send(topic_partition))


@pytest.mark.parametrize(
    "act",
    [
        lambda client, topic_partition: client.add(topic_partition),
        lambda client, topic_partition: client.add_offsets("g", groups.GroupOffset(topic_partition, 1)),
        lambda client, topic_partition: client.end(commit=True),
        lambda client, topic_partition: client.end(commit=False),
    ],
)
def test_a_fenced_instance_can_do_nothing(catalog, act):
    topic_partition = catalog.topic_partition()
    old = Client(catalog)
    old.add(topic_partition)
    new = Client(catalog)
    with pytest.raises(ProducerFenced, match=f"epoch 0 has been replaced by epoch {new.producer.epoch}"):
        act(old, topic_partition)


@pytest.mark.parametrize("old_bumps", [True, False])
@pytest.mark.parametrize("new_bumps", [True, False])
def test_a_zombie_does_not_take_its_successors_commit_for_its_own(catalog, old_bumps, new_bumps):
    topic_partition = catalog.topic_partition()
    old = Client(catalog)
    old.add(topic_partition)
    old.send(topic_partition)
    new = Client(catalog)
    new.add(topic_partition)
    new.end(commit=True, bump_epoch=new_bumps)
    with pytest.raises(ProducerFenced):
        old.end(commit=True, bump_epoch=old_bumps)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bump_epoch", [True, False])
def test_repeating_an_end_gives_the_same_answer_and_changes_nothing(catalog, commit, bump_epoch):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.send(topic_partition)
    arguments = {"commit": commit, "bump_epoch": bump_epoch, "now_ms": 5}
    first = catalog.write(transactions.end, client.producer, **arguments)
    before = catalog.partition(topic_partition)
    again = catalog.write(transactions.end, client.producer, **arguments)
    assert (again.producer, again.markers) == (first.producer, None)
    assert catalog.partition(topic_partition) == before
    with pytest.raises((ProducerFenced, InvalidTransactionState)):
        catalog.write(transactions.end, client.producer, **{**arguments, "commit": not commit})


def test_an_end_without_a_transaction_is_refused(catalog):
    client = Client(catalog)
    with pytest.raises(InvalidTransactionState):
        client.end(commit=True)
    unknown = TransactionalProducer("never-seen", 99, 0)
    for act in (
        lambda tx: transactions.end(tx, unknown, commit=True, bump_epoch=False, now_ms=1),
        lambda tx: transactions.add_partitions(tx, unknown, [], now_ms=1),
        lambda tx: transactions.add_offsets(tx, unknown, "g", [], now_ms=1),
    ):
        with pytest.raises(InvalidProducerIdMapping, match="'never-seen' does not belong to producer 99"):
            catalog.write(act)


def test_an_end_that_bumps_the_epoch_lets_the_next_transaction_begin_with_it(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    for epoch in range(3):
        assert client.producer.epoch == epoch
        client.add(topic_partition)
        assert isinstance(client.send(topic_partition), AppendedShare)
        client.end(commit=True, bump_epoch=True)
    assert catalog.partition(topic_partition).end_offset == 6


def test_a_new_instance_past_the_last_epoch_gets_a_new_producer_id(catalog):
    old = exhausted(catalog)
    fresh = Client(catalog).producer
    assert fresh.producer_id != old.producer.producer_id
    assert fresh.epoch == 0
    with pytest.raises(InvalidProducerIdMapping):
        old.add(catalog.topic_partition())


def test_the_last_epoch_itself_is_used(catalog):
    exhausted(catalog, PRODUCER_EPOCH_MAX - 1)
    assert Client(catalog).producer.epoch == PRODUCER_EPOCH_MAX


def test_a_bump_past_the_last_epoch_gives_a_new_producer_id_and_can_be_repeated(catalog):
    topic_partition = catalog.topic_partition()
    client = exhausted(catalog)
    old = client.producer
    client.add(topic_partition)
    client.send(topic_partition)
    client.end(commit=True, bump_epoch=True)
    assert client.producer.producer_id != old.producer_id
    again = catalog.write(transactions.end, old, commit=True, bump_epoch=True, now_ms=9)
    assert again.producer == client.producer
    client.add(topic_partition)
    assert isinstance(client.send(topic_partition), AppendedShare)


def test_transactions_time_out_by_their_own_timeout_counted_from_their_first_act(catalog):
    topic = catalog.topic(count=2)
    slow, quick, idle = (Client(catalog, name, ms) for name, ms in (("a", 500), ("b", 100), ("c", 1)))
    for client in (slow, quick):
        client.add(catalog.topic_partition(topic), now_ms=1000)
        client.add(catalog.topic_partition(topic, 1), now_ms=1090)
    assert catalog.read(transactions.timed_out, now_ms=1100) == []
    assert catalog.read(transactions.timed_out, now_ms=1101) == [quick.producer]
    assert catalog.read(transactions.timed_out, now_ms=1501) == [slow.producer, quick.producer]
    quick.end(commit=False, bump_epoch=True)
    assert catalog.read(transactions.timed_out, now_ms=1501) == [slow.producer]
    assert idle.producer.epoch == 0


def test_a_transaction_after_another_has_its_own_time(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog, timeout_ms=100)
    client.add(topic_partition, now_ms=1000)
    client.end(commit=True)
    client.add(topic_partition, now_ms=2000)
    assert catalog.read(transactions.timed_out, now_ms=2100) == []
    assert catalog.read(transactions.timed_out, now_ms=2101) == [client.producer]


def late_abort(catalog, producer, now_ms):
    return catalog.write(transactions.abort_timed_out, producer, now_ms=now_ms)


@pytest.mark.parametrize("bump_epoch", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_client_whose_transaction_timed_out_is_fenced_whatever_it_does(catalog, commit, bump_epoch):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    client.add(topic_partition)
    client.send(topic_partition)
    ended = late_abort(catalog, client.producer, 1002)
    assert (ended.producer.epoch, offsets(ended.markers)) == (1, {topic_partition: 1})
    assert aborted(catalog, topic_partition) == [Aborted(client.producer.producer_id, 0, 1)]
    assert is_fenced(client.send(topic_partition))
    for act in (
        lambda: client.end(commit=commit, bump_epoch=bump_epoch),
        lambda: client.add(topic_partition),
        lambda: Client(catalog, known=client.producer.identity),
    ):
        with pytest.raises(ProducerFenced):
            act()


def test_a_transaction_that_ended_meanwhile_or_is_not_late_after_all_is_not_aborted(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog, timeout_ms=100)
    client.add(topic_partition, now_ms=1000)
    assert late_abort(catalog, client.producer, 1100) is None
    client.end(commit=True)
    assert late_abort(catalog, client.producer, 1101) is None
    client.add(topic_partition, now_ms=1050)
    assert late_abort(catalog, client.producer, 1101) is None
    assert client.end(commit=True) == {topic_partition: 1}


# -- offsets --------------------------------------------------------------------------------------------------


def test_late_offsets_of_a_transaction_that_has_ended_open_no_other(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    with pytest.raises(InvalidTransactionState):
        client.add_offsets("g", groups.GroupOffset(topic_partition, 5), opens=False)
    client.add(topic_partition)
    client.add_offsets("g", groups.GroupOffset(topic_partition, 6), opens=False)
    client.end(commit=True)
    with pytest.raises(InvalidTransactionState):
        client.add_offsets("g", groups.GroupOffset(topic_partition, 5), opens=False)
    client.add(topic_partition)
    client.end(commit=True)
    assert [each.offset for each in catalog.read(groups.committed_offsets, "g")] == [6]


def test_a_transaction_may_consist_of_offsets_alone(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    catalog.write(transactions.open_transaction, client.producer, now_ms=1)
    client.add_offsets("g", groups.GroupOffset(topic_partition, 5), opens=False)
    assert client.end(commit=True) == {}
    assert [each.offset for each in catalog.read(groups.committed_offsets, "g")] == [5]


# -- what the owner of a partition asks -----------------------------------------------------------------------


def test_a_partitions_transactions_are_told_as_of_its_end(catalog):
    topic = catalog.topic(count=2)
    topic_partition, elsewhere = catalog.topic_partition(topic), catalog.topic_partition(topic, 1)
    writing, waiting, beside = (Client(catalog, name) for name in "abc")
    catalog.append_one(topic_partition, 5)
    assert catalog.read(transactions.of_partition, topic_partition, aborted_max=9) == PartitionTransactions(
        5, {}, [], 0
    )
    writing.add(topic_partition)
    waiting.add(topic_partition)
    beside.add(elsewhere)
    writing.send(topic_partition)
    beside.send(elsewhere)
    found = catalog.read(transactions.of_partition, topic_partition, aborted_max=9)
    pids = writing.producer.producer_id, waiting.producer.producer_id
    assert found == PartitionTransactions(6, {pids[0]: (0, 5), pids[1]: (0, None)}, [], 0)
    with pytest.raises(UnknownPartition):
        catalog.read(transactions.of_partition, TopicPartition(topic.id, 9), aborted_max=9)


def test_of_many_aborted_transactions_the_newest_are_told(catalog):
    topic_partition = catalog.topic_partition()
    client = Client(catalog)
    for _ in range(4):
        client.add(topic_partition)
        client.send(topic_partition)
        client.end(commit=False)
    told = {
        many: catalog.read(transactions.of_partition, topic_partition, aborted_max=many)
        for many in (1, 3, 4, 5)
    }
    markers = {many: [each.last_offset for each in found.aborted] for many, found in told.items()}
    assert markers == {1: [7], 3: [3, 5, 7], 4: [1, 3, 5, 7], 5: [1, 3, 5, 7]}
    assert {many: found.aborted_from for many, found in told.items()} == {1: 7, 3: 3, 4: 1, 5: 0}


def test_a_transition_survives_json(catalog):
    topic = catalog.topic(count=2)
    client = Client(catalog)
    client.add(catalog.topic_partition(topic), catalog.topic_partition(topic, 1))
    client.send(catalog.topic_partition(topic))
    for act in (
        lambda tx: transactions.end(tx, client.producer, commit=False, bump_epoch=True, now_ms=5),
        lambda tx: transactions.begin_producer(tx, "other", 1000, now_ms=5),
    ):
        transition = catalog.write(act)
        assert decode_transition(json.loads(json.dumps(encode_transition(transition)))) == transition


# -- forgetting -----------------------------------------------------------------------------------------------


def test_an_unused_transactional_id_is_forgotten_unless_it_has_something_open(catalog):
    topic_partition = catalog.topic_partition()
    idle, busy, recent = Client(catalog, "idle"), Client(catalog, "busy"), Client(catalog, "recent", now_ms=9)
    busy.add(topic_partition)
    assert catalog.read(transactions.unused, unused_since_ms=9) == ["idle"]
    forgotten = {
        name: catalog.write(transactions.forget, name, unused_since_ms=9)
        for name in ("idle", "busy", "recent")
    }
    assert forgotten == {"idle": True, "busy": False, "recent": False}
    with pytest.raises(InvalidProducerIdMapping):
        idle.add(topic_partition)
    recent.add(topic_partition)
    assert busy.end(commit=True) == {topic_partition: 0}


def test_a_topic_deleted_under_an_open_transaction_does_not_stop_its_end(catalog):
    from millpond.catalog import topics

    kept, gone = (
        catalog.topic_partition(catalog.topic("kept")),
        catalog.topic_partition(catalog.topic("gone")),
    )
    client = Client(catalog)
    client.add(kept, gone)
    client.send(kept)
    client.send(gone)
    catalog.write(topics.delete, "gone", now_ms=2)
    assert client.end(commit=False) == {kept: 1}
    assert stable(catalog, kept) == 2


def test_a_zombies_batch_does_not_slip_into_its_successors_transaction(catalog):
    topic_partition = catalog.topic_partition()
    old = Client(catalog)
    old.add(topic_partition)
    new = Client(catalog)
    new.add(topic_partition)
    assert is_fenced(old.send(topic_partition))
    assert new.send(topic_partition) == AppendedShare(
        1, 0, 0
    )  # behind the marker that aborted the old one's transaction
    assert stable(catalog, topic_partition) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_zombie_cannot_end_its_successors_transaction(catalog, commit):
    topic_partition = catalog.topic_partition()
    old, new = Client(catalog), Client(catalog)
    new.add(topic_partition)
    new.send(topic_partition)
    with pytest.raises(ProducerFenced):
        old.end(commit=commit)
    assert stable(catalog, topic_partition) == 0
    assert new.end(commit=True) == {topic_partition: 1}
