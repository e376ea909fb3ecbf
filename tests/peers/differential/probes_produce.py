"""Produce: what is taken, what is refused and how; idempotent producers."""

import struct
from typing import Any

from tests.peers.differential.subject import Subject, batch_of, codes, now_ms, probe
from tests.peers.differential.wire import make

from millpond.protocol.messages import produce, transactions
from millpond.records import Codec, Record, build_batch, build_control_batch, crc32c
from millpond.records.markers import MarkerKind

UNKNOWN_ID = bytes(range(1, 17))
HOUR_MS = 3_600_000
CRC_AT, CRC_FROM = 17, 21
MAGIC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 16, 21, 23, 57


def _patched(batch: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one field changed and its CRC made right again."""
    data = bytearray(batch)
    struct.pack_into(form, data, at, value)
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_FROM:])))
    return bytes(data)


@probe
def produce_with_every_kind_of_acks(subject: Subject) -> Any:
    name = subject.topic()
    return {str(acks): subject.produce(name, batch_of("a"), acks=acks) for acks in (1, -1, 2, -2)}


@probe
def produce_without_acks_is_not_answered(subject: Subject) -> Any:
    name = subject.topic()
    data = make(
        produce.TopicProduceData,
        name=name,
        partition_data=[make(produce.PartitionProduceData, 0, batch_of("a"))],
    )
    subject.wire.send(make(produce.ProduceRequest, acks=0, timeout_ms=1000, topic_data=[data]), 9)
    answer = subject.wire.receive(0.5)
    subject.wire = subject.another()
    end = subject.until(lambda: subject.end_offset(name), lambda offset: offset == 1)
    return {"answer": answer, "end": end}


@probe
def produce_without_acks_what_is_refused(subject: Subject) -> Any:
    """Kafka has no other way to say no than to hang up."""
    data = make(
        produce.TopicProduceData,
        name=subject.name(),
        partition_data=[make(produce.PartitionProduceData, 0, batch_of("a"))],
    )
    subject.wire.send(make(produce.ProduceRequest, acks=0, timeout_ms=1000, topic_data=[data]), 9)
    answer = subject.wire.receive(1)
    return answer if isinstance(answer, str) else f"{len(answer)} bytes"


@probe
def produce_in_every_version(subject: Subject) -> Any:
    name = subject.topic()
    known = subject.topic_id(name)
    return {
        str(version): subject.produce(name, batch_of("a"), version=version, topic_id=known)
        for version in range(3, 14)
    }


@probe
def produce_to_what_is_not_there(subject: Subject) -> Any:
    name = subject.topic()
    return {
        "unknown topic": subject.produce(subject.name(), batch_of("a")),
        "unknown partition": subject.produce(name, batch_of("a"), 9),
        "negative partition": subject.produce(name, batch_of("a"), -1),
        "invalid name": subject.produce("a/b", batch_of("a")),
        "unknown id": subject.produce("", batch_of("a"), version=13, topic_id=UNKNOWN_ID),
        "no id": subject.produce("", batch_of("a"), version=13),
        "an internal topic": subject.produce("__consumer_offsets", batch_of("a")),
    }


@probe
def produce_batches_that_are_wrong(subject: Subject) -> Any:
    good = batch_of("a", "b")
    broken = bytearray(good)
    broken[-1] ^= 1
    batches: dict[str, bytes | None] = {
        "null": None,
        "empty": b"",
        "wrong CRC": bytes(broken),
        "cut short": good[:-3],
        "only a header": good[:30],
        "magic 1": _patched(good, MAGIC_AT, ">b", 1),
        "magic 3": _patched(good, MAGIC_AT, ">b", 3),
        "more records than there are": _patched(good, COUNT_AT, ">i", 5),
        "fewer records than there are": _patched(good, COUNT_AT, ">i", 1),
        "no records": _patched(good, COUNT_AT, ">i", 0),
        "wrong last delta": _patched(good, LAST_DELTA_AT, ">i", 7),
        "unknown codec": _patched(good, ATTRIBUTES_AT, ">h", 5),
        "codec that is not used": _patched(good, ATTRIBUTES_AT, ">h", 4),
        "unknown attribute": _patched(good, ATTRIBUTES_AT, ">h", 1 << 10),
        "append time by the client": _patched(good, ATTRIBUTES_AT, ">h", 1 << 3),
        "two batches": good + good,
        "a control batch": build_control_batch(MarkerKind.COMMIT, 5, 0, now_ms()),
        "a base offset": batch_of("a", base_offset=42),
        "good": good,
    }
    return {kind: subject.produce(subject.topic(), batch) for kind, batch in batches.items()}


@probe
def produce_with_every_codec(subject: Subject) -> Any:
    name = subject.topic()
    seen = {
        codec.name: subject.produce(name, batch_of("a" * 100, "b" * 100, compression=codec))
        for codec in Codec
    }
    return {**seen, "fetched": subject.fetch(name, 0)["batches"]}


@probe
def produce_zstd_in_an_old_version(subject: Subject) -> Any:
    name = subject.topic()
    return {
        str(v): subject.produce(name, batch_of("a", compression=Codec.ZSTD), version=v) for v in (3, 6, 7)
    }


@probe
def produce_what_a_topic_recompresses(subject: Subject) -> Any:
    name = subject.topic(compression_type="gzip")
    answer = subject.produce(name, batch_of("a" * 50, "b" * 50))
    return {"answer": answer, "fetched": subject.fetch(name, 0)["batches"]}


@probe
def produce_what_is_too_large(subject: Subject) -> Any:
    name = subject.topic(max_message_bytes="1000")
    wide = subject.topic()
    batch = batch_of("a" * 2000)
    small = batch_of("a" * 100)
    return {
        "small": subject.produce(name, small),
        "large": subject.produce(name, batch),
        "large, compressed": subject.produce(name, batch_of("a" * 2000, compression=Codec.GZIP)),
        "exactly": subject.produce(name, batch_of("a" * (1000 - len(batch_of("a" * 900)) + 900))),
        "one more": subject.produce(name, batch_of("a" * (1001 - len(batch_of("a" * 900)) + 900))),
        "above the broker's limit": subject.produce(wide, batch_of("a" * 1_048_600)),
    }


@probe
def produce_with_times_that_are_not_now(subject: Subject) -> Any:
    name, now = subject.topic(), now_ms()
    times = {
        "two hours ahead": now + 2 * HOUR_MS,
        "half an hour ahead": now + HOUR_MS // 2,
        "long ago": 1000,
        "zero": 0,
        "none (-1)": -1,
    }
    seen = {kind: subject.produce(name, batch_of("a", now_ms=at)) for kind, at in times.items()}
    bounded = subject.topic(message_timestamp_before_max_ms="1000")
    return {**seen, "before the bound": subject.produce(bounded, batch_of("a", now_ms=now - HOUR_MS))}


@probe
def produce_to_a_topic_with_append_time(subject: Subject) -> Any:
    name = subject.topic(message_timestamp_type="LogAppendTime")
    answer = subject.produce(name, batch_of("a", now_ms=1000))
    latest = subject.list_offset(name, now_ms() - HOUR_MS)
    return {"answer": answer, "found by the broker's time": latest["offset"]}


@probe
def produce_to_a_compacted_topic(subject: Subject) -> Any:
    name = subject.topic(cleanup_policy="compact")
    mixed = build_batch([Record(b"a", b"k"), Record(b"b")], now_ms=now_ms())
    return {
        "without a key": subject.produce(name, batch_of("a")),
        "with a key": subject.produce(name, batch_of("a", key=b"k")),
        "one of two": subject.produce(name, mixed),
    }


@probe
def produce_the_same_partition_twice_in_one_request(subject: Subject) -> Any:
    name = subject.topic()
    parts = [make(produce.PartitionProduceData, 0, batch_of(value)) for value in "ab"]
    request = make(
        produce.ProduceRequest,
        acks=-1,
        timeout_ms=1000,
        topic_data=[make(produce.TopicProduceData, name=name, partition_data=parts)],
    )
    answer = subject.tell(request, 9)
    return {"answer": answer, "end": subject.end_offset(name)}


@probe
def produce_nothing_at_all(subject: Subject) -> Any:
    return subject.tell(make(produce.ProduceRequest, acks=-1, timeout_ms=1000, topic_data=[]), 9)


class _Idempotent:
    """An idempotent producer of one partition, made by hand."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.topic = subject, subject.topic()
        self.id, self.epoch = subject.producer()

    def send(self, sequence: int, *values: str, epoch: int | None = None, producer: int | None = None) -> Any:
        batch = batch_of(
            *(values or ("a",)),
            producer_id=self.id if producer is None else producer,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        return self.subject.produce(self.topic, batch)


@probe
def idempotent_duplicates(subject: Subject) -> Any:
    producer = _Idempotent(subject)
    firsts = [producer.send(sequence) for sequence in range(7)]
    return {
        "first": [each["base_offset"] for each in firsts],
        "last again": producer.send(6),
        "fifth from the end again": producer.send(2),
        "sixth from the end again": producer.send(1),
        "the first again": producer.send(0),
        "gap": producer.send(9),
        "next": producer.send(7),
        "overlap": producer.send(7, "a", "b"),
        "end": subject.end_offset(producer.topic),
    }


@probe
def idempotent_first_sequence(subject: Subject) -> Any:
    producer = _Idempotent(subject)
    return {
        "begins at 5": producer.send(5),
        "an id nobody gave": producer.send(3, producer=99_999),
        "an id nobody gave, from 0": producer.send(0, producer=99_998),
        "end": subject.end_offset(producer.topic),
    }


@probe
def idempotent_epochs(subject: Subject) -> Any:
    producer = _Idempotent(subject)
    return {
        "epoch 0": producer.send(0),
        "epoch 2 from 1": producer.send(1, epoch=2),
        "epoch 2 from 0": producer.send(0, epoch=2),
        "epoch 1": producer.send(0, epoch=1),
        "epoch 2 next": producer.send(1, epoch=2),
        "epoch -1": producer.send(2, epoch=-1),
        "no sequence": producer.send(-1, epoch=2),
    }


@probe
def idempotent_sequence_wraps(subject: Subject) -> Any:
    producer = _Idempotent(subject)
    last = 2**31 - 1
    return {
        "first": producer.send(last - 1, "a", "b"),
        "from 0": producer.send(0),
        "again": producer.send(last - 1, "a", "b"),
        "end": subject.end_offset(producer.topic),
    }


@probe
def idempotent_with_two_batches_in_one_set(subject: Subject) -> Any:
    producer = _Idempotent(subject)
    parts = [
        batch_of("a", producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=sequence)
        for sequence in (0, 1)
    ]
    return subject.produce(producer.topic, b"".join(parts))


@probe
def init_producer_id_without_a_transaction(subject: Subject) -> Any:
    def asked(version: int, **rest: Any) -> Any:
        return subject.tell(make(transactions.InitProducerIdRequest, None, 60_000, **rest), version)

    first, _ = subject.producer()
    second, _ = subject.producer()
    return {
        "every version": codes([asked(version) for version in range(6)]),
        "ids rise": second > first,
        "with an id of before": asked(4, producer_id=first, producer_epoch=0),
        "with an id nobody gave": asked(4, producer_id=10**12, producer_epoch=3),
        "with a last epoch": asked(4, producer_id=second, producer_epoch=32767),
    }


@probe
def a_transactional_batch_without_a_transaction(subject: Subject) -> Any:
    name = subject.topic()
    producer, epoch = subject.producer()
    nobody = subject.name()
    subject.coordinator(nobody, 1)
    batch = batch_of("a", producer_id=producer, producer_epoch=epoch, base_sequence=0, transactional=True)
    return {
        "no transactional id": subject.produce(name, batch),
        "an id nobody has": subject.produce(name, batch, transactional_id=nobody),
        "plain batch, transactional id": subject.produce(
            name, batch_of("a"), transactional_id=subject.name()
        ),
    }
