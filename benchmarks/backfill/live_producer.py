"""`python -m benchmarks.backfill.live_producer ADDRESS TOPIC RECORD_BYTES PAUSE_S`: one record after the other, each
acknowledged before the next, until standard input is closed. Prints "ready" after the first, the samples at the end.
"""

import json
import os
import sys
import threading
import time

from confluent_kafka import Producer


def main(address: str, topic: str, record_bytes: int, pause_s: float) -> None:
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    payload = os.urandom(record_bytes)
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    samples = []
    while not stopped.is_set():
        begin_s = time.monotonic()
        producer.produce(topic, payload, partition=0)
        while len(producer):
            producer.poll(1)
        samples.append((begin_s, time.monotonic() - begin_s))
        if len(samples) == 1:
            print("ready", flush=True)
        stopped.wait(pause_s)
    print(json.dumps(samples))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
