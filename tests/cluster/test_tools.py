"""What Kafka's tools learn from two brokers: each responds for its own partitions and transactions."""

import pytest
from tests.cluster.near import near_brokers
from tests.unit.frontends.kafka.wire import Client

from millpond.protocol import ErrorCode
from millpond.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millpond.protocol.messages.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from millpond.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

PARTITIONS, TRANSACTIONS = 4, 20
NOT_LEADER, NOT_COORDINATOR = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR


@pytest.fixture
async def near(tmp_path):
    async with near_brokers(tmp_path, 2) as near:
        await near.brokers[0].log.create_topic("orders", PARTITIONS)
        await near.settled()
        yield near


async def asked_of_each(near, request, version):
    answers = []
    for address in near.addresses("kafka"):
        async with Client(address) as client:
            answers.append(await client.send(request, version))
    return answers


def owners(near):
    """The node id of the owner of each partition."""
    found = [near.owner("orders", number).kafka_node.id for number in range(PARTITIONS)]
    assert len(set(found)) == 2
    return found


async def test_producers_are_described_by_the_leader_only(near):
    topic = DescribeProducersTopic(name="orders", partition_indexes=list(range(PARTITIONS)))
    answers = await asked_of_each(near, DescribeProducersRequest(topics=[topic]), 0)
    for broker, answer in zip(near.brokers, answers, strict=True):
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [0 if owner == broker.kafka_node.id else NOT_LEADER for owner in owners(near)]


async def test_transactions_are_listed_and_described_by_their_coordinator_only(near):
    names = [f"pay-{number}" for number in range(TRANSACTIONS)]
    for name in names:
        coordinator = next(each for each in near.brokers if each.transactions.coordinates(name))
        await coordinator.transactions.begin_producer(name, 60_000)
    lists = await asked_of_each(near, ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 2)
    listed = [{each.transactional_id for each in answer.transaction_states} for answer in lists]
    assert all(listed)
    assert listed[0] | listed[1] == set(names)
    assert not listed[0] & listed[1]
    for own, answer in zip(
        listed,
        await asked_of_each(near, DescribeTransactionsRequest(transactional_ids=names), 0),
        strict=True,
    ):
        codes = {each.transactional_id: each.error_code for each in answer.transaction_states}
        assert codes == {name: 0 if name in own else NOT_COORDINATOR for name in names}


async def test_leaders_of_all_brokers_are_described_by_each(near):
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopic(name="orders")])
    for answer in await asked_of_each(near, request, 0):
        parts = answer.topics[0].partitions
        assert [each.leader_id for each in parts] == owners(near)
        assert [each.replica_nodes for each in parts] == [[owner] for owner in owners(near)]
        assert {each.error_code for each in parts} == {0}


async def test_a_partition_stays_with_its_owner(near):
    ids = sorted(set(owners(near)))

    async def refusals(replicas, may_change_count=True):
        parts = [
            ReassignablePartition(partition_index=number, replicas=replicas) for number in range(PARTITIONS)
        ]
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_change_count,
            topics=[ReassignableTopic(name="orders", partitions=parts)],
        )
        first, second = await asked_of_each(near, request, 1)
        assert first == second
        return [(each.error_code, each.error_message) for each in first.responses[0].partitions]

    for wanted in ids:
        for owner, (code, message) in zip(owners(near), await refusals([wanted]), strict=True):
            if owner == wanted:
                assert (code, message) == (0, None)
            else:
                assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
                assert message.startswith(f"The partition is owned by broker {owner}")
    assert {code for code, _ in await refusals(ids)} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    fixed = await refusals(ids, may_change_count=False)
    assert {code for code, _ in fixed} == {ErrorCode.INVALID_REPLICATION_FACTOR}
