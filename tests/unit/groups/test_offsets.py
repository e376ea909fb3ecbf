"""Committed offsets, and groups as administrators see them."""

import pytest

from millpond.catalog import groups as catalog
from millpond.catalog import transactions
from millpond.catalog.groups import GroupOffset, GroupRow
from millpond.groups import CommitSender, Description, GroupListing, GroupPhase, JoinRequest, Protocol
from millpond.model.errors import (
    GroupNotEmpty,
    GroupSubscribed,
    IllegalGeneration,
    InvalidGroupId,
    MemberIdRequired,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from millpond.model.ids import TopicPartition, new_topic_id

DAY_MS = 86_400_000
FIRST_JOIN = JoinRequest("", "bob", "", 6_000, 6_000, "consumer", [Protocol("range", b"")])


def kinds(errors):
    return [type(error) for error in errors]


def begin_transaction(stage, group_id, *offsets):
    with stage.broker.database.write() as tx:
        producer = transactions.begin_producer(tx, "pay", 60_000, now_ms=0).producer
        transactions.add_offsets(tx, producer, group_id, offsets, now_ms=0, opens=True)
    return producer


def end_transaction(stage, producer):
    with stage.broker.database.write() as tx:
        transactions.end(tx, producer, commit=True, bump_epoch=False, now_ms=0)


# -- committing and reading ------------------------------------------------------------------------------------


async def test_committed_offsets_are_found_by_any_coordinator(stage):
    first, second = await stage.topic()
    assert (await stage.groups.committed_offsets("readers")).offsets == {}
    offsets = [GroupOffset(first, 5, 2, "five"), GroupOffset(second, 0)]
    assert await stage.groups.commit_offsets("readers", offsets) == [None, None]
    stage.restart()
    found = await stage.groups.committed_offsets("readers")
    assert found.offsets == {first: offsets[0], second: offsets[1]}
    assert found.unstable == frozenset()
    assert stage.rows("SELECT DISTINCT committed_at FROM group_offsets") == [(stage.clock.now_ms(),)]


async def test_a_consumer_without_membership_commits_without_reading_the_catalog_each_time(stage):
    [first, _] = await stage.topic()
    for number in range(3):
        await stage.groups.commit_offsets("", [GroupOffset(first, number)])
    assert stage.log.reads == 1


async def test_who_may_commit(stage):
    [first, _] = await stage.topic()
    offset = GroupOffset(first, 1)
    alice = stage.client("alice")
    with pytest.raises(UnknownGroup):
        await stage.groups.commit_offsets("readers", [offset], CommitSender("ghost", 0))
    await stage.join(alice)
    with pytest.raises(RebalanceInProgress):
        await alice.commit(offset)
    await alice.sync()
    assert await alice.commit(offset) == [None]
    with pytest.raises(UnknownMember):
        await stage.groups.commit_offsets("readers", [offset])
    with pytest.raises(IllegalGeneration):
        await stage.groups.commit_offsets("readers", [offset], CommitSender("alice-1", 2))


async def test_a_commit_is_a_sign_of_life(stage):
    [first, _] = await stage.topic()
    alice = stage.client("alice")
    await stage.form(alice)
    for _ in range(3):
        stage.advance_time(9_000)
        await alice.commit(GroupOffset(first, 1))
    await alice.heartbeat()


async def test_notes_that_are_too_long_are_refused_alone(stage):
    first, second = await stage.topic()
    offsets = [GroupOffset(first, 1, -1, "ü" * 2_049), GroupOffset(second, 1, -1, "ü" * 2_048)]
    assert kinds(await stage.groups.commit_offsets("readers", offsets)) == [
        OffsetMetadataTooLarge,
        type(None),
    ]
    assert list((await stage.groups.committed_offsets("readers")).offsets) == [second]
    assert kinds(await stage.groups.commit_offsets("others", offsets[:1])) == [OffsetMetadataTooLarge]


async def test_offsets_that_hang_on_a_transaction_are_unstable(stage):
    first, second = await stage.topic()
    await stage.groups.commit_offsets("readers", [GroupOffset(first, 1), GroupOffset(second, 1)])
    producer = begin_transaction(stage, "readers", GroupOffset(first, 2))
    found = await stage.groups.committed_offsets("readers")
    assert found.unstable == {first}
    assert found.offsets[first].offset == 1
    assert (await stage.groups.committed_offsets("others")).unstable == frozenset()
    end_transaction(stage, producer)
    found = await stage.groups.committed_offsets("readers")
    assert found.unstable == frozenset()
    assert found.offsets[first].offset == 2


# -- deleting offsets ------------------------------------------------------------------------------------------


async def test_offsets_of_topics_that_members_consume_are_kept(stage):
    [orders, _], [parcels, _] = await stage.topic("orders"), await stage.topic("parcels")
    alice = stage.client("alice")
    await stage.form(alice)
    await alice.commit(GroupOffset(orders, 1), GroupOffset(parcels, 1))
    gone = TopicPartition(new_topic_id(), 0)
    errors = await stage.groups.delete_offsets("readers", [orders, parcels, gone])
    assert kinds(errors) == [GroupSubscribed, type(None), UnknownTopic]
    assert list((await stage.groups.committed_offsets("readers")).offsets) == [orders]
    await alice.leave()
    assert await stage.groups.delete_offsets("readers", [orders]) == [None]
    assert (await stage.groups.committed_offsets("readers")).offsets == {}


async def test_what_members_consume_may_be_unknown(stage):
    [orders, _] = await stage.topic()
    await stage.form(stage.client("alice", protocols=[Protocol("range", b"?")]))
    assert kinds(await stage.groups.delete_offsets("readers", [orders])) == [GroupSubscribed]
    await stage.form(stage.client("worker", protocol_type="connect", group_id="workers"))
    with pytest.raises(GroupNotEmpty):
        await stage.groups.delete_offsets("workers", [orders])


async def test_offsets_are_deleted_of_groups_that_have_some(stage):
    [orders, _] = await stage.topic()
    with pytest.raises(UnknownGroup):
        await stage.groups.delete_offsets("readers", [orders])
    with pytest.raises(InvalidGroupId):
        await stage.groups.delete_offsets("", [orders])
    await stage.groups.commit_offsets("readers", [GroupOffset(orders, 1)])
    stage.restart()
    assert await stage.groups.delete_offsets("readers", [orders]) == [None]


# -- describing, listing, deleting -----------------------------------------------------------------------------


async def test_groups_are_described_in_every_state(stage):
    [orders, _] = await stage.topic()
    with pytest.raises(UnknownGroup):
        await stage.groups.describe("readers")
    await stage.groups.commit_offsets("readers", [GroupOffset(orders, 1)])
    stage.restart()
    assert await stage.groups.describe("readers") == Description("readers", GroupPhase.EMPTY)
    alice = stage.client("alice")
    await stage.join(alice)
    described = await stage.groups.describe("readers")
    assert (described.state, described.protocol, len(described.members)) == (GroupPhase.COMPLETING, "", 1)
    await alice.sync()
    stage.restart()
    described = await stage.groups.describe("readers")
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    [member] = described.members
    assert (member.member_id, member.client_id, member.client_host) == ("alice-1", "alice", "/127.0.0.1")
    assert member.assignment == b"alice-1"


async def test_groups_are_listed_from_memory_and_catalog(stage):
    [orders, _] = await stage.topic()
    await stage.form(stage.client("a", group_id="stored"))
    gone = stage.client("b", group_id="empty")
    await stage.form(gone)
    await gone.leave()
    await stage.until(lambda: stage.stored("empty") == [("Empty", 2)])
    await stage.groups.commit_offsets("simple", [GroupOffset(orders, 1)])
    stage.restart()
    await stage.join(stage.client("c", group_id="new", protocol_type="connect"))
    expected = [
        GroupListing("empty", "consumer", "Empty"),
        GroupListing("new", "connect", "CompletingRebalance"),
        GroupListing("simple", "", "Empty"),
        GroupListing("stored", "consumer", "Stable"),
    ]
    assert await stage.groups.list_groups() == expected
    await stage.groups.leave("stored", [])
    stage.advance_time(10_000)
    assert GroupListing("stored", "consumer", "Empty") in await stage.groups.list_groups()


async def test_only_empty_groups_are_deleted_and_with_all_that_is_theirs(stage):
    [orders, _] = await stage.topic()
    alice = stage.client("alice")
    await stage.form(alice)
    await alice.commit(GroupOffset(orders, 1))
    with pytest.raises(GroupNotEmpty):
        await stage.groups.delete_group("readers")
    await alice.leave()
    producer = begin_transaction(stage, "readers", GroupOffset(orders, 2))
    await stage.groups.delete_group("readers")
    end_transaction(stage, producer)
    assert (await stage.groups.committed_offsets("readers")).offsets == {}
    assert stage.stored() == []
    with pytest.raises(UnknownGroup):
        await stage.groups.delete_group("readers")
    with pytest.raises(UnknownMember):
        await alice.join()


async def test_a_group_that_only_has_offsets_or_promises_is_deleted_too(stage):
    [orders, _] = await stage.topic()
    await stage.groups.commit_offsets("simple", [GroupOffset(orders, 1)])
    stage.restart()
    await stage.groups.delete_group("simple")
    with pytest.raises(UnknownGroup):
        await stage.groups.describe("simple")
    with pytest.raises(MemberIdRequired):
        await stage.groups.join("promised", FIRST_JOIN)
    await stage.groups.delete_group("promised")
    assert list(stage.groups._loaded_groups) == []


# -- forgetting ------------------------------------------------------------------------------------------------


async def test_offsets_of_a_group_long_without_members_are_forgotten(stage):
    [orders, _] = await stage.topic()
    alice = stage.client("alice")
    await stage.form(alice)
    await alice.commit(GroupOffset(orders, 1))
    stage.clock.advance(8 * DAY_MS)
    await alice.heartbeat()
    assert await stage.groups.expire_once() == 0
    await alice.leave()
    await stage.until(lambda: stage.stored() == [("Empty", 2)])
    stage.clock.advance(7 * DAY_MS)
    assert await stage.groups.expire_once() == 0
    assert list(stage.groups._loaded_groups) == []
    stage.advance_time(1)
    assert await stage.groups.expire_once() == 2
    with pytest.raises(UnknownGroup):
        await stage.groups.describe("readers")


async def test_members_that_died_with_their_coordinator_do_not_keep_offsets_for_ever(stage):
    [orders, _] = await stage.topic()
    alice = stage.client("alice")
    await stage.form(alice)
    await alice.commit(GroupOffset(orders, 1))
    stage.restart()
    assert await stage.groups.expire_once() == 0
    stage.advance_time(10_000)
    await stage.until(lambda: stage.stored() == [("Empty", 2)])
    stage.clock.advance(7 * DAY_MS + 1)
    assert await stage.groups.expire_once() == 2


async def test_nothing_is_forgotten_by_a_clock_that_is_not_trusted(start):
    stage = await start(trusts_clock=lambda: False)
    [orders, _] = await stage.topic()
    await stage.groups.commit_offsets("simple", [GroupOffset(orders, 1)])
    stage.clock.advance(30 * DAY_MS)
    assert await stage.groups.expire_once() == 0
    assert len((await stage.groups.committed_offsets("simple")).offsets) == 1


async def test_a_group_that_is_in_use_stays_in_memory(stage):
    await stage.form(stage.client("alice"))
    with pytest.raises(MemberIdRequired):
        await stage.groups.join("promised", FIRST_JOIN)
    await stage.groups.expire_once()
    assert sorted(loaded.group.state.group_id for loaded in stage.groups._loaded_groups) == [
        "promised",
        "readers",
    ]


async def test_a_group_whose_save_is_under_way_stays_in_memory(stage):
    alice = stage.client("alice")
    await stage.form(alice)
    stage.log.may_write.clear()
    await alice.leave()
    assert stage.group().is_idle()
    stage.groups._loaded_groups.evict_idle()
    assert stage.group().state.generation == 2
    stage.log.may_write.set()
    await stage.until(lambda: stage.stored() == [("Empty", 2)])


async def test_groups_of_other_brokers_are_left_to_them(stage):
    row = GroupRow("readers", 3, "consumer", "Stable", '{"protocol":null,"leader":null,"members":[]}', 0)
    with stage.broker.database.write() as tx:
        catalog.save(tx, row)
    stage.epochs.clear()
    await stage.groups.expire_once()
    assert list(stage.groups._loaded_groups) == []
