"""Reads a topic with a third-party Kafka client, if one is installed, to show compatibility."""

import asyncio
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Final

READ_S: Final = 1.0


def read_with_any(address: str, topic: str, expected: int, timeout_s: float) -> tuple[str, int] | None:
    """The client's name and the number of messages it read; None if no client is installed. Stops when it has
    read `expected` messages."""
    if find_spec("confluent_kafka") is not None:
        return "confluent-kafka", _with_confluent(address, topic, expected, timeout_s)
    if find_spec("kafka") is not None:
        return "kafka-python", _with_kafka_python(address, topic, expected, timeout_s)
    if find_spec("aiokafka") is not None:
        return "aiokafka", asyncio.run(_with_aiokafka(address, topic, expected, timeout_s))
    return None


def _with_confluent(address: str, topic: str, expected: int, timeout_s: float) -> int:
    settings = {"bootstrap.servers": address, "group.id": "demo", "auto.offset.reset": "earliest"}
    consumer = import_module("confluent_kafka").Consumer(settings)
    consumer.subscribe([topic])
    count, deadline = 0, time.monotonic() + timeout_s
    try:
        while count < expected and time.monotonic() < deadline:
            found = consumer.consume(num_messages=10_000, timeout=READ_S)
            count += sum(message.error() is None for message in found)
    finally:
        consumer.close()
    return count


def _with_kafka_python(address: str, topic: str, expected: int, timeout_s: float) -> int:
    consumer = import_module("kafka").KafkaConsumer(
        topic, bootstrap_servers=address, group_id="demo", auto_offset_reset="earliest"
    )
    count, deadline = 0, time.monotonic() + timeout_s
    try:
        while count < expected and time.monotonic() < deadline:
            count += sum(map(len, consumer.poll(timeout_ms=int(READ_S * 1000)).values()))
    finally:
        consumer.close()
    return count


async def _with_aiokafka(address: str, topic: str, expected: int, timeout_s: float) -> int:
    consumer = import_module("aiokafka").AIOKafkaConsumer(
        topic, bootstrap_servers=address, group_id="demo", auto_offset_reset="earliest"
    )
    count, deadline = 0, time.monotonic() + timeout_s
    await consumer.start()
    try:
        while count < expected and time.monotonic() < deadline:
            found = await consumer.getmany(timeout_ms=int(READ_S * 1000))
            count += sum(map(len, found.values()))
    finally:
        await consumer.stop()
    return count
