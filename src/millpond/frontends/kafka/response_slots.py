"""The requests in progress of a connection, and how they are decoded. A large request that is no produce has many
elements: a thread decodes it, and encodes its response, so that the event loop serves other clients meanwhile."""

import asyncio
from typing import Final

from millpond.frontends.kafka.throttling import RequestUse
from millpond.protocol import Encoded, Request, RequestHeader, Response, decode, encode_response

LARGE_BYTES: Final = 256 * 1024
"""A smaller request is decoded within about 20 milliseconds, whatever is in it."""


class ResponseSlot:
    """One request in progress. A connection keeps its slots in request order and sends each response when all earlier
    slots are done. `encoded` is None until the response is ready, and stays None if no response is sent. `must_finish`
    is set for produces, which are never cancelled. `use` is what the request counts for quotas, if there are any."""

    __slots__ = (
        "began",
        "bytes_held",
        "done",
        "encoded",
        "is_fetch",
        "is_large",
        "must_finish",
        "task",
        "use",
    )

    def __init__(self, bytes_held: int, began: float) -> None:
        self.began = began
        self.encoded: Encoded | None = None
        self.done = False
        self.task: asyncio.Task[None] | None = None
        self.bytes_held = bytes_held
        self.must_finish = False
        self.is_fetch = False
        self.is_large = False
        self.use: RequestUse | None = None


def decode_request(kind: type[Request], version: int, frame: bytearray, position: int) -> Request:
    """Kafka ignores trailing bytes after a request, and librdkafka sends some: in its Metadata v13 request for all
    topics the null array has four bytes instead of one."""
    return decode(kind, version, frame, position, exact=False)


async def decode_large(kind: type[Request], version: int, frame: bytearray, position: int) -> Request:
    return await asyncio.to_thread(decode_request, kind, version, frame, position)


async def encode_large(header: RequestHeader, response: Response) -> Encoded:
    return await asyncio.to_thread(encode_response, response, header.api_version, header.correlation_id)
