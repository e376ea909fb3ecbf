"""For how long requests that name nearly 100,000 partitions, or 10,000 groups or topics, hold up the event loop of a
broker: in all, and at a time. Other clients wait so long. As in the process of a broker, garbage is collected rarely,
and the client's objects do not take part.

python -m tests.hostile.kafka.hold_ups [part of a name]
"""

import asyncio
import gc
import sys
import time
from collections.abc import Iterator

from tests.hostile.kafka.siege import ThreadBroker, Wire, create_topic, written

from millpond.process import collect_rarely
from millpond.protocol.messages import (
    configs,
    consumer_groups,
    group_admin,
    group_offsets,
    metadata,
    offsets,
    reassignments,
    share_fetch,
    share_groups,
    topic_partitions,
    transaction_admin,
)

PARTITIONS = 99_000
"""With the rest of a request less than the codec's limit of elements."""
NAMES = 10_000
TOPIC = "large"
TOPIC_PARTITIONS = 1_000
SESSION_PARTITIONS = 10_000
"""The limit of a share session."""
SECONDS_MAX = 120.0


def heartbeat(member_id="m", epoch=0, **values):
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    values = {**(joins if epoch == 0 else {}), **values}
    return consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="held", member_id=member_id, member_epoch=epoch, **values
    )


def committed(name, numbers):
    part = group_offsets.OffsetCommitRequestPartition
    parts = [part(partition_index=n, committed_offset=1, committed_metadata="") for n in numbers]
    topic = group_offsets.OffsetCommitRequestTopic(name=name, partitions=parts)
    return group_offsets.OffsetCommitRequest(group_id="other", topics=[topic])


def fetched(name, numbers):
    topic = group_offsets.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
    group = group_offsets.OffsetFetchRequestGroup(group_id="other", topics=[topic])
    return group_offsets.OffsetFetchRequest(groups=[group])


def listed(name, numbers):
    parts = [offsets.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in numbers]
    topic = offsets.ListOffsetsTopic(name=name, partitions=parts)
    return offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])


def reassigned(name, numbers):
    parts = [reassignments.ReassignablePartition(partition_index=n, replicas=[1]) for n in numbers]
    topic = reassignments.ReassignableTopic(name=name, partitions=parts)
    return reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def described_configs(kind, names):
    resource = configs.DescribeConfigsResource
    found = [resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    return configs.DescribeConfigsRequest(resources=found)


def altered_configs(kind, names, name, value):
    change = configs.IncrementalAlterableConfig(name=name, config_operation=0, value=value)
    resource = configs.IncrementalAlterConfigsResource
    found = [resource(resource_type=kind, resource_name=each, configs=[change]) for each in names]
    return configs.IncrementalAlterConfigsRequest(resources=found, validate_only=True)


def share_heartbeat(member_id, names, epoch=0):
    return share_groups.ShareGroupHeartbeatRequest(
        group_id="shared", member_id=member_id, member_epoch=epoch, subscribed_topic_names=names
    )


def shared(kind, epoch, topic_id, numbers, acks=(), member_id="m"):
    """ShareFetch or ShareAcknowledge. `acks` of each partition: (first offset, last offset, types)."""
    batch = share_fetch.AcknowledgementBatch
    given = [
        batch(first_offset=first, last_offset=last, acknowledge_types=types) for first, last, types in acks
    ]
    values = {"group_id": "shared", "member_id": member_id, "share_session_epoch": epoch}
    if kind is share_fetch.ShareAcknowledgeRequest:
        part, topic = share_fetch.ShareAcknowledgePartition, share_fetch.ShareAcknowledgeTopic
    else:
        part, topic = share_fetch.ShareFetchPartition, share_fetch.ShareFetchTopic
        values |= {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        values["forgotten_topics_data"] = []
    parts = [part(partition_index=number, acknowledgement_batches=given) for number in numbers]
    return kind(topics=[topic(topic_id=topic_id, partitions=parts)], **values)


def share_requests(numbers, half, many, topic_id) -> Iterator[tuple[str, object, int]]:
    fetch, acknowledge = share_fetch.ShareFetchRequest, share_fetch.ShareAcknowledgeRequest
    quarter = half[: len(half) // 2]  # of partitions with two lists each
    yield "share heartbeat: join", share_heartbeat("m", [TOPIC]), 1
    yield "share heartbeat: join with many names", share_heartbeat("n", many), 1
    yield "share heartbeat: the same again", share_heartbeat("n", many), 1
    yield "share heartbeat: another member with them", share_heartbeat("o", many), 1
    yield "describe share groups", share_groups.ShareGroupDescribeRequest(group_ids=["shared", *many]), 1
    for name, wanted in (("large", topic_id), ("unknown", b"\1" * 16)):
        yield (
            f"share fetch: {name}",
            shared(fetch, 0, wanted, numbers[:SESSION_PARTITIONS], member_id=name),
            1,
        )
        yield f"share fetch: too many, {name}", shared(fetch, 0, wanted, half), 1
        yield f"share fetch: opens, {name}", shared(fetch, 0, wanted, [0]), 1
        yield (
            f"share acknowledge: partitions, {name}",
            shared(acknowledge, 1, wanted, quarter, [(0, 0, [1])]),
            1,
        )
        ranges = [(number, number, [1]) for number in quarter]
        yield f"share acknowledge: ranges, {name}", shared(acknowledge, 2, wanted, [0], ranges), 1
        types = [(0, len(numbers) - 1, [1] * len(numbers))]
        yield f"share acknowledge: types, {name}", shared(acknowledge, 3, wanted, [0], types), 1
    for name in (TOPIC, "unknown"):
        asked = share_groups.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
        group = share_groups.DescribeShareGroupOffsetsRequestGroup(group_id="shared", topics=[asked])
        yield (
            f"describe share offsets: {name}",
            share_groups.DescribeShareGroupOffsetsRequest(groups=[group]),
            1,
        )
        part = share_groups.AlterShareGroupOffsetsRequestPartition
        parts = [part(partition_index=number, start_offset=0) for number in half]
        topic = share_groups.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts)
        yield (
            f"alter share offsets: {name}",
            share_groups.AlterShareGroupOffsetsRequest(group_id="other shared", topics=[topic]),
            0,
        )
    groups = [share_groups.DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None) for each in many]
    yield "describe share offsets: groups", share_groups.DescribeShareGroupOffsetsRequest(groups=groups), 1
    topics = [share_groups.DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in many]
    yield (
        "delete share offsets",
        share_groups.DeleteShareGroupOffsetsRequest(group_id="other shared", topics=topics),
        0,
    )


def requests(partitions=PARTITIONS, names=NAMES, topic_id=b"\2" * 16) -> Iterator[tuple[str, object, int]]:
    """Name, request, version. Later ones meet what earlier ones have left. `topic_id` is that of the large topic."""
    numbers = list(range(partitions))
    half = numbers[: partitions // 2]  # of partitions with a list of their own, which count twice
    many = [f"n{number}" for number in range(names)]
    numbered = consumer_groups.HeartbeatTopicPartitions(topic_id=b"\1" * 16, partitions=numbers)
    yield "heartbeat: join", heartbeat(), 1
    yield "heartbeat: owns many partitions", heartbeat(epoch=1, topic_partitions=[numbered]), 1
    apart = [
        consumer_groups.HeartbeatTopicPartitions(topic_id=n.to_bytes(16, "big"), partitions=[0]) for n in half
    ]
    yield "heartbeat: owns many topics", heartbeat(epoch=1, topic_partitions=apart), 1
    yield "heartbeat: join with many names", heartbeat("n", subscribed_topic_names=many), 1
    yield "heartbeat: the same again", heartbeat("n", subscribed_topic_names=many), 1
    yield "heartbeat: another member with them", heartbeat("o", subscribed_topic_names=many), 1
    for name in (TOPIC, "unknown"):
        yield f"commit: {name}", committed(name, numbers), 9
        yield f"fetch offsets: {name}", fetched(name, numbers), 9
        yield f"list offsets: {name}", listed(name, numbers), 9
        yield f"reassign: {name}", reassigned(name, half), 1
        asked = transaction_admin.DescribeProducersTopic(name=name, partition_indexes=numbers)
        yield f"describe producers: {name}", transaction_admin.DescribeProducersRequest(topics=[asked]), 0
        asked = reassignments.ElectionTopic(topic=name, partitions=numbers)
        yield f"elect leaders: {name}", reassignments.ElectLeadersRequest(topic_partitions=[asked]), 2
        asked = reassignments.ReassignmentsTopic(name=name, partition_indexes=numbers)
        yield (
            f"list reassignments: {name}",
            reassignments.ListPartitionReassignmentsRequest(topics=[asked]),
            0,
        )
    topics = [metadata.MetadataRequestTopic(name=name) for name in many]
    yield (
        "metadata",
        metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False),
        12,
    )
    topics = [topic_partitions.DescribeTopicPartitionsTopic(name=name) for name in many]
    yield "describe topic partitions", topic_partitions.DescribeTopicPartitionsRequest(topics=topics), 0
    yield "describe transactions", transaction_admin.DescribeTransactionsRequest(transactional_ids=many), 0
    yield (
        "list transactions",
        transaction_admin.ListTransactionsRequest(state_filters=many, producer_id_filters=[]),
        0,
    )
    yield "describe consumer groups", consumer_groups.ConsumerGroupDescribeRequest(group_ids=many), 1
    yield "describe groups", group_admin.DescribeGroupsRequest(groups=many), 5
    yield "describe configs of groups", described_configs(32, many), 4
    yield "alter configs of groups", altered_configs(32, many, "consumer.session.timeout.ms", "50000"), 1
    yield from share_requests(numbers, half, many, topic_id)
    yield "alter configs of brokers", altered_configs(4, many, "num.partitions", "2"), 1


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


def measured(broker, wire, frame):
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
    topic_id = bytes(broker.call(lambda: broker.broker.log.topics.named(TOPIC).id))
    for name, request, version in requests(topic_id=topic_id):
        if chosen in name:
            frame = written(request, version)
            del request
            gc.collect()
            collect_rarely()
            with Wire(broker.port) as wire:
                wire.socket.settimeout(SECONDS_MAX)
                monitor, seconds, size = measured(broker, wire, frame)
            longest, total = monitor.longest * 1000, monitor.total * 1000
            print(f"{name:42} {longest:7.0f} ms {total:7.0f} ms {seconds:8.2f} s {size:9}", flush=True)
    print(*broker.records.reasons(), *broker.records.alarming(), sep="\n")
    broker.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
