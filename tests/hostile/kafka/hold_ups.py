"""For how long requests that name nearly 100,000 partitions, or 10,000 groups or topics, hold up the event loop of a
broker: in all, and at a time. Other clients wait so long. Much of the longest time is the garbage collector's.

python -m tests.hostile.kafka.hold_ups [part of a name]
"""

import asyncio
import sys
import time
from collections.abc import Iterator

from tests.hostile.kafka.siege import ThreadBroker, Wire, create_topic, written

from millpond.protocol.messages import (
    configs,
    consumer_groups,
    group_admin,
    group_offsets,
    metadata,
    offsets,
    reassignments,
    topic_partitions,
    transaction_admin,
)

PARTITIONS = 99_000
"""With the rest of a request less than the codec's limit of elements."""
NAMES = 10_000
TOPIC = "large"
TOPIC_PARTITIONS = 1_000
SECONDS_MAX = 120.0
NUMBERS = list(range(PARTITIONS))
HALF = NUMBERS[: PARTITIONS // 2]
"""Of partitions with a list of their own, which count twice."""
MANY = [f"n{number}" for number in range(NAMES)]


def heartbeat(member_id="m", epoch=0, **values):
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    values = {**(joins if epoch == 0 else {}), **values}
    return consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="held", member_id=member_id, member_epoch=epoch, **values
    )


def committed(name):
    part = group_offsets.OffsetCommitRequestPartition
    parts = [part(partition_index=n, committed_offset=1, committed_metadata="") for n in NUMBERS]
    topic = group_offsets.OffsetCommitRequestTopic(name=name, partitions=parts)
    return group_offsets.OffsetCommitRequest(group_id="other", topics=[topic])


def fetched(name):
    topic = group_offsets.OffsetFetchRequestTopics(name=name, partition_indexes=NUMBERS)
    group = group_offsets.OffsetFetchRequestGroup(group_id="other", topics=[topic])
    return group_offsets.OffsetFetchRequest(groups=[group])


def listed(name):
    parts = [offsets.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in NUMBERS]
    topic = offsets.ListOffsetsTopic(name=name, partitions=parts)
    return offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])


def reassigned(name):
    parts = [reassignments.ReassignablePartition(partition_index=n, replicas=[1]) for n in HALF]
    topic = reassignments.ReassignableTopic(name=name, partitions=parts)
    return reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def described_configs(kind):
    resource = configs.DescribeConfigsResource
    found = [resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in MANY]
    return configs.DescribeConfigsRequest(resources=found)


def altered_configs(kind, name, value):
    change = configs.IncrementalAlterableConfig(name=name, config_operation=0, value=value)
    resource = configs.IncrementalAlterConfigsResource
    found = [resource(resource_type=kind, resource_name=each, configs=[change]) for each in MANY]
    return configs.IncrementalAlterConfigsRequest(resources=found, validate_only=True)


def requests() -> Iterator[tuple[str, object, int]]:
    """Name, request, version. Later ones meet what earlier ones have left."""
    numbered = consumer_groups.HeartbeatTopicPartitions(topic_id=b"\1" * 16, partitions=NUMBERS)
    yield "heartbeat: join", heartbeat(), 1
    yield "heartbeat: owns 99,000 partitions", heartbeat(epoch=1, topic_partitions=[numbered]), 1
    apart = [
        consumer_groups.HeartbeatTopicPartitions(topic_id=n.to_bytes(16, "big"), partitions=[0]) for n in HALF
    ]
    yield "heartbeat: owns 49,000 topics", heartbeat(epoch=1, topic_partitions=apart), 1
    yield "heartbeat: join with 10,000 names", heartbeat("n", subscribed_topic_names=MANY), 1
    yield "heartbeat: the same again", heartbeat("n", subscribed_topic_names=MANY), 1
    yield "heartbeat: another member with them", heartbeat("o", subscribed_topic_names=MANY), 1
    for name in (TOPIC, "unknown"):
        yield f"commit: {name}", committed(name), 9
        yield f"fetch offsets: {name}", fetched(name), 9
        yield f"list offsets: {name}", listed(name), 9
        yield f"reassign: {name}", reassigned(name), 1
        asked = transaction_admin.DescribeProducersTopic(name=name, partition_indexes=NUMBERS)
        yield f"describe producers: {name}", transaction_admin.DescribeProducersRequest(topics=[asked]), 0
        asked = reassignments.ElectionTopic(topic=name, partitions=NUMBERS)
        yield f"elect leaders: {name}", reassignments.ElectLeadersRequest(topic_partitions=[asked]), 2
        asked = reassignments.ReassignmentsTopic(name=name, partition_indexes=NUMBERS)
        yield (
            f"list reassignments: {name}",
            reassignments.ListPartitionReassignmentsRequest(topics=[asked]),
            0,
        )
    topics = [metadata.MetadataRequestTopic(name=name) for name in MANY]
    yield (
        "metadata: 10,000 names",
        metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False),
        12,
    )
    topics = [topic_partitions.DescribeTopicPartitionsTopic(name=name) for name in MANY]
    yield "describe topic partitions", topic_partitions.DescribeTopicPartitionsRequest(topics=topics), 0
    yield "describe transactions", transaction_admin.DescribeTransactionsRequest(transactional_ids=MANY), 0
    yield (
        "list transactions",
        transaction_admin.ListTransactionsRequest(state_filters=MANY, producer_id_filters=[]),
        0,
    )
    yield "describe consumer groups", consumer_groups.ConsumerGroupDescribeRequest(group_ids=MANY), 1
    yield "describe groups", group_admin.DescribeGroupsRequest(groups=MANY), 5
    yield "describe configs of groups", described_configs(32), 4
    yield "alter configs of groups", altered_configs(32, "consumer.session.timeout.ms", "50000"), 1
    yield "alter configs of brokers", altered_configs(4, "num.partitions", "2"), 1


class Monitor:
    """Runs on the loop between everything else. Measures the processor time of the loop's thread, so that neither other
    processes nor other threads count."""

    def __init__(self):
        self.longest = self.total = 0.0
        self._stopped = False

    async def run(self):
        before = time.thread_time()
        while not self._stopped:
            await asyncio.sleep(0)
            now = time.thread_time()
            if now - before > 0.001:
                self.total += now - before
            self.longest, before = max(self.longest, now - before), now

    def stop(self):
        self._stopped = True


def measured(broker, wire, request, version):
    frame = written(request, version)
    monitor = Monitor()
    broker.call(lambda: asyncio.ensure_future(monitor.run()))
    time.sleep(0.02)
    started = time.monotonic()
    wire.send(frame)
    answer = wire.receive()
    seconds = time.monotonic() - started
    broker.call(monitor.stop)
    return monitor, seconds, 0 if answer is None else len(answer)


def main(chosen=""):
    broker = ThreadBroker({}, {})
    broker.start()
    create_topic(broker.port, TOPIC, TOPIC_PARTITIONS)
    print(f"{'request':42} {'at a time':>10} {'in all':>10} {'response':>10}")
    for name, request, version in requests():
        if chosen in name:
            with Wire(broker.port) as wire:
                wire.socket.settimeout(SECONDS_MAX)
                monitor, seconds, size = measured(broker, wire, request, version)
            longest, total = monitor.longest * 1000, monitor.total * 1000
            print(f"{name:42} {longest:7.0f} ms {total:7.0f} ms {seconds:8.2f} s {size:9}", flush=True)
    print(*broker.records.reasons(), *broker.records.alarming(), sep="\n")
    broker.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
