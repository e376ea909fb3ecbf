"""The load on Millpond's queue, through its own Python client: `python -m benchmarks.queues.load '{"do":
"publish", …}'` prints one JSON object. The counterpart of `jetstream.py`, with the same windows and sizes."""

import asyncio
import json
import sys
import time
from typing import Any

from millpond import AsyncAdmin, AsyncPublisher, AsyncSubscriber

TOPIC, SUBSCRIPTION = "bench", "workers"
Plan = dict[str, Any]


async def prepare(plan: Plan) -> None:
    config = {"mode": plan["mode"], "leases_max": "20000", "ack_timeout_ms": "600000"}
    async with AsyncAdmin(address=plan["address"]) as admin:
        await admin.create_topic(plan["topic"], partitions=1)
        await admin.create_subscription(plan["topic"], SUBSCRIPTION, config)


async def publish(plan: Plan, latencies: list[float]) -> float:
    """Publish with `window` messages in flight, each acknowledged when it is durable. Returns the start time."""
    filler = bytes(plan["size"] - 8)
    keys = [b"key-%d" % number for number in range(plan["keys"])] if plan["keys"] else [None]
    numbers = iter(range(plan["messages"]))

    async with AsyncPublisher(address=plan["address"], timeout=60) as publisher:

        async def one_after_another() -> None:
            for number in numbers:
                began = time.perf_counter()
                stamp = time.monotonic_ns().to_bytes(8, "big")
                await publisher.send(stamp + filler, topic=plan["topic"], key=keys[number % len(keys)])
                latencies.append(time.perf_counter() - began)

        started = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(plan["window"])))
    return started


async def consume(plan: Plan, latencies: list[float]) -> float:
    """Acknowledge every message; it counts when the acknowledgement is durable. Returns the time of the first
    message."""
    left, began = plan["messages"], 0.0
    done = asyncio.Event()

    async def worker(number: int) -> None:
        nonlocal began, left
        subscriber = AsyncSubscriber(
            plan["topic"],
            SUBSCRIPTION,
            address=plan["address"],
            consumer=f"worker-{number}",
            prefetch=plan["prefetch"],
        )
        async with subscriber:
            async for delivery in subscriber:
                began = began or time.perf_counter()
                stamp = int.from_bytes(delivery.value[:8], "big")
                delivery.ack()
                latencies.append((time.monotonic_ns() - stamp) / 1e9)
                left -= 1
                if left == 0:
                    done.set()

    workers = [asyncio.create_task(worker(number)) for number in range(plan["consumers"])]
    await done.wait()
    for each in workers:
        each.cancel()  # closes its subscriber, which waits until its acknowledgements are durable
    await asyncio.gather(*workers, return_exceptions=True)
    return began


async def main(plan: Plan) -> dict[str, float]:
    if plan["do"] == "prepare":
        await prepare(plan)
        return {}
    latencies: list[float] = []
    began = await {"publish": publish, "consume": consume}[plan["do"]](plan, latencies)
    seconds = time.perf_counter() - began
    latencies.sort()
    return {
        "seconds": seconds,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
