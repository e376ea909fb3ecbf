"""The load: records of 100 B with timestamps that are current, or a year old. One sender is librdkafka, which is slower
than the broker. The other sends batches that are built before the clock starts, so that the broker is the limit.

Payloads are hexadecimal digits, which a codec makes half as long. Timestamps rise by a
millisecond a record, and begin again after a second.
"""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from confluent_kafka import Producer

from benchmarks.kafka.load import ANSWER_S_MAX
from benchmarks.kafka.subjects import Subject
from millpond.protocol import decode, encode_request, read_response_header
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.records import Codec, Record, build_batch

RECORD_BYTES: Final = 100
PAYLOADS: Final = 1024
SPREAD_MS: Final = 1000
POLL_EVERY: Final = 1000
YEAR_MS: Final = 365 * 24 * 3_600_000
PREPARED_BATCHES: Final = 8
RECORDS_PER_BATCH: Final = 5_000
IN_FLIGHT_MAX: Final = 5
PRODUCE_VERSION: Final = 9


class Age(Enum):
    OLD = "a year old"
    CURRENT = "current"

    @property
    def ms(self) -> int:
        return YEAR_MS if self is Age.OLD else 0


class Throughput(NamedTuple):
    megabytes_per_s: float
    cpu_s_per_gb: float
    begin_s: float
    end_s: float


Send = Callable[[], None]


def produce(subject: Subject, topic: str, sender: str, codec: str, age: Age, messages: int) -> Throughput:
    """`cpu_s_per_gb` is the broker's processor time."""
    send = SENDERS[sender](subject, topic, codec, age, messages)
    cpu_s, begin_s = subject.cpu_s(), time.monotonic()
    send()
    end_s = time.monotonic()
    megabytes = messages * RECORD_BYTES / 1e6
    used_s = subject.cpu_s() - cpu_s
    return Throughput(megabytes / (end_s - begin_s), used_s / (megabytes / 1000), begin_s, end_s)


def _payloads() -> list[bytes]:
    return [os.urandom(RECORD_BYTES // 2).hex().encode() for _ in range(PAYLOADS)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- librdkafka -----------------------------------------------------------------------------------------------------


def _with_librdkafka(subject: Subject, topic: str, codec: str, age: Age, messages: int) -> Send:
    producer = Producer(
        {
            "bootstrap.servers": subject.address,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": codec,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    payloads = _payloads()
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(ANSWER_S_MAX) == 0

    def send() -> None:
        for number in range(messages):
            if number % POLL_EVERY == 0:
                producer.poll(0)
                oldest_ms = _now_ms() - age.ms - SPREAD_MS
            _send(producer, topic, payloads[number % PAYLOADS], oldest_ms + number % SPREAD_MS)
        assert producer.flush(ANSWER_S_MAX) == 0, "everything is acknowledged in time"

    return send


def _send(producer: Producer, topic: str, payload: bytes, timestamp: int) -> None:
    while True:
        try:
            producer.produce(topic, payload, partition=0, timestamp=timestamp)
        except BufferError:
            producer.poll(0.01)
        else:
            return


# -- prepared batches -----------------------------------------------------------------------------------------------


def _with_prepared_batches(subject: Subject, topic: str, codec: str, age: Age, messages: int) -> Send:
    requests = list(_requests(topic, codec, age))

    def send() -> None:
        host, _, port = subject.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=ANSWER_S_MAX) as connection:
            count = messages // RECORDS_PER_BATCH
            for number in range(count + IN_FLIGHT_MAX):
                if number < count:
                    connection.sendall(requests[number % PREPARED_BATCHES])
                if number >= IN_FLIGHT_MAX:
                    _check_response(connection)

    return send


def _requests(topic: str, codec: str, age: Age) -> Iterator[bytes]:
    payloads, oldest_ms = _payloads(), _now_ms() - age.ms - SPREAD_MS
    for first in range(PREPARED_BATCHES):
        records = [
            Record(payloads[(first + number) % PAYLOADS], timestamp=oldest_ms + number % SPREAD_MS)
            for number in range(RECORDS_PER_BATCH)
        ]
        batch = build_batch(records, compression=Codec[codec.upper()])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=int(ANSWER_S_MAX * 1000), topic_data=[data])
        yield b"".join(encode_request(request, PRODUCE_VERSION, first, "backfill").buffers)


def _check_response(connection: socket.socket) -> None:
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    frame = _exactly(connection, length)
    _, position = read_response_header(frame, ProduceRequest.api_key, PRODUCE_VERSION)
    response = decode(ProduceRequest.response, PRODUCE_VERSION, frame, position)
    assert response.responses[0].partition_responses[0].error_code == 0, response


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the broker closed the connection"
        data += part
    return data


SENDERS: Final = {"librdkafka": _with_librdkafka, "prepared batches": _with_prepared_batches}
