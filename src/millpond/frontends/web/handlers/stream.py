"""Streams: the messages of a topic as they arrive, as lines of JSON or as server-sent events.

An event's id holds the reader's position in every partition (positions of 0 are left out). A browser that
reconnects with `Last-Event-ID` therefore continues exactly after the last event it received.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from millpond.frontends.web.convert import message_of, size_of
from millpond.frontends.web.errors import HttpError, problem_of, refusal_of
from millpond.frontends.web.handlers.topics import TopicPath
from millpond.frontends.web.operations import NO_BODY, HttpCall, NonJsonContent, StreamedResponse, operation
from millpond.frontends.web.rights import READ_TOPIC
from millpond.frontends.web.schemas import MessageJson, PartitionNumber, ProblemJson, RequestStruct, Shown
from millpond.frontends.web.site import Site
from millpond.model.errors import InvalidRequest, MillpondError
from millpond.model.quotas import CONSUMER_BYTE_RATE
from millpond.security.requirements import needs
from millpond.security.throttling import response_bytes_max
from millpond.service import OLDEST, PollRequest, PollResult

NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
EVENT_ID: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,18}(?:,[0-9]{1,10}:[0-9]{1,18})*")
encode = msgspec.json.Encoder().encode

OffsetsByPartition = dict[int, int]


class StreamQuery(RequestStruct, frozen=True):
    """`follow=false` ends the stream at the end offsets that the topic had when the stream started."""

    format: Literal["ndjson", "sse"] | UnsetType = UNSET
    start: Annotated[str, Meta(pattern="^(oldest|newest|[0-9]{1,18})$")] = field(
        name="from", default="oldest"
    )
    partition: PartitionNumber | UnsetType = UNSET
    follow: bool = True
    encoding: Shown = "auto"
    committed: bool = True


@dataclass(frozen=True, slots=True)
class Form:
    """The format of a stream. `event` receives a message and the positions after it."""

    media_type: str
    event: Callable[[MessageJson, Mapping[int, str]], bytes]
    failure: Callable[[ProblemJson], bytes]
    keep_alive: bytes


LINES = Form(
    NDJSON,
    lambda message, _: encode(message) + b"\n",
    lambda problem: encode({"error": problem}) + b"\n",
    b"\n",
)
SERVER_SENT_EVENTS = Form(
    EVENTS,
    lambda message, ids: b"id: %s\ndata: %s\n\n" % (",".join(ids.values()).encode(), encode(message)),
    lambda problem: b"event: failure\ndata: %s\n\n" % encode(problem),
    b": nothing new\n\n",
)


@operation(
    "GET",
    "/topics/{topic}/stream",
    rights=needs(READ_TOPIC, counts=CONSUMER_BYTE_RATE),
    parameters=TopicPath,
    query=StreamQuery,
    body=NO_BODY,
    returns={200: NonJsonContent([NDJSON, EVENTS], "One message per line, or one per event.")},
    error_statuses=(404,),
    redirects=True,
)
async def stream(call: HttpCall[TopicPath, StreamQuery, None]) -> StreamedResponse:
    """Stream the messages of a topic, or of one of its partitions, as they arrive. An empty line or a comment means
    that there is nothing new; an `error` line or a `failure` event says why a stream ends. Server-sent events
    (`format=sse` or `Accept: text/event-stream`) have ids; `Last-Event-ID` continues exactly after that event."""
    request = await _request(call)
    form = _form(call)
    polled = await call.site.services.poller.poll(request)
    release = acquire_stream_slot(call.site)
    return StreamedResponse(
        _pieces(call, request, polled, form),
        form.media_type,
        release,
        failure=lambda error: _failure(form, error),
    )


# -- start positions ------------------------------------------------------------------------------------------


async def _request(call: HttpCall[TopicPath, StreamQuery, None]) -> PollRequest:
    limits = call.site.limits
    return PollRequest(
        topic=call.path.topic,
        positions=await _positions(call),
        messages_max=limits.stream_round_messages,
        bytes_max=response_bytes_max(call.access, limits.stream_round_bytes),
        committed=call.query.committed,
    )


async def _positions(call: HttpCall[TopicPath, StreamQuery, None]) -> OffsetsByPartition:
    chosen = _partitions(call)
    last_id = call.headers.get("last-event-id")
    if last_id:
        return dict.fromkeys(chosen, 0) | _asked_for(call, _parsed(last_id))
    start = call.query.start
    if start == "oldest":
        return dict.fromkeys(chosen, OLDEST)
    if start == "newest":
        found = await call.site.services.administration.describe_topic(call.path.topic)
        return {each.partition: each.end_offset for each in found.partitions if each.partition in chosen}
    if len(chosen) > 1:
        raise InvalidRequest(reason="an offset is one partition's: say which with `partition`")
    return dict.fromkeys(chosen, int(start))


def _partitions(call: HttpCall[TopicPath, StreamQuery, None]) -> list[int]:
    count = call.site.services.administration.topic(call.path.topic).partitions
    if call.query.partition is not UNSET:
        return [call.query.partition]
    if count > call.site.limits.stream_partitions_max:
        limit = call.site.limits.stream_partitions_max
        raise InvalidRequest(reason=f"a stream has at most {limit} partitions: say which with `partition`")
    return list(range(count))


def _asked_for(call: HttpCall[TopicPath, StreamQuery, None], found: OffsetsByPartition) -> OffsetsByPartition:
    """An event id of another stream must not add partitions that this request does not ask for."""
    if call.query.partition is not UNSET and found.keys() != {call.query.partition}:
        raise InvalidRequest(reason="Last-Event-ID names other partitions than `partition`")
    return found


def _parsed(last_id: str) -> OffsetsByPartition:
    if EVENT_ID.fullmatch(last_id) is None:
        raise InvalidRequest(reason="Last-Event-ID is not an id of these events")
    return {int(partition): int(offset) for partition, offset in _pairs(last_id)}


def _pairs(last_id: str) -> Iterator[list[str]]:
    return (pair.split(":") for pair in last_id.split(","))


def _form(call: HttpCall[TopicPath, StreamQuery, None]) -> Form:
    if call.query.format is not UNSET:
        return SERVER_SENT_EVENTS if call.query.format == "sse" else LINES
    return SERVER_SENT_EVENTS if EVENTS in call.headers.get("accept", "") else LINES


def acquire_stream_slot(site: Site) -> Callable[[], None]:
    if site.streams >= site.limits.streams_max:
        raise HttpError(
            503,
            "TooManyStreams",
            "No more streams can be served at a time.",
            retriable=True,
            details={"limit": site.limits.streams_max},
        )
    site.streams += 1

    def release() -> None:
        site.streams -= 1

    return release


# -- the stream -----------------------------------------------------------------------------------------------


async def _pieces(
    call: HttpCall[TopicPath, StreamQuery, None], request: PollRequest, polled: PollResult, form: Form
) -> AsyncGenerator[bytes, None]:
    """Yields one piece per poll. A slow reader delays the next poll, so nothing accumulates in memory."""
    poller, follow = call.site.services.poller, call.query.follow
    ends = {each.partition: each.end_offset for each in polled.read_positions}
    wait_ms = call.site.limits.keep_alive_ms if follow else 0
    positions = dict(request.positions)
    try:
        while True:
            if polled.records:
                yield await _shown(call, positions, polled, form)
            elif follow:
                yield form.keep_alive
            before, positions = positions, _next_positions(polled)
            if not follow and (_reached(positions, ends) or positions == before):
                return
            following = replace(
                request,
                positions=positions | _new_partitions(call, positions),
                wait_ms=wait_ms,
                topic_id=polled.topic_id,
            )
            polled = await poller.poll(following)
    except MillpondError as error:
        yield _failure(form, error)


def _failure(form: Form, error: MillpondError) -> bytes:
    return form.failure(problem_of(refusal_of(error, what="a stream")))


async def _shown(
    call: HttpCall[TopicPath, StreamQuery, None], before: OffsetsByPartition, polled: PollResult, form: Form
) -> bytes:
    def show() -> bytes:
        ids = {partition: f"{partition}:{offset}" for partition, offset in before.items() if offset > 0}
        shown = []
        for partition, record in polled.records:
            ids[partition] = f"{partition}:{record.offset + 1}"
            shown.append(form.event(message_of(partition, record, call.query.encoding), ids))
        return b"".join(shown)

    return await call.site.run_off_loop_if_large(size_of(polled.records), show)


def _next_positions(polled: PollResult) -> OffsetsByPartition:
    return {each.partition: each.next_offset for each in polled.read_positions}


def _reached(positions: OffsetsByPartition, ends: OffsetsByPartition) -> bool:
    return all(positions[partition] >= end for partition, end in ends.items())


def _new_partitions(
    call: HttpCall[TopicPath, StreamQuery, None], known: OffsetsByPartition
) -> OffsetsByPartition:
    if call.query.partition is not UNSET:
        return {}
    return {partition: 0 for partition in _partitions(call) if partition not in known}
