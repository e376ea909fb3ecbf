"""Telling other brokers to look at the catalog now. Nothing depends on it: whoever is not reached looks by itself."""

import asyncio
from collections.abc import Iterable
from typing import Final

import grpc

from millpond.stubs import cluster_pb2 as pb

LOOK: Final = "/millpond.v1.Cluster/Look"
NUDGE_TIMEOUT_S: Final = 1.0


class Nudges:
    """Keeps a connection to every broker that it was told of last."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._again: dict[str, bool] = {}
        """Whom a nudge of `send_one_soon` is on its way to, and whether another one was asked for since."""

    async def send(self, addresses: Iterable[str]) -> None:
        """Returns when all have looked, or do not answer."""
        wanted = set(addresses)
        for address in self._channels.keys() - wanted:
            if (channel := self._channels.pop(address, None)) is not None:  # another may have been faster
                await channel.close()
        await asyncio.gather(*(self._nudge(address) for address in wanted))

    def send_soon(self, addresses: Iterable[str]) -> None:
        task = asyncio.create_task(self.send(addresses))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def send_one_soon(self, address: str) -> None:
        """However often it is called, one nudge is under way and one waits: the last one sees everything."""
        if address in self._again:
            self._again[address] = True
            return
        self._again[address] = False
        task = asyncio.create_task(self._send_one(address))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_one(self, address: str) -> None:
        try:
            await self._nudge(address)
            while self._again[address]:
                self._again[address] = False
                await self._nudge(address)
        finally:
            del self._again[address]

    async def close(self) -> None:
        for task in list(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _nudge(self, address: str) -> None:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address)
        call = self._channels[address].unary_unary(
            LOOK,
            request_serializer=pb.LookRequest.SerializeToString,
            response_deserializer=pb.LookResponse.FromString,
        )
        # The answer itself would raise, and a cancellation if the channel is closed because its broker is gone.
        await call(pb.LookRequest(), timeout=NUDGE_TIMEOUT_S).code()
