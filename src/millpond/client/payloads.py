"""Bodies by reference, on an event loop: uploads a body to the object store, and downloads the one that a
message refers to.

    async with AsyncPayloads("films") as payloads, AsyncProducer("films") as producer:
        reference = await payloads.upload(body)
        await producer.send(b"", headers=[reference.header()])

A body is transferred directly to and from the object store if the store has URLs, and through the broker if
it has none. The message must follow soon, or the body is collected.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from millpond.client import arguments, transfer
from millpond.client.calls import PAYLOADS, Connections, Pauses
from millpond.client.reprs import client_repr
from millpond.client.security import SecurityArguments, TlsArgument, TokenArgument
from millpond.client.sources import ServerAddresses
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import (
    CorruptPayload,
    InvalidPayload,
    MillpondError,
    PayloadExists,
    TimedOut,
    UnknownPayload,
    Unreachable,
)
from millpond.model.payloads import HEADER, Reference, new_payload_id, parse_payload_id, parse_reference
from millpond.records import Buffer, Header, crc32c
from millpond.stubs import payloads_pb2 as pb

TIMEOUT_S: Final = 30.0
ATTEMPTS_MAX: Final = 4
CHUNK_BYTES: Final = 1024 * 1024
SLOWEST_BYTES_PER_S: Final = 256 * 1024
"""A transfer through the broker that is slower than this is cancelled."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PayloadReference:
    """The reference to its body that a message carries."""

    topic: str
    id: str
    bytes: int
    crc32c: int

    def header(self) -> Header:
        """The header for the message."""
        return HEADER, str(Reference(parse_payload_id(self.id), self.bytes, self.crc32c)).encode()

    @classmethod
    def from_headers(cls, topic: str, headers: Iterable[Header]) -> Self | None:
        """None if the message contains its body. `InvalidPayload` if the reference is malformed."""
        value = next((value for name, value in headers if name == HEADER), None)
        if value is None:
            return None
        parsed = parse_reference(value)
        return cls(topic, str(parsed.id), parsed.bytes, parsed.crc32c)


class AsyncPayloads:
    """Bodies of messages, in the object store. `topic` is where `upload` puts them unless it names another one.
    `address` is the broker to try first, or several. `timeout` limits how long a transfer may make no progress, not how
    long it may take. `tls` is True, the path of a CA file or a `Tls`; `username` and `password`, or `token`, prove who
    you are."""

    def __init__(
        self,
        topic: str | None = None,
        *,
        address: ServerAddresses = None,
        timeout: float = TIMEOUT_S,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        self.topic = arguments.optional(arguments.topic, "topic", topic)
        self._connections = Connections(address, timeout, SecurityArguments(tls, username, password, token))
        self._transfer = BodyTransfer(self._connections)

    async def upload(self, body: Buffer, *, topic: str | None = None) -> PayloadReference:
        """Returns when the body is durable. A failed upload leaves nothing, or bytes that are collected later."""
        arguments.buffer("body", body)
        return await self._transfer.upload(arguments.one_topic(topic, self.topic), body)

    async def download(self, reference: PayloadReference) -> bytes:
        """The body. `CorruptPayload` if it does not match the message's reference."""
        return await self._transfer.download(arguments.instance("reference", reference, PayloadReference))

    async def close(self) -> None:
        """Close the connections. A transfer in progress fails."""
        await self._connections.close()

    def __repr__(self) -> str:
        return client_repr(
            "AsyncPayloads",
            is_closed=self._connections.is_closed,
            topic=self.topic,
            address=self._connections.address,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class BodyTransfer:
    """Uploads and downloads over the connections of another client, which closes them."""

    def __init__(self, connections: Connections, clock: Clock | None = None) -> None:
        self._connections = connections
        self._clock = clock or SystemClock()

    async def upload(self, topic: str, body: Buffer) -> PayloadReference:
        """Returns when the body is durable. A failed upload leaves nothing, or bytes that are collected later."""
        if not body:
            raise InvalidPayload(payload="", reason="it is empty; an empty body needs no payload")
        payload_id = new_payload_id(self._clock.now_ms())
        checksum = await asyncio.to_thread(crc32c, body)
        reference = PayloadReference(topic, str(payload_id), len(body), checksum)

        async def attempt(address: str, number: int) -> None:
            try:
                await self._upload(address, reference, body)
            except PayloadExists:
                if number == 1:
                    raise  # otherwise an earlier attempt has succeeded after all: the id is unique

        await self._repeat(attempt)
        return reference

    async def download(self, reference: PayloadReference) -> bytes:
        """The body. `CorruptPayload` if it does not match the message's reference."""

        async def attempt(address: str, _: int) -> bytes:
            return await self._download(address, reference)

        body = await self._repeat(attempt)
        if len(body) != reference.bytes:
            raise _corrupt(reference, f"it has {len(body)} bytes, not {reference.bytes}")
        if await asyncio.to_thread(crc32c, body) != reference.crc32c:
            raise _corrupt(reference, "its checksum is another one")
        return body

    # -- one attempt --------------------------------------------------------------------------------------------

    async def _upload(self, address: str, reference: PayloadReference, body: Buffer) -> None:
        request = pb.UploadPlaceRequest(topic=reference.topic, id=reference.id, size_bytes=reference.bytes)
        target = await self._transfer_target("UploadPlace", request, address)
        if target.url:
            status = await asyncio.to_thread(
                transfer.put, target.url, dict(target.headers), body, self._connections.timeout_s
            )
            if status == transfer.EXISTS:
                raise PayloadExists(topic=reference.topic, payload=reference.id)
            return
        with self._connections.translating(address):
            timeout_s = self._transfer_timeout_s(reference)
            await self._connections.upload(address, _requests(reference, body), timeout_s)

    async def _download(self, address: str, reference: PayloadReference) -> bytes:
        target = await self._transfer_target(
            "DownloadPlace", pb.DownloadPlaceRequest(topic=reference.topic, id=reference.id), address
        )
        if target.url:
            found = await asyncio.to_thread(
                transfer.get, target.url, dict(target.headers), reference.bytes, self._connections.timeout_s
            )
            if found is None:
                raise UnknownPayload(topic=reference.topic, payload=reference.id)
            return found
        pieces: list[bytes] = []
        with self._connections.translating(address):
            request = pb.DownloadRequest(topic=reference.topic, id=reference.id)
            call = self._connections.download(address, request, self._transfer_timeout_s(reference))
            async for response in call:
                if response.size_bytes != reference.bytes:
                    raise _corrupt(reference, f"it has {response.size_bytes} bytes, not {reference.bytes}")
                pieces.append(response.data)
        return b"".join(pieces)

    async def _transfer_target(
        self, name: str, request: pb.UploadPlaceRequest | pb.DownloadPlaceRequest, address: str
    ) -> pb.PayloadPlace:
        return await self._connections.call(PAYLOADS, name, request, pb.PayloadPlace, address=address)

    async def _repeat(self, attempt: Callable[[str, int], Awaitable[T]]) -> T:
        """Retries with any broker: no broker owns payloads."""
        address, pauses = self._connections.address, Pauses()
        for number in range(1, ATTEMPTS_MAX):
            try:
                return await attempt(address, number)
            except MillpondError as failed:
                error = failed
                if not error.retriable or self._connections.is_closed:
                    raise
                if isinstance(error, Unreachable | TimedOut):
                    address = self._connections.next_known_address(address)
            await asyncio.sleep(pauses.take(error))
        return await attempt(address, ATTEMPTS_MAX)

    def _transfer_timeout_s(self, reference: PayloadReference) -> float:
        return self._connections.timeout_s + reference.bytes / SLOWEST_BYTES_PER_S


async def _requests(reference: PayloadReference, body: Buffer) -> AsyncIterator[pb.UploadRequest]:
    new = pb.NewPayload(
        topic=reference.topic, id=reference.id, size_bytes=reference.bytes, crc32c=reference.crc32c
    )
    yield pb.UploadRequest(payload=new)
    view = memoryview(body)
    for start in range(0, len(view), CHUNK_BYTES):
        yield pb.UploadRequest(data=bytes(view[start : start + CHUNK_BYTES]))


def _corrupt(reference: PayloadReference, reason: str) -> CorruptPayload:
    return CorruptPayload(topic=reference.topic, payload=reference.id, reason=reason)
