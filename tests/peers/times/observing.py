"""Asks one broker what it stores, as short texts that are equal on both brokers if both behave in the same way."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.peers.differential.subject import Subject
from tests.peers.differential.wire import error_name, make
from tests.peers.times.cases import CURRENT_AGES, DAY, HOUR, OLD_AGES, SECOND, YEAR, Absolute, Case
from tests.peers.times.senders import Topics

from millpond.protocol.messages import configs, fetch, offsets
from millpond.records import Codec, walk

TOPIC: Final = 2
SET: Final = 0
LIST_OFFSETS_VERSION: Final = 7
FETCH_VERSION: Final = 11
END, START, NEWEST = -1, -2, -3
SPECIALS: Final = {"end": END, "start": START, "newest": NEWEST}
NONE: Final = "-"

Key = tuple[str, Codec]
Fields = dict[str, str]


@dataclass(frozen=True, slots=True)
class SendTimes:
    """Ages count from `base_ms`; everything was sent from `begin_ms` to `end_ms`."""

    base_ms: int
    begin_ms: int
    end_ms: int

    def name(self, timestamp: int) -> str:
        """A timestamp in words. What a client or a broker chose while batches were sent is "send time"."""
        if timestamp <= 0:
            return {0: "0", -1: "unset"}.get(timestamp, str(timestamp))
        if timestamp != self.base_ms and self.begin_ms <= timestamp <= self.end_ms:
            return "send time"
        return age_name(self.base_ms - timestamp)


def age_name(age_ms: int) -> str:
    if not age_ms:
        return "now"
    direction = "ago" if age_ms > 0 else "ahead"
    for unit_ms, unit in ((YEAR, "y"), (DAY, "d"), (HOUR, "h"), (SECOND, "s"), (1, "ms")):
        if not age_ms % unit_ms:
            return f"{abs(age_ms) // unit_ms} {unit} {direction}"
    raise AssertionError


def queries(case: Case, times: SendTimes) -> dict[str, int]:
    """Name to timestamp: the ends, each time of a record or a header, the millisecond after it, and the send time."""
    ages = {age for age in (*OLD_AGES, *case.ages, *CURRENT_AGES) if age is not None}
    ages |= {
        claim for claim in (case.base, case.newest) if claim is not None and not isinstance(claim, Absolute)
    }
    found = {**SPECIALS, "time 0": 0}
    for age in sorted(ages, reverse=True):
        found[f"time {age_name(age)}"] = times.base_ms - age
        found[f"after {age_name(age)}"] = times.base_ms - age + 1
    return {**found, "time of send": times.begin_ms, "after send": times.end_ms + 3 * HOUR}


def offsets_by_time(subject: Subject, case: Case, topic: str, times: SendTimes) -> dict[Codec, Fields]:
    found: dict[Codec, Fields] = {codec: {} for codec in case.codecs}
    for name, timestamp in queries(case, times).items():
        [answers] = list_offsets(subject, [topic], timestamp, len(case.codecs)).values()
        for codec, (offset, at) in zip(case.codecs, answers, strict=True):
            shown = f"{offset} ({times.name(at)})" if at != -1 else str(offset)
            found[codec][name] = NONE if offset == -1 else shown
    return found


def list_offsets(
    subject: Subject, topics: Iterable[str], timestamp: int, partitions: int
) -> dict[str, list[tuple[int, int]]]:
    """Offset and timestamp of each partition."""
    wanted = [
        make(
            offsets.ListOffsetsTopic,
            topic,
            [
                make(offsets.ListOffsetsPartition, partition_index=number, timestamp=timestamp)
                for number in range(partitions)
            ],
        )
        for topic in topics
    ]
    request = make(offsets.ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=wanted)
    answer = subject.ask(request, LIST_OFFSETS_VERSION)
    found = {}
    for topic in answer.topics:
        parts = sorted(topic.partitions, key=lambda each: each.partition_index)
        refused = [error_name(each.error_code) for each in parts if each.error_code]
        assert not refused, f"ListOffsets of {topic.name}: {refused}"
        found[topic.name] = [(each.offset, each.timestamp) for each in parts]
    return found


def newest_of_headers(subject: Subject, topic: str, partition: int, end: int) -> list[int]:
    """The newest timestamp in the header of each stored batch."""
    found = []
    offset = 0
    while offset < end:
        part = make(
            fetch.FetchPartition, partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        wanted = make(fetch.FetchTopic, topic=topic, partitions=[part])
        request = make(fetch.FetchRequest, max_wait_ms=500, min_bytes=1, topics=[wanted])
        answer = subject.ask(request, FETCH_VERSION).responses[0].partitions[0]
        data = b"".join(bytes(each) for each in answer.records or ())
        assert data, f"Fetch of {topic}-{partition} at {offset}: {error_name(answer.error_code)}"
        for _, header in walk(data):
            found.append(header.max_timestamp)
            offset = header.last_offset + 1
    return found


def set_retention(subject: Subject, cases: Sequence[Case], topics: Topics) -> None:
    resources = [
        make(
            configs.IncrementalAlterConfigsResource,
            TOPIC,
            topics[case.name],
            [make(configs.IncrementalAlterableConfig, "retention.ms", SET, str(case.retention_ms))],
        )
        for case in cases
    ]
    answer = subject.ask(make(configs.IncrementalAlterConfigsRequest, resources), 1)
    refused = [error_name(each.error_code) for each in answer.responses if each.error_code]
    assert not refused, f"IncrementalAlterConfigs: {refused}"


def log_starts(subject: Subject, cases: Sequence[Case], topics: Topics) -> Mapping[Key, int]:
    found = {}
    for case in cases:
        [answers] = list_offsets(subject, [topics[case.name]], START, len(case.codecs)).values()
        found.update(
            {(case.name, codec): offset for codec, (offset, _) in zip(case.codecs, answers, strict=True)}
        )
    return found
