"""ListOffsets: special timestamps, times, and who may not ask."""

from typing import Any

from tests.peers.differential.subject import Subject, batch_of, now_ms, probe
from tests.peers.differential.wire import make

from millpond.protocol.messages import offsets

SPECIALS = {
    "latest": -1,
    "earliest": -2,
    "max timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "earliest pending upload": -6,
    "unknown special": -7,
}


def _told(answer: Any, base: int) -> Any:
    """Timestamps are told as what they are after the first."""
    if isinstance(answer, dict) and answer["timestamp"] > 0:
        answer["timestamp"] -= base
    return answer


@probe
def list_offsets_specials(subject: Subject) -> Any:
    name, empty, base = subject.topic(), subject.topic(), now_ms() - 10_000
    for at, value in ((0, "a"), (200, "b"), (100, "c")):
        subject.write(name, value, timestamp=base + at)
    return {
        kind: {
            "filled": _told(subject.list_offset(name, special, version=11), base),
            "empty": _told(subject.list_offset(empty, special, version=11), base),
            "v1": _told(subject.list_offset(name, special, version=1), base),
        }
        for kind, special in SPECIALS.items()
    }


@probe
def list_offsets_by_time(subject: Subject) -> Any:
    name, base = subject.topic(), now_ms() - 10_000
    for at, value in ((0, "a"), (200, "b"), (100, "c"), (300, "d")):
        subject.write(name, value, timestamp=base + at)
    times = (-5_000, 0, 1, 100, 150, 200, 201, 300, 301)
    return {str(at): _told(subject.list_offset(name, base + at), base) for at in times}


@probe
def list_offsets_by_time_inside_a_batch(subject: Subject) -> Any:
    from millpond.records import Record, build_batch

    name, base = subject.topic(), now_ms() - 10_000
    records = [Record(b"x", timestamp=base + at) for at in (0, 50, 20, 90)]
    subject.produce(name, build_batch(records))
    seen = {str(at): _told(subject.list_offset(name, base + at), base) for at in (10, 50, 60, 91)}
    return {**seen, "max": _told(subject.list_offset(name, -3), base)}


@probe
def list_offsets_of_what_is_not_there(subject: Subject) -> Any:
    name = subject.topic()
    return {
        "unknown topic": subject.list_offset(subject.name(), -1),
        "unknown partition": subject.list_offset(name, -1, 9),
        "negative partition": subject.list_offset(name, -1, -1),
        "epoch": subject.list_offset(name, -1, epoch=subject.epoch(name)),
        "newer epoch": subject.list_offset(name, -1, epoch=subject.epoch(name) + 9),
    }


@probe
def list_offsets_twice_in_one_request(subject: Subject) -> Any:
    name = subject.topic()
    parts = [make(offsets.ListOffsetsPartition, partition_index=0, timestamp=at) for at in (-1, -2)]
    request = make(offsets.ListOffsetsRequest, -1, topics=[make(offsets.ListOffsetsTopic, name, parts)])
    return subject.tell(request, 7)


@probe
def list_offsets_in_every_version(subject: Subject) -> Any:
    name = subject.topic()
    subject.produce(name, batch_of("a"))
    return {str(version): subject.list_offset(name, -1, version=version) for version in range(1, 12)}


@probe
def list_offsets_as_a_replica(subject: Subject) -> Any:
    name = subject.topic()
    subject.write(name, "a")
    part = make(offsets.ListOffsetsPartition, partition_index=0, timestamp=-1)
    return {
        str(replica): subject.tell(
            make(offsets.ListOffsetsRequest, replica, topics=[make(offsets.ListOffsetsTopic, name, [part])]),
            7,
        )
        for replica in (-2, 5)
    }
