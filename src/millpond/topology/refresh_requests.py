"""Asks other brokers to read the catalog now. Only an optimisation: without it they do so periodically."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import grpc

from millpond.stubs import cluster_pb2 as pb

LOOK: Final = "/millpond.v1.Cluster/Look"
REFRESH_TIMEOUT_S: Final = 1.0
MakeChannel = Callable[[str], grpc.aio.Channel]
MakeMetadata = Callable[[], Sequence[tuple[str, str]]]


class RefreshRequests:
    """Keeps a connection to every broker in the last list of addresses. `make_channel` creates it; `make_metadata`
    returns the metadata of each call, for example a token."""

    def __init__(
        self, make_channel: MakeChannel = grpc.aio.insecure_channel, make_metadata: MakeMetadata = tuple
    ) -> None:
        self._make_channel = make_channel
        self._make_metadata = make_metadata
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._again: dict[str, bool] = {}
        """Addresses with a request of `send_one_soon` in flight, and whether it was called again since."""

    async def send(self, addresses: Iterable[str]) -> None:
        """Returns when all have refreshed, or did not respond in time."""
        wanted = set(addresses)
        for address in self._channels.keys() - wanted:
            if (channel := self._channels.pop(address, None)) is not None:  # another call may have removed it
                await channel.close()
        await asyncio.gather(*(self._request(address) for address in wanted))

    def send_soon(self, addresses: Iterable[str]) -> None:
        task = asyncio.create_task(self.send(addresses))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def send_one_soon(self, address: str) -> None:
        """At most one request is in flight and one waits, however often this is called: the last one covers all."""
        if address in self._again:
            self._again[address] = True
            return
        self._again[address] = False
        task = asyncio.create_task(self._send_one(address))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_one(self, address: str) -> None:
        try:
            await self._request(address)
            while self._again[address]:
                self._again[address] = False
                await self._request(address)
        finally:
            del self._again[address]

    async def close(self) -> None:
        for task in list(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _request(self, address: str) -> None:
        if address not in self._channels:
            self._channels[address] = self._make_channel(address)
        call = self._channels[address].unary_unary(
            LOOK,
            request_serializer=pb.LookRequest.SerializeToString,
            response_deserializer=pb.LookResponse.FromString,
        )
        # Awaiting the response would raise, even a cancellation if the channel is closed because its broker is gone.
        await call(pb.LookRequest(), timeout=REFRESH_TIMEOUT_S, metadata=self._make_metadata()).code()
