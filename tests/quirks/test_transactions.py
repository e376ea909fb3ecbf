"""Transactions: what readers see of them, and how their holders are told apart."""

import pytest
from tests.quirks.client import LATEST, READ_COMMITTED, headers, values
from tests.quirks.member import Member
from tests.quirks.transaction import NEW_END, NEW_PRODUCE, TransactionalClient

from millpond.catalog.groups import GroupOffset
from millpond.log import FetchRequest
from millpond.model.errors import OffsetOutOfRange
from millpond.protocol import ErrorCode
from millpond.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from millpond.records import MarkerKind, read_marker

TIMEOUT_MAX_MS = 15 * 60 * 1000
DAY_MS = 86_400_000


@pytest.fixture
async def mover(broker):
    async with TransactionalClient(broker) as connected:
        await connected.topic()
        await connected.begin()
        yield connected


async def read_committed(client, offset=0):
    return await client.fetch("orders", offset, isolation_level=READ_COMMITTED)


async def ends(client):
    """The end of the log, and of what is decided."""
    both = [await client.list_offset("orders", LATEST, isolation=level) for level in (0, READ_COMMITTED)]
    return tuple(each.offset for each in both)


# -- what readers see -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("commit", "kind"), [(True, MarkerKind.COMMIT), (False, MarkerKind.ABORT)])
async def test_a_transaction_ends_with_a_marker_that_takes_an_offset(mover, commit, kind):
    """Consumers find the end of a transaction by a control batch, and its offset is taken: those who count
    messages by offsets have been surprised by it ever since."""
    await mover.write(b"a", b"b", commit=commit)
    part = await mover.fetch("orders")
    data, marker = headers(part)
    assert (data.is_transactional, data.is_control, data.last_offset) == (True, False, 1)
    assert (marker.is_transactional, marker.is_control) == (True, True)
    assert (marker.base_offset, marker.record_count, marker.producer_id) == (2, 1, mover.id)
    whole = b"".join(bytes(each) for each in part.records)
    assert read_marker(whole[data.size :]).kind == kind
    assert await ends(mover) == (3, 3)


async def test_the_last_stable_offset_is_where_the_first_open_transaction_begins(mover):
    """Who reads only what is committed must not see past it, not even what belongs to nobody's transaction: its
    order would change. ListOffsets says the same, or such a reader believes to lag for ever."""
    await mover.append("orders", b"before")
    await mover.add()
    assert await ends(mover) == (1, 1)
    await mover.send_values(b"open")
    await mover.append("orders", b"after")
    part = await read_committed(mover)
    assert (values(part), part.last_stable_offset, part.high_watermark) == ([(0, b"before")], 1, 3)
    assert await ends(mover) == (3, 1)
    assert values(await read_committed(mover, 1)) == []
    assert (await read_committed(mover, 2)).error_code == ErrorCode.NONE
    await mover.end(commit=True)
    part = await read_committed(mover)
    assert [value for _, value in values(part)] == [b"before", b"open", b"after"]
    assert (part.last_stable_offset, part.aborted_transactions) == (4, [])


async def test_aborted_transactions_are_listed_for_those_who_leave_them_out(mover):
    """The broker sends aborted records too; consumers drop them by this list, which must name each transaction whose
    records are among those sent, and no other."""
    await mover.write(b"lost", commit=False)
    await mover.write(b"kept")
    part = await read_committed(mover)
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions] == [(mover.id, 0)]
    assert [value for _, value in values(part)] == [b"lost", b"kept"]
    assert (await read_committed(mover, 2)).aborted_transactions == []
    assert (await mover.fetch("orders")).aborted_transactions is None


async def test_a_time_that_only_open_transactions_have_is_not_found_by_committed_readers(mover):
    """They would be sent to an offset that they may not read yet."""
    await mover.add()
    await mover.send_values(b"open")
    assert (await mover.list_offset("orders", 0)).offset == 0
    assert (await mover.list_offset("orders", 0, isolation=READ_COMMITTED)).offset == -1


# -- steps ----------------------------------------------------------------------------------------------------


async def test_an_end_may_be_repeated_but_not_changed(mover):
    """An answer that was lost is asked for again. Commit and abort of one transaction cannot both be true."""
    await mover.write(b"a")
    assert (await mover.end(commit=True)).error_code == ErrorCode.NONE
    assert (await mover.end(commit=False)).error_code == ErrorCode.INVALID_TXN_STATE
    assert await ends(mover) == (2, 2)


async def test_an_end_without_a_beginning_is_refused(mover):
    """Nothing was begun, so the client has lost track of itself."""
    for commit in (True, False):
        assert (await mover.end(commit=commit)).error_code == ErrorCode.INVALID_TXN_STATE


async def test_before_v12_a_partition_must_be_added_before_it_is_written(mover):
    """A late batch of a transaction that has ended would otherwise hang about for ever (KIP-890). From v11 on the
    client is told that it can abort and go on."""
    assert await mover.send_values(b"a", version=11) == (ErrorCode.TRANSACTION_ABORTABLE, -1)
    assert await mover.send_values(b"a", version=10) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert await mover.add() == ErrorCode.NONE
    assert await mover.send_values(b"a") == (ErrorCode.NONE, 0)


async def test_from_v12_writing_adds_the_partition(mover):
    """Java 4 no longer sends AddPartitionsToTxn once `transaction.version` is 2."""
    assert await mover.send_values(b"a", version=NEW_PRODUCE) == (ErrorCode.NONE, 0)
    assert await ends(mover) == (1, 0)
    assert (await mover.end(commit=True, version=NEW_END)).error_code == ErrorCode.NONE
    assert await ends(mover) == (2, 2)


async def test_partitions_are_added_all_or_none_each_with_a_code(mover):
    """librdkafka and aiokafka use v0, and read the code of each partition."""
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("orders", "nowhere")]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=mover.name,
        v3_and_below_producer_id=mover.id,
        v3_and_below_producer_epoch=mover.epoch,
        v3_and_below_topics=topics,
    )
    answer = await mover.ask(request, 0)
    codes = {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in answer.results_by_topic_v3_and_below
    }
    assert codes == {
        "orders": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await mover.send_values(b"a") == (ErrorCode.TRANSACTION_ABORTABLE, -1)


# -- epochs ---------------------------------------------------------------------------------------------------


async def test_an_end_of_v5_returns_a_new_epoch(mover):
    """Under transaction version 2 each transaction has its own epoch, so that nothing of an old one can land in the
    next: the torn transactions that Jepsen found in Kafka."""
    assert (await mover.send_values(b"a", version=NEW_PRODUCE))[0] == ErrorCode.NONE
    ended = await mover.end(commit=True, version=NEW_END)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (ErrorCode.NONE, mover.id, 1)
    again = await mover.end(commit=True, version=NEW_END)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, 1)
    assert await mover.send_values(b"late", version=NEW_PRODUCE) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    mover.epoch, mover.sequence = 1, 0
    assert await mover.send_values(b"b", version=NEW_PRODUCE) == (ErrorCode.NONE, 2)
    ended = await mover.end(commit=False, version=NEW_END)
    assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, 2)


async def test_an_abort_of_v5_may_come_without_a_transaction_and_a_commit_may_not(mover):
    """A client cannot know whether its first write arrived, so it may always abort; the epoch rises all the same."""
    aborted = await mover.end(commit=False, version=NEW_END)
    assert (aborted.error_code, aborted.producer_epoch) == (ErrorCode.NONE, 1)
    mover.epoch = 1
    committed = await mover.end(commit=True, version=NEW_END)
    assert (committed.error_code, committed.producer_epoch) == (ErrorCode.INVALID_TXN_STATE, -1)


async def test_before_v5_the_epoch_stays(mover):
    """Older clients go on with the one they have."""
    for _ in range(2):
        await mover.write(b"a")
    assert await ends(mover) == (4, 4)


async def test_a_new_instance_aborts_and_fences_the_one_before(mover):
    """Whoever takes the name over must not wait for a zombie, nor be overtaken by it. Produce says it with another
    code than the coordinator does."""
    await mover.add()
    await mover.send_values(b"old")
    async with TransactionalClient(mover.broker) as successor:
        await successor.begin()
        assert successor.id == mover.id
        assert successor.epoch > mover.epoch
        assert await ends(mover) == (2, 2)
        assert await mover.add() == ErrorCode.PRODUCER_FENCED
        assert (await mover.end(commit=True)).error_code == ErrorCode.PRODUCER_FENCED
        assert await mover.send_values(b"late") == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        await successor.write(b"new")
        part = await read_committed(successor)
        assert [(each.first_offset) for each in part.aborted_transactions] == [0]


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(broker, clock):
    """Otherwise one dead producer stops every committed reader of its partitions. The epoch rises, so that it learns
    of it at its next step."""
    async with TransactionalClient(broker) as slow:
        await slow.topic()
        await slow.begin(timeout_ms=1_000)
        await slow.add()
        await slow.send_values(b"a")
        clock.advance(1_001)
        await broker.transactions.abort_timed_out()
        assert await ends(slow) == (2, 2)
        assert await slow.send_values(b"b") == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await slow.add() == ErrorCode.PRODUCER_FENCED
        assert (await slow.end(commit=True)).error_code == ErrorCode.PRODUCER_FENCED
        before = slow.epoch
        await slow.begin()
        assert slow.epoch > before + 1


async def test_a_timeout_that_is_too_long_or_none_is_refused(client):
    """Java sends a minute unless told otherwise; whoever sets more than the broker allows must hear of it at once."""
    for timeout_ms in (0, -1, TIMEOUT_MAX_MS + 1, 10**9):
        answer = await client.new_producer("mover", timeout_ms=timeout_ms)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


async def test_the_longest_timeout_is_taken(client):
    """Kafka's `transaction.max.timeout.ms` is inclusive."""
    answer = await client.new_producer("mover", timeout_ms=TIMEOUT_MAX_MS)
    assert answer.error_code == ErrorCode.NONE


async def test_an_empty_name_is_no_name(client):
    """Null asks for an idempotent producer. An empty one is a mistake in a config file."""
    assert (await client.new_producer("")).error_code == ErrorCode.INVALID_REQUEST


async def test_a_producer_that_lost_its_answer_gets_it_again(mover):
    """From v3 on it says who it was (KIP-360). Nobody else has come, so it goes on; an older one is fenced."""
    known = {"producer_id": mover.id, "producer_epoch": mover.epoch}
    first, again = [await mover.new_producer(mover.name, **known) for _ in range(2)]
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 1)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, 1)
    newer = await mover.new_producer(mover.name, producer_id=mover.id, producer_epoch=1)
    assert (newer.error_code, newer.producer_epoch) == (ErrorCode.NONE, 2)
    old = await mover.new_producer(mover.name, **known)
    assert (old.error_code, old.producer_id) == (ErrorCode.PRODUCER_FENCED, -1)


async def test_a_name_belongs_to_one_producer(mover):
    """A producer id that never held it has another fault than one that held it too long ago."""
    other = mover.id + 1000
    assert await mover.add(producer_id=other) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await mover.add(transactional_id="nobody") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await mover.add(producer_epoch=5) == ErrorCode.PRODUCER_FENCED
    ended = await mover.end(commit=True, producer_id=other)
    assert ended.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- offsets --------------------------------------------------------------------------------------------------


async def test_offsets_of_an_open_transaction_are_unstable(mover):
    """A consumer that takes over must not begin at an offset that a commit is about to move: who requires stable
    offsets (KIP-447) is told to ask again, others get the old one."""
    async with Member(mover.broker, group="readers") as reader:
        assert await reader.commit(1) == ErrorCode.NONE
        assert await mover.add_offsets("readers") == ErrorCode.NONE
        assert await mover.commit_offset("readers", 5) == ErrorCode.NONE
        row = await reader.committed(stable=True)
        assert (row.error_code, row.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        row = await reader.committed()
        assert (row.error_code, row.committed_offset) == (ErrorCode.NONE, 1)
        await mover.end(commit=True)
        row = await reader.committed(stable=True)
        assert (row.error_code, row.committed_offset) == (ErrorCode.NONE, 5)


async def test_offsets_of_an_aborted_transaction_are_forgotten(mover):
    """The records were not written, so they must be read again."""
    async with Member(mover.broker, group="readers") as reader:
        await reader.commit(1)
        await mover.add_offsets("readers")
        await mover.commit_offset("readers", 5)
        await mover.end(commit=False)
        row = await reader.committed(stable=True)
        assert (row.error_code, row.committed_offset) == (ErrorCode.NONE, 1)


async def test_before_v5_offsets_need_a_transaction_that_is_open(mover):
    """A late message about a transaction that has ended must not open another. From v5 on the epoch tells."""
    assert await mover.commit_offset("readers", 1) == ErrorCode.INVALID_TXN_STATE
    assert await mover.commit_offset("readers", 3, version=5) == ErrorCode.NONE
    assert (await mover.end(commit=True)).error_code == ErrorCode.NONE


async def test_offsets_in_a_transaction_are_fenced_by_generation_too(mover):
    """From v3 on a consumer that is out of its group cannot commit through its producer either (KIP-447)."""
    async with Member(mover.broker, group="readers") as member:
        await member.lead()
        await mover.add_offsets("readers")
        identity = {"member_id": member.id, "generation_id": member.generation}
        old = {**identity, "generation_id": 9}
        stranger = {**identity, "member_id": "nobody"}
        assert await mover.commit_offset("readers", 1, **old) == ErrorCode.ILLEGAL_GENERATION
        assert await mover.commit_offset("readers", 1, **stranger) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await mover.commit_offset("readers", 1, **identity) == ErrorCode.NONE


# -- time, groups and deletion --------------------------------------------------------------------------------


async def test_a_clock_that_jumps_deletes_no_offsets_ids_or_transactions(broker, mover, clock):
    await mover.add()
    await mover.send_values(b"a")
    topic_partition = broker.log.topics.partition("orders", 0)
    await broker.groups.commit_offsets("g", [GroupOffset(topic_partition, 42)])
    clock.jump(8 * DAY_MS)
    assert await broker.groups.expire_once() == 0
    assert await broker.transactions.forget_unused() == 0
    assert await broker.transactions.abort_timed_out() == 0
    assert (await broker.groups.committed_offsets("g")).offsets[topic_partition].offset == 42
    assert (await mover.end(commit=True)).error_code == 0


async def test_a_later_plain_commit_wins_over_an_open_transaction(broker, mover):
    """As in Kafka, where the later record of the two counts."""
    topic_partition = broker.log.topics.partition("orders", 0)
    assert await mover.add_offsets("g") == 0
    assert await mover.commit_offset("g", 100) == 0
    await broker.groups.commit_offsets("g", [GroupOffset(topic_partition, 150)])
    assert (await mover.end(commit=True)).error_code == 0
    assert (await broker.groups.committed_offsets("g")).offsets[topic_partition].offset == 150


async def test_an_aborted_list_that_was_deleted_with_its_records_is_not_taken_for_empty(broker, mover):
    await mover.write(b"secret", commit=False)
    await mover.write(b"fine", commit=True)
    log = broker.log
    topic_partition = log.topics.partition("orders", 0)
    await log.last_stable_offset(topic_partition)
    log.partition(
        topic_partition
    ).open_transactions._aborted_from = 10  # as after a thousand aborted transactions
    real = log._fetcher._read_catalog

    async def after_a_deletion(function):
        await log.delete_records(topic_partition, 2)
        return await real(function)

    log._fetcher._read_catalog = after_a_deletion
    [result] = await log.fetch(
        [FetchRequest(topic_partition, 0, 10**6)], bytes_max=10**6, read_committed=True
    )
    assert isinstance(result.error, OffsetOutOfRange)
