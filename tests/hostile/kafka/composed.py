"""Requests that the recorded clients do not send: newer groups, and administration. They make sense as they are."""

from tests.hostile.kafka.siege import written

from millpond.protocol import LENGTH_BYTES
from millpond.protocol.messages import (
    configs,
    consumer_groups,
    group_offsets,
    reassignments,
    share_fetch,
    share_groups,
    topic_partitions,
    transaction_admin,
)

TOPIC_ID = b"\1" * 16


def load():
    """{(api key, version): frame without its length}"""
    return {
        (request.api_key, version): written(request, version)[LENGTH_BYTES:]
        for request, version in (
            *(*_of_groups(), *_of_share_groups(), *_of_members_of_share_groups()),
            *_of_administration(),
        )
    }


def _of_groups():
    owned = [consumer_groups.HeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
    heartbeat = consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="member",
        member_epoch=1,
        instance_id="instance",
        rack_id="rack",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["target"],
        server_assignor="uniform",
        topic_partitions=owned,
    )
    yield heartbeat, 0
    heartbeat.subscribed_topic_regex = "t.*"
    yield heartbeat, 1
    describe = consumer_groups.ConsumerGroupDescribeRequest
    for version in (0, 1):
        yield describe(group_ids=["group", ""], include_authorized_operations=True), version
    part = group_offsets.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="m"
    )
    topic = group_offsets.OffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=[part])
    commit = group_offsets.OffsetCommitRequest
    yield commit(group_id="group", generation_id_or_member_epoch=1, member_id="member", topics=[topic]), 10
    topic = group_offsets.OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[0, 1])
    group = group_offsets.OffsetFetchRequestGroup(
        group_id="group", member_id="member", member_epoch=1, topics=[topic]
    )
    yield group_offsets.OffsetFetchRequest(groups=[group]), 10


def _of_share_groups():
    batch = share_fetch.AcknowledgementBatch(first_offset=0, last_offset=1, acknowledge_types=[1, 2])
    part = share_fetch.ShareFetchPartition(partition_index=0, acknowledgement_batches=[batch])
    for version in (1, 2):
        yield (
            share_fetch.ShareFetchRequest(
                group_id="group",
                member_id="member",
                share_session_epoch=1,
                max_wait_ms=0,
                min_bytes=1,
                max_records=10,
                batch_size=10,
                topics=[share_fetch.ShareFetchTopic(topic_id=TOPIC_ID, partitions=[part])],
                forgotten_topics_data=[share_fetch.ShareForgottenTopic(topic_id=TOPIC_ID, partitions=[1])],
            ),
            version,
        )
        part = share_fetch.ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        yield (
            share_fetch.ShareAcknowledgeRequest(
                group_id="group",
                member_id="member",
                share_session_epoch=1,
                topics=[share_fetch.ShareAcknowledgeTopic(topic_id=TOPIC_ID, partitions=[part])],
            ),
            version,
        )


def _of_members_of_share_groups():
    yield (
        share_groups.ShareGroupHeartbeatRequest(
            group_id="group",
            member_id="member",
            member_epoch=0,
            rack_id="rack",
            subscribed_topic_names=["target", ""],
        ),
        1,
    )
    yield share_groups.ShareGroupDescribeRequest(group_ids=["group", ""]), 1
    described = share_groups.DescribeShareGroupOffsetsRequestTopic(topic_name="target", partitions=[0, 9, -1])
    for version, topics in ((0, [described]), (1, None)):
        group = share_groups.DescribeShareGroupOffsetsRequestGroup(group_id="group", topics=topics)
        yield share_groups.DescribeShareGroupOffsetsRequest(groups=[group]), version
    partitions = [
        share_groups.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=-number)
        for number in (0, 9)
    ]
    altered = share_groups.AlterShareGroupOffsetsRequestTopic(topic_name="target", partitions=partitions)
    yield share_groups.AlterShareGroupOffsetsRequest(group_id="group", topics=[altered]), 0
    deleted = share_groups.DeleteShareGroupOffsetsRequestTopic(topic_name="target")
    yield share_groups.DeleteShareGroupOffsetsRequest(group_id="group", topics=[deleted]), 0


def _of_administration():
    topic = transaction_admin.DescribeProducersTopic(name="target", partition_indexes=[0, 1])
    yield transaction_admin.DescribeProducersRequest(topics=[topic]), 0
    yield transaction_admin.DescribeTransactionsRequest(transactional_ids=["id"]), 0
    yield transaction_admin.ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[1]), 0
    yield configs.ListConfigResourcesRequest(resource_types=[2, 4, 8, 16, 32]), 1
    topic = topic_partitions.DescribeTopicPartitionsTopic(name="target")
    yield topic_partitions.DescribeTopicPartitionsRequest(topics=[topic]), 0
    election = reassignments.ElectionTopic(topic="target", partitions=[0])
    yield reassignments.ElectLeadersRequest(topic_partitions=[election]), 2
    part = reassignments.ReassignablePartition(partition_index=0, replicas=[1])
    topic = reassignments.ReassignableTopic(name="target", partitions=[part])
    yield reassignments.AlterPartitionReassignmentsRequest(topics=[topic]), 1
    topic = reassignments.ReassignmentsTopic(name="target", partition_indexes=[0])
    yield reassignments.ListPartitionReassignmentsRequest(topics=[topic]), 0
    change = configs.IncrementalAlterableConfig(
        name="consumer.session.timeout.ms", config_operation=0, value="50000"
    )
    resource = configs.IncrementalAlterConfigsResource
    resources = [
        resource(resource_type=kind, resource_name=name, configs=[change])
        for kind, name in ((32, "group"), (4, ""))
    ]
    yield configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=True), 0
