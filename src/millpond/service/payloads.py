"""Message bodies in the object store, outside the log. Each has an id within its topic. This module returns where to
upload and download them, and passes them through the broker if the store has no signed URLs.

An id is always looked up under its topic's id, so the id of another topic's payload is not found. The broker holds an
upload in memory until the store has it, because a store writes an object in one call. It reads downloads in pieces.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeVar
from uuid import UUID

from millpond.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import (
    InvalidPayload,
    ObjectExists,
    ObjectMissing,
    Overloaded,
    PayloadExists,
    PayloadsNotTaken,
    PayloadTooLarge,
    Stopping,
    UnknownPayload,
)
from millpond.model.payloads import (
    HEADER,
    Reference,
    check_age,
    created_at_ms,
    new_payload_id,
    parse_payload_id,
    parse_reference,
)
from millpond.objects.store import Method, ObjectStore
from millpond.records import Record, crc32c
from millpond.segments.keys import payload_key
from millpond.service.limits import PayloadLimits

T = TypeVar("T")
CREATE_ONLY: Final = {"If-None-Match": "*"}
"""Makes a PUT fail if the object exists."""


@dataclass(frozen=True, slots=True)
class TransferTarget:
    """Where to upload or download a body. Without a URL, the body goes through the broker."""

    method: Method
    expires_at_ms: int
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PayloadBody:
    size: int
    pieces: AsyncGenerator[bytes, None]


class PayloadTransfers:
    """`held_bytes` changes only between awaits. Each way to put and get a body, and its checks: more than 20
    methods, which share the limits of what is in flight."""

    def __init__(self, log: Log, store: ObjectStore, *, clock: Clock, limits: PayloadLimits) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="millpond-payloads")
        self._closed = False
        self.held_bytes = 0

    async def upload_place(self, topic: str, payload: str, size: int | None = None) -> TransferTarget:
        """Where to upload the body of a message that will be sent later."""
        payload_id, key = await self._new_upload(topic, payload)
        if await self._exists(key):
            raise PayloadExists(topic=topic, payload=payload)
        url = await self._signed(key, "PUT", payload_id)
        self._check_size(size or 0, self._limits.through_broker_bytes_max if url is None else None)
        if url is None:
            return TransferTarget("PUT", created_at_ms(payload_id) + self._limits.publish_within_ms)
        return TransferTarget("PUT", self._url_expires_at_ms(payload_id), url, CREATE_ONLY)

    async def download_place(self, topic: str, payload: str) -> TransferTarget:
        key = await self._key(topic, parse_payload_id(payload))
        await self._size(topic, payload, key)
        url = await self._signed(key, "GET", None)
        return TransferTarget("GET", self._clock.now_ms() + self._limits.url_s * 1000, url)

    async def store(
        self,
        topic: str,
        payload: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        checksum: int | None = None,
    ) -> Reference:
        """Upload a body through the broker. Returns the reference for its message once the body is durable. The body
        must match `size` and `checksum` (CRC32C) if they are set. An interrupted upload stores nothing."""
        payload_id, key = await self._new_upload(topic, payload)
        self._check_size(size or 0, self._limits.through_broker_bytes_max)
        body = bytearray()
        try:
            async for chunk in chunks:
                self._check_size(len(body) + len(chunk), self._limits.through_broker_bytes_max)
                self._hold(len(chunk))
                body += chunk
        except BaseException:
            self.held_bytes -= len(body)
            raise
        putting = asyncio.ensure_future(
            self._in_pool(lambda: self._put(payload_id, key, body, size, checksum))
        )
        putting.add_done_callback(lambda done: self._release_bytes(done, len(body)))
        try:
            return await asyncio.shield(putting)
        except ObjectExists as error:
            raise PayloadExists(topic=topic, payload=payload) from error

    def _release_bytes(self, done: "asyncio.Future[Reference]", count: int) -> None:
        """Called when the thread is done with the body, even if the caller was cancelled: until then it uses memory."""
        self.held_bytes -= count
        if not done.cancelled():
            done.exception()  # a waiting caller gets it too; without one, this prevents asyncio's warning

    def _put(
        self, payload_id: UUID, key: str, body: bytearray, size: int | None, checksum: int | None
    ) -> Reference:
        reference = Reference(payload_id, len(body), crc32c(body))
        _check_body(reference, size, checksum)
        self._store.put(key, [body])
        return reference

    async def read(self, topic: str, payload: str) -> PayloadBody:
        key = await self._key(topic, parse_payload_id(payload))
        size = await self._size(topic, payload, key)
        return PayloadBody(size, self._pieces(key, size))

    async def copy(self, topic: str, payload: str, to_topic: str, new_id: UUID | None = None) -> UUID:
        """Copy a payload to another topic, inside the store if it can. The copy has a new id, because a message may
        only refer to a recent one. A retry, soon enough or with the same `new_id`, returns the existing copy."""
        source = await self._key(topic, parse_payload_id(payload))
        now_ms = self._clock.now_ms()
        copy_id = new_id or self._copy_id(source, now_ms)
        check_age(copy_id, now_ms, self._limits.publish_within_ms)
        target = await self._key(to_topic, copy_id)
        try:
            await self._in_pool(lambda: self._store.copy(source, target))
        except ObjectMissing as error:
            raise UnknownPayload(topic=topic, payload=payload) from error
        except ObjectExists:
            pass
        return copy_id

    def _copy_id(self, source: str, now_ms: int) -> UUID:
        """The same id for a period that leaves a message time to refer to it. So a caller that retries every few
        seconds, for days, creates few copies."""
        while_ms = max(1, self._limits.publish_within_ms // 2)
        return new_payload_id(
            now_ms - now_ms % while_ms, lambda size: sha256(source.encode()).digest()[:size]
        )

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)

    # -- internals --------------------------------------------------------------------------------------------

    async def _key(self, topic: str, payload_id: UUID) -> str:
        known = await self._log.topic(topic)
        if not self._log.topics.config(known.id).payloads:
            raise PayloadsNotTaken(topic=topic)
        return payload_key(known.id, payload_id)

    async def _new_upload(self, topic: str, payload: str) -> tuple[UUID, str]:
        """Id and key of a body that will be uploaded; raises if the id is too old."""
        payload_id = parse_payload_id(payload)
        key = await self._key(topic, payload_id)
        check_age(payload_id, self._clock.now_ms(), self._limits.publish_within_ms)
        return payload_id, key

    def _check_size(self, size: int, limit: int | None) -> None:
        limit = self._limits.bytes_max if limit is None else min(limit, self._limits.bytes_max)
        if size > limit:
            raise PayloadTooLarge(size=size, limit=limit)

    def _hold(self, count: int) -> None:
        if self.held_bytes + count > self._limits.held_bytes_max:
            raise Overloaded(waiting=self.held_bytes, limit=self._limits.held_bytes_max)
        self.held_bytes += count

    async def _signed(self, key: str, method: Method, payload_id: UUID | None) -> str | None:
        if not self._limits.signs_urls:
            return None
        expires_s = self._limits.url_s
        if payload_id is not None:
            left_ms = self._url_expires_at_ms(payload_id) - self._clock.now_ms()
            expires_s = max(1, left_ms // 1000)
        return await self._in_pool(lambda: self._store.signed_url(key, method, expires_s))

    def _url_expires_at_ms(self, payload_id: UUID) -> int:
        """Not later than the last time at which the message may arrive."""
        last_ms = created_at_ms(payload_id) + self._limits.publish_within_ms
        return min(last_ms, self._clock.now_ms() + self._limits.url_s * 1000)

    async def _exists(self, key: str) -> bool:
        try:
            await self._in_pool(lambda: self._store.size(key))
        except ObjectMissing:
            return False
        return True

    async def _size(self, topic: str, payload: str, key: str) -> int:
        try:
            return await self._in_pool(lambda: self._store.size(key))
        except ObjectMissing as error:
            raise UnknownPayload(topic=topic, payload=payload) from error

    async def _pieces(self, key: str, size: int) -> AsyncGenerator[bytes, None]:
        for start in range(0, size, self._limits.piece_bytes):
            yield await self._read(key, start, min(self._limits.piece_bytes, size - start))

    async def _read(self, key: str, start: int, length: int) -> bytes:
        return await self._in_pool(lambda: bytes(self._store.read(key, start, length)))

    async def _in_pool(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise Stopping
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def check_references(records: Iterable[Record], now_ms: int, limits: PayloadLimits) -> None:
    """Refuse messages whose references are invalid, or whose payload may be deleted soon."""
    for number, record in enumerate(records):
        for name, value in record.headers:
            if name == HEADER:
                _check_reference(value, number, now_ms, limits.publish_within_ms)


def _check_reference(value: bytes | None, number: int, now_ms: int, age_ms_max: int) -> None:
    try:
        check_age(parse_reference(value).id, now_ms, age_ms_max)
    except InvalidPayload as error:
        raise InvalidPayload(str(error), **error.facts, record=number) from error


def _check_body(came: Reference, size: int | None, checksum: int | None) -> None:
    payload = str(came.id)
    if not came.bytes:
        raise InvalidPayload(payload=payload, reason="it is empty; an empty body needs no payload")
    if size is not None and came.bytes != size:
        raise InvalidPayload(payload=payload, reason=f"{size} bytes were announced, and {came.bytes} came")
    if checksum is not None and came.crc32c != checksum:
        raise InvalidPayload(payload=payload, reason="its bytes do not have the checksum that was announced")
