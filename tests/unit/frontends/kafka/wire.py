"""A Kafka client of few words: it sends one request, in the version it is told, and reads the answer."""

import asyncio
import struct
from typing import Any, Self

from millpond.protocol import (
    LENGTH_BYTES,
    Request,
    decode,
    encode_request,
    read_response_header,
)

ANSWER_SECONDS_MAX = 60.0


class Client:
    """`async with Client("host:port") as client: response = await client.send(request, version)`."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._correlation_id = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def send(self, request: Request, version: int) -> Any:
        self._correlation_id += 1
        self._writer.writelines(encode_request(request, version, self._correlation_id, "wire").buffers)
        answer = await self.receive()
        correlation_id, position = read_response_header(answer, request.api_key, version)
        assert correlation_id == self._correlation_id
        return decode(type(request).response, version, answer, position)

    async def send_bytes(self, data: bytes) -> None:
        """A whole frame, whatever it is."""
        self._writer.write(struct.pack(">i", len(data)) + data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """The next answer without its length."""
        return await asyncio.wait_for(self._frame(), ANSWER_SECONDS_MAX)

    async def _frame(self) -> bytes:
        head = await self._reader.readexactly(LENGTH_BYTES)
        return await self._reader.readexactly(struct.unpack(">i", head)[0])
