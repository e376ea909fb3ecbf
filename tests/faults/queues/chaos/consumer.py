"""A consumer that misbehaves: it refuses, dawdles and dies, and says what it does, a JSON line each.

    python consumer.py ADDRESS NAME SEED

Times are the machine's monotonic clock, which all processes share.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time

from millpond import AsyncSubscriber

REFUSES, DAWDLES, DIES = 0.08, 0.02, 0.002


def say(what, delivery, **more):
    line = {"what": what, "at": time.monotonic_ns(), "key": delivery.key.decode(), **more}
    print(json.dumps({**line, "value": int(delivery.value)}), flush=True)


async def answer(delivery, dice):
    say("got", delivery, attempt=delivery.metadata.retry_count)
    fate = dice.random()
    if fate < DIES:
        os._exit(9)
    if fate < DIES + DAWDLES:
        say("kept", delivery)  # never answered: the broker takes it back when its time is up
        return
    if fate < DIES + DAWDLES + REFUSES:
        outcome = await delivery.nack(dice.choice([None, 0.0, 0.05]))
        say("refused", delivery, outcome=outcome.value)
        return
    await asyncio.sleep(dice.random() * 0.004)
    say("acking", delivery)
    sent_at = time.monotonic_ns()
    outcome = await delivery.ack()
    attempt = delivery.metadata.retry_count
    say("acked", delivery, outcome=outcome.value, sent_at=sent_at, attempt=attempt)


async def main(address, name, seed):
    dice = random.Random(seed)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncSubscriber(
        "orders", "billing", address=address, consumer=name, prefetch=40
    ) as subscriber:
        answering = set()

        async def work():
            async for delivery in subscriber:
                task = asyncio.create_task(answer(delivery, dice))
                answering.add(task)
                task.add_done_callback(answering.discard)

        working = asyncio.create_task(work())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        if answering:
            await asyncio.wait(answering)


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
