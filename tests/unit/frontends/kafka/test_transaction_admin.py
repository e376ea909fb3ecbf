"""DescribeProducers, DescribeTransactions and ListTransactions over the wire."""

import pytest
from tests.unit.frontends.kafka.test_transactions import add, begun, end, init, produce

from millpond.model.errors import CatalogUnavailable
from millpond.protocol import ErrorCode
from millpond.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from millpond.testing import SimulatedClock

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
async def interface(serving, clock):
    interface = await serving(clock=clock)
    await interface.topic("orders", 2)
    return interface


async def producers(interface, asked):
    """Asked is [(topic, partitions)]; returns the partitions of each."""
    topics = [DescribeProducersTopic(name=name, partition_indexes=numbers) for name, numbers in asked]
    answer = await interface.send(DescribeProducersRequest(topics=topics), 0)
    assert [each.name for each in answer.topics] == [name for name, _ in asked]
    return [each.partitions for each in answer.topics]


async def active(interface, number=0):
    """(id, epoch, last sequence, start offset) of the producers of one partition."""
    [[part]] = await producers(interface, [("orders", [number])])
    assert (part.error_code, part.error_message, part.partition_index) == (0, None, number)
    assert all(each.coordinator_epoch == -1 for each in part.active_producers)
    return [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
        for each in part.active_producers
    ]


async def described(interface, *names):
    answer = await interface.send(DescribeTransactionsRequest(transactional_ids=list(names)), 0)
    assert [each.transactional_id for each in answer.transaction_states] == list(names)
    return answer.transaction_states


async def listed(interface, *, version=2, states=(), producer_ids=(), **filters):
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids), **filters
    )
    answer = await interface.send(request, version)
    return (
        answer.error_code,
        {each.transactional_id: each.transaction_state for each in answer.transaction_states},
        answer.unknown_state_filters,
    )


# -- DescribeProducers ------------------------------------------------------------------------------------------


async def test_a_producer_is_described_with_its_last_batch(interface, clock):
    producer = await begun(interface)
    assert await active(interface) == []
    await add(interface, producer, {"orders": [0]})
    assert await produce(interface, producer) == 0
    assert await produce(interface, producer, sequence=1) == 0
    assert await active(interface) == [(*producer[1:], 1, 0)]
    assert await active(interface, 1) == []
    [[part]] = await producers(interface, [("orders", [0])])
    assert abs(part.active_producers[0].last_timestamp - clock.now_ms()) < 60_000


@pytest.mark.parametrize("commit", [True, False])
async def test_the_end_of_a_transaction_leaves_the_producer_without_one(interface, commit):
    producer = await begun(interface)
    await add(interface, producer, {"orders": [0]})
    await produce(interface, producer)
    assert await end(interface, producer, version=4, commit=commit) == (0, -1, -1)
    assert await active(interface) == [(*producer[1:], 0, -1)]


async def test_after_a_marker_of_a_new_epoch_there_is_no_sequence_but_the_time_of_the_marker(
    interface, clock
):
    producer = await begun(interface)
    await add(interface, producer, {"orders": [0]})
    await produce(interface, producer)
    clock.advance(5_000)
    _, producer_id, epoch = await end(interface, producer)
    assert await active(interface) == [(producer_id, epoch, -1, -1)]
    [[part]] = await producers(interface, [("orders", [0])])
    assert part.active_producers[0].last_timestamp == clock.now_ms()


async def test_each_partition_has_its_own_producers_and_errors(interface):
    producer = await begun(interface)
    await add(interface, producer, {"orders": [0]})
    await produce(interface, producer)
    await interface.broker.produce("orders", b"not idempotent", partition=1)
    found = await producers(interface, [("orders", [1, 0, 2, -1, 0]), ("nothing", [0]), ("a/b", [0, 1])])
    assert [[each.error_code for each in parts] for parts in found] == [
        [0, 0, UNKNOWN, UNKNOWN, 0],
        [UNKNOWN],
        [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2,
    ]
    assert [len(each.active_producers) for each in found[0]] == [0, 1, 0, 0, 1]
    assert all(each.error_message for each in (*found[0][2:4], *found[1], *found[2]))


async def test_another_brokers_partition_is_refused(interface):
    topic_partition = interface.log.topics.partition("orders", 1)
    interface.log.partition(topic_partition).fenced = True
    [parts] = await producers(interface, [("orders", [0, 1])])
    assert [each.error_code for each in parts] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_many_partitions_are_one_response(interface):
    await interface.topic("wide", 2_500)
    [parts] = await producers(interface, [("wide", list(range(2_500)))])
    assert [each.partition_index for each in parts] == list(range(2_500))
    assert {each.error_code for each in parts} == {0}


# -- DescribeTransactions ---------------------------------------------------------------------------------------


async def test_a_transaction_is_described_in_each_of_its_states(interface, clock):
    await interface.topic("bills", 3)
    producer = await begun(interface)
    [state] = await described(interface, "pay")
    assert (state.error_code, state.transaction_state, state.topics) == (0, "Empty", [])
    assert (state.producer_id, state.producer_epoch) == producer[1:]
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (60_000, -1)
    clock.advance(1_000)
    started = clock.now_ms()
    await add(interface, producer, {"orders": [1], "bills": [2, 0]})
    clock.advance(1_000)
    [state] = await described(interface, "pay")
    assert (state.transaction_state, state.transaction_start_time_ms) == ("Ongoing", started)
    assert {each.topic: each.partitions for each in state.topics} == {"orders": [1], "bills": [0, 2]}
    await end(interface, producer, version=4)
    [state] = await described(interface, "pay")
    assert (state.transaction_state, state.topics) == ("CompleteCommit", [])
    await add(interface, producer, {"orders": [1]})
    await end(interface, producer, version=4, commit=False)
    [state] = await described(interface, "pay")
    assert (state.transaction_state, state.transaction_start_time_ms) == ("CompleteAbort", -1)


async def test_ids_that_cannot_be_described_have_an_error_each(interface):
    await begun(interface)
    found = await described(interface, "pay", "nothing", "", "pay")
    assert [each.error_code for each in found] == [
        *(0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST, 0)
    ]
    assert await described(interface) == []


async def test_a_deleted_topic_is_left_out(interface):
    await interface.topic("bills")
    producer = await begun(interface)
    await add(interface, producer, {"orders": [1], "bills": [0]})
    await interface.log.delete_topic("bills")
    [state] = await described(interface, "pay")
    assert [each.topic for each in state.topics] == ["orders"]


async def test_only_the_coordinator_describes(interface, monkeypatch):
    await begun(interface)
    monkeypatch.setattr(interface.broker.transactions, "coordinates", lambda name: name != "pay")
    found = await described(interface, "pay", "nothing")
    assert [each.error_code for each in found] == [
        *(ErrorCode.NOT_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    ]
    assert await listed(interface) == (0, {}, [])


async def test_a_catalog_that_cannot_be_read_is_a_temporary_error(interface, monkeypatch):
    await begun(interface)

    async def read(_):
        raise CatalogUnavailable(reason="test")

    monkeypatch.setattr(interface.log, "read", read)
    [state] = await described(interface, "pay")
    [[part]] = await producers(interface, [("orders", [0])])
    assert state.error_code == (await listed(interface))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# -- ListTransactions -------------------------------------------------------------------------------------------


@pytest.fixture
async def three(interface, clock):
    """One open for 10 s, one open for 1 s, one that has never begun a transaction. Returns the producers."""
    found = {name: await begun(interface, name) for name in ("pay-1", "pay-2", "bill-1")}
    await add(interface, found["pay-1"], {"orders": [0]})
    clock.advance(9_000)
    await add(interface, found["pay-2"], {"orders": [0]})
    clock.advance(1_000)
    return found


ALL_THREE = {"pay-1": "Ongoing", "pay-2": "Ongoing", "bill-1": "Empty"}


@pytest.mark.parametrize("version", range(3))
async def test_without_filters_all_transactions_are_listed(interface, three, version):
    assert await listed(interface, version=version) == (0, ALL_THREE, [])


@pytest.mark.parametrize("version", range(3))
async def test_filters_by_state_and_producer(interface, three, version):
    assert (await listed(interface, version=version, states=["Empty"]))[1] == {"bill-1": "Empty"}
    by_state = await listed(interface, version=version, states=["Ongoing", "PrepareCommit", "ongoing", "?"])
    assert by_state == (0, {"pay-1": "Ongoing", "pay-2": "Ongoing"}, ["ongoing", "?"])
    assert await listed(interface, version=version, states=["?"]) == (0, {}, ["?"])
    wanted = three["pay-2"][1]
    assert (await listed(interface, version=version, producer_ids=[wanted, -5]))[1] == {"pay-2": "Ongoing"}
    assert (await listed(interface, version=version, producer_ids=[-5]))[1] == {}


@pytest.mark.parametrize("version", [1, 2])
async def test_a_filter_by_duration_leaves_what_has_been_open_for_longer(interface, three, version):
    found = {
        duration: set((await listed(interface, version=version, duration_filter=duration))[1])
        for duration in (-1, 0, 999, 1_000, 9_999, 10_000, 2**63 - 1)
    }
    assert found[-1] == set(ALL_THREE)
    assert found[0] == found[999] == {"pay-1", "pay-2"}
    assert found[1_000] == found[9_999] == {"pay-1"}
    assert found[10_000] == found[2**63 - 1] == set()


async def test_a_pattern_matches_the_whole_id(interface, three):
    for pattern, names in {
        "pay-.": {"pay-1", "pay-2"},
        "pay": set(),
        ".*-1": {"pay-1", "bill-1"},
        "": set(ALL_THREE),
    }.items():
        assert set((await listed(interface, transactional_id_pattern=pattern))[1]) == names, pattern


async def test_a_pattern_that_is_none_is_an_error(interface, three):
    assert await listed(interface, transactional_id_pattern="pay-(") == (
        *(ErrorCode.INVALID_REGULAR_EXPRESSION, {}, []),
    )


async def test_an_id_that_has_been_forgotten_is_unknown(interface, clock):
    await init(interface, "old")
    clock.advance(8 * 86_400_000)
    assert await interface.broker.transactions.forget_unused() == 1
    assert await listed(interface) == (0, {}, [])
    [state] = await described(interface, "old")
    assert state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
