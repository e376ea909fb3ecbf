"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

import pytest

from millpond.protocol import ErrorCode
from millpond.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectionTopic,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    ReassignmentsTopic,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED
INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.fixture
async def interface(serving):
    interface = await serving()
    await interface.topic("orders", 3)
    return interface


async def elected(interface, asked, *, version=2, election_type=0):
    """(error, {(topic, partition): (error, has a message)})"""
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=asked
        and [ElectionTopic(topic=name, partitions=numbers) for name, numbers in asked.items()],
    )
    answer = await interface.send(request, version)
    return answer.error_code, {
        (topic.topic, each.partition_id): (each.error_code, bool(each.error_message))
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


async def reassigned(interface, asked, *, version=1, may_change_count=True):
    """Asked is {partition of orders: replicas}; returns {partition: (error, message)}."""
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=replicas)
                for number, replicas in parts.items()
            ],
        )
        for name, parts in asked.items()
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=topics, allow_replication_factor_change=may_change_count
    )
    answer = await interface.send(request, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.allow_replication_factor_change == may_change_count
    return {
        (topic.name, each.partition_index): (each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(3))
async def test_no_election_is_needed(interface, version):
    found = await elected(interface, {"orders": [0, 2, 3, -1], "nothing": [0]}, version=version)
    assert found == (
        0,
        {
            ("orders", 0): (NOT_NEEDED, True),
            ("orders", 2): (NOT_NEEDED, True),
            ("orders", 3): (UNKNOWN, True),
            ("orders", -1): (UNKNOWN, True),
            ("nothing", 0): (UNKNOWN, True),
        },
    )


@pytest.mark.parametrize("version", range(3))
async def test_elections_of_all_partitions_have_no_results(interface, version):
    assert await elected(interface, None, version=version) == (0, {})


@pytest.mark.parametrize(
    ("kind", "code"),
    [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
async def test_a_partition_without_an_owner_has_another_error(interface, kind, code):
    interface.log.partition(interface.log.topics.partition("orders", 1)).fenced = True
    found = await elected(interface, {"orders": [0, 1]}, election_type=kind)
    assert found == (0, {("orders", 0): (NOT_NEEDED, True), ("orders", 1): (code, True)})


async def test_an_unknown_type_of_election_is_refused(interface):
    code = ErrorCode.INVALID_REQUEST
    assert await elected(interface, {"orders": [0]}, election_type=2) == (
        *(code, {("orders", 0): (code, True)}),
    )
    assert await elected(interface, None, election_type=-1) == (code, {})


@pytest.mark.parametrize("version", range(2))
async def test_a_partition_may_stay_where_it_is(interface, version):
    owner = interface.broker.kafka_node.id
    found = await reassigned(interface, {"orders": {0: [owner], 2: [owner]}}, version=version)
    assert found == {("orders", 0): (0, None), ("orders", 2): (0, None)}


async def test_there_is_no_reassignment_to_cancel(interface):
    found = await reassigned(interface, {"orders": {0: None, 5: None}, "nothing": {0: None}})
    assert [code for code, _ in found.values()] == [
        *(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN, UNKNOWN)
    ]
    assert all(message for _, message in found.values())


async def test_other_replicas_are_refused_with_the_reason(interface, monkeypatch):
    owner = interface.broker.kafka_node.id
    asked = {"orders": {0: [owner + 1], 1: [], 2: [owner, owner]}}
    found = await reassigned(interface, asked)
    assert found == {
        ("orders", 0): (INVALID, f"There is no broker {owner + 1}."),
        ("orders", 1): (INVALID, "The list of replicas is empty."),
        ("orders", 2): (INVALID, f"Broker {owner} is listed more than once."),
    }


async def test_a_partition_that_another_broker_owns_says_how_partitions_move(interface):
    interface.log.partition(interface.log.topics.partition("orders", 1)).fenced = True
    owner = interface.broker.kafka_node.id
    [(code, message)] = (await reassigned(interface, {"orders": {1: [owner]}})).values()
    assert code == INVALID
    assert "millpond cluster rebalance" in message


async def test_in_progress_is_nothing(interface):
    for topics in (None, [], [ReassignmentsTopic(name="orders", partition_indexes=[0, 9])]):
        answer = await interface.send(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
