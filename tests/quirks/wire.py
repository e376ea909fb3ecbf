"""A connection that can say anything: requests in any version, several at once, and bytes no client would send."""

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import Any, Self

from millpond.protocol import (
    LENGTH_BYTES,
    Request,
    decode,
    encode_request,
    read_response_header,
)

ANSWER_SECONDS_MAX = 30.0
HANG_S = 60.0
TURNS = 100
CLIENT_ID = "quirks"


class Wire:
    """`ask` waits for the answer; `send` does not, and its answer is what `receive` gives in its turn."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._last_id = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._node.host, self._node.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # the broker was faster, which is what some tests want
            await self._writer.wait_closed()

    async def ask(self, request: Request, version: int) -> Any:
        sent = self.send(request, version)
        return self.read(request, version, await self.receive(), sent)

    def send(self, request: Request, version: int) -> int:
        """Returns the correlation id."""
        self._last_id += 1
        self._writer.writelines(encode_request(request, version, self._last_id, CLIENT_ID).buffers)
        return self._last_id

    async def receive(self) -> bytes:
        """A frame without its length."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            (length,) = struct.unpack(">i", await self._reader.readexactly(LENGTH_BYTES))
            return await self._reader.readexactly(length)

    def read(self, request: Request, version: int, answer: bytes, correlation_id: int) -> Any:
        answered, position = read_response_header(answer, request.api_key, version)
        assert answered == correlation_id
        return decode(type(request).response, version, answer, position)

    async def raw(self, key: int, version: int, body: bytes = b"", tags: bytes = b"") -> bytes:
        """The answer to a request that is written by hand; `tags` end the header of a flexible one."""
        self.write_framed(request_head(key, version) + tags + body)
        return await self.receive()

    def write_framed(self, frame: bytes) -> None:
        self.write_bytes(struct.pack(">i", len(frame)) + frame)

    def write_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def is_closed(self) -> bool:
        """Whether the broker hangs up without another word."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True


async def settle() -> None:
    """Everything that is ready has run, in the broker as in the test: both are on this loop."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    """Waits until it is true."""
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0.005)


def request_head(key: int, version: int, correlation_id: int = 7, client_id: str | None = CLIENT_ID) -> bytes:
    client = (client_id or "").encode()
    size = -1 if client_id is None else len(client)
    return struct.pack(">hhih", key, version, correlation_id, size) + client
