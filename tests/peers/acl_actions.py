"""Requests whose outcome depends on ACLs, and what of a response tells the outcome.

No request changes what another one's outcome depends on: changes are only validated, refer to what does not exist, or
`Action.deletes` names what has to be created again.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.peers.acl_sets import NAMES
from tests.peers.differential.subject import batch_of
from tests.peers.differential.wire import error_name

from millpond.model.acls import AclOperation, PatternType, Permission, ResourceType
from millpond.protocol import Request
from millpond.protocol.messages import (
    acls,
    cluster,
    configs,
    fetch,
    group_admin,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    quotas,
    scram,
    topics,
    transactions,
)

EXISTING: Final = ("a", "ab", "b")
"""Topics, and groups with a committed offset in the topics `a` and `b`. Nothing else exists, but for `DELETED`."""
DELETED: Final = "bb"
"""A topic that exists, and is created again if a client has deleted it."""
TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS = 2, 4, 32
NODE: Final = "1"
NO_PRODUCER: Final = 987_654_321
_NAMING: Final = frozenset(("name", "topic", "group_id", "resource_name", "key", "transactional_id"))
INTERNAL: Final = "__"

Ids = Mapping[str, bytes]
"""The ids of the existing topics: each broker has its own."""


class Action(NamedTuple):
    name: str
    version: int
    build: Callable[[Ids], Request]
    deletes: str = ""
    """The topic to be created again if it succeeds."""


def outcome(value: Any) -> Any:
    """The error codes, authorised operations and names of a response."""
    if dataclasses.is_dataclass(value):
        found = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        if str(found.get("name", "")).startswith(INTERNAL):
            return None
        told = {name: _field(name, each) for name, each in found.items()}
        return {name: each for name, each in told.items() if each is not None}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview):
        told_all = [each for each in map(outcome, value) if each]
        return sorted(told_all, key=str) or None
    return None


def _field(name: str, value: Any) -> Any:
    if name.endswith("error_code"):
        return error_name(value)
    if name.endswith("authorized_operations"):
        return [each.name for each in AclOperation if value >> each & 1] if value >= 0 else "not told"
    if name in _NAMING:
        return value
    return outcome(value) if name != "configs" else None


def actions() -> Iterator[Action]:
    """What is done by each client; deletions come last."""
    yield from _of_all()
    for name in NAMES:
        yield from _of_a_topic(name)
        yield from _of_a_group(name)
        yield from _of_a_transaction(name)
    for name in EXISTING:
        yield from _by_id(name)
    for group, topic in itertools.product(("a", "abc", "b"), ("a", "ba", "b")):
        yield from _of_a_group_and_a_topic(group, topic)
    yield from _of_the_cluster()
    yield from _of_quotas()
    yield Action(f"delete topic {DELETED}", 6, lambda _: _delete_topic(DELETED), deletes=DELETED)


def _of_all() -> Iterator[Action]:
    yield Action("metadata of all", 12, lambda _: metadata.MetadataRequest(topics=None))
    yield Action("list groups", 4, lambda _: group_admin.ListGroupsRequest())
    yield Action(
        "metadata with the cluster's operations",
        10,
        lambda _: metadata.MetadataRequest(topics=[], include_cluster_authorized_operations=True),
    )


def _of_a_topic(name: str) -> Iterator[Action]:
    asked = metadata.MetadataRequestTopic(name=name)
    yield Action(
        f"metadata of {name}",
        12,
        lambda _: metadata.MetadataRequest(
            topics=[asked], allow_auto_topic_creation=False, include_topic_authorized_operations=True
        ),
    )
    yield Action(f"produce to {name}", 9, lambda _: _produce(name))
    yield Action(f"produce to {name} in transaction ab", 9, lambda _: _produce(name, "ab"))
    yield Action(f"fetch {name}", 11, lambda _: _fetch(topic=name))
    part = offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    listed = offsets.ListOffsetsTopic(name=name, partitions=[part])
    yield Action(
        f"list offsets of {name}", 7, lambda _: offsets.ListOffsetsRequest(replica_id=-1, topics=[listed])
    )
    epoch = offsets.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    ended = offsets.OffsetForLeaderTopic(topic=name, partitions=[epoch])
    yield Action(
        f"end of an epoch of {name}", 4, lambda _: offsets.OffsetForLeaderEpochRequest(topics=[ended])
    )
    yield Action(f"create {name}", 7, lambda _: _create_topic(name))
    grown = topics.CreatePartitionsTopic(name=name, count=3, assignments=None)
    yield Action(
        f"add partitions to {name}",
        3,
        lambda _: topics.CreatePartitionsRequest(topics=[grown], timeout_ms=5_000, validate_only=True),
    )
    yield Action(f"delete records of {name}", 2, lambda _: _delete_records(name))
    yield from _of_configs("topic", TOPIC_CONFIGS, name, "retention.ms")
    if name not in (*EXISTING, DELETED):
        yield Action(f"delete topic {name}", 6, lambda _: _delete_topic(name))


def _by_id(name: str) -> Iterator[Action]:
    yield Action(
        f"metadata of {name} by id",
        12,
        lambda ids: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=None, topic_id=ids[name])],
            allow_auto_topic_creation=False,
        ),
    )
    yield Action(f"fetch {name} by id", 13, lambda ids: _fetch(topic_id=ids[name]))


def _of_a_group(name: str) -> Iterator[Action]:
    yield Action(f"coordinator of group {name}", 4, lambda _: find_coordinator(name, 0))
    yield Action(
        f"describe group {name}",
        5,
        lambda _: group_admin.DescribeGroupsRequest(groups=[name], include_authorized_operations=True),
    )
    yield Action(f"join group {name}", 5, lambda _: _join(name))
    yield Action(f"sync group {name}", 5, lambda _: _sync(name))
    yield Action(
        f"heartbeat to group {name}",
        4,
        lambda _: groups.HeartbeatRequest(group_id=name, generation_id=1, member_id="ghost"),
    )
    yield Action(
        f"leave group {name}",
        4,
        lambda _: groups.LeaveGroupRequest(group_id=name, members=[groups.MemberIdentity(member_id="ghost")]),
    )
    yield Action(f"all offsets of group {name}", 8, lambda _: _offset_fetch(name, None))
    yield from _of_configs("group", GROUP_CONFIGS, name, "consumer.session.timeout.ms")
    if name not in EXISTING:
        yield Action(
            f"delete group {name}", 2, lambda _: group_admin.DeleteGroupsRequest(groups_names=[name])
        )


def _of_a_group_and_a_topic(group: str, topic: str) -> Iterator[Action]:
    where = f"of group {group} in {topic}"
    yield Action(f"fetch offset {where}", 8, lambda _: _offset_fetch(group, topic))
    if group not in EXISTING:  # a group that exists would get or lose an offset
        yield Action(f"delete offset {where}", 0, lambda _: _offset_delete(group, topic))
    yield Action(f"commit offset {where} as a member", 8, lambda _: _offset_commit(group, topic))
    yield Action(f"commit offset {where} in transaction ab", 3, lambda _: _txn_offset_commit(group, topic))


def _of_a_transaction(name: str) -> Iterator[Action]:
    yield Action(f"coordinator of transaction {name}", 4, lambda _: find_coordinator(name, 1))
    yield Action(f"producer of transaction {name}", 4, lambda _: init_producer_id(name))
    for topic in ("a", "abc"):
        yield Action(
            f"add {topic} to transaction {name}",
            3,
            lambda _, topic=topic: transactions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=NO_PRODUCER,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            ),
        )
    yield Action(
        f"add group ab to transaction {name}",
        3,
        lambda _: transactions.AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=NO_PRODUCER, producer_epoch=0, group_id="ab"
        ),
    )
    yield Action(
        f"end transaction {name}",
        3,
        lambda _: transactions.EndTxnRequest(
            transactional_id=name, producer_id=NO_PRODUCER, producer_epoch=0, committed=True
        ),
    )


def _of_the_cluster() -> Iterator[Action]:
    yield Action(
        "describe cluster",
        1,
        lambda _: cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
    )
    yield Action("producer", 4, lambda _: init_producer_id(None))
    yield Action("log directories", 4, lambda _: cluster.DescribeLogDirsRequest(topics=[]))
    yield from _of_configs("broker", BROKER_CONFIGS, NODE, "log.cleaner.threads")
    yield Action("describe ACLs", 3, lambda _: acls.DescribeAclsRequest(**_no_acl("_filter")))
    yield Action("create ACL", 3, lambda _: create_acls([_harmless_acl()]))
    yield Action(
        "delete ACLs",
        3,
        lambda _: acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter(**_no_acl("_filter"))]),
    )
    yield Action(
        "describe users",
        0,
        lambda _: scram.DescribeUserScramCredentialsRequest(users=[scram.DescribedScramUser(name="ghost")]),
    )
    yield Action(
        "delete user",
        0,
        lambda _: scram.AlterUserScramCredentialsRequest(
            deletions=[scram.ScramCredentialDeletion(name="ghost", mechanism=1)], upsertions=[]
        ),
    )


def _of_quotas() -> Iterator[Action]:
    wanted = quotas.QuotaFilterComponent(entity_type="user", match_type=0, match="ghost")
    yield Action(
        "describe quotas",
        1,
        lambda _: quotas.DescribeClientQuotasRequest(components=[wanted], strict=False),
    )
    entry = quotas.QuotaAlteration(
        entity=[quotas.AlteredQuotaEntity(entity_type="user", entity_name="ghost")],
        ops=[quotas.QuotaOperation(key="producer_byte_rate", value=1024.0, remove=False)],
    )
    yield Action(
        "change quotas",
        1,
        lambda _: quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True),
    )


def _of_configs(kind_name: str, kind: int, name: str, config: str) -> Iterator[Action]:
    described = configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[])
    yield Action(
        f"describe configs of {kind_name} {name}",
        4,
        lambda _: configs.DescribeConfigsRequest(resources=[described]),
    )
    change = configs.IncrementalAlterableConfig(name=config, config_operation=1, value=None)
    changed = configs.IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[change]
    )
    yield Action(
        f"change configs of {kind_name} {name}",
        1,
        lambda _: configs.IncrementalAlterConfigsRequest(resources=[changed], validate_only=True),
    )


def _produce(name: str, transactional_id: str | None = None) -> Request:
    in_transaction = {
        "producer_id": NO_PRODUCER,
        "producer_epoch": 0,
        "base_sequence": 0,
        "transactional": True,
    }
    part = produce.PartitionProduceData(
        index=0, records=batch_of("v", **(in_transaction if transactional_id else {}))
    )
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[produce.TopicProduceData(name=name, partition_data=[part])],
    )


def _fetch(**topic: Any) -> Request:
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    wanted = fetch.FetchTopic(**{"topic": "", **topic}, partitions=[part])
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted])


def _create_topic(name: str) -> Request:
    return create_topic(name, validate_only=True)


def create_topic(name: str, *, validate_only: bool = False) -> Request:
    wanted = topics.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return topics.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000, validate_only=validate_only)


def _delete_topic(name: str) -> Request:
    return topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name=name)], timeout_ms=10_000)


def _delete_records(name: str) -> Request:
    part = topics.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = topics.DeleteRecordsTopic(name=name, partitions=[part])
    return topics.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)


def find_coordinator(key: str, key_type: int) -> Request:
    return groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])


def _join(group: str) -> Request:
    return groups.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="ghost",
        protocol_type="consumer",
        protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _sync(group: str) -> Request:
    return groups.SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id="ghost",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


def _offset_fetch(group: str, topic: str | None) -> Request:
    asked = None
    if topic is not None:
        asked = [group_offsets.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    wanted = group_offsets.OffsetFetchRequestGroup(group_id=group, topics=asked)
    return group_offsets.OffsetFetchRequest(groups=[wanted])


def _offset_delete(group: str, topic: str) -> Request:
    part = group_offsets.OffsetDeleteRequestPartition(partition_index=0)
    wanted = group_offsets.OffsetDeleteRequestTopic(name=topic, partitions=[part])
    return group_offsets.OffsetDeleteRequest(group_id=group, topics=[wanted])


def _offset_commit(group: str, topic: str) -> Request:
    return offset_commit(group, topic, member_id="ghost", generation_id_or_member_epoch=1)


def offset_commit(group: str, topic: str, **member: Any) -> Request:
    part = group_offsets.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    wanted = group_offsets.OffsetCommitRequestTopic(name=topic, partitions=[part])
    return group_offsets.OffsetCommitRequest(group_id=group, topics=[wanted], **member)


def _txn_offset_commit(group: str, topic: str) -> Request:
    part = transactions.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    return transactions.TxnOffsetCommitRequest(
        transactional_id="ab",
        group_id=group,
        producer_id=NO_PRODUCER,
        producer_epoch=0,
        generation_id=1,
        member_id="ghost",
        topics=[transactions.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
    )


def init_producer_id(transactional_id: str | None) -> Request:
    return transactions.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=10_000
    )


def _no_acl(suffix: str) -> dict[str, Any]:
    """A filter that selects nothing."""
    return {
        f"resource_type{suffix}": 1,
        f"resource_name{suffix}": None,
        f"pattern_type{suffix}": 1,
        f"principal{suffix}": "User:ghost-of-nobody",
        f"host{suffix}": None,
        "operation": 1,
        "permission_type": 1,
    }


def _harmless_acl() -> acls.AclCreation:
    return acls.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="a",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:ghost",
        host="*",
        operation=AclOperation.READ,
        permission_type=Permission.ALLOW,
    )


def create_acls(creations: Sequence[acls.AclCreation]) -> Request:
    return acls.CreateAclsRequest(creations=list(creations))
