"""Fetch: messages of one partition as JSON, or the value of one message as bytes. The server keeps no position."""

from typing import cast

import msgspec
from msgspec import UNSET, UnsetType

from millpond.frontends.web.convert import headers_of, message_of, size_of
from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.handlers.produce import BINARY, PartitionPath
from millpond.frontends.web.operations import (
    NO_BODY,
    HttpCall,
    NonJsonContent,
    NoParameters,
    RawResponse,
    operation,
)
from millpond.frontends.web.rights import READ_TOPIC
from millpond.frontends.web.schemas import (
    Count,
    FetchedJson,
    MessageJson,
    Millis,
    Offset,
    PartitionNumber,
    RequestStruct,
    Shown,
)
from millpond.frontends.web.site import cancel_on_disconnect
from millpond.model.errors import InvalidRequest, OffsetOutOfRange
from millpond.model.quotas import CONSUMER_BYTE_RATE
from millpond.records import Record
from millpond.security.requirements import needs
from millpond.security.throttling import response_bytes_max
from millpond.service import OLDEST, PollRequest, PollResult

DEFAULT_BYTES = 1024 * 1024
encode = msgspec.json.Encoder().encode


class FetchQuery(RequestStruct, frozen=True):
    """Without an offset or a timestamp, reading starts at the oldest message."""

    offset: Offset | UnsetType = UNSET
    timestamp: Millis | UnsetType = UNSET
    count: Count = 1_000
    max_bytes: Count = DEFAULT_BYTES
    wait_ms: Millis = 0
    encoding: Shown = "auto"
    committed: bool = True


class MessagePath(RequestStruct, frozen=True):
    topic: str
    partition: PartitionNumber
    offset: Offset


@operation(
    "GET",
    "/topics/{topic}/fetch/{partition}",
    rights=needs(READ_TOPIC, waits=True, counts=CONSUMER_BYTE_RATE),
    parameters=PartitionPath,
    query=FetchQuery,
    body=NO_BODY,
    returns={200: FetchedJson},
    error_statuses=(404, 416),
    redirects=True,
)
async def fetch(call: HttpCall[PartitionPath, FetchQuery, None]) -> RawResponse:
    """Fetch messages from an offset or a time, up to a count and a size. With `wait_ms` it waits for the first one.
    An offset outside the retained range is refused (416), with the range in the details."""
    start = await _start(call)
    query = call.query
    request = PollRequest(
        topic=call.path.topic,
        positions={call.path.partition: start},
        messages_max=query.count,
        bytes_max=response_bytes_max(call.access, query.max_bytes),
        wait_ms=query.wait_ms,
        strict=True,
        committed=query.committed,
    )
    polling = call.site.services.poller.poll(request)
    polled = await (cancel_on_disconnect(call.receive, polling) if query.wait_ms else polling)
    content = await call.site.run_off_loop_if_large(size_of(polled.records), lambda: _encoded(call, polled))
    return RawResponse(content)


@operation(
    "GET",
    "/topics/{topic}/fetch/{partition}/{offset}",
    rights=needs(READ_TOPIC, counts=CONSUMER_BYTE_RATE),
    parameters=MessagePath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: NonJsonContent([BINARY], "The value of the message, as it is."), 204: None},
    error_statuses=(404, 416),
    redirects=True,
)
async def fetch_message(call: HttpCall[MessagePath, NoParameters, None]) -> RawResponse:
    """Fetch one message: its value is the body, the rest is in headers (X-Millpond-Offset, -Timestamp, -Key or
    -Key-Base64, -Header-<name>); X-Millpond-Left-Out names the fields that do not fit into a header. 204 if the value
    is null."""
    record = await _one(call)
    headers = headers_of(record, call.site.limits.header_value_bytes_max)
    if record.value is None:
        return RawResponse(b"", headers=headers, status=204)
    return RawResponse(bytes(record.value), BINARY, headers)


async def _start(call: HttpCall[PartitionPath, FetchQuery, None]) -> int:
    query = call.query
    if query.timestamp is UNSET:
        return OLDEST if query.offset is UNSET else query.offset
    if query.offset is not UNSET:
        raise InvalidRequest(reason="give an offset or a timestamp, not both")
    return await call.site.services.administration.offset_at(
        call.path.topic, call.path.partition, query.timestamp
    )


async def _one(call: HttpCall[MessagePath, NoParameters, None]) -> Record:
    path = call.path
    request = PollRequest(path.topic, {path.partition: path.offset}, messages_max=1, bytes_max=1, strict=True)
    polled = await call.site.services.poller.poll(request)
    read_position = polled.read_positions[0]
    if path.offset >= read_position.end_offset:
        raise OffsetOutOfRange(
            offset=path.offset, log_start=read_position.log_start, end_offset=read_position.end_offset
        )
    if not polled.records or polled.records[0][1].offset != path.offset:
        raise HttpError(404, "UnknownMessage", f"There is no message with offset {path.offset}.")
    return polled.records[0][1]


def _encoded(call: HttpCall[PartitionPath, FetchQuery, None], polled: PollResult) -> bytes:
    read_position = polled.read_positions[0]
    # Encode messages one by one: Python switches threads only between them.
    messages = [
        msgspec.Raw(encode(message_of(partition, record, call.query.encoding)))
        for partition, record in polled.records
    ]
    return encode(
        FetchedJson(
            topic=call.path.topic,
            partition=call.path.partition,
            messages=cast("list[MessageJson]", messages),
            next_offset=read_position.next_offset,
            log_start=read_position.log_start,
            end_offset=read_position.end_offset,
        )
    )
