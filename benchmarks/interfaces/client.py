"""The client library: messages submitted as fast as it accepts them, by one producer and by sixteen."""

import secrets
import threading
import time
from collections.abc import Callable

from confluent_kafka import Producer as LibrdkafkaProducer

from benchmarks.interfaces.measured import Measured
from benchmarks.interfaces.servers import Servers
from benchmarks.report import quantiles_ms
from millpond import Producer

VALUE = b"x" * 100
MESSAGES = 300_000
SINGLE_SENDS = 1_000


def measure(servers: Servers, quick: bool) -> list[Measured]:
    count = MESSAGES // 10 if quick else MESSAGES
    peer = _librdkafka(servers.broker["kafka"], count)
    return [_producers(servers.broker["grpc"], producers, count, peer) for producers in (1, 16)]


def _producers(address: str, producers: int, count: int, peer: float) -> Measured:
    topic = f"bench-{secrets.token_hex(4)}"
    clients = [Producer(topic, address=address, timeout=60) for _ in range(producers)]
    for client in clients:
        client.send(VALUE)
    seconds = _at_once([lambda client=client: _submit(client, count // producers) for client in clients])
    latencies: list[float] = []
    _at_once([lambda client=client: latencies.extend(_sends(client, producers)) for client in clients])
    for client in clients:
        client.close()
    p50, p99 = quantiles_ms(latencies)
    load = f"{producers} producer{'s' * (producers > 1)}; latency: each sends one at a time"
    return Measured("client library", load, count / seconds, p50, p99, "librdkafka, one producer", peer)


def _submit(client: Producer, count: int) -> None:
    for _ in range(count):
        client.submit(VALUE)
    client.flush()


def _sends(client: Producer, producers: int) -> list[float]:
    latencies = []
    for _ in range(SINGLE_SENDS // producers):
        begun = time.perf_counter()
        client.send(VALUE)
        latencies.append(time.perf_counter() - begun)
    return latencies


def _at_once(tasks: list[Callable[[], None]]) -> float:
    threads = [threading.Thread(target=task) for task in tasks]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def _librdkafka(address: str, count: int) -> float:
    settings = {"bootstrap.servers": address, "acks": "all", "queue.buffering.max.messages": count + 1}
    producer = LibrdkafkaProducer(settings)
    topic = f"bench-{secrets.token_hex(4)}"
    producer.produce(topic, VALUE)
    producer.flush()
    begun = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, VALUE)
        producer.poll(0)
    producer.flush()
    return count / (time.perf_counter() - begun)
