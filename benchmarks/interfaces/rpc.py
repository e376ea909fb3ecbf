"""Raw gRPC: one message per call, and streams of requests with one message and with a hundred."""

import asyncio
import time
from collections import deque

import grpc
import uvloop

from benchmarks.interfaces.measured import Measured
from benchmarks.interfaces.servers import Servers
from benchmarks.report import quantiles_ms
from millpond.stubs import log_pb2

CALLS = 10_000
STREAMED = 20_000
CONCURRENT = 50
IN_FLIGHT = 128

Timed = tuple[float, list[float]]
"""Messages per second, and the duration of each request."""


def measure(servers: Servers, quick: bool) -> list[Measured]:
    return uvloop.run(_measure(servers, 10 if quick else 1))


async def _measure(servers: Servers, scale: int) -> list[Measured]:
    """All on one event loop, because gRPC does not work well with several loops in a process."""
    found = []
    for load, per_request, requests, drive in (
        (f"unary, {CONCURRENT} at a time", 1, CALLS // scale, _unary),
        (f"stream, one message a request, {IN_FLIGHT} in flight", 1, STREAMED // scale, _stream),
        (f"stream, 100 messages a request, {IN_FLIGHT} in flight", 100, STREAMED // scale // 10, _stream),
    ):
        rate, latencies = await drive(servers.broker["grpc"], requests, per_request)
        peer, _ = await drive(servers.empty["grpc"], requests, per_request)
        p50, p99 = quantiles_ms(latencies)
        found.append(Measured("gRPC", load, rate, p50, p99, "the same without storing", peer))
    return found


def _request(messages: int) -> log_pb2.ProduceRequest:
    return log_pb2.ProduceRequest(
        topic="bench-rpc", messages=[log_pb2.NewMessage(value=b"x" * 100)] * messages
    )


async def _unary(address: str, calls: int, messages: int) -> Timed:
    async with grpc.aio.insecure_channel(address) as channel:
        produce = channel.unary_unary(
            "/millpond.v1.Log/Produce",
            log_pb2.ProduceRequest.SerializeToString,
            log_pb2.ProduceResponse.FromString,
        )
        latencies: list[float] = []

        async def caller() -> None:
            for _ in range(calls // CONCURRENT):
                begun = time.perf_counter()
                await produce(_request(messages))
                latencies.append(time.perf_counter() - begun)

        await produce(_request(messages), wait_for_ready=True)
        begun = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(CONCURRENT)))
        return len(latencies) * messages / (time.perf_counter() - begun), latencies


async def _stream(address: str, requests: int, messages: int) -> Timed:
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(
            "/millpond.v1.Log/ProduceStream",
            log_pb2.ProduceRequest.SerializeToString,
            log_pb2.ProduceStreamResponse.FromString,
        )()
        written: deque[float] = deque()
        latencies: list[float] = []
        room = asyncio.Semaphore(IN_FLIGHT)

        async def read() -> None:
            while len(latencies) < requests:
                for _ in (await call.read()).results:
                    latencies.append(time.perf_counter() - written.popleft())
                    room.release()

        request = _request(messages)
        begun = time.perf_counter()
        reading = asyncio.create_task(read())
        for _ in range(requests):
            await room.acquire()
            written.append(time.perf_counter())
            await call.write(request)
        await reading
        seconds = time.perf_counter() - begun
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return requests * messages / seconds, latencies
