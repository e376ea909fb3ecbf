"""A producer in a separate process, through librdkafka: `python -m benchmarks.cluster.load '{…}'` prints one
line.

It finds the brokers through their metadata, and sends each partition's records to its owner.
"""

import json
import os
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

PAYLOADS = 512
FLUSH_S = 120


def main() -> None:
    order = json.loads(sys.argv[1])
    producer = Producer(
        {
            "bootstrap.servers": order["address"],
            "acks": "all",
            "linger.ms": 5,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 16 * 1024,
            "message.timeout.ms": FLUSH_S * 1000,
        }
    )
    payloads = [os.urandom(order["bytes"]) for _ in range(PAYLOADS)]
    failures = 0

    def answered(error: KafkaError | None, _: Message) -> None:
        nonlocal failures
        failures += error is not None

    producer.list_topics(order["topic"], timeout=30)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    sent = 0
    while time.perf_counter() - began < order["seconds"]:
        try:
            producer.produce(
                order["topic"],
                payloads[sent % PAYLOADS],
                partition=sent // 50 % order["partitions"],
                on_delivery=answered,
            )
            sent += 1
        except BufferError:
            producer.poll(0.01)
        if sent % 100 == 0:
            producer.poll(0)
            ahead_s = (
                sent / order["per_second"] - (time.perf_counter() - began) if order["per_second"] else 0.0
            )
            time.sleep(max(ahead_s, 0.0))
    left = producer.flush(FLUSH_S)
    taken = time.perf_counter() - began
    print(json.dumps({"sent": sent, "failed": failures + left, "seconds": taken}), flush=True)


if __name__ == "__main__":
    main()
