"""FastStream against a broker: `python … aiokafka|confluent HOST:PORT INPUT OUTPUT GROUP COUNT` reads as a member of
the group, publishes each message in upper case, acknowledges it, and ends after COUNT messages or some more.
It prints those that it handled as one line of JSON."""

import asyncio
import json
import logging
import sys

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker as AioKafkaBroker

library, address, source, target, group, count = sys.argv[1:7]
SECONDS_MAX = 90

broker = {"aiokafka": AioKafkaBroker, "confluent": ConfluentBroker}[library](address)
app = FastStream(broker)
handled: list[str] = []


@broker.subscriber(source, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
@broker.publisher(target)
async def handle(body: str) -> str:
    handled.append(body)
    if len(handled) == int(count):
        app.exit()
    return body.upper()


asyncio.run(asyncio.wait_for(app.run(log_level=logging.ERROR), SECONDS_MAX))
print(json.dumps({"handled": handled}))
