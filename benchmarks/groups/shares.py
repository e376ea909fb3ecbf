"""One member of a share group, in this process, that receives and accepts everything in a topic.

The topic is filled before. The time is that from the first message to the acknowledgement of the last one; each poll
accepts what the poll before it returned (implicit acknowledgement), so at most one poll is not acknowledged. Prints
`messages_per_s`, `polls` and `client_cpu`, the share of a core that the client used, as JSON.
"""

import json
import sys
import time
import uuid

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

SECONDS_MAX = 120.0
POLL_S = 1.0
LEFT_MAX = 50_000
"""Messages of the producer in memory."""
POLL_RECORDS = 10_000

Figures = dict[str, float]


def prepare(address: str, topic: str, group: str, partitions: int, size: int, messages: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 2 * LEFT_MAX}
    )
    value = b"x" * size
    for number in range(messages):
        producer.produce(topic, value, partition=number % partitions)
        if number % LEFT_MAX == LEFT_MAX - 1:
            producer.flush()
    assert producer.flush(SECONDS_MAX) == 0


def consume(address: str, topic: str, group: str, messages: int) -> Figures:
    member = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "share.acknowledgement.mode": "implicit",
            "max.poll.records": POLL_RECORDS,
            "log_level": 2,
        }
    )
    member.subscribe([topic])
    received = polls = 0
    began = cpu = 0.0
    give_up = time.perf_counter() + SECONDS_MAX
    while received < messages:
        assert time.perf_counter() < give_up, f"{received} of {messages} messages"
        found = len(member.poll(POLL_S))
        polls += found > 0
        if polls == 1 and not began:
            began, cpu = time.perf_counter(), time.process_time()
            messages -= found  # these came before the clock was started
        else:
            received += found
    member.commit_sync(SECONDS_MAX)
    seconds = time.perf_counter() - began
    used = time.process_time() - cpu
    member.close()
    return {"messages_per_s": received / seconds, "polls": polls, "client_cpu": used / seconds}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    topic, group = f"t-{uuid.uuid4()}", f"g-{uuid.uuid4()}"
    prepare(wanted["address"], topic, group, wanted["partitions"], wanted["bytes"], wanted["messages"])
    print(json.dumps(consume(wanted["address"], topic, group, wanted["messages"])))


if __name__ == "__main__":
    main()
