"""The shell around groups of the consumer protocol: saving before responding, reading back, changing the protocol."""

import asyncio
import dataclasses
import json

import pytest

from millpond.catalog import coordinators
from millpond.catalog.groups import GroupOffset
from millpond.groups import (
    NO_MEMBER,
    CommitSender,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    Description,
    GroupLimits,
    GroupPhase,
    LeaveRequest,
    SyncRequest,
)
from millpond.groups.consumer_protocol import write_assignment
from millpond.model.errors import (
    CatalogUnavailable,
    GroupInUse,
    GroupNotEmpty,
    GroupSubscribed,
    InvalidGroupId,
    InvalidRequest,
    NotCoordinator,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownGroup,
    UnknownMember,
)
from millpond.model.group_configs import MigrationPolicy
from millpond.model.ids import TopicPartition

SESSION_MS = 45_000
SHARD = coordinators.shard_of("readers")


class Consumer:
    """A member that reports what it was assigned."""

    def __init__(self, stage, name, group_id="readers", instance_id=None, topics=("orders",), regex=None):
        self.stage, self.name, self.group_id, self.instance_id = stage, name, group_id, instance_id
        self.topics, self.regex = topics, regex
        self.epoch = 0
        self.owned = frozenset()

    @property
    def identity(self):
        return CommitSender(self.name, self.epoch, self.instance_id)

    async def join(self):
        self.epoch, self.owned = 0, frozenset()
        await self.beat(rebalance_timeout_ms=60_000, topic_names=self.topics, topic_regex=self.regex)

    async def beat(self, **changes):
        request = ConsumerHeartbeat(
            self.name,
            self.epoch,
            client_id=self.name,
            client_host="/127.0.0.1",
            instance_id=self.instance_id,
            owned=self.owned,
        )
        request = dataclasses.replace(request, **changes)
        response = await self.stage.groups.consumer_heartbeat(self.group_id, request, lambda _: True)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = frozenset(response.assignment)
        return response

    async def leave(self):
        await self.beat(member_epoch=-1)

    async def commit(self, *offsets, epoch=None):
        sender = CommitSender(self.name, self.epoch if epoch is None else epoch, self.instance_id)
        return await self.stage.groups.commit_offsets(self.group_id, offsets, sender)


class HeldSaves:
    """Saves of groups wait until they are released, in the order in which they have begun."""

    def __init__(self, stage):
        self._stage = stage
        self._held = []
        self.begun = []
        store = stage.groups._store
        store.save = self._hold("classic", store.save)
        store.save_changes = self._hold("consumer", store.save_changes)

    def _hold(self, kind, save):
        async def held(*arguments):
            self.begun.append(kind)
            self._held.append(may_end := asyncio.Event())
            await may_end.wait()
            await save(*arguments)

        return held

    async def release(self):
        """Let one save happen. Returns when the next one has begun."""
        number = len(self.begun)
        self._held.pop(0).set()
        await self._stage.until(lambda: len(self.begun) > number)

    async def release_last(self):
        [may_end] = self._held
        may_end.set()


@pytest.fixture
def consumer(stage):
    return lambda name, **options: Consumer(stage, name, **options)


def members_in(stage, group_id="readers"):
    rows = stage.rows("SELECT member_id FROM group_members WHERE group_id = ? ORDER BY member_id", group_id)
    return [member_id for (member_id,) in rows]


def type_in(stage, group_id="readers"):
    return [kind for (kind,) in stage.rows("SELECT type FROM groups WHERE group_id = ?", group_id)]


async def settle(*consumers):
    """Heartbeats until nothing changes any more."""
    before = None
    while before != (before := [(each.epoch, each.owned) for each in consumers]):
        for each in consumers:
            await each.beat()


async def saving(stage):
    """Returns when a save of the group has begun."""
    loaded = stage.groups._loaded_groups._groups
    await stage.until(lambda: "readers" in loaded and loaded["readers"].is_saving)
    await stage.settle()


async def form(stage, old):
    """A stable generation of one classic member, which has both partitions."""
    await stage.join(old)
    assignment = write_assignment([("orders", 0), ("orders", 1)])
    request = SyncRequest(old.member_id, old.generation, assignments={old.member_id: assignment})
    await stage.groups.sync("readers", request)


# -- saving ----------------------------------------------------------------------------------------------------


async def test_members_share_the_partitions(stage, consumer):
    partitions = await stage.topic(partitions=4)
    alice, bob = consumer("alice"), consumer("bob")
    await alice.join()
    assert alice.owned == set(partitions)
    await bob.join()
    assert bob.owned == frozenset()  # alice has not given anything up yet
    await settle(alice, bob)
    assert sorted(alice.owned | bob.owned) == partitions
    assert len(alice.owned) == len(bob.owned) == 2


async def test_a_response_waits_until_the_change_is_saved(stage, consumer):
    await stage.topic()
    alice = consumer("alice")
    stage.log.may_write.clear()
    joining = asyncio.create_task(alice.join())
    await saving(stage)
    assert not joining.done()
    assert members_in(stage) == []
    stage.log.may_write.set()
    await joining
    assert members_in(stage) == ["alice"]
    assert type_in(stage) == ["consumer"]


async def test_a_response_waits_for_changes_of_others_that_it_rests_on(stage, consumer):
    """Otherwise a member could receive a partition that, after a move of the coordinator, is its former owner's."""
    await stage.topic(partitions=2)
    alice, bob, carol = consumer("alice"), consumer("bob"), consumer("carol")
    for each in (alice, bob, carol):
        await each.join()
    await alice.beat()  # is asked to give up one of two
    stage.log.may_write.clear()
    giving_up = asyncio.create_task(alice.beat())
    receiving = asyncio.create_task(bob.beat())
    unchanged = asyncio.create_task(carol.beat())
    await stage.settle()
    assert not any(each.done() for each in (giving_up, receiving, unchanged))
    assert not bob.owned
    stage.log.may_write.set()
    await asyncio.gather(giving_up, receiving, unchanged)
    assert bob.owned


async def test_a_heartbeat_that_changes_nothing_writes_nothing(stage, consumer):
    await stage.topic()
    alice = consumer("alice")
    await alice.join()
    before = stage.rows("SELECT * FROM groups"), stage.rows("SELECT * FROM group_members")
    stage.log.may_write.clear()
    await alice.beat()
    await alice.beat(owned=None)
    assert before == (stage.rows("SELECT * FROM groups"), stage.rows("SELECT * FROM group_members"))


async def test_changes_during_a_save_are_saved_together(stage, consumer):
    await stage.topic(partitions=10)
    members = [consumer(f"m{number}") for number in range(10)]
    stage.log.may_write.clear()
    first = asyncio.create_task(members[0].join())
    await saving(stage)
    others = [asyncio.create_task(each.join()) for each in members[1:]]
    await stage.settle()
    stage.log.may_write.set()
    await asyncio.gather(first, *others)
    assert members_in(stage) == sorted(each.name for each in members)
    assert stage.log.writes == 2


async def test_one_save_begins_when_the_one_before_has_ended(stage, consumer):
    await stage.topic()
    saves = HeldSaves(stage)
    joining = [asyncio.create_task(consumer("alice").join())]
    await saving(stage)
    joining.append(asyncio.create_task(consumer("bob").join()))
    await stage.settle()
    assert saves.begun == ["consumer"]
    await saves.release()
    await saves.release_last()
    await asyncio.gather(*joining)
    assert members_in(stage) == ["alice", "bob"]


async def test_a_change_that_is_not_saved_has_not_happened(stage, consumer):
    await stage.topic()
    alice, bob = consumer("alice"), consumer("bob")
    await alice.join()
    stage.log.error = CatalogUnavailable()
    with pytest.raises(CatalogUnavailable):
        await bob.join()
    stage.log.error = None
    assert members_in(stage) == ["alice"]
    await alice.beat()  # loads the group again
    assert len(alice.owned) == 2
    with pytest.raises(UnknownMember):
        await bob.beat(member_epoch=1)


async def test_changes_that_follow_a_failed_save_fail_with_it(stage, consumer):
    await stage.topic()
    alice, bob, carol = consumer("alice"), consumer("bob"), consumer("carol")
    await alice.join()
    stage.log.may_write.clear()
    joining = [asyncio.create_task(each.join()) for each in (bob, carol)]
    await stage.settle()
    stage.log.error = CatalogUnavailable()
    stage.log.may_write.set()
    outcomes = await asyncio.gather(*joining, return_exceptions=True)
    assert [type(each) for each in outcomes] == [CatalogUnavailable] * 2
    stage.log.error = None
    assert members_in(stage) == ["alice"]
    await bob.join()
    assert members_in(stage) == ["alice", "bob"]


async def test_an_expired_session_frees_partitions_and_is_saved(stage, consumer):
    await stage.topic()
    alice, bob = consumer("alice"), consumer("bob")
    await alice.join()
    stage.advance_time(SESSION_MS - 1)
    await bob.join()
    stage.advance_time(1)
    await stage.until(lambda: members_in(stage) == ["bob"])
    await bob.beat()
    assert len(bob.owned) == 2
    with pytest.raises(UnknownMember):
        await alice.beat()


async def test_a_change_that_cannot_be_saved_makes_members_look_for_the_coordinator(stage, consumer):
    """It may be another member's."""
    await stage.topic()
    store = stage.groups._store

    async def refuse(*_):
        raise InvalidRequest(reason="the database refuses it")

    save, store.save_changes = store.save_changes, refuse
    with pytest.raises(NotCoordinator):
        await consumer("alice").join()
    store.save_changes = save
    await consumer("bob").join()


async def test_a_group_id_that_cannot_be_stored_is_refused(stage):
    beat = ConsumerHeartbeat("m", 0, "m", "here", rebalance_timeout_ms=1, topic_names=(), owned=frozenset())
    for request in (
        stage.groups.consumer_heartbeat("g" * 1_001, beat, lambda _: True),
        stage.groups.commit_offsets("g" * 1_001, []),
        stage.groups.check_member("a\0b", NO_MEMBER),
    ):
        with pytest.raises(InvalidGroupId, match="1000 bytes or a control character"):
            await request


# -- other coordinators ----------------------------------------------------------------------------------------


async def test_members_go_on_with_another_coordinator(stage, consumer):
    await stage.topic(partitions=4)
    alice, bob = consumer("alice"), consumer("bob", instance_id="i-bob")
    await alice.join()
    await bob.join()
    await settle(alice, bob)
    described = await stage.groups.describe("readers")
    stage.restart()
    assert await stage.groups.describe("readers") == described
    before = alice.epoch, alice.owned, bob.epoch, bob.owned
    await settle(alice, bob)
    assert before == (alice.epoch, alice.owned, bob.epoch, bob.owned)
    stage.advance_time(SESSION_MS)
    await stage.until(lambda: members_in(stage) == [])


async def test_a_group_that_is_dropped_as_soon_as_it_was_loaded_is_loaded_again(stage, consumer):
    await stage.topic()
    alice = consumer("alice")
    await alice.join()
    stage.restart()
    groups, store = stage.groups._loaded_groups, stage.groups._store
    load, loads = store.load, []

    async def load_and_drop(group_id):
        loads.append(group_id)
        stored = await load(group_id)
        if len(loads) == 1:  # before the request for which it is loaded goes on
            asyncio.get_running_loop().call_soon(lambda: groups.drop(groups._groups[group_id]))
        return stored

    store.load = load_and_drop
    await alice.beat()
    assert loads == ["readers", "readers"]


async def test_a_coordinator_that_lost_the_group_answers_nothing(stage, consumer):
    await stage.topic()
    alice, bob = consumer("alice"), consumer("bob")
    await alice.join()
    with stage.broker.database.write() as tx:
        coordinators.claim(tx, [SHARD], "another")
    with pytest.raises(NotCoordinator):
        await bob.join()
    assert members_in(stage) == ["alice"]
    with pytest.raises(NotCoordinator):
        await alice.beat()


async def test_a_group_that_an_older_broker_has_saved_is_a_classic_one(stage, consumer):
    """It knows neither the type of a group nor rows of members, and leaves both as they are."""
    await stage.topic()
    alice, bob = consumer("alice"), consumer("bob")
    await alice.join()
    with stage.broker.database.write() as tx:
        save_as_before(tx, "readers", generation=9)
    stage.restart()
    with pytest.raises(UnknownMember):
        await alice.beat()
    assert await stage.groups.describe("readers") == Description(
        "readers", GroupPhase.EMPTY, "", generation=9
    )
    await bob.join()
    assert bob.epoch == 10
    assert members_in(stage) == ["bob"]
    stage.restart()
    await bob.beat()
    assert members_in(stage) == ["bob"]


def save_as_before(tx, group_id, generation):
    """As a broker of schema version 8 saves a group without members."""
    text = json.dumps({"protocol": None, "leader": None, "members": []}, separators=(",", ":"))
    tx.rows(
        "UPDATE groups SET generation = ?, protocol_type = ?, state = ?, members = ? WHERE group_id = ?",
        (generation, "", "Empty", text, group_id),
    )


async def test_a_handover_waits_for_saves(stage, consumer):
    await stage.topic()
    alice = consumer("alice")
    stage.log.may_write.clear()
    joining = asyncio.create_task(alice.join())
    await saving(stage)
    handover = asyncio.create_task(stage.groups.prepare_handover([SHARD]))
    await stage.settle()
    assert not handover.done()
    stage.log.may_write.set()
    await handover
    await joining
    assert list(stage.groups._loaded_groups) == []


# -- both protocols --------------------------------------------------------------------------------------------


async def test_a_group_is_upgraded_by_the_first_member_of_the_consumer_protocol(stage, consumer):
    await stage.topic()
    old = stage.client("old")
    await form(stage, old)
    assert type_in(stage) == ["classic"]
    new = consumer("new")
    await new.join()
    assert type_in(stage) == ["consumer"]
    assert members_in(stage) == ["new", "old-1"]
    with pytest.raises(RebalanceInProgress):
        await old.heartbeat()
    await old.join()
    await old.sync()
    await new.beat()
    described = await stage.groups.describe("readers")
    assert [(each.member_id, each.is_classic) for each in described.members] == [
        ("new", False),
        ("old-1", True),
    ]


async def test_a_classic_member_that_does_not_join_again_in_time_is_removed(stage, consumer):
    await stage.topic()
    old, new = stage.client("old", session_timeout_ms=40_000, rebalance_timeout_ms=20_000), consumer("new")
    await form(stage, old)
    await new.join()
    with pytest.raises(RebalanceInProgress):
        await old.heartbeat()
    stage.advance_time(20_000)
    assert list(stage.group().state.members) == ["new"]


async def test_members_that_wait_for_a_generation_are_told_to_join_again(stage, consumer):
    await stage.topic()
    joining = asyncio.create_task(stage.client("old").join())
    await stage.waiting(1)
    await consumer("new").join()
    with pytest.raises(RebalanceInProgress):
        await joining


async def test_a_refused_member_leaves_a_classic_group_as_it_is(stage, consumer):
    await stage.topic()
    old = stage.client("old")
    await form(stage, old)
    with pytest.raises(InvalidRequest):
        await consumer("new", instance_id="").join()
    await old.heartbeat()
    assert type_in(stage) == ["classic"]


async def test_refused_joins_leave_no_groups_in_memory(stage, consumer):
    await stage.topic()
    for number in range(10):
        with pytest.raises(InvalidRequest):
            await consumer("new", group_id=f"group-{number}", instance_id="").join()
    assert list(stage.groups._loaded_groups) == []
    assert await stage.groups.list_groups() == []


async def test_the_migration_policy_may_forbid_an_upgrade(start):
    limits = GroupLimits(initial_rebalance_delay_ms=3_000, consumer_migration_policy=MigrationPolicy.DISABLED)
    stage = await start(limits=limits)
    await stage.topic()
    await form(stage, stage.client("old"))
    with pytest.raises(UnknownGroup, match="disabled"):
        await Consumer(stage, "new").join()


async def test_a_group_is_downgraded_when_only_classic_members_are_left(stage, consumer):
    await stage.topic()
    old, new = stage.client("old"), consumer("new")
    await form(stage, old)
    await new.join()
    await old.join()
    await new.leave()
    assert members_in(stage) == ["old-1"]
    with pytest.raises(RebalanceInProgress):
        await old.heartbeat()
    await old.join()
    await old.sync()
    assert type_in(stage) == ["classic"]
    assert members_in(stage) == []
    assert stage.group().state.phase is GroupPhase.STABLE
    with pytest.raises(UnknownMember):  # not an error on which Kafka's clients end
        await new.beat()


async def test_a_downgrade_that_was_not_saved_happens_again(stage, consumer):
    await stage.topic()
    old, new = stage.client("old"), consumer("new")
    await form(stage, old)
    await new.join()
    await old.join()
    await new.leave()
    stage.restart()
    with pytest.raises(RebalanceInProgress):
        await old.heartbeat()
    await old.join()
    await old.sync()
    assert type_in(stage) == ["classic"]


async def test_members_that_left_between_a_downgrade_and_an_upgrade_are_not_stored(stage, consumer):
    """The classic group that the former members were in was never saved."""
    await stage.topic()
    old, older, new = stage.client("old"), stage.client("older"), consumer("new")
    await form(stage, old)
    await new.join()
    await older.join()
    await new.leave()
    assert members_in(stage) == ["old-1", older.member_id]
    assert await older.leave() is None
    await new.join()
    assert members_in(stage) == ["new", "old-1"]


async def test_a_group_that_changes_its_protocol_while_it_is_saved_is_saved_in_order(stage, consumer):
    await stage.topic()
    new, old, newer = consumer("new"), stage.client("old"), consumer("newer")
    await new.join()
    await old.join()
    saves, tasks = HeldSaves(stage), []
    for event in (
        new.leave(),  # only a classic member is left
        old.leave(),  # from a classic group, which is saved as empty
        newer.join(),  # a group of the consumer protocol again
    ):
        tasks.append(asyncio.create_task(event))
        await stage.settle()
        assert saves.begun == ["consumer"]
    await saves.release()
    await stage.settle()
    assert saves.begun == ["consumer", "classic"]
    await saves.release()
    assert saves.begun == ["consumer", "classic", "consumer"]
    await saves.release_last()
    await asyncio.gather(*tasks)
    assert type_in(stage) == ["consumer"]
    assert members_in(stage) == ["newer"]


async def test_an_empty_group_uses_the_protocol_of_the_next_member(stage, consumer):
    [orders, _] = await stage.topic()
    new, old = consumer("new"), stage.client("old")
    await new.join()
    await new.commit(GroupOffset(orders, 7))
    await new.leave()
    assert stage.stored() == [("Empty", 2)]
    await form(stage, old)
    assert type_in(stage) == ["classic"]
    assert old.generation > 2  # a generation is no epoch that was used
    assert await old.leave() is None
    await stage.until(lambda: stage.stored()[0][0] == "Empty")
    await new.join()
    assert type_in(stage) == ["consumer"]
    found = await stage.groups.committed_offsets("readers", new.identity)
    assert found.offsets[orders].offset == 7


# -- offsets and administration --------------------------------------------------------------------------------


async def test_a_member_commits_what_it_has_had_since_its_epoch(stage, consumer):
    partitions = await stage.topic(partitions=2)
    alice, bob = consumer("alice"), consumer("bob")
    await alice.join()
    await bob.join()
    first = alice.epoch
    await settle(alice, bob)
    [kept], [lost] = alice.owned, bob.owned
    assert {kept, lost} == set(partitions)
    offsets = [GroupOffset(kept, 5), GroupOffset(lost, 6)]
    errors = await alice.commit(*offsets, epoch=first)
    assert [type(each) for each in errors] == [type(None), StaleMemberEpoch]
    found = await stage.groups.committed_offsets("readers")
    assert set(found.offsets) == {kept}
    with pytest.raises(StaleMemberEpoch):
        await stage.groups.committed_offsets("readers", CommitSender("alice", first))
    in_transaction = CommitSender("alice", first)
    errors = await stage.groups.check_member("readers", in_transaction, [kept, lost])
    assert errors[0] is None
    assert errors[1] is not None


async def test_a_group_of_members_is_not_for_other_readers(stage, consumer):
    [orders, _] = await stage.topic()
    alice = consumer("alice")
    await alice.join()
    with pytest.raises(GroupInUse, match="it has a member, which commits its positions"):
        await stage.groups.check_has_no_members("readers")
    with pytest.raises(GroupNotEmpty):
        await stage.groups.delete_group("readers")
    with pytest.raises(UnknownMember):
        await stage.groups.commit_offsets("readers", [GroupOffset(orders, 1)])
    [error] = await stage.groups.delete_offsets("readers", [orders])
    assert isinstance(error, GroupSubscribed)


async def test_groups_are_listed_and_described_with_their_type(stage, consumer):
    [orders, other] = await stage.topic()
    alice = consumer("alice")
    await alice.join()
    [listed] = await stage.groups.list_groups()
    assert (listed.type, listed.protocol_type, listed.state) == ("consumer", "consumer", "Stable")
    described = await stage.groups.describe("readers")
    assert isinstance(described, ConsumerGroupDescription)
    assert described.members[0].assigned == (orders, other)
    stage.restart()
    [listed] = await stage.groups.list_groups()
    assert (listed.type, listed.state) == ("consumer", "Stable")


async def test_an_administrator_removes_members(stage, consumer):
    await stage.topic()
    await consumer("alice", instance_id="i-alice").join()
    await consumer("bob").join()
    errors = await stage.groups.leave("readers", [LeaveRequest("", "i-alice"), LeaveRequest("carol")])
    assert [type(each) for each in errors] == [type(None), UnknownMember]
    assert members_in(stage) == ["bob"]


async def test_an_empty_group_without_offsets_is_forgotten(stage, consumer):
    await stage.topic()
    alice = consumer("alice")
    await alice.join()
    await alice.leave()
    await stage.groups.expire_once()
    assert stage.stored() == []
    await alice.join()  # what is in memory must not rely on the row that has gone
    assert (members_in(stage), type_in(stage)) == (["alice"], ["consumer"])


async def test_deleting_a_group_deletes_all_of_it(stage, consumer):
    [orders, _] = await stage.topic()
    alice = consumer("alice")
    await alice.join()
    await alice.commit(GroupOffset(orders, 7))
    await alice.leave()
    await stage.groups.delete_group("readers")
    assert (stage.stored(), members_in(stage)) == ([], [])
    with pytest.raises(UnknownGroup):
        await stage.groups.describe("readers")


async def test_a_member_of_no_group_is_unknown(stage, consumer):
    with pytest.raises(UnknownMember):
        await consumer("alice").beat(member_epoch=3)
    with pytest.raises(InvalidGroupId):
        await consumer("alice", group_id="").join()
    assert await stage.groups.list_groups() == []


async def test_a_member_id_that_cannot_be_stored_harms_no_other_member(stage, consumer):
    await stage.topic()
    alice = consumer("alice")
    await alice.join()
    with pytest.raises(InvalidRequest, match="control character"):
        await consumer("bob\0").join()
    await alice.beat()


async def test_new_topics_reach_the_members(stage, consumer):
    await stage.topic()
    alice = consumer("alice", topics=("orders", "parcels"), regex="log-.*")
    await alice.join()
    assert len(alice.owned) == 2
    parcels = await stage.topic("parcels", 1)
    await alice.beat()
    assert alice.owned >= set(parcels)
    logs = await stage.topic("log-1", 1)
    stage.advance_time(10_000)
    await alice.beat()
    assert alice.owned >= set(logs)
    assert {each for each in alice.owned if isinstance(each, TopicPartition)} == alice.owned
