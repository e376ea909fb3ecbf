"""Drives the lanes of one producer: streams to brokers, answers back, attempts after failures, deadlines.

One task per broker writes and one reads; a third looks after time. Lives on one event loop; its state changes only
between awaits.
"""

import asyncio
import contextlib
import time
from collections import deque
from typing import Any, Final

import grpc

from millpond.client.calls import LOG, Connections, Pauses
from millpond.client.errors import error_of, error_of_result, redirect_of
from millpond.client.lane import Identity, Lane, OutBatch
from millpond.model.errors import MillpondError, TimedOut
from millpond.stubs import log_pb2

LOOK_EVERY_S: Final = 0.02
"""How often deadlines are looked at while there is something to send."""


class Link:
    """A stream to one broker. Its answers come in the order of what was written."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.unanswered: deque[Lane] = deque()
        self.reading: asyncio.Task[None] | None = None


class Sender:
    def __init__(self, connections: Connections, topic: str) -> None:
        self._connections = connections
        self._topic = topic
        self._timed_out = TimedOut(timeout_ms=int(connections.timeout_s * 1000))
        self._last_error: MillpondError | None = None
        self._lanes: list[Lane] = []
        self._links: dict[str, Link] = {}
        self._pauses: dict[Lane, Pauses] = {}
        self._wake = asyncio.Event()
        self._freed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.held_bytes = 0

    def start(self, lanes: list[Lane]) -> None:
        self._lanes = lanes
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """There is something new in a lane."""
        self._wake.set()

    async def room(self, bytes_max: int) -> None:
        """Wait until less than this is held."""
        while self.held_bytes >= bytes_max:
            self._freed.clear()
            await self._freed.wait()

    async def flush(self) -> None:
        """Wait until everything is answered."""
        while self.held_bytes:
            self._freed.clear()
            await self._freed.wait()

    async def close(self) -> None:
        tasks = [self._task] if self._task is not None else []
        for link in list(self._links.values()):
            link.call.cancel()
            if link.reading is not None:
                tasks.append(link.reading)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self, error: MillpondError) -> None:
        for lane in self._lanes:
            self._free(lane.abandon(error))

    # -- writing ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not self.held_bytes:
                await self._wake.wait()
            self._wake.clear()
            now = asyncio.get_running_loop().time()
            self._look_at_deadlines(now)
            for lane in self._lanes:
                if not lane.is_idle:
                    await self._drive(lane, now)
            await self._pause()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._wake.wait()

    async def _drive(self, lane: Lane, now: float) -> None:
        if lane.needs_identity:
            await self._identify(lane)
        while (batch := lane.next_batch(now, int(time.time() * 1000))) is not None:
            await self._send(lane, batch)

    async def _identify(self, lane: Lane) -> None:
        try:
            lane.take_identity(await self._new_identity())
            self._last_error = None
        except MillpondError as error:
            self._last_error = error
            if not error.retriable:
                self._free(lane.abandon(error))

    async def _new_identity(self) -> Identity:
        response = await self._connections.call(
            LOG, "InitProducer", log_pb2.InitProducerRequest(), log_pb2.InitProducerResponse
        )
        return Identity(response.producer_id, response.producer_epoch)

    async def _send(self, lane: Lane, batch: OutBatch) -> None:
        link = self._link(lane.address)
        link.unanswered.append(lane)
        request = log_pb2.ProduceRequest(topic=self._topic, partition=lane.partition, batch=batch.data)
        try:
            await link.call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            self._lose(lane.address, link)

    def _link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(self._connections.produce_stream(address))
            link.reading = asyncio.create_task(self._read(address, link))
        return link

    # -- answers ----------------------------------------------------------------------------------------------

    async def _read(self, address: str, link: Link) -> None:
        try:
            while (response := await link.call.read()) is not grpc.aio.EOF:
                if self._links.get(address) is not link:
                    return
                for result in response.results:
                    self._settle(link.unanswered.popleft(), result)
                self._wake.set()
        except grpc.aio.AioRpcError as failure:
            self._last_error = error_of(failure, address, self._timed_out.facts["timeout_ms"])
        except asyncio.InvalidStateError:
            pass  # it was ended while we looked
        finally:
            self._lose(address, link)

    def _settle(self, lane: Lane, result: log_pb2.ProduceResult) -> None:
        if result.HasField("produced"):
            done = lane.settle(result.produced.numbers[0])
            self._pauses.pop(lane, None)
        else:
            error = error_of_result(result.error)
            done = lane.settle(error)
            if done is None:
                self._hold_back(lane, redirect_of(error))
        if done is not None:
            self._free([done])

    def _hold_back(self, lane: Lane, owner: str | None) -> None:
        """Let a lane rest before its next attempt, which goes to whoever owns the partition."""
        if owner is not None and owner != lane.address:
            lane.address = owner
            return
        pause = self._pauses.setdefault(lane, Pauses()).take()
        lane.resume_at = asyncio.get_running_loop().time() + pause

    def _lose(self, address: str, link: Link) -> None:
        """The stream has ended. What it did not answer is sent again, by the way that is always known."""
        if self._links.get(address) is not link:
            return
        del self._links[address]
        link.call.cancel()
        for lane in dict.fromkeys(link.unanswered):
            lane.lose_answers()
            lane.address = self._connections.address
            self._hold_back(lane, None)
        self._wake.set()

    # -- time -------------------------------------------------------------------------------------------------

    def _look_at_deadlines(self, now: float) -> None:
        for lane in self._lanes:
            if lane.oldest_deadline <= now:
                self._free(lane.expire(now, self._timed_out, self._last_error or self._timed_out))
                if lane.oldest_deadline <= now:  # something in flight gets no answer: try another connection
                    link = self._links.get(lane.address)
                    if link is not None:
                        self._lose(lane.address, link)

    def _free(self, batches: "list[OutBatch]") -> None:
        self.held_bytes -= sum(batch.size for batch in batches)
        self._freed.set()
