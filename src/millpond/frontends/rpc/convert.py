"""Converts between protobuf messages and records. A message number is an offset plus one."""

import uuid
from collections.abc import Iterable, Mapping

from millpond.model.errors import InvalidRequest
from millpond.model.ids import TopicId
from millpond.records import NO_TIMESTAMP, Record
from millpond.service import OLDEST, PollRequest, PollResult, StoredMessage
from millpond.stubs import log_pb2

NUMBER_MAX = 2**62
MESSAGES_DEFAULT = 1_000
BYTES_DEFAULT = 1024 * 1024
PART_BYTES = 32
"""Estimated overhead of a message or a header."""


def record_of(message: log_pb2.NewMessage) -> Record:
    return Record(
        value=message.value if message.HasField("value") else None,
        key=message.key if message.HasField("key") else None,
        headers=tuple(
            (header.name, header.value if header.HasField("value") else None) for header in message.headers
        ),
        timestamp=_timestamp(message),
    )


def _timestamp(message: log_pb2.NewMessage) -> int:
    if not message.HasField("timestamp_ms"):
        return NO_TIMESTAMP
    if message.timestamp_ms < 0:
        raise InvalidRequest(reason=f"timestamp {message.timestamp_ms} is negative")
    return message.timestamp_ms


def produced(placed: Iterable[StoredMessage]) -> log_pb2.ProduceResponse:
    response = log_pb2.ProduceResponse()
    for each in placed:
        response.numbers.append(each.offset + 1)
        response.partitions.append(each.partition)
    return response


def poll_request(request: log_pb2.PollRequest) -> PollRequest:
    return PollRequest(
        topic=request.topic,
        positions=positions_of(request.positions),
        messages_max=request.messages_max or MESSAGES_DEFAULT,
        bytes_max=request.bytes_max or BYTES_DEFAULT,
        wait_ms=request.wait_ms,
        strict=request.strict,
        committed=not request.uncommitted,
        topic_id=topic_id_of(request.topic_id),
    )


def topic_id_of(text: str) -> TopicId | None:
    """None if the text is empty."""
    if not text:
        return None
    try:
        return TopicId(uuid.UUID(text).bytes)
    except ValueError as error:
        raise InvalidRequest(reason=f"{text[:50]!r} is no topic id") from error


def uuid_text(topic_id: TopicId) -> str:
    return str(uuid.UUID(bytes=topic_id))


def positions_of(positions: Iterable[log_pb2.Position]) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for each in positions:
        if each.partition in found:
            raise InvalidRequest(reason=f"partition {each.partition} is named more than once")
        if each.read_from > NUMBER_MAX:
            raise InvalidRequest(reason=f"{each.read_from} is no message number")
        found[each.partition] = each.read_from - 1 if each.read_from else OLDEST
    return found


def size_of(polled: PollResult) -> int:
    """The approximate size of the response. Asking protobuf for it would encode the response a second time."""
    records = sum(
        len(record.value or b"") + len(record.key or b"") + PART_BYTES * (1 + len(record.headers))
        for _, record in polled.records
    )
    return records + sum(len(data) for _, data in polled.batches)


def poll_response(polled: PollResult) -> log_pb2.PollResponse:
    response = log_pb2.PollResponse(topic_id=uuid_text(polled.topic_id))
    for partition, record in polled.records:
        message = response.messages.add(
            number=record.offset + 1,
            partition=partition,
            key=record.key,
            value=record.value,
            timestamp_ms=record.timestamp,
        )
        for name, value in record.headers:
            message.headers.add(name=name, value=value)
    for partition, data in polled.batches:
        response.batches.add(partition=partition, data=bytes(data))
    for each in sorted(polled.read_positions, key=lambda each: each.partition):
        response.standings.add(
            partition=each.partition,
            read_from=each.next_offset + 1,
            oldest=each.log_start + 1,
            next=each.end_offset + 1,
        )
    return response
