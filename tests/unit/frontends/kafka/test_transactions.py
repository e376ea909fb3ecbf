"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit over the wire, in every version."""

import pytest
from tests.unit.frontends.kafka.test_group_membership import joined, sync

from millpond.catalog import groups
from millpond.log import FetchRequest
from millpond.model.errors import CatalogUnavailable, NotOwner
from millpond.protocol import ErrorCode
from millpond.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millpond.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millpond.records import Record, build_batch

FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
MAPPING, STATE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def init(interface, name="pay", *, version=5, timeout_ms=60_000, known=(-1, -1)):
    """(code, producer id, epoch)"""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    if version >= 3:
        request.producer_id, request.producer_epoch = known
    answer = await interface.send(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def begun(interface, name="pay"):
    code, *producer = await init(interface, name)
    assert code == 0
    return (name, *producer)


async def add(interface, producer, asked, *, version=3, verify_only=False):
    """Asked is {topic: partitions}; returns {(topic, partition): code}."""
    topics = [AddPartitionsToTxnTopic(name=name, partitions=list(parts)) for name, parts in asked.items()]
    name, producer_id, epoch = producer
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        found = (await interface.send(request, version)).results_by_topic_v3_and_below
    else:
        one = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics,
        )
        answer = await interface.send(AddPartitionsToTxnRequest(transactions=[one]), version)
        assert answer.error_code == 0
        [result] = answer.results_by_transaction
        assert result.transactional_id == name
        found = result.topic_results
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in found
        for each in topic.results_by_partition
    }


async def add_offsets(interface, producer, *, version=4, group_id="readers"):
    name, producer_id, epoch = producer
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=group_id
    )
    return (await interface.send(request, version)).error_code


async def end(interface, producer, *, version=5, commit=True):
    name, producer_id, epoch = producer
    request = EndTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )
    answer = await interface.send(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def commit_offsets(interface, producer, *parts, version=5, member=("", -1), metadata="note"):
    """Parts are (topic, partition, offset); returns their codes."""
    name, producer_id, epoch = producer
    topics = [
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata=metadata
                )
            ],
        )
        for topic, number, offset in parts
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id="readers",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=topics,
    )
    if version >= 3:
        request.member_id, request.generation_id = member
    answer = await interface.send(request, version)
    assert [topic.name for topic in answer.topics] == [part[0] for part in parts]
    return [topic.partitions[0].error_code for topic in answer.topics]


async def produce(interface, producer, value=b"x", *, version=10, sequence=0, topic="orders"):
    name, producer_id, epoch = producer
    batch = build_batch(
        [Record(value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = await interface.send(request, version)
    return answer.responses[0].partition_responses[0].error_code


async def published(interface):
    found = await interface.log.read(lambda tx: groups.committed_offsets(tx, "readers"))
    return [(each.topic_partition.partition, each.offset, each.metadata) for each in found]


async def stable(interface, topic="orders"):
    topic_partition = interface.log.topics.partition(topic, 0)
    [result] = await interface.log.fetch(
        [FetchRequest(topic_partition, 0, 1_000)], bytes_max=1_000, read_committed=True
    )
    return result.last_stable_offset, result.end_offset


@pytest.fixture
def away(interface, monkeypatch):
    """The catalog cannot be written, or the shard is another broker's."""

    def fails(error):
        async def write(*_):
            raise error

        monkeypatch.setattr(interface.log, "write", write)

    return fails


# -- InitProducerId -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_an_idempotent_producer_gets_an_id_of_its_own(interface, version):
    first, second = await init(interface, None, version=version), await init(interface, None, version=version)
    assert (first[0], first[2], second[2]) == (0, 0, 0)
    assert first[1] != second[1]


@pytest.mark.parametrize("version", range(6))
async def test_each_instance_of_a_transactional_producer_gets_the_next_epoch(interface, version):
    found = [await init(interface, version=version) for _ in range(3)]
    assert [each[2] for each in found] == [0, 1, 2]
    assert len({each[1] for each in found}) == 1


@pytest.mark.parametrize(("version", "code"), [(3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
async def test_a_producer_that_names_its_epoch_goes_on_or_is_fenced(interface, version, code):
    _, producer_id, _ = await init(interface)
    assert await init(interface, version=version, known=(producer_id, 0)) == (0, producer_id, 1)
    assert await init(interface, version=version, known=(producer_id, 0)) == (0, producer_id, 1)
    assert await init(interface, version=version, known=(producer_id, 7)) == (code, -1, -1)


async def test_what_init_producer_id_refuses(interface):
    assert (await init(interface, timeout_ms=0))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await init(interface, timeout_ms=10**9))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await init(interface, ""))[0] == ErrorCode.INVALID_REQUEST
    assert (await init(interface, known=(5, -1)))[0] == ErrorCode.INVALID_REQUEST
    assert (await init(interface, None, timeout_ms=0))[0] == 0


async def test_while_the_catalog_is_away_producers_are_told_to_ask_again(interface, away):
    away(CatalogUnavailable(reason="gone"))
    assert await init(interface, None) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert await init(interface) == (AWAY, -1, -1)
    away(NotOwner())
    assert await init(interface) == (AWAY, -1, -1)


# -- AddPartitionsToTxn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_partitions_are_added(interface, version):
    await interface.topic(partitions=2)
    producer = await begun(interface)
    codes = await add(interface, producer, {"orders": [0, 1]}, version=version)
    assert codes == {("orders", 0): 0, ("orders", 1): 0}
    assert await produce(interface, producer) == 0
    assert await stable(interface) == (0, 1)


@pytest.mark.parametrize("version", range(6))
async def test_one_unknown_partition_keeps_the_others_out(interface, version):
    await interface.topic()
    producer = await begun(interface)
    codes = await add(interface, producer, {"orders": [0, 9], "nobody": [0]}, version=version)
    assert codes == {
        ("orders", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("orders", 9): UNKNOWN,
        ("nobody", 0): UNKNOWN,
    }
    assert await produce(interface, producer) == STATE


@pytest.mark.parametrize("version", range(6))
async def test_what_add_partitions_refuses(interface, version):
    await interface.topic()
    name, producer_id, epoch = await begun(interface)
    await begun(interface)
    asked = {"orders": [0]}
    fenced = OLD_EPOCH if version < 2 else FENCED
    assert await add(interface, (name, producer_id, epoch), asked, version=version) == {("orders", 0): fenced}
    assert await add(interface, (name, 999, epoch), asked, version=version) == {("orders", 0): MAPPING}
    assert await add(interface, ("else", producer_id, 1), asked, version=version) == {("orders", 0): MAPPING}
    assert await add(interface, (name, producer_id, 1), {}, version=version) == {}


@pytest.mark.parametrize(("version", "missing"), [(4, STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_verifying_adds_nothing(interface, version, missing):
    await interface.topic(partitions=2)
    producer = await begun(interface)
    await add(interface, producer, {"orders": [1]})
    codes = await add(interface, producer, {"orders": [0, 1]}, version=version, verify_only=True)
    assert codes == {("orders", 0): missing, ("orders", 1): 0}
    assert await produce(interface, producer) == STATE
    stale = (producer[0], producer[1], 9)
    assert await add(interface, stale, {"orders": [1]}, version=version, verify_only=True) == {
        ("orders", 1): FENCED
    }


# -- EndTxn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_an_end_is_seen_when_it_is_answered(interface, version, commit):
    await interface.topic()
    producer = await begun(interface)
    await add(interface, producer, {"orders": [0]})
    await produce(interface, producer)
    following = (producer[1], 1) if version == 5 else (-1, -1)
    assert await end(interface, producer, version=version, commit=commit) == (0, *following)
    assert await stable(interface) == (2, 2)
    assert await end(interface, producer, version=version, commit=commit) == (0, *following)
    assert await stable(interface) == (2, 2)


@pytest.mark.parametrize("version", range(6))
async def test_what_an_end_refuses(interface, version):
    await interface.topic()
    old = await begun(interface)
    new = await begun(interface)
    fenced = OLD_EPOCH if version < 2 else FENCED
    assert await end(interface, old, version=version) == (fenced, -1, -1)
    assert await end(interface, new, version=version) == (STATE, -1, -1)
    assert await end(interface, ("else", 1, 0), version=version) == (MAPPING, -1, -1)
    nothing = (0, new[1], new[2] + 1) if version == 5 else (STATE, -1, -1)
    assert await end(interface, new, version=version, commit=False) == nothing


async def test_a_batch_of_a_new_client_joins_its_transaction_by_itself(interface):
    await interface.topic()
    producer = await begun(interface)
    assert await produce(interface, producer, version=10) == STATE
    assert await produce(interface, producer, version=12) == 0
    assert await produce(interface, producer, version=12, sequence=1) == 0
    code, *fresh = await end(interface, producer)
    assert (code, await stable(interface)) == (0, (3, 3))
    assert await produce(interface, producer, version=12, sequence=2) == OLD_EPOCH
    assert await produce(interface, (producer[0], *fresh), version=12) == 0


# -- offsets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_offsets_become_the_groups_with_the_commit(interface, version, commit):
    await interface.topic(partitions=2)
    producer = await begun(interface)
    assert await add_offsets(interface, producer, version=min(version, 4)) == 0
    assert await commit_offsets(interface, producer, ("orders", 0, 5), ("orders", 1, 6), version=version) == [
        0,
        0,
    ]
    assert await published(interface) == []
    assert (await end(interface, producer, commit=commit))[0] == 0
    assert await published(interface) == ([(0, 5, "note"), (1, 6, "note")] if commit else [])


@pytest.mark.parametrize("version", range(6))
async def test_only_new_clients_open_a_transaction_with_offsets(interface, version):
    await interface.topic()
    producer = await begun(interface)
    assert await commit_offsets(interface, producer, ("orders", 0, 5), version=version) == [
        0 if version == 5 else STATE
    ]
    assert (await end(interface, producer))[0] == (0 if version == 5 else STATE)
    assert await published(interface) == ([(0, 5, "note")] if version == 5 else [])


@pytest.mark.parametrize("version", range(6))
async def test_what_is_wrong_with_one_offset_is_its_own_affair(interface, version):
    await interface.topic()
    producer = await begun(interface)
    await add_offsets(interface, producer)
    codes = await commit_offsets(
        interface, producer, ("nobody", 0, 1), ("orders", 9, 1), ("orders", 0, 5), version=version
    )
    assert codes == [UNKNOWN, UNKNOWN, 0]
    too_large = await commit_offsets(
        interface, producer, ("orders", 0, 6), version=version, metadata="x" * 4_097
    )
    assert too_large == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    await end(interface, producer)
    assert await published(interface) == [(0, 5, "note")]


@pytest.mark.parametrize("version", range(6))
async def test_a_fenced_producers_offsets_are_refused(interface, version):
    await interface.topic()
    old = await begun(interface)
    await begun(interface)
    assert await commit_offsets(interface, old, ("orders", 0, 5), version=version) == [OLD_EPOCH]
    assert await commit_offsets(interface, ("else", 1, 0), ("orders", 0, 5), version=version) == [MAPPING]


@pytest.mark.parametrize("version", range(5))
async def test_what_add_offsets_refuses(interface, version):
    old = await begun(interface)
    await begun(interface)
    assert await add_offsets(interface, old, version=version) == (OLD_EPOCH if version < 2 else FENCED)
    assert await add_offsets(interface, ("else", 1, 0), version=version) == MAPPING


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_member_of_another_generation_cannot_have_its_offsets_committed(interface, version):
    await interface.topic()
    producer = await begun(interface)
    await add_offsets(interface, producer)
    member = await joined(interface)
    await sync(interface, member.member_id)
    right, wrong = (member.member_id, member.generation_id), (member.member_id, member.generation_id + 1)
    parts = [("orders", 0, 5)]
    assert await commit_offsets(interface, producer, *parts, version=version, member=wrong) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert await commit_offsets(interface, producer, *parts, version=version, member=("nobody", 1)) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert await commit_offsets(interface, producer, *parts, version=version, member=right) == [0]
