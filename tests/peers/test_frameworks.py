"""Stream frameworks of Python, each on its Kafka library: FastStream, Quix Streams and Faust, in `peers/frameworks`."""

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.committed import committed
from tests.peers.support import WAIT_SECONDS_MAX, available, json_lines, said, shows

from peers import programs

WORDS = [f"word-{number % 7}" for number in range(300)]
FIRST = 100
"""The first run ends after so many words, and the second goes on."""
PARTITIONS = 2


@pytest.fixture
def topics(bootstrap: str, prefix: str) -> tuple[str, str]:
    """One with the words, and an empty one."""
    source, target = f"{prefix}-words", f"{prefix}-output"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in (source, target)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for word in WORDS:
        producer.produce(source, key=word, value=word)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    return source, target


def results(program: programs.Program, *arguments: str) -> dict:
    """Of one run; its other lines belong to the framework."""
    return json_lines(said(program.run(*arguments)))[-1]


def positions(bootstrap: str, group: str, topic: str) -> int:
    """The sum of the offsets that the group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(max(each.offset, 0) for each in consumer.committed(partitions, WAIT_SECONDS_MAX))
    finally:
        consumer.close()


@shows(
    "FastStream",
    "reads as a group, publishes, commits and goes on after a restart (aiokafka, confluent-kafka)",
)
def test_faststream(bootstrap, prefix, topics, counted):
    faststream = available(programs.faststream)
    source, target = topics
    for turn, library in enumerate(("aiokafka", "confluent"), 1):
        group = f"{prefix}-{library}"
        told = (library, bootstrap, source, target, group)
        first = results(faststream, *told, str(FIRST))["handled"]
        assert FIRST <= len(first) < len(WORDS)
        assert positions(bootstrap, group, source) == len(first)
        second = results(faststream, *told, str(len(WORDS) - len(first)))["handled"]
        assert Counter(first + second) == Counter(WORDS)
        published = [message.value().decode() for message in committed(bootstrap, target)]
        assert Counter(published) == Counter(turn * [word.upper() for word in WORDS])
        assert positions(bootstrap, group, source) == len(WORDS)
    counted(f"{len(WORDS)} messages with each library, 1 restart, each once")


@shows("Quix Streams", "counts words exactly once, and restores its state from the changelog")
def test_quix_streams(bootstrap, prefix, topics, tmp_path: Path, counted):
    quix = available(programs.quix_streams)
    source, target = topics
    told = (bootstrap, source, target, f"{prefix}-group")
    assert results(quix, *told, str(tmp_path / "one"), str(FIRST)) == {"handled": FIRST}
    assert positions(bootstrap, f"{prefix}-group", source) == FIRST
    rest = len(WORDS) - FIRST
    assert results(quix, *told, str(tmp_path / "two"), str(rest)) == {"handled": rest}
    seen: dict[bytes, list[int]] = {}
    for message in committed(bootstrap, target):
        seen.setdefault(message.key(), []).append(int(message.value()))
    wanted = {word.encode(): list(range(1, count + 1)) for word, count in Counter(WORDS).items()}
    assert seen == wanted
    counted(f"{len(WORDS)} words, 1 restart with an empty folder: each count once and in order")


@shows("Faust (faust-streaming)", "counts words in a table, and restores it from the changelog")
def test_faust(bootstrap, prefix, topics, tmp_path: Path, counted):
    faust = available(programs.faust)
    source, _ = topics
    told = (bootstrap, source, f"{prefix}-app")
    first = results(faust, *told, str(tmp_path / "one"), str(FIRST))
    assert FIRST <= first["handled"] < len(WORDS)
    assert positions(bootstrap, f"{prefix}-app", source) == first["handled"]
    second = results(faust, *told, str(tmp_path / "two"), str(len(WORDS) - first["handled"]))
    assert second == {"handled": len(WORDS) - first["handled"], "counts": dict(Counter(WORDS))}
    counted(f"{len(WORDS)} words, 1 restart with an empty folder: each counted once")
