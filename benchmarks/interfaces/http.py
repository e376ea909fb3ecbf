"""HTTP: one message per request, over fifty connections that each wait for the response."""

import asyncio
import time

import uvloop

from benchmarks.interfaces.measured import Measured
from benchmarks.interfaces.servers import Servers
from benchmarks.report import quantiles_ms

CONNECTIONS = 50
REQUESTS = 20_000
BODY = b"key:" + b"x" * 96
REQUEST = (
    b"POST /topics/bench-http/produce/0 HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s"
) % (len(BODY), BODY)


def measure(servers: Servers, quick: bool) -> list[Measured]:
    requests = REQUESTS // 10 if quick else REQUESTS
    (rate, latencies), (peer, _) = (
        uvloop.run(_load(address, requests)) for address in (servers.broker["http"], servers.empty["http"])
    )
    p50, p99 = quantiles_ms(latencies)
    load = f"{CONNECTIONS} connections, one message a request"
    return [Measured("HTTP", load, rate, p50, p99, "the same without storing", peer)]


async def _load(address: str, requests: int) -> tuple[float, list[float]]:
    host, _, port = address.rpartition(":")
    latencies: list[float] = []

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(requests // CONNECTIONS):
            begun = time.perf_counter()
            writer.write(REQUEST)
            await _answer(reader)
            latencies.append(time.perf_counter() - begun)
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return len(latencies) / (time.perf_counter() - begun), latencies


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
