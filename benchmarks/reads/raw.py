"""A client of Kafka's protocol that costs next to nothing: prepared batches in, whole responses out, into one buffer.

It parses only what it needs to go on: the headers of the batches. Both brokers get the same bytes, so that they read
the same batches.
"""

import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millpond.protocol import ErrorCode, Request, decode, encode_request, read_response_header
from millpond.protocol.messages import fetch as wire
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.records import Buffer, Record, build_batch

FETCH_VERSION: Final = 12
PRODUCE_VERSION: Final = 9
ALL_REPLICAS: Final = -1
TIMEOUT_MS: Final = 60_000
FETCH_BYTES: Final = 50 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
"""What Java's consumers ask for, by default."""
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
TRIES_MAX: Final = 100
RETRY_S: Final = 0.1
BASE_AND_LENGTH: Final = struct.Struct(">qi")
LAST_OFFSET_DELTA: Final = struct.Struct(">i")
LAST_OFFSET_DELTA_AT: Final = 23
HEADER_BYTES: Final = 61
PREPARED: Final = 16
"""Different batches, which repeat: nothing of them can be compressed."""
CLIENT: Final = "bench"


class RawClient:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(RESPONSE_BYTES_MAX)

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Request, version: int) -> memoryview:
        """The bytes of the response, valid until the next request."""
        self._socket.sendall(b"".join(encode_request(request, version, 1, CLIENT).buffers))
        view = memoryview(self._buffer)
        self._receive(view[:4])
        (size,) = struct.unpack_from(">i", self._buffer)
        self._receive(view[:size])
        return view[:size]

    def _receive(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise ConnectionError("the broker has closed the connection")
            view = view[count:]


@dataclass(frozen=True, slots=True)
class Load:
    """One batch for each partition makes a request of about a megabyte."""

    message_bytes: int
    partitions: int
    requests: int

    @property
    def name(self) -> str:
        return f"{self.message_bytes} B, {self.partitions} partition{'s' if self.partitions > 1 else ''}"

    @property
    def records(self) -> int:
        """In a batch."""
        return 1_000_000 // self.message_bytes // self.partitions

    def batches(self) -> list[bytes]:
        now_ms = time.time_ns() // 1_000_000
        return [
            build_batch(
                [Record(value=os.urandom(self.message_bytes)) for _ in range(self.records)], now_ms=now_ms
            )
            for _ in range(PREPARED)
        ]


def fill(client: RawClient, topic: str, load: Load, batches: Sequence[bytes]) -> None:
    for number in range(load.requests):
        parts = [
            PartitionProduceData(index=index, records=batches[(number + index) % PREPARED])
            for index in range(load.partitions)
        ]
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=parts)],
        )
        _produce(client, request)


def _produce(client: RawClient, request: ProduceRequest) -> None:
    """Apache Kafka's partitions have no leader at first."""
    for _ in range(TRIES_MAX):
        response = _response(client, request, PRODUCE_VERSION)
        parts = [part for each in response.responses for part in each.partition_responses]
        refused = {part.index: part.error_code for part in parts if part.error_code != ErrorCode.NONE}
        if not refused:
            return
        assert set(refused.values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}, f"refused: {refused}"
        again = [each for each in request.topic_data[0].partition_data if each.index in refused]
        request.topic_data[0].partition_data = again
        time.sleep(RETRY_S)
    raise AssertionError("the partitions have no leader")


@dataclass(frozen=True, slots=True)
class Reading:
    """What came, and how long each fetch took."""

    size: int
    seconds: float
    fetches: list[float]

    @property
    def megabytes_per_s(self) -> float:
        return self.size / 1e6 / self.seconds


def read(client: RawClient, topic: str, load: Load, requests: int) -> Reading:
    """Read the topic from its start until the first partition has passed the batches of this number of requests."""
    offsets = dict.fromkeys(range(load.partitions), 0)
    end = requests * load.records
    size, fetches = 0, []
    began = time.perf_counter()
    while offsets[0] < end:
        sent = time.perf_counter()
        # The partitions take turns in being the first one, as with every consumer.
        response = _response(client, _fetch(topic, offsets), FETCH_VERSION)
        fetches.append(time.perf_counter() - sent)
        for part in response.responses[0].partitions:
            assert part.error_code == 0, f"refused: {part.error_code}"
            for buffer in part.records or ():
                offsets[part.partition_index], taken = _skip(buffer, offsets[part.partition_index])
                size += taken
        first = next(iter(offsets))
        offsets[first] = offsets.pop(first)
    return Reading(size, time.perf_counter() - began, fetches)


def _skip(buffer: Buffer, offset: int) -> tuple[int, int]:
    """The offset after the whole batches of a buffer, and their bytes. Apache Kafka cuts off the last batch where the
    limit is reached; it comes again."""
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        base, length = BASE_AND_LENGTH.unpack_from(buffer, position)
        end = position + BASE_AND_LENGTH.size + length
        if end > len(buffer):
            break
        offset = base + LAST_OFFSET_DELTA.unpack_from(buffer, position + LAST_OFFSET_DELTA_AT)[0] + 1
        position = end
    return offset, position


def _fetch(topic: str, offsets: dict[int, int]) -> wire.FetchRequest:
    parts = [
        wire.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        for number, offset in offsets.items()
    ]
    return wire.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[wire.FetchTopic(topic=topic, partitions=parts)],
    )


def _response(client: RawClient, request: Request, version: int):  # type: ignore[no-untyped-def]
    data = client.ask(request, version)
    _, position = read_response_header(data, request.api_key, version)
    return decode(type(request).response, version, data, position)
