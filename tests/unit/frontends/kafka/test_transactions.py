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


async def init(face, name="pay", *, version=5, timeout_ms=60_000, known=(-1, -1)):
    """(code, producer id, epoch)"""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    if version >= 3:
        request.producer_id, request.producer_epoch = known
    answer = await face.send(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def begun(face, name="pay"):
    code, *producer = await init(face, name)
    assert code == 0
    return (name, *producer)


async def add(face, producer, asked, *, version=3, verify_only=False):
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
        found = (await face.send(request, version)).results_by_topic_v3_and_below
    else:
        one = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics,
        )
        answer = await face.send(AddPartitionsToTxnRequest(transactions=[one]), version)
        assert answer.error_code == 0
        [result] = answer.results_by_transaction
        assert result.transactional_id == name
        found = result.topic_results
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in found
        for each in topic.results_by_partition
    }


async def add_offsets(face, producer, *, version=4, group_id="readers"):
    name, producer_id, epoch = producer
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=group_id
    )
    return (await face.send(request, version)).error_code


async def end(face, producer, *, version=5, commit=True):
    name, producer_id, epoch = producer
    request = EndTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )
    answer = await face.send(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def commit_offsets(face, producer, *parts, version=5, member=("", -1), metadata="note"):
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
    answer = await face.send(request, version)
    assert [topic.name for topic in answer.topics] == [part[0] for part in parts]
    return [topic.partitions[0].error_code for topic in answer.topics]


async def produce(face, producer, value=b"x", *, version=10, sequence=0, topic="orders"):
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
    answer = await face.send(request, version)
    return answer.responses[0].partition_responses[0].error_code


async def published(face):
    found = await face.log.read(lambda tx: groups.committed_offsets(tx, "readers"))
    return [(each.topic_partition.partition, each.offset, each.metadata) for each in found]


async def stable(face, topic="orders"):
    topic_partition = face.log.topics.partition(topic, 0)
    [result] = await face.log.fetch(
        [FetchRequest(topic_partition, 0, 1_000)], bytes_max=1_000, read_committed=True
    )
    return result.last_stable_offset, result.end_offset


@pytest.fixture
def away(face, monkeypatch):
    """The catalog cannot be written, or the shard is another broker's."""

    def fails(error):
        async def write(*_):
            raise error

        monkeypatch.setattr(face.log, "write", write)

    return fails


# -- InitProducerId -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_an_idempotent_producer_gets_an_id_of_its_own(face, version):
    first, second = await init(face, None, version=version), await init(face, None, version=version)
    assert (first[0], first[2], second[2]) == (0, 0, 0)
    assert first[1] != second[1]


@pytest.mark.parametrize("version", range(6))
async def test_each_instance_of_a_transactional_producer_gets_the_next_epoch(face, version):
    found = [await init(face, version=version) for _ in range(3)]
    assert [each[2] for each in found] == [0, 1, 2]
    assert len({each[1] for each in found}) == 1


@pytest.mark.parametrize(("version", "code"), [(3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
async def test_a_producer_that_names_its_epoch_goes_on_or_is_fenced(face, version, code):
    _, producer_id, _ = await init(face)
    assert await init(face, version=version, known=(producer_id, 0)) == (0, producer_id, 1)
    assert await init(face, version=version, known=(producer_id, 0)) == (0, producer_id, 1)
    assert await init(face, version=version, known=(producer_id, 7)) == (code, -1, -1)


async def test_what_init_producer_id_refuses(face):
    assert (await init(face, timeout_ms=0))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await init(face, timeout_ms=10**9))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await init(face, ""))[0] == ErrorCode.INVALID_REQUEST
    assert (await init(face, known=(5, -1)))[0] == ErrorCode.INVALID_REQUEST
    assert (await init(face, None, timeout_ms=0))[0] == 0


async def test_while_the_catalog_is_away_producers_are_told_to_ask_again(face, away):
    away(CatalogUnavailable(reason="gone"))
    assert await init(face, None) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert await init(face) == (AWAY, -1, -1)
    away(NotOwner())
    assert await init(face) == (AWAY, -1, -1)


# -- AddPartitionsToTxn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_partitions_are_added(face, version):
    await face.topic(partitions=2)
    producer = await begun(face)
    codes = await add(face, producer, {"orders": [0, 1]}, version=version)
    assert codes == {("orders", 0): 0, ("orders", 1): 0}
    assert await produce(face, producer) == 0
    assert await stable(face) == (0, 1)


@pytest.mark.parametrize("version", range(6))
async def test_one_unknown_partition_keeps_the_others_out(face, version):
    await face.topic()
    producer = await begun(face)
    codes = await add(face, producer, {"orders": [0, 9], "nobody": [0]}, version=version)
    assert codes == {
        ("orders", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("orders", 9): UNKNOWN,
        ("nobody", 0): UNKNOWN,
    }
    assert await produce(face, producer) == STATE


@pytest.mark.parametrize("version", range(6))
async def test_what_add_partitions_refuses(face, version):
    await face.topic()
    name, producer_id, epoch = await begun(face)
    await begun(face)
    asked = {"orders": [0]}
    fenced = OLD_EPOCH if version < 2 else FENCED
    assert await add(face, (name, producer_id, epoch), asked, version=version) == {("orders", 0): fenced}
    assert await add(face, (name, 999, epoch), asked, version=version) == {("orders", 0): MAPPING}
    assert await add(face, ("else", producer_id, 1), asked, version=version) == {("orders", 0): MAPPING}
    assert await add(face, (name, producer_id, 1), {}, version=version) == {}


@pytest.mark.parametrize(("version", "missing"), [(4, STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_verifying_adds_nothing(face, version, missing):
    await face.topic(partitions=2)
    producer = await begun(face)
    await add(face, producer, {"orders": [1]})
    codes = await add(face, producer, {"orders": [0, 1]}, version=version, verify_only=True)
    assert codes == {("orders", 0): missing, ("orders", 1): 0}
    assert await produce(face, producer) == STATE
    stale = (producer[0], producer[1], 9)
    assert await add(face, stale, {"orders": [1]}, version=version, verify_only=True) == {
        ("orders", 1): FENCED
    }


# -- EndTxn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_an_end_is_seen_when_it_is_answered(face, version, commit):
    await face.topic()
    producer = await begun(face)
    await add(face, producer, {"orders": [0]})
    await produce(face, producer)
    following = (producer[1], 1) if version == 5 else (-1, -1)
    assert await end(face, producer, version=version, commit=commit) == (0, *following)
    assert await stable(face) == (2, 2)
    assert await end(face, producer, version=version, commit=commit) == (0, *following)
    assert await stable(face) == (2, 2)


@pytest.mark.parametrize("version", range(6))
async def test_what_an_end_refuses(face, version):
    await face.topic()
    old = await begun(face)
    new = await begun(face)
    fenced = OLD_EPOCH if version < 2 else FENCED
    assert await end(face, old, version=version) == (fenced, -1, -1)
    assert await end(face, new, version=version) == (STATE, -1, -1)
    assert await end(face, ("else", 1, 0), version=version) == (MAPPING, -1, -1)
    nothing = (0, new[1], new[2] + 1) if version == 5 else (STATE, -1, -1)
    assert await end(face, new, version=version, commit=False) == nothing


async def test_a_batch_of_a_new_client_joins_its_transaction_by_itself(face):
    await face.topic()
    producer = await begun(face)
    assert await produce(face, producer, version=10) == STATE
    assert await produce(face, producer, version=12) == 0
    assert await produce(face, producer, version=12, sequence=1) == 0
    code, *fresh = await end(face, producer)
    assert (code, await stable(face)) == (0, (3, 3))
    assert await produce(face, producer, version=12, sequence=2) == OLD_EPOCH
    assert await produce(face, (producer[0], *fresh), version=12) == 0


# -- offsets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_offsets_become_the_groups_with_the_commit(face, version, commit):
    await face.topic(partitions=2)
    producer = await begun(face)
    assert await add_offsets(face, producer, version=min(version, 4)) == 0
    assert await commit_offsets(face, producer, ("orders", 0, 5), ("orders", 1, 6), version=version) == [0, 0]
    assert await published(face) == []
    assert (await end(face, producer, commit=commit))[0] == 0
    assert await published(face) == ([(0, 5, "note"), (1, 6, "note")] if commit else [])


@pytest.mark.parametrize("version", range(6))
async def test_only_new_clients_open_a_transaction_with_offsets(face, version):
    await face.topic()
    producer = await begun(face)
    assert await commit_offsets(face, producer, ("orders", 0, 5), version=version) == [
        0 if version == 5 else STATE
    ]
    assert (await end(face, producer))[0] == (0 if version == 5 else STATE)
    assert await published(face) == ([(0, 5, "note")] if version == 5 else [])


@pytest.mark.parametrize("version", range(6))
async def test_what_is_wrong_with_one_offset_is_its_own_affair(face, version):
    await face.topic()
    producer = await begun(face)
    await add_offsets(face, producer)
    codes = await commit_offsets(
        face, producer, ("nobody", 0, 1), ("orders", 9, 1), ("orders", 0, 5), version=version
    )
    assert codes == [UNKNOWN, UNKNOWN, 0]
    too_large = await commit_offsets(face, producer, ("orders", 0, 6), version=version, metadata="x" * 4_097)
    assert too_large == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    await end(face, producer)
    assert await published(face) == [(0, 5, "note")]


@pytest.mark.parametrize("version", range(6))
async def test_a_fenced_producers_offsets_are_refused(face, version):
    await face.topic()
    old = await begun(face)
    await begun(face)
    assert await commit_offsets(face, old, ("orders", 0, 5), version=version) == [OLD_EPOCH]
    assert await commit_offsets(face, ("else", 1, 0), ("orders", 0, 5), version=version) == [MAPPING]


@pytest.mark.parametrize("version", range(5))
async def test_what_add_offsets_refuses(face, version):
    old = await begun(face)
    await begun(face)
    assert await add_offsets(face, old, version=version) == (OLD_EPOCH if version < 2 else FENCED)
    assert await add_offsets(face, ("else", 1, 0), version=version) == MAPPING


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_member_of_another_generation_cannot_have_its_offsets_committed(face, version):
    await face.topic()
    producer = await begun(face)
    await add_offsets(face, producer)
    member = await joined(face)
    await sync(face, member.member_id)
    right, wrong = (member.member_id, member.generation_id), (member.member_id, member.generation_id + 1)
    parts = [("orders", 0, 5)]
    assert await commit_offsets(face, producer, *parts, version=version, member=wrong) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert await commit_offsets(face, producer, *parts, version=version, member=("nobody", 1)) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert await commit_offsets(face, producer, *parts, version=version, member=right) == [0]
