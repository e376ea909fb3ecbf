"""HTTP by hand: what no client library would send, and answers as they came."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

ANSWER_SECONDS_MAX = 30.0
HOST = b"Host: localhost\r\n"
PRODUCE = b"POST /topics/pond/produce/0 HTTP/1.1\r\n" + HOST
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    content: bytes

    def json(self):
        return msgspec.json.decode(self.content)


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *parts: bytes) -> None:
        self.writer.writelines(parts)

    async def flush(self) -> None:
        await self.writer.drain()

    async def ask(self, *parts: bytes) -> Response:
        self.send(*parts)
        return await self.response()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        return int(lines[0].split(" ")[1]), dict(line.split(": ", 1) for line in lines[1:] if line)

    async def response(self) -> Response:
        status, headers = await self.head()
        if "chunked" in headers.get("transfer-encoding", ""):
            return Response(status, headers, b"".join([chunk async for chunk in self.chunks()]))
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            content = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Response(status, headers, content)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Of a chunked answer, up to its proper end."""
        while chunk := await self.chunk():
            yield chunk

    async def chunk(self) -> bytes:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            size = int(await self.reader.readline(), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def is_closed(self) -> bool:
        """Waits for the end; True if nothing came before it."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True

    def hang_up(self) -> None:
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def connect(broker) -> AsyncIterator[Wire]:
    host, port = broker.listeners["http"].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**27)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def produce(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return PRODUCE + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def until(condition) -> None:
    """Lets others go on until it is so; whoever waits in vain runs into the test's end."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0)
