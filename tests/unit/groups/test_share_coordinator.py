"""The shell around share groups: saving before responding, reading back, and groups of other types beside them."""

import asyncio
import dataclasses
import json

import pytest

from millpond.catalog.groups import GroupOffset
from millpond.groups import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    GroupListing,
    JoinRequest,
    LeaveRequest,
    Protocol,
    ShareGroupDescription,
    ShareHeartbeat,
    SyncRequest,
)
from millpond.groups.coordinator import CommitSender
from millpond.model.errors import (
    CatalogUnavailable,
    GroupNotEmpty,
    InconsistentProtocol,
    InvalidGroupId,
    InvalidRequest,
    MemberIdRequired,
    NotCoordinator,
    UnknownGroup,
    UnknownMember,
)

SESSION_MS = 45_000


class Worker:
    def __init__(self, stage, name, group_id="workers", topics=("orders",)):
        self.stage, self.name, self.group_id, self.topics = stage, name, group_id, topics
        self.epoch = 0
        self.assigned = frozenset()

    async def join(self):
        self.epoch = JOIN_EPOCH
        return await self.beat(topic_names=self.topics)

    async def beat(self, **changes):
        request = ShareHeartbeat(self.name, self.epoch, client_id=self.name, client_host="/127.0.0.1")
        request = dataclasses.replace(request, **changes)
        response = await self.stage.groups.share_heartbeat(self.group_id, request)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = frozenset(response.assignment)
        return response

    async def leave(self):
        await self.beat(member_epoch=-1)


@pytest.fixture
def worker(stage):
    return lambda name, **options: Worker(stage, name, **options)


def row(stage, group_id="workers"):
    columns = "type, protocol_type, state, generation, members"
    return stage.rows(f"SELECT {columns} FROM groups WHERE group_id = ?", group_id)  # constants


def members_in(stage, group_id="workers"):
    found = stage.rows("SELECT member_id FROM group_members WHERE group_id = ? ORDER BY member_id", group_id)
    return [each[0] for each in found]


async def join_classic(stage, group_id="workers"):
    request = JoinRequest(
        member_id="",
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[Protocol("range", b"")],
    )
    return await stage.groups.join(group_id, request)


def consumer_beat(stage, epoch=0, group_id="workers"):
    request = ConsumerHeartbeat(
        "c", epoch, "c", "/h", rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset()
    )
    return stage.groups.consumer_heartbeat(group_id, request, lambda _: True)


async def test_a_response_waits_until_the_change_is_saved(stage, worker):
    await stage.topic()
    stage.log.may_write.clear()
    joining = asyncio.create_task(worker("a").join())
    await stage.settle()
    assert not joining.done()
    stage.log.may_write.set()
    response = await joining
    assert (response.member_epoch, len(response.assignment), members_in(stage)) == (1, 2, ["a"])


async def test_a_heartbeat_that_changes_nothing_writes_nothing(stage, worker):
    await stage.topic()
    a = worker("a")
    await a.join()
    before = stage.log.writes
    await a.beat()
    await a.join()
    assert stage.log.writes == before


async def test_a_change_that_is_not_saved_has_not_happened(stage, worker):
    await stage.topic()
    a, b = worker("a"), worker("b")
    await a.join()
    stage.log.error = CatalogUnavailable(reason="away")
    with pytest.raises(CatalogUnavailable):
        await b.join()
    stage.log.error = None
    with pytest.raises(UnknownMember):
        await b.beat(member_epoch=1)
    assert (await a.beat()).member_epoch == 1
    assert (await b.join()).member_epoch == 2


async def test_members_go_on_with_another_coordinator(stage, worker):
    await stage.topic()
    a, b = worker("a"), worker("b")
    await a.join()
    await b.join()
    stage.restart()
    changed = await a.beat()
    assert (changed.member_epoch, len(changed.assignment)) == (2, 1)
    assert a.assigned.isdisjoint(b.assigned)
    assert (await b.beat()).assignment is None
    stage.restart()
    stage.epochs.clear()
    with pytest.raises(NotCoordinator):
        await a.beat()


async def test_a_session_that_ends_is_saved(stage, worker):
    await stage.topic()
    await worker("a").join()
    stage.advance_time(SESSION_MS)
    await stage.until(lambda: members_in(stage) == [])
    assert row(stage)[0][:4] == ("share", "share", "Empty", 2)
    stage.restart()
    await stage.groups.expire_once()
    assert row(stage)[0][:4] == ("share", "share", "Empty", 2), "it stays, with its positions"


async def test_a_dead_members_session_ends_although_nobody_asks_for_its_group(stage, worker):
    await stage.topic()
    await worker("a").join()
    stage.restart()
    await stage.groups.expire_once()
    stage.advance_time(SESSION_MS)
    await stage.until(lambda: members_in(stage) == [])


async def test_share_groups_are_listed_and_described(stage, worker):
    await stage.topic()
    await worker("a").join()
    expected = [GroupListing("workers", "share", "Stable", "share")]
    assert await stage.groups.list_groups() == expected
    described = await stage.groups.describe("workers")
    assert isinstance(described, ShareGroupDescription)
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "share", "simple")
    stage.restart()
    assert await stage.groups.list_groups() == expected
    assert await stage.groups.describe("workers") == described


async def test_a_share_group_refuses_members_of_other_protocols(stage, worker):
    await stage.topic()
    await worker("a").join()
    for with_member in (True, False):
        with pytest.raises(InconsistentProtocol, match="is a share group"):
            await join_classic(stage)
        for epoch in (0, 1, -1):
            with pytest.raises(UnknownGroup, match="is a share group"):
                await consumer_beat(stage, epoch)
        with pytest.raises(UnknownMember):
            await stage.groups.heartbeat("workers", CommitSender("a", 1))
        with pytest.raises(UnknownMember):
            await stage.groups.sync("workers", SyncRequest("a", 1, None, assignments={}))
        [error] = await stage.groups.leave("workers", [LeaveRequest("a")])
        assert isinstance(error, UnknownMember)
        if with_member:
            await worker("a").leave()
        stage.restart()
    assert row(stage)[0][0] == "share"


async def test_a_share_group_has_no_committed_offsets(stage, worker):
    [orders, _] = await stage.topic()
    await worker("a").join()
    for sender in (CommitSender(), CommitSender("a", 1)):
        with pytest.raises(UnknownGroup, match="commits no offsets"):
            await stage.groups.commit_offsets("workers", [GroupOffset(orders, 1)], sender)
        with pytest.raises(UnknownGroup, match="commits no offsets"):
            await stage.groups.check_member("workers", sender, [orders])
    with pytest.raises(UnknownGroup, match="commits no offsets"):
        await stage.groups.delete_offsets("workers", [orders])
    assert (await stage.groups.committed_offsets("workers")).offsets == {}


async def test_groups_of_other_types_stay_what_they_are_without_members(stage, worker):
    [orders, _] = await stage.topic()
    client = stage.client("alice", group_id="workers")
    await stage.form(client)
    await client.leave()
    await stage.until(lambda: stage.stored("workers") == [("Empty", 2)])
    await consumer_beat(stage, group_id="readers")
    await consumer_beat(stage, -1, "readers")
    await stage.groups.commit_offsets("loose", [GroupOffset(orders, 1)])
    for _ in range(2):
        for group_id in ("workers", "readers", "loose"):
            with pytest.raises(UnknownGroup, match="is not a share group"):
                await worker("a", group_id=group_id).join()
            with pytest.raises(UnknownGroup, match="is not a share group"):
                await stage.groups.begin_empty_share_group(group_id)
            with pytest.raises(UnknownGroup, match="is not a share group"):
                await stage.groups.check_share_group(group_id)
        stage.restart()


async def test_a_request_alone_does_not_make_a_group_a_classic_one(stage, worker):
    """A client of the classic protocol asks for a member id, and does not come back."""
    await stage.topic()
    with pytest.raises(MemberIdRequired):
        await join_classic(stage)
    stage.advance_time(20_000)
    assert (await worker("a").join()).member_epoch == 1


async def test_a_member_of_no_group_is_unknown(stage, worker):
    for epoch in (1, -1):
        with pytest.raises(UnknownMember):
            await worker("a").beat(member_epoch=epoch)
    assert await stage.groups.list_groups() == []
    with pytest.raises(InvalidGroupId):
        await worker("a", group_id="").join()


async def test_refused_joins_leave_no_groups_in_memory(stage, worker):
    for _ in range(3):
        with pytest.raises(InvalidRequest):
            await worker("a", topics=()).join()
    assert list(stage.groups._loaded_groups) == []
    assert await stage.groups.list_groups() == []


async def test_positions_move_only_without_members(stage, worker):
    await stage.topic()
    await stage.groups.begin_empty_share_group("workers")
    assert row(stage)[0][:4] == ("share", "share", "Empty", 1)
    assert await stage.groups.check_share_group("workers", empty=True)
    a = worker("a")
    await a.join()
    assert a.epoch == 2
    for refused in (
        stage.groups.begin_empty_share_group("workers"),
        stage.groups.check_share_group("workers", empty=True),
        stage.groups.delete_group("workers"),
    ):
        with pytest.raises(GroupNotEmpty):
            await refused
    await a.leave()
    await stage.groups.delete_group("workers")
    assert (row(stage), members_in(stage)) == ([], [])
    assert not await stage.groups.check_share_group("workers")


async def test_a_group_that_an_older_broker_has_saved_is_a_classic_one(stage, worker):
    """One that does not know share groups sees a classic group without members, and may save it."""
    await stage.topic()
    await worker("a").join()
    [(_, _, _, _, text)] = row(stage)
    assert json.loads(text)["members"] == []
    with stage.broker.database.write() as tx:
        saved = json.dumps({"protocol": None, "leader": None, "members": []}, separators=(",", ":"))
        tx.rows("UPDATE groups SET generation = 9, members = ? WHERE group_id = ?", (saved, "workers"))
    stage.restart()
    with pytest.raises(UnknownGroup):
        await worker("a").join()


async def test_new_topics_reach_the_members(stage, worker):
    a = worker("a")
    assert (await a.join()).assignment == ()
    await stage.topic()
    assert (await a.beat()).assignment == tuple(sorted(a.assigned))
    assert len(a.assigned) == 2
    await stage.broker.log.add_partitions("orders", 3)
    assert len((await a.beat()).assignment) == 3
    await stage.broker.log.delete_topic("orders")
    assert (await a.beat()).assignment == ()
