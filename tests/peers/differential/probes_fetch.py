"""Fetch: what comes back from where, sessions, epochs and limits."""

from typing import Any

from tests.peers.differential.subject import Subject, batch_of, probe, told_fetch
from tests.peers.differential.wire import CLOSED, error_name, make

from millpond.protocol.messages import fetch, offsets

UNKNOWN_ID = bytes(range(1, 17))


def _lettered(subject: Subject, letters: str = "abcde") -> str:
    name = subject.topic()
    subject.write(name, *letters)
    return name


@probe
def fetch_from_every_place(subject: Subject) -> Any:
    name = _lettered(subject)
    return {
        str(offset): subject.fetch(name, offset, max_wait_ms=100) for offset in (-2, -1, 0, 3, 4, 5, 6, 999)
    }


@probe
def fetch_in_every_version(subject: Subject) -> Any:
    name = _lettered(subject, "a")
    known = subject.topic_id(name)
    return {str(version): subject.fetch(name, 0, version=version, topic_id=known) for version in range(4, 19)}


@probe
def fetch_from_the_middle_of_a_batch(subject: Subject) -> Any:
    name = subject.topic()
    subject.produce(name, batch_of("a", "b", "c"))
    return subject.fetch(name, 1)


@probe
def fetch_what_is_not_there(subject: Subject) -> Any:
    name = _lettered(subject, "a")
    return {
        "unknown topic": subject.fetch(subject.name(), 0),
        "unknown partition": subject.fetch(name, 0, 9),
        "negative partition": subject.fetch(name, 0, -1),
        "unknown id": subject.fetch("", 0, version=13, topic_id=UNKNOWN_ID),
        "no id": subject.fetch("", 0, version=13),
        "invalid name": subject.fetch("a/b", 0),
    }


@probe
def fetch_with_small_limits(subject: Subject) -> Any:
    name = subject.topic()
    subject.write(name, "a" * 500, "b" * 500, "c" * 500)

    def got(**limits: Any) -> Any:
        return subject.fetch(name, 0, **limits)["records"]

    return {
        "partition 1 byte": got(partition_max_bytes=1),
        "partition 0 bytes": got(partition_max_bytes=0),
        "partition 700 bytes": got(partition_max_bytes=700),
        "partition 1200 bytes": got(partition_max_bytes=1200),
        "all 1 byte": got(max_bytes=1),
        "all 0 bytes": got(max_bytes=0),
        "all 1200 bytes": got(max_bytes=1200),
        "negative wait": got(max_wait_ms=-1),
        "zero min": got(min_bytes=0),
    }


@probe
def fetch_the_second_partition_with_a_small_limit(subject: Subject) -> Any:
    """Only the first partition with data may pass the limit, so that someone always gets something."""
    name = subject.topic(2)
    for partition in (0, 1):
        subject.write(name, "a" * 500, partition=partition)
    parts = [
        make(fetch.FetchPartition, partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
        for each in (0, 1)
    ]
    request = make(
        fetch.FetchRequest,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1,
        topics=[make(fetch.FetchTopic, topic=name, partitions=parts)],
    )
    answer = subject.ask(request, 11)
    found = answer.responses[0].partitions
    return {str(each.partition_index): sum(map(len, each.records or ())) > 0 for each in found}


@probe
def fetch_with_leader_epochs(subject: Subject) -> Any:
    name = _lettered(subject, "ab")
    now = subject.epoch(name)
    return {
        "current": subject.fetch(name, 0, current_leader_epoch=now),
        "newer": subject.fetch(name, 0, current_leader_epoch=now + 5),
        "newer, v12": subject.fetch(name, 0, version=12, current_leader_epoch=now + 5),
        "last fetched now": subject.fetch(name, 1, version=12, last_fetched_epoch=now),
        "last fetched later": subject.fetch(name, 1, version=12, last_fetched_epoch=now + 5),
    }


@probe
def offset_for_leader_epoch(subject: Subject) -> Any:
    name = _lettered(subject, "abc")
    now = subject.epoch(name)

    def asked(epoch: int, current: int = -1, topic: str = name, partition: int = 0) -> Any:
        part = make(
            offsets.OffsetForLeaderPartition,
            partition=partition,
            current_leader_epoch=current,
            leader_epoch=epoch,
        )
        request = make(
            offsets.OffsetForLeaderEpochRequest, -1, [make(offsets.OffsetForLeaderTopic, topic, [part])]
        )
        answer = subject.tell(request, 4)
        return answer if isinstance(answer, str) else answer["topics"][0]["partitions"][0]

    return {
        "current": asked(now),
        "newer": asked(now + 5),
        "none": asked(-1),
        "by one who knows a newer": asked(now, now + 9),
        "unknown partition": asked(now, -1, name, 7),
        "unknown topic": asked(now, -1, subject.name()),
    }


@probe
def fetch_as_a_replica(subject: Subject) -> Any:
    name = _lettered(subject, "a")
    return {str(replica): subject.fetch(name, 0, replica_id=replica) for replica in (-2, 5)}


class _Session:
    """A fetch session, asked step by step."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.id = subject, 0

    def ask(self, epoch: int, topic: str = "", offset: int = 0, forget: str = "", session: int = -1) -> Any:
        part = make(fetch.FetchPartition, partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        forgotten = [make(fetch.ForgottenTopic, topic=forget, partitions=[0])] if forget else []
        request = make(
            fetch.FetchRequest,
            max_wait_ms=200,
            min_bytes=1,
            session_id=self.id if session == -1 else session,
            session_epoch=epoch,
            topics=[make(fetch.FetchTopic, topic=topic, partitions=[part])] if topic else [],
            forgotten_topics_data=forgotten,
        )
        answer = self.subject.ask(request, 11)
        if isinstance(answer, str):
            return answer
        self.id = answer.session_id or self.id
        told = {"error_code": error_name(answer.error_code), "session": answer.session_id > 0}
        records = told_fetch(answer)["records"] if answer.responses else []
        return {**told, "topics": len(answer.responses), "records": records}


@probe
def fetch_sessions(subject: Subject) -> Any:
    first, second = _lettered(subject, "ab"), _lettered(subject, "x")
    session = _Session(subject)
    seen = {
        "full": session.ask(0, first),
        "moved on": session.ask(1, first, 2),
        "nothing new": session.ask(2),
    }
    subject.write(first, "c")
    seen["something new"] = session.ask(3)
    seen["another topic"] = session.ask(4, second)
    seen["forgotten"] = session.ask(5, forget=first)
    seen["wrong epoch"] = session.ask(3)
    seen["unknown session"] = session.ask(1, session=123_456)
    seen["closed"] = session.ask(-1, first)
    seen["after it was closed"] = session.ask(6)
    return seen


@probe
def fetch_without_a_session(subject: Subject) -> Any:
    name = _lettered(subject, "a")
    session = _Session(subject)
    return {"epoch -1": session.ask(-1, name, session=0), "epoch 1": session.ask(1, name, session=0)}


@probe
def fetch_waits_for_enough(subject: Subject) -> Any:
    """What arrives during the wait is in the answer."""
    name = _lettered(subject, "a")
    with subject.another() as wire:
        part = make(fetch.FetchPartition, partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        request = make(
            fetch.FetchRequest,
            max_wait_ms=10_000,
            min_bytes=1,
            topics=[make(fetch.FetchTopic, topic=name, partitions=[part])],
        )
        wire.send(request, 11)
        subject.write(name, "b")
        answer = wire.receive()
        return answer if isinstance(answer, str) else told_fetch(wire.read(fetch.FetchRequest, 11, answer))


@probe
def fetch_nothing_at_all(subject: Subject) -> Any:
    answer = subject.ask(make(fetch.FetchRequest, max_wait_ms=100, min_bytes=1, topics=[]), 11)
    if answer == CLOSED:
        return answer
    return {"error_code": error_name(answer.error_code), "topics": len(answer.responses)}
