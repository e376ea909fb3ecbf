"""What a topic holds for a reader of committed messages."""

import secrets
import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from tests.peers.support import WAIT_SECONDS_MAX

EARLIEST = 0


def committed(bootstrap: str, topic: str) -> list[Message]:
    """All committed messages, those of each partition in order."""
    consumer = _consumer(bootstrap)
    try:
        partitions = _partitions(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, EARLIEST) for partition in partitions])
        return sorted(_until_the_ends(consumer, set(partitions)), key=lambda each: each.partition())
    finally:
        consumer.close()


def values(bootstrap: str, topic: str) -> list[str]:
    return [message.value().decode() for message in committed(bootstrap, topic)]


def end(bootstrap: str, topic: str) -> int:
    """Of partition 0, as committed messages go; 0 while there is no such topic."""
    consumer = _consumer(bootstrap)
    try:
        if not _partitions(consumer, topic):
            return 0
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_SECONDS_MAX)[1]
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{secrets.token_hex(4)}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    known = consumer.list_topics(timeout=WAIT_SECONDS_MAX).topics
    return list(known[topic].partitions) if topic in known else []


def _until_the_ends(consumer: Consumer, open_partitions: set[int]) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while open_partitions:
        assert time.monotonic() < deadline, f"partitions {open_partitions} did not end"
        for message in consumer.consume(1_000, timeout=0.5):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(message.partition())
    return found
