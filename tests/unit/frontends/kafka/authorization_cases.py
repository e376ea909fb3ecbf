"""For each Kafka API: requests, and the rights that they need. `needs` are alternatives: one right of each tuple.

Topic `orders` and the groups and transactional ids that begin with `g-` and `x-` exist as far as it matters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from millpond.frontends.kafka import rights as r
from millpond.protocol import NO_UUID, Request
from millpond.protocol.messages import (
    acls,
    cluster,
    configs,
    consumer_groups,
    fetch,
    group_admin,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    quotas,
    reassignments,
    scram,
    share_fetch,
    share_groups,
    topic_partitions,
    topics,
    transaction_admin,
    transactions,
)
from millpond.records import Record, build_batch

TOPIC, GROUP, TRANSACTION = "orders", "g-", "x-"
NEW_TOPIC = "orders-new"
CONSUMER_GROUP = f"{GROUP}consumer"
"""A group of the consumer protocol, which has a member."""
SHARE_GROUP = f"{GROUP}share"
"""A share group, which has no member."""
TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS = 2, 4, 32


class Ids(NamedTuple):
    topic: bytes
    version: int

    @property
    def group(self):
        return f"{GROUP}{self.version}"

    @property
    def transaction(self):
        return f"{TRANSACTION}{self.version}"


class Case(NamedTuple):
    name: str
    request: type[Request]
    build: Callable[[Ids], Request]
    needs: tuple[tuple[r.Right, ...], ...]
    versions: tuple[int, int] | None = None
    """All of the request, unless given."""
    listed: str = ""
    """The field of the response that is empty without the rights, instead of an error. A dot leads into the first entry
    of a list."""

    def all_versions(self):
        first, last = self.versions or self.request.versions
        return range(first, last + 1)


def batch(*, transactional=False):
    if not transactional:
        return build_batch([Record(b"v")], now_ms=1_000)
    return build_batch(
        [Record(b"v")],
        now_ms=1_000,
        producer_id=7_000,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def produced(ids, *, transactional=False):
    by_id = ids.version >= 13
    part = produce.PartitionProduceData(index=0, records=batch(transactional=transactional))
    topic = produce.TopicProduceData(
        name="" if by_id else TOPIC, topic_id=ids.topic if by_id else NO_UUID, partition_data=[part]
    )
    return produce.ProduceRequest(
        transactional_id=ids.transaction if transactional else None,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[topic],
    )


def fetched(ids):
    by_id = ids.version >= 13
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topic = fetch.FetchTopic(
        topic="" if by_id else TOPIC, topic_id=ids.topic if by_id else NO_UUID, partitions=[part]
    )
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])


def metadata_of(name=None, topic_id=NO_UUID, create=False):
    asked = metadata.MetadataRequestTopic(name=name, topic_id=topic_id)
    return metadata.MetadataRequest(topics=[asked], allow_auto_topic_creation=create)


def offset_commit(ids):
    by_id = ids.version >= 10
    part = group_offsets.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = group_offsets.OffsetCommitRequestTopic(
        name="" if by_id else TOPIC, topic_id=ids.topic if by_id else NO_UUID, partitions=[part]
    )
    return group_offsets.OffsetCommitRequest(group_id=ids.group, topics=[topic])


def offset_fetch(ids):
    if ids.version < 8:
        topic = group_offsets.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return group_offsets.OffsetFetchRequest(group_id=ids.group, topics=[topic])
    by_id = ids.version >= 10
    topic = group_offsets.OffsetFetchRequestTopics(
        name="" if by_id else TOPIC, topic_id=ids.topic if by_id else NO_UUID, partition_indexes=[0]
    )
    asked = group_offsets.OffsetFetchRequestGroup(group_id=ids.group, topics=[topic])
    return group_offsets.OffsetFetchRequest(groups=[asked])


def find_coordinator(ids, key, key_type):
    if ids.version >= 4:
        return groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    return groups.FindCoordinatorRequest(key=key, key_type=key_type)


def consumer_heartbeat(ids, group_id=None):
    """A member joins."""
    return consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id=group_id or ids.group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


def share_heartbeat(ids, group_id=None):
    """A member joins."""
    return share_groups.ShareGroupHeartbeatRequest(
        group_id=group_id or f"{ids.group}shared",
        member_id="m",
        member_epoch=0,
        subscribed_topic_names=[TOPIC],
    )


def describe_share_offsets(ids):
    topic = share_groups.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])
    group = share_groups.DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=[topic])
    return share_groups.DescribeShareGroupOffsetsRequest(groups=[group])


def alter_share_offsets(ids):
    partition = share_groups.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topic = share_groups.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[partition])
    return share_groups.AlterShareGroupOffsetsRequest(group_id=SHARE_GROUP, topics=[topic])


def delete_share_offsets(ids):
    topic = share_groups.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)
    return share_groups.DeleteShareGroupOffsetsRequest(group_id=SHARE_GROUP, topics=[topic])


def share_fetch_of(ids):
    """A session is opened."""
    part = share_fetch.ShareFetchPartition(partition_index=0, acknowledgement_batches=[])
    return share_fetch.ShareFetchRequest(
        group_id=SHARE_GROUP,
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=1,
        max_records=1,
        batch_size=1,
        topics=[share_fetch.ShareFetchTopic(topic_id=ids.topic, partitions=[part])],
        forgotten_topics_data=[],
    )


def share_acknowledge_of(ids):
    """In the session that was opened; the versions follow each other as its epochs do."""
    batch = share_fetch.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    part = share_fetch.ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    return share_fetch.ShareAcknowledgeRequest(
        group_id=SHARE_GROUP,
        member_id="m",
        share_session_epoch=ids.version,
        topics=[share_fetch.ShareAcknowledgeTopic(topic_id=ids.topic, partitions=[part])],
    )


def leave_group(ids):
    members = [groups.MemberIdentity(member_id="m")] if ids.version >= 3 else []
    return groups.LeaveGroupRequest(group_id=ids.group, member_id="m", members=members)


def join_group(ids):
    protocols = [groups.JoinGroupRequestProtocol(name="range", metadata=b"")]
    return groups.JoinGroupRequest(
        group_id=ids.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )


def delete_topics(ids, *, by_id=False):
    if ids.version < 6:
        return topics.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1_000)
    state = topics.DeleteTopicState(topic_id=ids.topic) if by_id else topics.DeleteTopicState(name=TOPIC)
    return topics.DeleteTopicsRequest(topics=[state], timeout_ms=1_000)


def create_topics(ids):
    asked = topics.CreatableTopic(
        name=NEW_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return topics.CreateTopicsRequest(topics=[asked], timeout_ms=1_000)


def delete_records(ids):
    part = topics.DeleteRecordsPartition(partition_index=0, offset=1)
    topic = topics.DeleteRecordsTopic(name=TOPIC, partitions=[part])
    return topics.DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)


def describe_configs(kind, name):
    asked = configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    return configs.DescribeConfigsRequest(resources=[asked])


CONFIGS = {
    TOPIC_CONFIGS: ("retention.ms", "1000"),
    BROKER_CONFIGS: ("max.connections", "5000"),
    GROUP_CONFIGS: ("consumer.session.timeout.ms", "50000"),
}


def alter_configs(kind, name):
    config = configs.AlterableConfig(name=CONFIGS[kind][0], value=CONFIGS[kind][1])
    asked = configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return configs.AlterConfigsRequest(resources=[asked], validate_only=False)


def incremental_alter_configs(kind, name):
    key, value = CONFIGS[kind]
    config = configs.IncrementalAlterableConfig(name=key, config_operation=0, value=value)
    asked = configs.IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    return configs.IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)


def add_partitions(ids):
    topic = transactions.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    if ids.version >= 4:
        each = transactions.AddPartitionsToTxnTransaction(
            transactional_id=ids.transaction,
            producer_id=7,
            producer_epoch=0,
            verify_only=False,
            topics=[topic],
        )
        return transactions.AddPartitionsToTxnRequest(transactions=[each])
    return transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ids.transaction,
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


def txn_offset_commit(ids):
    part = transactions.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = transactions.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    return transactions.TxnOffsetCommitRequest(
        transactional_id=ids.transaction,
        group_id=ids.group,
        producer_id=7,
        producer_epoch=0,
        topics=[topic],
    )


def init_producer_id(transactional_id):
    return transactions.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)


def list_offsets(ids):
    part = offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = offsets.ListOffsetsTopic(name=TOPIC, partitions=[part])
    return offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


def epoch_end(ids):
    part = offsets.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return offsets.OffsetForLeaderEpochRequest(
        topics=[offsets.OffsetForLeaderTopic(topic=TOPIC, partitions=[part])]
    )


def sync_group(ids):
    return groups.SyncGroupRequest(
        group_id=ids.group,
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def offset_delete(ids):
    part = group_offsets.OffsetDeleteRequestPartition(partition_index=0)
    topic = group_offsets.OffsetDeleteRequestTopic(name=TOPIC, partitions=[part])
    return group_offsets.OffsetDeleteRequest(group_id=ids.group, topics=[topic])


ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:carol",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def create_acl(ids):
    made = acls.AclCreation(
        resource_type=2, resource_name="o", principal="User:carol", host="*", operation=3, permission_type=3
    )
    return acls.CreateAclsRequest(creations=[made])


def alter_scram(ids):
    made = scram.ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )
    return scram.AlterUserScramCredentialsRequest(deletions=[], upsertions=[made])


def describe_quotas(ids):
    return quotas.DescribeClientQuotasRequest(components=[], strict=False)


def alter_quotas(ids):
    user = quotas.AlteredQuotaEntity(entity_type="user", entity_name="carol")
    operation = quotas.QuotaOperation(key="producer_byte_rate", value=1024.0, remove=False)
    made = quotas.QuotaAlteration(entity=[user], ops=[operation])
    return quotas.AlterClientQuotasRequest(entries=[made], validate_only=False)


CREATE = (r.CREATE_CLUSTER, r.CREATE_TOPIC)

CASES = [
    Case("produce", produce.ProduceRequest, produced, ((r.WRITE_TOPIC,),)),
    Case(
        "produce in a transaction",
        produce.ProduceRequest,
        lambda ids: produced(ids, transactional=True),
        ((r.WRITE_TOPIC,), (r.WRITE_TRANSACTIONAL_ID,)),
    ),
    Case("fetch", fetch.FetchRequest, fetched, ((r.READ_TOPIC,),)),
    Case("list offsets", offsets.ListOffsetsRequest, list_offsets, ((r.DESCRIBE_TOPIC,),)),
    Case("end of an epoch", offsets.OffsetForLeaderEpochRequest, epoch_end, ((r.DESCRIBE_TOPIC,),)),
    Case("metadata", metadata.MetadataRequest, lambda ids: metadata_of(TOPIC), ((r.DESCRIBE_TOPIC,),)),
    Case(
        "metadata by id",
        metadata.MetadataRequest,
        lambda ids: metadata_of(None, ids.topic),
        ((r.DESCRIBE_TOPIC,),),
        versions=(12, 13),
    ),
    Case(
        "metadata of a new topic",
        metadata.MetadataRequest,
        lambda ids: metadata_of(NEW_TOPIC, create=True),
        ((r.DESCRIBE_TOPIC,), CREATE),
        versions=(4, 4),  # a second one would find the topic
    ),
    Case(
        "metadata of all topics",
        metadata.MetadataRequest,
        lambda ids: metadata.MetadataRequest(topics=None),
        ((r.DESCRIBE_TOPIC,),),
        versions=(1, 13),
        listed="topics",
    ),
    Case(
        "offset commit", group_offsets.OffsetCommitRequest, offset_commit, ((r.READ_GROUP,), (r.READ_TOPIC,))
    ),
    Case(
        "offset fetch",
        group_offsets.OffsetFetchRequest,
        offset_fetch,
        ((r.DESCRIBE_GROUP,), (r.DESCRIBE_TOPIC,)),
    ),
    Case(
        "offset delete",
        group_offsets.OffsetDeleteRequest,
        offset_delete,
        ((r.DELETE_GROUP,), (r.READ_TOPIC,)),
    ),
    Case(
        "coordinator of a group",
        groups.FindCoordinatorRequest,
        lambda ids: find_coordinator(ids, ids.group, 0),
        ((r.DESCRIBE_GROUP,),),
    ),
    Case(
        "coordinator of a transaction",
        groups.FindCoordinatorRequest,
        lambda ids: find_coordinator(ids, ids.transaction, 1),
        ((r.DESCRIBE_TRANSACTIONAL_ID,),),
        versions=(1, 6),
    ),
    Case("join", groups.JoinGroupRequest, join_group, ((r.READ_GROUP,),)),
    Case("sync", groups.SyncGroupRequest, sync_group, ((r.READ_GROUP,),)),
    Case(
        "heartbeat",
        groups.HeartbeatRequest,
        lambda ids: groups.HeartbeatRequest(group_id=ids.group, generation_id=1, member_id="m"),
        ((r.READ_GROUP,),),
    ),
    Case(
        "consumer heartbeat",
        consumer_groups.ConsumerGroupHeartbeatRequest,
        consumer_heartbeat,
        ((r.READ_GROUP,), (r.DESCRIBE_TOPIC,)),
    ),
    Case(
        "describe consumer groups",
        consumer_groups.ConsumerGroupDescribeRequest,
        lambda ids: consumer_groups.ConsumerGroupDescribeRequest(group_ids=[CONSUMER_GROUP]),
        ((r.DESCRIBE_GROUP,), (r.DESCRIBE_TOPIC,)),
    ),
    Case(
        "share heartbeat",
        share_groups.ShareGroupHeartbeatRequest,
        share_heartbeat,
        ((r.READ_GROUP,), (r.DESCRIBE_TOPIC,)),
    ),
    Case(
        "describe share groups",
        share_groups.ShareGroupDescribeRequest,
        lambda ids: share_groups.ShareGroupDescribeRequest(group_ids=[SHARE_GROUP]),
        ((r.DESCRIBE_GROUP,), (r.DESCRIBE_TOPIC,)),
    ),
    Case(
        "describe positions of a share group",
        share_groups.DescribeShareGroupOffsetsRequest,
        describe_share_offsets,
        ((r.DESCRIBE_GROUP,), (r.DESCRIBE_TOPIC,)),
    ),
    Case(
        "move positions of a share group",
        share_groups.AlterShareGroupOffsetsRequest,
        alter_share_offsets,
        ((r.READ_GROUP,), (r.READ_TOPIC,)),
    ),
    Case(
        "forget positions of a share group",
        share_groups.DeleteShareGroupOffsetsRequest,
        delete_share_offsets,
        ((r.DELETE_GROUP,), (r.READ_TOPIC,)),
    ),
    Case("share fetch", share_fetch.ShareFetchRequest, share_fetch_of, ((r.READ_GROUP,), (r.READ_TOPIC,))),
    Case(
        "share acknowledge",
        share_fetch.ShareAcknowledgeRequest,
        share_acknowledge_of,
        ((r.READ_GROUP,), (r.READ_TOPIC,)),
    ),
    Case("leave", groups.LeaveGroupRequest, leave_group, ((r.READ_GROUP,),)),
    Case(
        "describe groups",
        group_admin.DescribeGroupsRequest,
        lambda ids: group_admin.DescribeGroupsRequest(groups=[ids.group]),
        ((r.DESCRIBE_GROUP,),),
    ),
    Case(
        "delete groups",
        group_admin.DeleteGroupsRequest,
        lambda ids: group_admin.DeleteGroupsRequest(groups_names=[ids.group]),
        ((r.DELETE_GROUP,),),
    ),
    Case(
        "list groups",
        group_admin.ListGroupsRequest,
        lambda ids: group_admin.ListGroupsRequest(),
        ((r.DESCRIBE_CLUSTER, r.DESCRIBE_GROUP),),
        listed="groups",
    ),
    Case("create topics", topics.CreateTopicsRequest, create_topics, (CREATE,), versions=(2, 4)),
    Case(
        "create topics and see their configs",
        topics.CreateTopicsRequest,
        create_topics,
        (CREATE, (r.DESCRIBE_TOPIC_CONFIGS,)),
        versions=(5, 5),  # a second one would find the topic
    ),
    Case("delete topics", topics.DeleteTopicsRequest, delete_topics, ((r.DELETE_TOPIC,),)),
    Case(
        "delete topics by id",
        topics.DeleteTopicsRequest,
        lambda ids: delete_topics(ids, by_id=True),
        ((r.DELETE_TOPIC,),),
        versions=(6, 6),
    ),
    Case("delete records", topics.DeleteRecordsRequest, delete_records, ((r.DELETE_TOPIC,),)),
    Case(
        "create partitions",
        topics.CreatePartitionsRequest,
        lambda ids: topics.CreatePartitionsRequest(
            topics=[topics.CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)],
            timeout_ms=1_000,
            validate_only=False,
        ),
        ((r.ALTER_TOPIC,),),
    ),
    *(
        Case(
            f"{name} of a {kind_name}",
            request,
            lambda ids, build=build, kind=kind, named=named: build(kind, named),
            ((right,),),
        )
        for name, request, build, rights_by_kind in (
            (
                "configs",
                configs.DescribeConfigsRequest,
                describe_configs,
                (r.DESCRIBE_TOPIC_CONFIGS, r.DESCRIBE_BROKER_CONFIGS, r.DESCRIBE_GROUP_CONFIGS),
            ),
            (
                "new configs",
                configs.AlterConfigsRequest,
                alter_configs,
                (r.ALTER_TOPIC_CONFIGS, r.ALTER_BROKER_CONFIGS, r.ALTER_GROUP_CONFIGS),
            ),
            (
                "changes of configs",
                configs.IncrementalAlterConfigsRequest,
                incremental_alter_configs,
                (r.ALTER_TOPIC_CONFIGS, r.ALTER_BROKER_CONFIGS, r.ALTER_GROUP_CONFIGS),
            ),
        )
        for (kind_name, kind, named), right in zip(
            (
                ("topic", TOPIC_CONFIGS, TOPIC),
                ("broker", BROKER_CONFIGS, ""),
                ("group", GROUP_CONFIGS, f"{GROUP}1"),
            ),
            rights_by_kind,
            strict=True,
        )
    ),
    Case(
        "an id for a transactional producer",
        transactions.InitProducerIdRequest,
        lambda ids: init_producer_id(ids.transaction),
        ((r.WRITE_TRANSACTIONAL_ID,),),
    ),
    Case(
        "an id for an idempotent producer",
        transactions.InitProducerIdRequest,
        lambda ids: init_producer_id(None),
        ((r.IDEMPOTENT_WRITE, r.WRITE_TOPIC),),
    ),
    Case(
        "add partitions",
        transactions.AddPartitionsToTxnRequest,
        add_partitions,
        ((r.WRITE_TRANSACTIONAL_ID,), (r.WRITE_TOPIC,)),
        versions=(0, 3),
    ),
    Case(
        "add partitions as a broker",
        transactions.AddPartitionsToTxnRequest,
        add_partitions,
        ((r.CLUSTER_ACTION,),),
        versions=(4, 5),
    ),
    Case(
        "add offsets",
        transactions.AddOffsetsToTxnRequest,
        lambda ids: transactions.AddOffsetsToTxnRequest(
            transactional_id=ids.transaction, producer_id=7, producer_epoch=0, group_id=ids.group
        ),
        ((r.WRITE_TRANSACTIONAL_ID,), (r.READ_GROUP,)),
    ),
    Case(
        "offsets in a transaction",
        transactions.TxnOffsetCommitRequest,
        txn_offset_commit,
        ((r.WRITE_TRANSACTIONAL_ID,), (r.READ_GROUP,), (r.READ_TOPIC,)),
    ),
    Case(
        "end a transaction",
        transactions.EndTxnRequest,
        lambda ids: transactions.EndTxnRequest(
            transactional_id=ids.transaction, producer_id=7, producer_epoch=0, committed=True
        ),
        ((r.WRITE_TRANSACTIONAL_ID,),),
    ),
    Case(
        "resources with configs",
        configs.ListConfigResourcesRequest,
        lambda ids: configs.ListConfigResourcesRequest(),
        ((r.DESCRIBE_BROKER_CONFIGS,),),
    ),
    Case(
        "log directories",
        cluster.DescribeLogDirsRequest,
        lambda ids: cluster.DescribeLogDirsRequest(topics=None),
        ((r.DESCRIBE_CLUSTER,),),
        versions=(3, 4),
    ),
    Case(
        "log directories, without an error code",
        cluster.DescribeLogDirsRequest,
        lambda ids: cluster.DescribeLogDirsRequest(topics=None),
        ((r.DESCRIBE_CLUSTER,),),
        versions=(1, 2),
        listed="results",
    ),
    Case(
        "describe ACLs",
        acls.DescribeAclsRequest,
        lambda ids: acls.DescribeAclsRequest(**ANY_ACL),
        ((r.DESCRIBE_CLUSTER,),),
    ),
    Case("create ACLs", acls.CreateAclsRequest, create_acl, ((r.ALTER_CLUSTER,),)),
    Case(
        "delete ACLs",
        acls.DeleteAclsRequest,
        lambda ids: acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter(**ANY_ACL)]),
        ((r.ALTER_CLUSTER,),),
    ),
    Case(
        "describe SCRAM credentials",
        scram.DescribeUserScramCredentialsRequest,
        lambda ids: scram.DescribeUserScramCredentialsRequest(users=None),
        ((r.DESCRIBE_CLUSTER,),),
    ),
    Case(
        "alter SCRAM credentials", scram.AlterUserScramCredentialsRequest, alter_scram, ((r.ALTER_CLUSTER,),)
    ),
    Case(
        "quotas",
        quotas.DescribeClientQuotasRequest,
        describe_quotas,
        ((r.DESCRIBE_BROKER_CONFIGS,),),
    ),
    Case("new quotas", quotas.AlterClientQuotasRequest, alter_quotas, ((r.ALTER_BROKER_CONFIGS,),)),
    Case(
        "producers",
        transaction_admin.DescribeProducersRequest,
        lambda ids: transaction_admin.DescribeProducersRequest(
            topics=[transaction_admin.DescribeProducersTopic(name=TOPIC, partition_indexes=[0])]
        ),
        ((r.READ_TOPIC,),),
    ),
    Case(
        "describe transactions",
        transaction_admin.DescribeTransactionsRequest,
        lambda ids: transaction_admin.DescribeTransactionsRequest(transactional_ids=[ids.transaction]),
        ((r.DESCRIBE_TRANSACTIONAL_ID,), (r.DESCRIBE_TOPIC,)),
        listed="transaction_states.topics",
    ),
    Case(
        "list transactions",
        transaction_admin.ListTransactionsRequest,
        lambda ids: transaction_admin.ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
        ((r.DESCRIBE_TRANSACTIONAL_ID,),),
        listed="transaction_states",
    ),
    Case(
        "partitions of a topic",
        topic_partitions.DescribeTopicPartitionsRequest,
        lambda ids: topic_partitions.DescribeTopicPartitionsRequest(
            topics=[topic_partitions.DescribeTopicPartitionsTopic(name=TOPIC)]
        ),
        ((r.DESCRIBE_TOPIC,),),
    ),
    Case(
        "partitions of all topics",
        topic_partitions.DescribeTopicPartitionsRequest,
        lambda ids: topic_partitions.DescribeTopicPartitionsRequest(topics=[]),
        ((r.DESCRIBE_TOPIC,),),
        listed="topics",
    ),
    Case(
        "elections",
        reassignments.ElectLeadersRequest,
        lambda ids: reassignments.ElectLeadersRequest(
            topic_partitions=[reassignments.ElectionTopic(topic=TOPIC, partitions=[0])]
        ),
        ((r.ALTER_CLUSTER,),),
    ),
    Case(
        "reassignments",
        reassignments.AlterPartitionReassignmentsRequest,
        lambda ids: reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                reassignments.ReassignableTopic(
                    name=TOPIC, partitions=[reassignments.ReassignablePartition(partition_index=0)]
                )
            ]
        ),
        ((r.ALTER_CLUSTER,),),
    ),
    Case(
        "reassignments in progress",
        reassignments.ListPartitionReassignmentsRequest,
        lambda ids: reassignments.ListPartitionReassignmentsRequest(topics=None),
        ((r.DESCRIBE_CLUSTER,),),
    ),
]
