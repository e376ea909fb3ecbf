"""Payloads: bodies stored outside the log, to which messages refer. Returns upload URLs, and stores and
returns payloads.

If the store has its own URLs, clients are redirected there and the broker never handles the body.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from millpond.frontends.web.handlers.produce import BINARY
from millpond.frontends.web.handlers.stream import acquire_stream_slot
from millpond.frontends.web.operations import (
    NO_BODY,
    BodyChunks,
    HttpCall,
    NonJsonContent,
    NoParameters,
    RawResponse,
    RequestBody,
    StreamedResponse,
    operation,
)
from millpond.frontends.web.request_memory import ClientGone
from millpond.frontends.web.rights import READ_TOPIC, WRITE_TOPIC
from millpond.frontends.web.schemas import INT64_MAX, PayloadPlaceJson, RequestStruct, StoredPayloadJson
from millpond.model.errors import MillpondError
from millpond.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millpond.security.requirements import needs
from millpond.service import TransferTarget

encode = msgspec.json.Encoder().encode
logger = logging.getLogger(__name__)

PAYLOAD: RequestBody[BodyChunks] = RequestBody({BINARY: "The body."}, streamed=True)


class PayloadPath(RequestStruct, frozen=True):
    topic: str
    payload: str


class PlaceQuery(RequestStruct, frozen=True):
    size: Annotated[int, Meta(ge=1, le=INT64_MAX)] | UnsetType = field(name="bytes", default=UNSET)


@operation(
    "POST",
    "/topics/{topic}/payloads/{payload}",
    rights=needs(WRITE_TOPIC),
    parameters=PayloadPath,
    query=PlaceQuery,
    body=NO_BODY,
    returns={200: PayloadPlaceJson},
    error_statuses=(404, 409, 413),
)
async def place_payload(call: HttpCall[PayloadPath, PlaceQuery, None]) -> PayloadPlaceJson:
    """Request an upload address for a body with an id (a UUIDv7) that the client has created: the URL, the method and
    the headers to use, and when they expire. The URL belongs to the store if the store has URLs, otherwise to this
    broker."""
    size = None if call.query.size is UNSET else call.query.size
    target = await call.site.services.payloads.upload_place(call.path.topic, call.path.payload, size)
    return _target_json(call, target)


@operation(
    "PUT",
    "/topics/{topic}/payloads/{payload}",
    rights=needs(WRITE_TOPIC, counts=PRODUCER_BYTE_RATE),
    parameters=PayloadPath,
    query=NoParameters,
    body=PAYLOAD,
    returns={200: StoredPayloadJson, 307: PayloadPlaceJson},
    error_statuses=(404, 409),
)
async def upload_payload(
    call: HttpCall[PayloadPath, NoParameters, BodyChunks],
) -> StoredPayloadJson | RawResponse:
    """Store a body. The response contains the `millpond-payload` header of the message that refers to it. Produce
    that message soon, or the body is deleted. If the store has URLs, the response redirects to one (307)."""
    path, payloads = call.path, call.site.services.payloads
    announced = call.headers.get("content-length")
    size = None if announced is None else int(announced)
    target = await payloads.upload_place(path.topic, path.payload, size)
    if target.url is not None:
        return _redirect(call, target)
    stored = await payloads.store(path.topic, path.payload, call.body, size=size)
    return StoredPayloadJson(path.topic, str(stored.id), stored.bytes, str(stored))


@operation(
    "GET",
    "/topics/{topic}/payloads/{payload}",
    rights=needs(READ_TOPIC, counts=CONSUMER_BYTE_RATE),
    parameters=PayloadPath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: NonJsonContent([BINARY], "The body."), 307: PayloadPlaceJson},
    error_statuses=(404, 409),
)
async def download_payload(call: HttpCall[PayloadPath, NoParameters, None]) -> StreamedResponse | RawResponse:
    """Get the body of a message. If the store has URLs, the response redirects to one (307)."""
    path, payloads = call.path, call.site.services.payloads
    target = await payloads.download_place(path.topic, path.payload)
    if target.url is not None:
        return _redirect(call, target)
    body = await payloads.read(path.topic, path.payload)
    length = (b"content-length", b"%d" % body.size)
    return StreamedResponse(
        _abort_on_error(body.pieces, path), BINARY, acquire_stream_slot(call.site), [length]
    )


async def _abort_on_error(
    pieces: AsyncGenerator[bytes, None], path: PayloadPath
) -> AsyncGenerator[bytes, None]:
    """The status has already been sent, so a read error can only abort the response: the client sees that
    bytes are missing."""
    try:
        async for piece in pieces:
            yield piece
    except MillpondError as error:
        logger.warning(
            "payload download aborted",
            extra={"topic": path.topic, "payload": str(path.payload), "error": str(error)},
        )
        raise ClientGone from error


def _redirect(call: HttpCall[PayloadPath, Any, Any], target: TransferTarget) -> RawResponse:
    shown = _target_json(call, target)
    return RawResponse(encode(shown), headers=[(b"location", shown.url.encode())], status=307)


def _target_json(call: HttpCall[PayloadPath, Any, Any], target: TransferTarget) -> PayloadPlaceJson:
    host = call.headers.get("host") or call.site.services.listeners["http"]
    ours = (
        f"{call.site.scheme}://{host}/topics/{quote(call.path.topic, safe='')}/payloads/{call.path.payload}"
    )
    return PayloadPlaceJson(target.url or ours, target.method, dict(target.headers), target.expires_at_ms)
