"""Apache Flink's Kafka connector: a job in one process copies a topic exactly once, in `peers/flink`."""

from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.committed import end, values
from tests.peers.support import WAIT_SECONDS_MAX, available, shows

from peers import programs

MESSAGES, PARTITIONS = 6_000, 2


@shows("Flink's Kafka connector", "copies a topic exactly once: fails, and goes on from its last checkpoint")
def test_exactly_once(bootstrap, prefix, tmp_path: Path, counted):
    flink = available(programs.flink)
    source, target = f"{prefix}-in", f"{prefix}-out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(source, PARTITIONS), NewTopic(target, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(MESSAGES):
        producer.produce(source, value=f"v{number}", partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    seen = flink.ask(bootstrap, source, target, str(tmp_path / "checkpoints"))
    assert seen["failures"] == 1
    copied = values(bootstrap, target)
    assert Counter(copied) == Counter(values(bootstrap, source))
    markers = end(bootstrap, target) - len(copied)
    assert markers > 1  # several transactions
    counted(f"{MESSAGES:,} messages, 1 failure, each once; {markers} offsets of markers and aborted messages")
