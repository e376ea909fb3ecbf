"""Transactions over the wire: ids and epochs, what is visible when, offsets, and everything out of turn."""

from typing import Any

from tests.peers.differential.probes_groups import commit, committed
from tests.peers.differential.subject import NOT_READY, Subject, batch_of, probe
from tests.peers.differential.wire import make

from millpond.protocol.messages import transactions

COMMIT, ABORT = True, False
OLD_PRODUCE = 11
"""The last version in which a partition must be added to the transaction before it is written to."""
NEW_PRODUCE = 12


class Transaction:
    """A transactional producer made by hand, in the older way: partitions are added one by one."""

    def __init__(self, subject: Subject, name: str | None = None) -> None:
        self.subject, self.name = subject, name or subject.name()
        self.id, self.epoch = subject.producer(self.name)
        self.sequence: dict[str, int] = {}

    def add(self, topic: str, partition: int = 0, **other: Any) -> Any:
        request = make(
            transactions.AddPartitionsToTxnRequest,
            v3_and_below_transactional_id=other.get("name", self.name),
            v3_and_below_producer_id=other.get("id", self.id),
            v3_and_below_producer_epoch=other.get("epoch", self.epoch),
            v3_and_below_topics=[make(transactions.AddPartitionsToTxnTopic, topic, [partition])],
        )
        answer = self.subject.settled(request, 3)
        rows = answer["results_by_topic_v3_and_below"]
        return rows[0]["results_by_partition"][0]["partition_error_code"]

    def send(self, topic: str, *values: str, version: int = OLD_PRODUCE, epoch: int | None = None) -> Any:
        first = self.sequence.get(topic, 0)
        batch = batch_of(
            *values,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=first,
            transactional=True,
        )
        answer = self.subject.until(
            lambda: self.subject.produce(topic, batch, version=version, transactional_id=self.name),
            lambda told: told["error_code"] not in NOT_READY,
        )
        if answer["error_code"] == "NONE":
            self.sequence[topic] = first + len(values)
        return [answer["error_code"], answer["base_offset"]]

    def end(self, committed: bool, version: int = 3, **other: Any) -> Any:
        request = make(
            transactions.EndTxnRequest,
            other.get("name", self.name),
            other.get("id", self.id),
            other.get("epoch", self.epoch),
            committed,
        )
        answer = self.subject.settled(request, version)
        return answer if isinstance(answer, str) else answer["error_code"]

    def write(self, topic: str, committed: bool, *values: str) -> None:
        """A whole transaction."""
        assert self.add(topic) == "NONE"
        assert self.send(topic, *values)[0] == "NONE"
        assert self.end(committed) == "NONE"
        self.subject.until(
            lambda: self.subject.end_offset(topic, isolation=1) == self.subject.end_offset(topic),
            lambda caught_up: caught_up,
        )


def _init(subject: Subject, name: str | None, timeout: int = 60_000, version: int = 4, **rest: Any) -> Any:
    return subject.settled(make(transactions.InitProducerIdRequest, name, timeout, **rest), version)


@probe
def init_producer_id_of_a_transaction(subject: Subject) -> Any:
    name = subject.name()
    subject.coordinator(name, 1)
    return {
        "first": _init(subject, name),
        "again": _init(subject, name),
        "third": _init(subject, name),
        "timeout too long": _init(subject, name, 10**9),
        "timeout zero": _init(subject, name, 0),
        "timeout negative": _init(subject, name, -1),
        "empty name": _init(subject, ""),
        "every version": [_init(subject, name, version=version)["error_code"] for version in range(6)],
    }


@probe
def init_producer_id_with_an_epoch(subject: Subject) -> Any:
    name = subject.name()
    producer, epoch = subject.producer(name)

    def again(producer_id: int, producer_epoch: int) -> Any:
        return _init(subject, name, producer_id=producer_id, producer_epoch=producer_epoch)

    return {
        "its own": again(producer, epoch),
        "its own, once more": again(producer, epoch),
        "the newer one": again(producer, epoch + 1),
        "an old one": again(producer, epoch),
        "another id": again(producer + 1000, 0),
        "only an id": again(producer, -1),
        "a name nobody used": _init(subject, subject.name(), producer_id=producer, producer_epoch=0),
    }


@probe
def a_transaction_commits(subject: Subject) -> Any:
    topic = subject.topic()
    transaction = Transaction(subject)
    seen: dict[str, Any] = {"added": transaction.add(topic), "sent": transaction.send(topic, "a", "b")}
    seen["open, uncommitted"] = subject.fetch(topic, 0, max_wait_ms=100)
    seen["open, committed"] = subject.fetch(topic, 0, max_wait_ms=100, isolation_level=1)
    seen["open, end"] = [subject.end_offset(topic), subject.end_offset(topic, isolation=1)]
    seen["ended"] = transaction.end(COMMIT)
    seen["end"] = subject.until(
        lambda: [subject.end_offset(topic), subject.end_offset(topic, isolation=1)],
        lambda ends: ends[0] == ends[1],
    )
    seen["fetched"] = subject.fetch(topic, 0, isolation_level=1)
    seen["ended again"] = transaction.end(COMMIT)
    seen["aborted after"] = transaction.end(ABORT)
    return seen


@probe
def a_transaction_aborts(subject: Subject) -> Any:
    topic = subject.topic()
    transaction = Transaction(subject)
    transaction.write(topic, ABORT, "a", "b")
    seen: dict[str, Any] = {
        "uncommitted": subject.fetch(topic, 0),
        "committed": subject.fetch(topic, 0, isolation_level=1),
        "from the marker": subject.fetch(topic, 2, isolation_level=1),
    }
    transaction.write(topic, COMMIT, "c")
    seen["then"] = subject.fetch(topic, 0, isolation_level=1)
    seen["past the aborted one"] = subject.fetch(topic, 3, isolation_level=1)
    seen["ended again"] = transaction.end(ABORT)
    seen["by time"] = subject.list_offset(topic, 0)["offset"]
    seen["max timestamp"] = subject.list_offset(topic, -3)["offset"]
    return seen


@probe
def a_transaction_over_two_topics(subject: Subject) -> Any:
    first, second = subject.topic(), subject.topic()
    transaction = Transaction(subject)
    for topic in (first, second):
        transaction.add(topic)
        transaction.send(topic, "a")
    transaction.end(COMMIT)
    return [
        subject.until(lambda topic=topic: subject.end_offset(topic, isolation=1), lambda end: end == 2)
        for topic in (first, second)
    ]


@probe
def an_open_transaction_holds_back_what_follows(subject: Subject) -> Any:
    topic = subject.topic()
    transaction = Transaction(subject)
    transaction.add(topic)
    transaction.send(topic, "a")
    subject.write(topic, "plain")
    held = subject.fetch(topic, 0, max_wait_ms=100, isolation_level=1)
    by_time = subject.list_offset(topic, 0, isolation=1)
    at_end = subject.fetch(topic, 1, max_wait_ms=100, isolation_level=1)
    transaction.end(ABORT)
    subject.until(lambda: subject.end_offset(topic, isolation=1), lambda end: end == 3)
    return {
        "held": held,
        "past the stable offset": at_end,
        "by time": by_time["offset"],
        "then": subject.fetch(topic, 0, isolation_level=1),
    }


@probe
def transactions_out_of_turn(subject: Subject) -> Any:
    topic = subject.topic()
    transaction = Transaction(subject)
    return {
        "end without begin": transaction.end(COMMIT),
        "abort without begin": transaction.end(ABORT),
        "end, unknown name": transaction.end(COMMIT, name=subject.name()),
        "end, other id": transaction.end(COMMIT, id=transaction.id + 1000),
        "end, other epoch": transaction.end(COMMIT, epoch=transaction.epoch + 5),
        "add, unknown name": transaction.add(topic, name=subject.name()),
        "add, other id": transaction.add(topic, id=transaction.id + 1000),
        "add, newer epoch": transaction.add(topic, epoch=transaction.epoch + 5),
        "add, unknown topic": transaction.add(subject.name()),
        "add, unknown partition": transaction.add(topic, 9),
        "send before it is added": transaction.send(topic, "a"),
        "add": transaction.add(topic),
        "add again": transaction.add(topic),
        "send": transaction.send(topic, "a"),
        "send of another epoch": transaction.send(topic, "a", epoch=transaction.epoch + 3),
        "end": transaction.end(COMMIT),
    }


@probe
def a_producer_that_is_fenced(subject: Subject) -> Any:
    topic = subject.topic()
    old = Transaction(subject)
    old.add(topic)
    old.send(topic, "old")
    new = Transaction(subject, old.name)
    end = subject.until(lambda: subject.end_offset(topic, isolation=1), lambda each: each == 2)
    return {
        "epochs": [old.epoch, new.epoch],
        "same id": old.id == new.id,
        "its transaction was aborted": end,
        "old adds": old.add(topic),
        "old sends": old.send(topic, "late"),
        "old ends": old.end(COMMIT),
        "new adds": new.add(topic),
        "new sends": new.send(topic, "new"),
        "new ends": new.end(COMMIT),
        "end": subject.until(lambda: subject.end_offset(topic, isolation=1), lambda each: each == 4),
        "fetched": subject.fetch(topic, 0, isolation_level=1),
    }


@probe
def transactions_in_the_newer_way(subject: Subject) -> Any:
    """From Produce v12 and EndTxn v5 on, writing adds the partition and each end raises the epoch (KIP-890)."""
    topic = subject.topic()
    transaction = Transaction(subject)
    seen: dict[str, Any] = {"send": transaction.send(topic, "a", version=NEW_PRODUCE)}

    def ended(committed: bool, epoch: int) -> Any:
        request = make(transactions.EndTxnRequest, transaction.name, transaction.id, epoch, committed)
        return subject.settled(request, 5)

    seen["commit"] = ended(COMMIT, transaction.epoch)
    seen["again"] = ended(COMMIT, transaction.epoch)
    seen["abort with the old epoch"] = ended(ABORT, transaction.epoch)
    transaction.epoch += 1
    transaction.sequence.clear()
    seen["next"] = transaction.send(topic, "b", version=NEW_PRODUCE)
    seen["abort"] = ended(ABORT, transaction.epoch)
    seen["abort of nothing"] = ended(ABORT, transaction.epoch + 1)
    seen["commit of nothing"] = ended(COMMIT, transaction.epoch + 2)
    subject.until(lambda: subject.end_offset(topic, isolation=1), lambda end: end == 4)
    seen["fetched"] = subject.fetch(topic, 0, isolation_level=1)
    return seen


def _add_offsets(transaction: Transaction, group: str) -> Any:
    request = make(
        transactions.AddOffsetsToTxnRequest, transaction.name, transaction.id, transaction.epoch, group
    )
    return transaction.subject.settled(request, 3)


def _commit_offset(transaction: Transaction, group: str, topic: str, offset: int, **rest: Any) -> Any:
    part = make(
        transactions.TxnOffsetCommitRequestPartition,
        partition_index=rest.pop("partition", 0),
        committed_offset=offset,
        committed_metadata="",
    )
    request = make(
        transactions.TxnOffsetCommitRequest,
        transactional_id=transaction.name,
        group_id=group,
        producer_id=transaction.id,
        producer_epoch=rest.pop("epoch", transaction.epoch),
        generation_id=rest.pop("generation", -1),
        member_id=rest.pop("member", ""),
        topics=[make(transactions.TxnOffsetCommitRequestTopic, topic, [part])],
    )
    answer = transaction.subject.settled(request, rest.pop("version", 3))
    return answer if isinstance(answer, str) else answer["topics"][0]["partitions"][0]["error_code"]


def _once_stable(subject: Subject, group: str, topic: str) -> Any:
    return subject.until(
        lambda: committed(subject, group, topic, stable=True),
        lambda told: told["topics"][0]["partitions"][0]["error_code"] == "NONE",
    )


@probe
def offsets_in_a_transaction(subject: Subject) -> Any:
    topic, group = subject.topic(), subject.name()
    subject.coordinator(group)
    commit(subject.wire, group, topic, 1)
    transaction = Transaction(subject)
    seen: dict[str, Any] = {
        "added": _add_offsets(transaction, group),
        "committed": _commit_offset(transaction, group, topic, 5),
        "while open": committed(subject, group, topic),
        "while open, stable": committed(subject, group, topic, stable=True),
        "plain commit meanwhile": commit(subject.wire, group, topic, 2),
        "ended": transaction.end(COMMIT),
    }
    seen["after"] = _once_stable(subject, group, topic)
    _add_offsets(transaction, group)
    _commit_offset(transaction, group, topic, 9)
    transaction.end(ABORT)
    seen["after an abort"] = _once_stable(subject, group, topic)
    _add_offsets(transaction, group)
    _commit_offset(transaction, group, topic, 11)
    transaction.end(COMMIT)
    seen["after a commit with nothing in between"] = _once_stable(subject, group, topic)
    return seen


@probe
def offsets_in_a_transaction_that_are_refused(subject: Subject) -> Any:
    topic, group = subject.topic(), subject.name()
    subject.coordinator(group)
    transaction = Transaction(subject)
    seen = {
        "before they are added": _commit_offset(transaction, group, topic, 1),
        "added": _add_offsets(transaction, group),
        "added to an empty group": _add_offsets(transaction, ""),
        "unknown member": _commit_offset(transaction, group, topic, 1, generation=3, member="nobody"),
        "unknown topic": _commit_offset(transaction, group, subject.name(), 1),
        "unknown partition": _commit_offset(transaction, group, topic, 1, partition=9),
        "other epoch": _commit_offset(transaction, group, topic, 1, epoch=transaction.epoch + 4),
        "good": _commit_offset(transaction, group, topic, 1),
        "ended": transaction.end(ABORT),
    }
    fresh = Transaction(subject)
    seen["v5 adds by itself"] = _commit_offset(fresh, group, topic, 3, version=5)
    seen["and ends"] = fresh.end(COMMIT)
    return seen


@probe
def a_transaction_that_takes_too_long(subject: Subject) -> Any:
    """The coordinator aborts it, and its producer learns at the next step."""
    topic, name = subject.topic(), subject.name()
    transaction = Transaction(subject, name)
    transaction.id, transaction.epoch = subject.producer(name, timeout_ms=1_000)
    transaction.add(topic)
    transaction.send(topic, "a")
    end = subject.until(lambda: subject.end_offset(topic, isolation=1), lambda each: each == 2)
    return {
        "end": end,
        "sends": transaction.send(topic, "b"),
        "adds": transaction.add(topic),
        "ends": transaction.end(COMMIT),
        "begins anew": subject.producer(name)[1] > transaction.epoch,
    }
