"""Sends the batches of cases: as raw requests, through kafkajs, and through librdkafka."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import confluent_kafka
from tests.batches import batch_with_header
from tests.peers.differential.subject import Subject
from tests.peers.times.brokers import PADDING_BYTES
from tests.peers.times.cases import Absolute, Ages, Case, Claim, Sender

from millpond.records import NO_TIMESTAMP, Codec, Record
from peers import programs

FLUSH_SECONDS_MAX: Final = 30.0
APPENDS_APART_SECONDS: Final = 0.002
"""So that no two batches of a log have the same append time."""

Topics = Mapping[str, str]
"""Case to topic."""
Produced = dict[tuple[str, Codec], list[int | str]]
"""Case and codec to the base offset of each batch, or the error for which it was refused."""


def send(sender: Sender, cases: Sequence[Case], topics: Topics, subject: Subject, base_ms: int) -> Produced:
    return SENDERS[sender](cases, topics, subject, base_ms)


def timestamps(ages: Ages, base_ms: int) -> list[int]:
    return [NO_TIMESTAMP if age is None else base_ms - age for age in ages]


# -- raw requests ---------------------------------------------------------------------------------------------------


def _send_raw(cases: Sequence[Case], topics: Topics, subject: Subject, base_ms: int) -> Produced:
    found: Produced = {}
    for case in cases:
        for partition, codec in enumerate(case.codecs):
            found[case.name, codec] = []
            for batch in raw_batches(case, codec, base_ms):
                answer = subject.produce(topics[case.name], batch, partition)
                is_stored = answer["error_code"] == "NONE"
                found[case.name, codec].append(answer["base_offset" if is_stored else "error_code"])
                time.sleep(APPENDS_APART_SECONDS)
    return found


def raw_batches(case: Case, codec: Codec, base_ms: int) -> list[bytes]:
    old, tested, current = (_records(ages, base_ms) for ages in case.batches)
    base, newest = (_claimed(claim, base_ms) for claim in (case.base, case.newest))
    return [
        batch_with_header(old, codec=codec),
        batch_with_header(tested, codec=codec, base=base, newest=newest),
        batch_with_header(current, codec=codec),
    ]


def _records(ages: Ages, base_ms: int) -> list[Record]:
    values = [secrets.token_bytes(PADDING_BYTES), *(b"%d" % number for number in range(1, len(ages)))]
    times = timestamps(ages, base_ms)
    return [Record(value, timestamp=each) for value, each in zip(values, times, strict=True)]


def _claimed(claim: Claim, base_ms: int) -> int | None:
    if isinstance(claim, Absolute):
        return claim.value
    return None if claim is None else base_ms - claim


# -- clients --------------------------------------------------------------------------------------------------------


def _send_with_kafkajs(cases: Sequence[Case], topics: Topics, subject: Subject, base_ms: int) -> Produced:
    wanted: list[dict[str, Any]] = []
    owners = []
    for case in cases:
        for partition, codec in enumerate(case.codecs):
            for ages in case.batches:
                times = [None if age is None else base_ms - age for age in ages]
                wanted.append(
                    {
                        "topic": topics[case.name],
                        "partition": partition,
                        "gzip": codec is Codec.GZIP,
                        "timestamps": times,
                        "bytes": PADDING_BYTES,
                    }
                )
                owners.append((case.name, codec))
    bases = programs.kafkajs().ask("times", subject.address, "times", json.dumps(wanted))["bases"]
    found: Produced = {}
    for owner, base in zip(owners, bases, strict=True):
        found.setdefault(owner, []).append(base)
    return found


def _send_with_librdkafka(cases: Sequence[Case], topics: Topics, subject: Subject, base_ms: int) -> Produced:
    found: Produced = {}
    for codec in Codec:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": subject.address,
                "compression.type": codec.name.lower(),
                "linger.ms": 60_000,  # a batch is what was produced before a flush
            }
        )
        for case in cases:
            partition = case.codecs.index(codec)
            records = [_records(ages, base_ms) for ages in case.batches]
            found[case.name, codec] = [
                _send_batch(producer, topics[case.name], partition, each) for each in records
            ]
    return found


def _send_batch(
    producer: confluent_kafka.Producer, topic: str, partition: int, records: Sequence[Record]
) -> int | str:
    outcomes: list[int | str] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        outcomes.append(message.offset() if error is None else error.name())

    for record in records:
        producer.produce(
            topic, record.value, partition=partition, timestamp=record.timestamp, on_delivery=delivered
        )
    producer.list_topics(
        topic, FLUSH_SECONDS_MAX
    )  # a flush before the partition is known would split the batch
    assert producer.flush(FLUSH_SECONDS_MAX) == 0, "librdkafka did not deliver a batch"
    return outcomes[0]


SENDERS: Final = {
    Sender.RAW: _send_raw,
    Sender.KAFKAJS: _send_with_kafkajs,
    Sender.LIBRDKAFKA: _send_with_librdkafka,
}
