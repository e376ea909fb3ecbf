"""One run: sends everything while records are kept without limit, asks, sets the retention of each case, waits for ten
passes of retention, and asks again."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.peers.differential.subject import Subject, now_ms
from tests.peers.times import observing, senders
from tests.peers.times.brokers import CHECK_INTERVAL_MS, TestedBroker, kafka_broker, millpond_broker
from tests.peers.times.cases import CASES, Case, Sender
from tests.peers.times.observing import Fields, Key, SendTimes
from tests.peers.times.senders import Produced, Topics

PASSES: Final = 10
RAW_SECONDS_MAX: Final = 35.0
"""From the timestamps of the raw batches to the end of the last pass: short retentions are longer than this."""
WITHOUT_LIMIT: Final = "-1"


@dataclass(slots=True)
class Observed:
    """What was seen of one broker. `expired_early_ms` is how long before the end of its retention a batch expired at
    most, or 0. The retention of a record counts from its timestamp, or from its append if that is earlier."""

    broker: TestedBroker
    subject: Subject
    topics: Topics
    fields: dict[Key, Fields] = field(default_factory=dict)
    times: dict[Sender, SendTimes] = field(default_factory=dict)
    produced: Produced = field(default_factory=dict)
    expired_early_ms: dict[Key, int] = field(default_factory=dict)
    starts: dict[Key, int] = field(default_factory=dict)


def observe(folder: Path, cases: Sequence[Case] = CASES) -> list[Observed]:
    """Kafka's part and ours."""
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(kafka_broker(folder / "kafka")),
            stack.enter_context(millpond_broker(folder / "millpond")),
        ]
        found = [_prepared(broker, cases, stack) for broker in brokers]
        for sender in (Sender.KAFKAJS, Sender.LIBRDKAFKA, Sender.RAW):
            base_ms = now_ms()
            time.sleep(0.01)  # so that no send time is the base
            for each in found:
                _send(each, sender, cases, base_ms)
        for each in found:
            _look_at_stored(each, cases)
            observing.set_retention(each.subject, cases, each.topics)
        _expire(found, cases)
        assert now_ms() - base_ms < RAW_SECONDS_MAX * 1_000, (
            "this machine is too slow for the short retentions"
        )
        for each in found:
            _look(each, cases, "kept")
        return found


def _prepared(broker: TestedBroker, cases: Sequence[Case], stack: ExitStack) -> Observed:
    subject = stack.enter_context(Subject(broker.address, "times", "1"))
    topics = {
        case.name: subject.topic(
            len(case.codecs), **{**case.configs, **broker.configs, "retention.ms": WITHOUT_LIMIT}
        )
        for case in cases
    }
    return Observed(broker, subject, topics)


def _send(seen: Observed, sender: Sender, cases: Sequence[Case], base_ms: int) -> None:
    begin_ms = now_ms()
    chosen = [case for case in cases if case.sender is sender]
    if chosen:
        seen.produced |= senders.send(sender, chosen, seen.topics, seen.subject, base_ms)
    seen.times[sender] = SendTimes(base_ms, begin_ms, now_ms())


def _look_at_stored(seen: Observed, cases: Sequence[Case]) -> None:
    for case in cases:
        times, topic = seen.times[case.sender], seen.topics[case.name]
        for partition, codec in enumerate(case.codecs):
            produced = seen.produced[case.name, codec]
            headers = observing.newest_of_headers(seen.subject, topic, partition, _end(case, produced))
            seen.fields[case.name, codec] = {
                "produced": ", ".join(map(str, produced)),
                "headers": ", ".join(map(times.name, headers)),
            }
    _look(seen, cases, "stored")


def _end(case: Case, produced: Sequence[int | str]) -> int:
    return sum(
        len(ages) for ages, base in zip(case.batches, produced, strict=True) if not isinstance(base, str)
    )


def _look(seen: Observed, cases: Sequence[Case], stage: str) -> None:
    for case in cases:
        times = seen.times[case.sender]
        found = observing.offsets_by_time(seen.subject, case, seen.topics[case.name], times)
        for codec, fields in found.items():
            seen.fields[case.name, codec] |= {f"{stage}: {name}": value for name, value in fields.items()}


# -- expiry ---------------------------------------------------------------------------------------------------------


def _expire(found: Sequence[Observed], cases: Sequence[Case]) -> None:
    """Ten passes on both brokers, and a little longer for Kafka's timer."""
    for _ in range(PASSES):
        begin_ms = now_ms()
        for each in found:
            each.broker.run_pass()
            _note_expired(each, cases, begin_ms)
        time.sleep(max(0.0, (begin_ms + CHECK_INTERVAL_MS - now_ms()) / 1_000))
    time.sleep(CHECK_INTERVAL_MS / 1_000)


def _note_expired(seen: Observed, cases: Sequence[Case], begin_ms: int) -> None:
    starts = observing.log_starts(seen.subject, cases, seen.topics)
    for case in cases:
        for codec in case.codecs:
            key = case.name, codec
            before, start = seen.starts.get(key, 0), starts[key]
            times = _retention_times(case, seen.produced[key], seen.times[case.sender])[before:start]
            early = [each + case.retention_ms - begin_ms for each in times]
            seen.expired_early_ms[key] = max([*early, seen.expired_early_ms.get(key, 0)])
    seen.starts = dict(starts)


def _retention_times(case: Case, produced: Sequence[int | str], times: SendTimes) -> list[int]:
    """By offset: the time from which the retention of a record counts, at the latest."""
    found = []
    for ages, base in zip(case.batches, produced, strict=True):
        if not isinstance(base, str):
            newest = max(_retention_time(age, case, times) for age in ages)
            found += [newest] * len(ages)
    return found


def _retention_time(age: int | None, case: Case, times: SendTimes) -> int:
    is_at_append = age is None or age < 0 or case.has_append_time
    return times.end_ms if is_at_append else times.base_ms - age
