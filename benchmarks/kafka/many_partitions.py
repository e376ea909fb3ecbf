"""What a fetch of many partitions costs a broker: `python -m benchmarks.kafka.many_partitions`.

One connection asks for 1,000 partitions, of which none or one has a record. Apache Kafka is asked in full, too, and in
a fetch session (KIP-227), in which a client sends only what has changed. Millpond declines sessions. Not part of
`make bench`: it answers whether sessions would pay.
"""

import contextlib
import socket
import statistics
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.subjects import SUBJECTS, Subject
from millpond.protocol import Request, decode, encode_request, read_response_header
from millpond.protocol.messages import fetch as wire
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

PARTITIONS = 1_000
TOPIC = "many"
REQUESTS = 400
WARM_UP = 3_000
"""Java compiles what it runs often."""
ROUNDS = 5
VERSION = 13
METADATA_VERSION = 12
FULL_EPOCH, FIRST_EPOCH = -1, 0


class Connection:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))

    def send(self, request: Request, version: int) -> Any:
        data = self.exchange(b"".join(encode_request(request, version, 1, "bench").buffers))
        _, position = read_response_header(data, request.api_key, version)
        return decode(type(request).response, version, data, position)

    def exchange(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._socket.recv(size - len(data))
        return bytes(data)


def fetch(topic_id: bytes, partitions: int, session: int = 0, epoch: int = FULL_EPOCH) -> wire.FetchRequest:
    parts = [
        wire.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(partitions)
    ]
    return wire.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 25,
        session_id=session,
        session_epoch=epoch,
        topics=[wire.FetchTopic(topic_id=topic_id, partitions=parts)] if parts else [],
    )


def measure(subject: Subject, work: Callable[[int], object], requests: int = REQUESTS) -> float:
    """CPU milliseconds of the broker for each request."""
    before = subject.cpu_s()
    for number in range(requests):
        work(number)
    return (subject.cpu_s() - before) / requests * 1_000


def full(connection: Connection, topic_id: bytes, partitions: int) -> Callable[[int], object]:
    frame = b"".join(encode_request(fetch(topic_id, partitions), VERSION, 1, "bench").buffers)
    return lambda _: connection.exchange(frame)


def in_session(connection: Connection, topic_id: bytes) -> Callable[[int], object] | None:
    """None if the broker declines the session."""
    opened = connection.send(fetch(topic_id, PARTITIONS, epoch=FIRST_EPOCH), VERSION)
    session, epoch = opened.session_id, 0
    if not session:
        return None

    def work(_: int) -> object:
        nonlocal epoch
        epoch += 1
        return connection.send(fetch(topic_id, 0, session, epoch), VERSION)

    return work


def prepared(subject: Subject) -> tuple[Connection, bytes]:
    admin = AdminClient(subject.client)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    connection = Connection(subject.address)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    return connection, bytes(connection.send(asked, METADATA_VERSION).topics[0].topic_id)


def main() -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subjects = [stack.enter_context(SUBJECTS[name](folder / name)) for name in ("millpond", "kafka")]
        for subject in subjects:
            connection, topic_id = prepared(subject)
            session = in_session(connection, topic_id)
            for label, work in (
                ("1,000 partitions", full(connection, topic_id, PARTITIONS)),
                ("1,000 partitions, in a session", session),
                ("1 partition", full(connection, topic_id, 1)),
            ):
                if work is None:
                    continue
                measure(subject, work, WARM_UP if subject.name != "millpond" else REQUESTS)
                found = [measure(subject, work) for _ in range(ROUNDS)]
                print(
                    f"{subject.name}: {label}: {statistics.median(found):.2f} ms of CPU a request", flush=True
                )


if __name__ == "__main__":
    main()
