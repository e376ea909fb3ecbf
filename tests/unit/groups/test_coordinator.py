"""The shell around the machine: waiting, storing, reading back, fencing, and clients that go away."""

import asyncio
from contextlib import suppress

import pytest
from tests.loop_time import LoopClock

from millpond.catalog import coordinators
from millpond.catalog.groups import GroupOffset
from millpond.groups import CommitSender, GroupLimits, GroupPhase, Groups, LeaveRequest, Protocol
from millpond.model.errors import (
    CatalogUnavailable,
    GroupInUse,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupId,
    NotCoordinator,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from millpond.testing import running_broker

HANG_S = 60
SHARD = coordinators.shard_of("readers")


def claim_for_another(stage):
    """Another broker takes the group's shard."""
    with stage.broker.database.write() as tx:
        return coordinators.claim(tx, [SHARD], "another")[SHARD]


async def test_members_join_share_out_the_work_and_go_on(stage):
    alice, bob = stage.client("alice"), stage.client("bob")
    assert await stage.form(alice, bob) == [b"alice-1", b"bob-2"]
    assert alice.joined.leader == bob.joined.leader == "alice-1"
    assert [each.member_id for each in alice.joined.members] == ["alice-1", "bob-2"]
    assert bob.joined.members == ()
    await alice.heartbeat()
    assert await bob.leave() is None
    with pytest.raises(RebalanceInProgress):
        await alice.heartbeat()
    assert await stage.form(alice) == [b"alice-1"]
    assert alice.generation == 2


async def test_a_generation_is_stored_before_anybody_is_told_of_it(stage):
    alice, bob = stage.client("alice"), stage.client("bob")
    await stage.join(alice, bob)
    stage.log.may_write.clear()
    syncs = [asyncio.create_task(client.sync()) for client in (bob, alice)]
    await stage.waiting(2)
    assert stage.group().state.phase is GroupPhase.COMPLETING
    assert stage.stored() == []
    stage.log.may_write.set()
    assert await asyncio.gather(*syncs) == [b"bob-2", b"alice-1"]
    assert stage.stored() == [("Stable", 1)]


async def test_a_group_without_members_is_stored_as_empty(stage):
    alice = stage.client("alice")
    await stage.form(alice)
    assert await alice.leave() is None
    await stage.until(lambda: stage.stored() == [("Empty", 2)])


async def test_consumers_go_on_when_the_broker_is_started_again(start, tmp_path):
    stage = await start(tmp_path)
    [orders, _] = await stage.topic()
    alice = stage.client("alice", protocols=[Protocol("range", b"\x00\xff"), Protocol("robin", b"")])
    bob = stage.client("bob", instance_id="i2", protocols=[Protocol("range", b"bob")])
    await stage.form(alice, bob)
    await alice.commit(GroupOffset(orders, 7, 1, "seven"))
    before = stage.group().describe()
    await stage.broker.stop()

    again = await start(tmp_path, clock=stage.clock)
    alice.stage = bob.stage = again
    stage.clock.advance(9_999)
    await alice.heartbeat()
    await bob.heartbeat()
    assert await again.groups.describe("readers") == before
    assert await bob.sync() == b"i2-2"
    assert await alice.commit(GroupOffset(orders, 8)) == [None]
    again.advance_time(9_999)
    await alice.heartbeat()
    again.advance_time(1)
    assert [each.member_id for each in again.group().state.roster] == ["alice-1"]


async def test_whoever_comes_while_a_group_is_read_waits_for_that_one_reading(stage):
    alice, bob = stage.client("alice"), stage.client("bob")
    await stage.form(alice, bob)
    stage.restart()
    stage.log.reads = 0
    stage.log.may_read.clear()
    beats = [asyncio.create_task(client.heartbeat()) for client in (alice, bob, alice)]
    await stage.until(lambda: stage.log.reads)
    beats[0].cancel()
    await asyncio.sleep(0)
    stage.log.may_read.set()
    results = await asyncio.gather(*beats, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, type(None), type(None)]
    assert stage.log.reads == 1


async def test_two_first_members_come_to_the_same_new_group(stage):
    stage.log.may_read.clear()
    clients = [stage.client(name, require_known_id=False) for name in ("alice", "bob")]
    joins = [asyncio.create_task(client.join()) for client in clients]
    await stage.settle()
    stage.log.may_read.set()
    await stage.waiting(2)
    stage.advance_time(3_000)
    stage.advance_time(3_000)
    joined = await asyncio.gather(*joins)
    assert {each.generation for each in joined} == {1}
    assert {each.leader for each in joined} == {"alice-1"}


async def test_a_group_that_cannot_be_read_is_tried_again(stage):
    alice = stage.client("alice")
    await stage.form(alice)
    stage.restart()
    stage.log.error = CatalogUnavailable(reason="away")
    with pytest.raises(CatalogUnavailable):
        await alice.heartbeat()
    with pytest.raises(CatalogUnavailable):
        await stage.client("bob").join()
    stage.log.error = None
    await alice.heartbeat()


async def test_a_failed_reading_that_nobody_waits_for_any_more_is_nobodys_error(stage, caplog):
    stage.log.may_read.clear()
    stage.log.error = CatalogUnavailable(reason="away")
    join = asyncio.create_task(stage.client("alice").join())
    await stage.until(lambda: stage.log.reads)
    join.cancel()
    await asyncio.wait([join])
    stage.log.may_read.set()
    await stage.until(lambda: not stage.groups._loaded_groups._loading)
    assert caplog.text == ""


async def test_when_the_catalog_fails_members_are_told_and_come_again(stage, caplog):
    alice, bob = stage.client("alice"), stage.client("bob")
    await stage.join(alice, bob)
    stage.log.error = CatalogUnavailable(reason="away")
    results = await asyncio.gather(bob.sync(), alice.sync(), return_exceptions=True)
    assert [type(result) for result in results] == [CatalogUnavailable, CatalogUnavailable]
    assert results[0] is not results[1]
    assert "saving group failed" in caplog.messages
    with pytest.raises(CatalogUnavailable):
        await stage.groups.commit_offsets("simple", [GroupOffset((await stage.topic())[0], 1)])
    stage.log.error = None
    assert await stage.form(bob, alice) == [b"bob-2", b"alice-1"]
    assert stage.stored() == [("Stable", 2)]


async def test_a_static_member_is_stored_with_its_new_id(stage):
    alice = stage.client("alice", instance_id="i1")
    await stage.form(alice)
    again = stage.client("alice", instance_id="i1")
    joined = await again.join()
    assert (joined.member_id, joined.generation, joined.skip_assignment) == ("i1-2", 1, True)
    stage.restart()
    assert await again.sync() == b"i1-1"
    await again.heartbeat()


# -- who keeps the group ---------------------------------------------------------------------------------------


async def test_a_coordinator_whose_shard_has_moved_on_writes_nothing_and_says_so(stage):
    [orders, _] = await stage.topic()
    alice = stage.client("alice")
    await stage.form(alice)
    claim_for_another(stage)
    with pytest.raises(NotCoordinator):
        await alice.commit(GroupOffset(orders, 1))
    assert stage.rows("SELECT count(*) FROM group_offsets") == [(0,)]
    assert "readers" not in stage.groups._loaded_groups
    for call in (alice.heartbeat(), stage.groups.delete_group("readers")):
        with pytest.raises(NotCoordinator):
            await call
    assert stage.stored() == [("Stable", 1)]
    assert await stage.groups.list_groups() == []
    stage.advance_time(60_000)


async def test_a_group_without_members_that_has_moved_on_is_not_deleted_here(stage):
    [orders, _] = await stage.topic()
    await stage.groups.commit_offsets("readers", [GroupOffset(orders, 1)])
    claim_for_another(stage)
    with pytest.raises(NotCoordinator):
        await stage.groups.delete_offsets("readers", [orders])
    stage.restart()
    with pytest.raises(NotCoordinator):
        await stage.groups.delete_group("readers")
    assert stage.rows("SELECT count(*) FROM group_offsets") == [(1,)]


async def test_a_group_that_moves_on_while_it_is_to_be_deleted_is_not_ours(stage):
    alice = stage.client("alice")
    await stage.form(alice)
    claim_for_another(stage)
    await alice.leave()
    with pytest.raises(NotCoordinator):
        await stage.groups.delete_group("readers")
    assert stage.stored() == [("Stable", 1)]


async def test_whoever_waits_when_the_group_moves_on_is_told(stage):
    alice, bob = stage.client("alice"), stage.client("bob")
    await stage.join(alice, bob)
    claim_for_another(stage)
    results = await asyncio.gather(bob.sync(), alice.sync(), return_exceptions=True)
    assert [type(result) for result in results] == [NotCoordinator, NotCoordinator]
    assert stage.stored() == []


async def test_groups_of_other_brokers_are_not_ours(stage):
    [orders, _] = await stage.topic()
    alice = stage.client("alice")
    await stage.form(alice)
    join = asyncio.create_task(stage.client("bob", require_known_id=False).join())
    await stage.waiting(1)
    del stage.epochs[SHARD]
    calls = [
        alice.heartbeat(),
        alice.join(),
        alice.sync(),
        alice.leave(),
        alice.commit(GroupOffset(orders, 1)),
        stage.groups.check_member("readers", CommitSender()),
        stage.groups.committed_offsets("readers"),
        stage.groups.delete_offsets("readers", [orders]),
        stage.groups.describe("readers"),
        stage.groups.delete_group("readers"),
        join,
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [NotCoordinator] * len(calls)
    assert await stage.groups.list_groups() == []


async def test_a_group_that_was_lost_and_taken_again_is_read_anew(stage):
    alice, bob = stage.client("alice"), stage.client("bob")
    await stage.form(alice)
    join = asyncio.create_task(bob.join())
    await stage.until(lambda: bob.member_id)
    claim_for_another(stage)
    with stage.broker.database.write() as tx:
        tx.rows("UPDATE groups SET generation = 5 WHERE group_id = 'readers'")
        stage.epochs |= coordinators.claim(tx, [SHARD], stage.broker.session)
    with pytest.raises(IllegalGeneration):
        await alice.heartbeat()
    with pytest.raises((NotCoordinator, UnknownMember)):
        await join
    assert stage.group().state.generation == 5


# -- clients that go away --------------------------------------------------------------------------------------


async def test_a_client_that_goes_away_while_it_joins_does_not_hold_up_the_others(stage):
    alice, bob = stage.client("alice"), stage.client("bob", require_known_id=False)
    alice_joins, bob_joins = asyncio.create_task(alice.join()), asyncio.create_task(bob.join())
    await stage.waiting(2)
    bob_joins.cancel()
    await asyncio.wait([bob_joins])
    stage.advance_time(3_000)
    stage.advance_time(3_000)
    assert len((await alice_joins).members) == 2
    assert await alice.sync() == b"alice-1"
    stage.advance_time(9_000)
    await alice.heartbeat()
    stage.advance_time(1_000)
    assert await stage.form(alice) == [b"alice-1"]
    assert len(alice.joined.members) == 1


async def test_a_leader_that_goes_away_while_it_syncs_has_spoken(stage):
    alice, bob = stage.client("alice"), stage.client("bob")
    await stage.join(alice, bob)
    stage.log.may_write.clear()
    bob_syncs, alice_syncs = asyncio.create_task(bob.sync()), asyncio.create_task(alice.sync())
    await stage.waiting(2)
    alice_syncs.cancel()
    await asyncio.wait([alice_syncs])
    stage.log.may_write.set()
    assert await bob_syncs == b"bob-2"
    assert await alice.sync() == b"alice-1"
    assert stage.groups._loaded_groups._waiting == {}


async def test_an_answer_and_a_cancellation_at_once_lose_nothing(stage, caplog):
    alice = stage.client("alice", require_known_id=False)
    join = asyncio.create_task(alice.join())
    await stage.waiting(1)
    stage.advance_time(3_000)
    join.cancel()
    await asyncio.wait([join])
    assert join.cancelled()
    assert stage.group().state.phase is GroupPhase.COMPLETING
    assert caplog.text == ""


# -- what is refused -------------------------------------------------------------------------------------------


async def test_unknown_groups_have_no_members(stage):
    ghost = CommitSender("ghost", 1)
    with pytest.raises(UnknownMember):
        await stage.groups.heartbeat("nobody", ghost)
    client = stage.client("ghost", group_id="nobody")
    client.member_id = "ghost"
    with pytest.raises(UnknownMember):
        await client.join()
    client.joined = client
    client.members = ()
    with pytest.raises(UnknownMember):
        await client.sync()
    [error] = await stage.groups.leave("nobody", [LeaveRequest("ghost")])
    assert isinstance(error, UnknownMember)
    assert list(stage.groups._loaded_groups) == []


async def test_a_group_to_join_has_a_name(stage):
    client = stage.client("alice", group_id="")
    client.joined = client
    client.members = ()
    for call in (client.join(), client.sync(), client.heartbeat(), client.leave()):
        with pytest.raises(InvalidGroupId):
            await call


async def test_a_member_of_a_transaction_is_checked(stage):
    alice = stage.client("alice")
    await stage.groups.check_member("nobody", CommitSender())
    with pytest.raises(IllegalGeneration):
        await stage.groups.check_member("nobody", CommitSender("ghost", 1))
    await stage.form(alice)
    await stage.groups.check_member("readers", alice.identity)
    await stage.groups.check_member("readers", CommitSender())
    with pytest.raises(IllegalGeneration):
        await stage.groups.check_member("readers", CommitSender("alice-1", 2))
    with pytest.raises(UnknownMember):
        await stage.groups.check_member("readers", CommitSender("ghost", 1))


async def test_a_refused_join_leaves_nothing_behind(stage):
    with pytest.raises(InconsistentProtocol):
        await stage.client("alice", protocols=[]).join()
    assert await stage.groups.list_groups() == []
    stage.groups._loaded_groups.evict_idle()
    assert list(stage.groups._loaded_groups) == []


# -- the service -----------------------------------------------------------------------------------------------


@pytest.fixture
async def timed(loop_time):
    """Groups that wait 20 ms, and whose service and clock follow the loop's time."""
    async with running_broker() as broker:
        limits = GroupLimits(initial_rebalance_delay_ms=20, session_timeout_min_ms=10, expiry_every_ms=5)
        groups = Groups(
            broker.log,
            broker.session,
            broker.owned_shards.epoch_of,
            clock=LoopClock(loop_time),
            limits=limits,
        )
        running = asyncio.create_task(groups.run())
        groups.broker = broker
        yield groups, running
        running.cancel()
        await asyncio.wait([running])


class Bare:
    """What a client needs of a stage."""

    def __init__(self, groups):
        self.groups = groups


@pytest.fixture
def client_of(stage):
    def made(groups, name, **options):
        client = stage.client(name, **options)
        client.stage = Bare(groups)
        return client

    return made


async def test_time_passes_by_itself(timed, client_of, loop_time):
    groups, _ = timed
    late = {"session_timeout_ms": 1_200_000, "rebalance_timeout_ms": 1_200_000}
    slow = client_of(groups, "slow", group_id="slow", **late)
    await slow.join()  # its sync and its session are due much later than what follows
    alice = client_of(groups, "alice", session_timeout_ms=600_000)
    assert (await alice.join()).generation == 1
    await alice.sync()
    loop_time.advance(300)
    assert (await groups.describe("readers")).state is GroupPhase.STABLE
    loop_time.advance(300)
    with suppress(UnknownGroup):  # an empty group without offsets is soon forgotten, by itself too
        async with asyncio.timeout(HANG_S):
            while (await groups.describe("readers")).state is not GroupPhase.EMPTY:
                await asyncio.sleep(0.005)
    await slow.sync()


async def test_expiry_goes_on_after_a_failure(timed, client_of, caplog):
    groups, _ = timed
    calls = []

    async def fail():
        calls.append(1)
        raise CatalogUnavailable(reason="away")

    groups.expire_once = fail
    async with asyncio.timeout(HANG_S):
        while len(calls) < 3:
            await asyncio.sleep(0.005)
    assert "group expiry failed; will retry" in caplog.messages


async def test_a_damaged_group_row_ends_no_service(timed, stage):
    groups, running = timed
    insert = """
        INSERT INTO groups (group_id, shard, generation, protocol_type, state, members, updated_at)
        VALUES ('bad', 0, 1, 'consumer', 'Stable', '{}', 0)
    """
    await groups.broker.log.write(lambda tx: tx.rows(insert) and None)
    expire, failures = groups.expire_once, []

    async def counted():
        try:
            return await expire()
        except Exception as error:
            failures.append(error)
            raise

    groups.expire_once = counted
    await stage.until(lambda: len(failures) > 1)
    assert not running.done()


async def test_when_the_service_ends_what_is_being_stored_is_and_who_waits_is_told(stage):
    alice, bob = stage.client("alice", group_id="stored"), stage.client("bob")
    await stage.join(alice)
    running = asyncio.create_task(stage.groups.run())
    stage.log.may_write.clear()
    sync, join = asyncio.create_task(alice.sync()), asyncio.create_task(bob.join())
    await stage.waiting(2)
    running.cancel()
    await stage.settle()
    assert not running.done()
    stage.log.may_write.set()
    assert await sync == b"alice-1"
    with pytest.raises(NotCoordinator):
        await join
    await asyncio.wait([running])
    assert running.cancelled()
    assert stage.stored("stored") == [("Stable", 1)]


async def test_a_bug_in_one_group_is_not_the_others(stage, monkeypatch, caplog):
    alice, bob = stage.client("alice"), stage.client("bob", group_id="others")
    await stage.form(alice)
    await stage.form(bob)

    def fail(_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(stage.group(), "tick", fail)
    stage.advance_time(10_000)
    [failed] = [each for each in caplog.records if each.message == "unexpected error in group; reloading it"]
    assert failed.group == "readers"
    assert stage.group("others").state.phase is GroupPhase.EMPTY
    await alice.heartbeat()
    assert stage.group().state.generation == 1


async def test_a_thousand_members(stage):
    clients = [stage.client(f"c{number}", require_known_id=False) for number in range(1_000)]
    works = await stage.form(*clients)
    assert works == [client.member_id.encode() for client in clients]
    assert [len(client.joined.members) for client in clients] == [1_000] + [0] * 999
    stage.restart()
    await clients[-1].heartbeat()
    assert len(stage.group().state.roster) == 1_000


# -- positions of an application that is no member ------------------------------------------------------------


async def test_a_group_has_no_members_until_one_joins(stage):
    await stage.groups.check_has_no_members("readers")
    await stage.form(stage.client("a"), stage.client("b"))
    with pytest.raises(GroupInUse, match="it has 2 members, which commit its positions"):
        await stage.groups.check_has_no_members("readers")


async def test_only_the_coordinator_knows_whether_a_group_has_members(stage):
    stage.epochs.clear()
    with pytest.raises(NotCoordinator):
        await stage.groups.check_has_no_members("readers")
