"""The load on NATS JetStream, through its own Python client. It runs in an interpreter that has this client,
independently of this project: `python jetstream.py '{"do": "publish", …}'` prints one JSON object."""

import asyncio
import json
import sys
import time

from nats.js.api import AckPolicy, ConsumerConfig, StorageType

import nats

DURABLE = "workers"
FETCH = 200


async def publish(js, plan, latencies):
    """Publish with `window` messages in flight, each acknowledged by the server. Returns the start time."""
    filler = bytes(plan["size"] - 8)
    numbers = iter(range(plan["messages"]))

    async def one_after_another():
        for _ in numbers:
            began = time.perf_counter()
            stamp = time.monotonic_ns().to_bytes(8, "big")
            await js.publish(f"{plan['topic']}.messages", stamp + filler)
            latencies.append(time.perf_counter() - began)

    started = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(plan["window"])))
    return started


async def consume(js, plan, latencies):
    """Pull consumers that acknowledge each message with JetStream's plain ack, which gets no response.
    Returns the time of the first message."""
    left, topic, began = plan["messages"], plan["topic"], 0.0
    done = asyncio.Event()

    async def worker():
        nonlocal began, left
        subscription = await js.pull_subscribe(f"{topic}.messages", durable=DURABLE, stream=topic)
        while left > 0:
            try:
                messages = await subscription.fetch(FETCH, timeout=1)
            except (TimeoutError, nats.errors.TimeoutError):
                continue
            began = began or time.perf_counter()
            for message in messages:
                await message.ack()
                latencies.append((time.monotonic_ns() - int.from_bytes(message.data[:8], "big")) / 1e9)
            left -= len(messages)
        done.set()

    workers = [asyncio.create_task(worker()) for _ in range(plan["consumers"])]
    await done.wait()
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return began


async def main(plan):
    client = await nats.connect(plan["url"])
    js = client.jetstream(timeout=30)
    if plan["do"] == "prepare":
        topic = plan["topic"]
        await js.add_stream(name=topic, subjects=[f"{topic}.messages"], storage=StorageType.FILE)
        config = ConsumerConfig(durable_name=DURABLE, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=20_000)
        await js.add_consumer(topic, config)
        return {}
    latencies = []
    began = await {"publish": publish, "consume": consume}[plan["do"]](js, plan, latencies)
    await client.flush()
    seconds = time.perf_counter() - began
    await client.close()
    latencies.sort()
    return {
        "seconds": seconds,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
