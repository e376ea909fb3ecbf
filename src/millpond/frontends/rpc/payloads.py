"""The `Payloads` service: URLs for payloads, and upload and download through the broker for stores without URLs."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from millpond.frontends.rpc.context import Context
from millpond.frontends.rpc.guarding import guarded
from millpond.frontends.rpc.memory import ResponseMemory
from millpond.frontends.rpc.rights import READ_TOPIC, WRITE_TOPIC
from millpond.model.acls import AclOperation, ResourceType
from millpond.model.errors import InvalidRequest, MillpondError
from millpond.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millpond.security.requirements import Needs
from millpond.service import PayloadTransfers, TransferTarget
from millpond.stubs import payloads_pb2 as pb

DISCARDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much of a refused upload is still read: a client that is busy writing may miss the response."""


class PayloadService:
    def __init__(self, payloads: PayloadTransfers, response_memory: ResponseMemory) -> None:
        self._payloads = payloads
        self._response_memory = response_memory

    @guarded(WRITE_TOPIC)
    async def upload_place(self, request: pb.UploadPlaceRequest, _: Context) -> pb.PayloadPlace:
        size = request.size_bytes or None
        return _payload_place(await self._payloads.upload_place(request.topic, request.id, size))

    @guarded(READ_TOPIC)
    async def download_place(self, request: pb.DownloadPlaceRequest, _: Context) -> pb.PayloadPlace:
        return _payload_place(await self._payloads.download_place(request.topic, request.id))

    @guarded(Needs(AclOperation.WRITE, ResourceType.TOPIC, of="payload.topic"), counts=PRODUCER_BYTE_RATE)
    async def upload(self, requests: AsyncIterator[pb.UploadRequest], _: Context) -> pb.UploadResponse:
        first = await anext(requests, None)
        if first is None or not first.HasField("payload"):
            raise InvalidRequest(reason="the first request of an upload must have a payload description")
        new = first.payload
        checksum = new.crc32c if new.HasField("crc32c") else None
        data = _data(first, requests)
        try:
            stored = await self._payloads.store(
                new.topic, new.id, data, size=new.size_bytes, checksum=checksum
            )
        except MillpondError:
            await _discard(requests)
            raise
        return pb.UploadResponse(reference=str(stored))

    @guarded(READ_TOPIC, counts=CONSUMER_BYTE_RATE)
    async def download(
        self, request: pb.DownloadRequest, context: Context
    ) -> AsyncIterator[pb.DownloadResponse]:
        body = await self._payloads.read(request.topic, request.id)
        async for piece in body.pieces:
            with self._response_memory.holding(len(piece)):
                yield pb.DownloadResponse(size_bytes=body.size, data=piece)
            await context.sent(len(piece))


async def _data(
    first: pb.UploadRequest, requests: AsyncIterator[pb.UploadRequest]
) -> AsyncGenerator[bytes, None]:
    yield first.data
    async for request in requests:
        if request.HasField("payload"):
            raise InvalidRequest(reason="only the first request of an upload may have a payload description")
        yield request.data


async def _discard(requests: AsyncIterator[pb.UploadRequest]) -> None:
    discarded = 0
    async for request in requests:
        discarded += len(request.data)
        if discarded > DISCARDED_BYTES_MAX:
            return


def _payload_place(target: TransferTarget) -> pb.PayloadPlace:
    return pb.PayloadPlace(
        url=target.url or "",
        method=target.method,
        headers=dict(target.headers),
        expires_at_ms=target.expires_at_ms,
    )
