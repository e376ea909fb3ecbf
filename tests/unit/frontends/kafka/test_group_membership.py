"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire, in every version."""

import asyncio

import pytest
from tests.unit.frontends.kafka.wire import Client

from millpond.protocol import ErrorCode
from millpond.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

JOIN, SYNC, BEAT, LEAVE = 9, 5, 4, 5


async def join(interface, member_id="", *, version=JOIN, client=None, name="range", **fields):
    fields = {"group_id": "readers", "session_timeout_ms": 10_000, "protocol_type": "consumer"} | fields
    if version >= 1:
        fields.setdefault("rebalance_timeout_ms", 20_000)
    protocols = fields.pop("protocols", [JoinGroupRequestProtocol(name=name, metadata=b"\x00meta")])
    request = JoinGroupRequest(member_id=member_id, protocols=protocols, **fields)
    return await (client or interface).send(request, version)


async def joined(interface, *, version=JOIN, **fields):
    """Join, in two steps if need be."""
    answer = await join(interface, version=version, **fields)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await join(interface, answer.member_id, version=version, **fields)
    assert answer.error_code == 0
    return answer


async def sync(interface, member_id, generation=1, *, version=SYNC, work=None, **fields):
    fields.setdefault("group_id", "readers")
    if version >= 5:
        fields.setdefault("protocol_type", "consumer")
        fields.setdefault("protocol_name", "range")
    given = [
        SyncGroupRequestAssignment(member_id=each, assignment=part) for each, part in (work or {}).items()
    ]
    request = SyncGroupRequest(generation_id=generation, member_id=member_id, assignments=given, **fields)
    return await interface.send(request, version)


async def beat(interface, member_id, generation=1, *, version=BEAT, group_id="readers"):
    request = HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id)
    return (await interface.send(request, version)).error_code


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_in_every_version(interface, version):
    first = await join(interface, version=version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.member_id.startswith("wire-")
        assert (first.generation_id, first.leader, first.members) == (-1, "", [])
        first = await join(interface, first.member_id, version=version)
    assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
    assert first.leader == first.member_id
    [member] = first.members
    assert (member.member_id, member.metadata) == (first.member_id, b"\x00meta")
    if version >= 7:
        assert first.protocol_type == "consumer"


@pytest.mark.parametrize("version", range(6))
async def test_a_member_is_assigned_its_part_in_every_version(interface, version):
    member_id = (await joined(interface)).member_id
    answer = await sync(interface, member_id, version=version, work={member_id: b"\x00work"})
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"\x00work")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", range(5))
async def test_heartbeats_in_every_version(interface, version):
    member_id = (await joined(interface)).member_id
    assert await beat(interface, member_id, version=version) == 0
    assert await beat(interface, member_id, 2, version=version) == ErrorCode.ILLEGAL_GENERATION
    assert await beat(interface, "ghost", version=version) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(interface, "ghost", group_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(interface, "ghost", group_id="") == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(6))
async def test_members_leave_in_every_version(interface, version):
    member_id = (await joined(interface)).member_id
    if version < 3:
        request = LeaveGroupRequest(group_id="readers", member_id=member_id)
        assert (await interface.send(request, version)).error_code == 0
        assert (await interface.send(request, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        return
    members = [MemberIdentity(member_id=member_id), MemberIdentity(member_id="", group_instance_id="i1")]
    answer = await interface.send(LeaveGroupRequest(group_id="readers", members=members), version)
    assert answer.error_code == 0
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [
        (member_id, None, 0),
        ("", "i1", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


async def test_a_group_to_leave_has_a_name(interface):
    answer = await interface.send(LeaveGroupRequest(group_id="", members=[]), LEAVE)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_follower_waits_for_its_leader(interface):
    async with Client(interface.broker.kafka.listener) as other:
        leader = await joined(interface)
        rejoining = asyncio.create_task(join(interface, client=other, version=3))
        while await beat(interface, leader.member_id) == 0:
            await asyncio.sleep(0.005)
        again = await join(interface, leader.member_id)
        follower = await rejoining
        assert (again.generation_id, follower.generation_id) == (2, 2)
        assert (follower.leader, follower.members) == (leader.member_id, [])
        assert len(again.members) == 2
        waiting = asyncio.create_task(sync(other, follower.member_id, 2))
        work = {leader.member_id: b"a", follower.member_id: b"b"}
        assert bytes((await sync(interface, leader.member_id, 2, work=work)).assignment) == b"a"
        assert bytes((await waiting).assignment) == b"b"


async def test_a_client_that_is_gone_does_not_hold_up_the_group(interface):
    async with Client(interface.broker.kafka.listener) as other:
        leader = await joined(interface, session_timeout_ms=6_000)
        rejoining = asyncio.create_task(join(interface, client=other, version=3))
        while await beat(interface, leader.member_id) == 0:
            await asyncio.sleep(0.005)
        rejoining.cancel()
    again = await join(interface, leader.member_id)
    assert (again.generation_id, len(again.members)) == (2, 2)
    assert (await sync(interface, leader.member_id, 2)).error_code == 0


@pytest.mark.parametrize("version", [6, 7])
async def test_refused_joins(interface, version):
    small = await join(interface, version=version, session_timeout_ms=1)
    assert small.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert small.protocol_name == (None if version >= 7 else "")
    none = await join(interface, version=version, protocols=[])
    assert none.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await join(interface, version=version, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    ghost = await join(interface, "ghost", version=version)
    assert (ghost.error_code, ghost.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")


async def test_a_static_leader_that_is_started_anew_assigns_nothing(interface):
    first = await joined(interface, group_instance_id="i1")
    await sync(interface, first.member_id, work={first.member_id: b"all"}, group_instance_id="i1")
    told = await join(interface, group_instance_id="i1")
    assert (told.generation_id, told.skip_assignment, told.leader) == (1, True, told.member_id)
    assert [each.group_instance_id for each in told.members] == ["i1"]
    older = await join(interface, group_instance_id="i1", version=8)
    assert older.leader != older.member_id
    assert older.members == []
    assert bytes((await sync(interface, older.member_id)).assignment) == b"all"
    fenced = await sync(interface, told.member_id, group_instance_id="i1")
    assert (fenced.error_code, bytes(fenced.assignment)) == (ErrorCode.FENCED_INSTANCE_ID, b"")


@pytest.mark.parametrize(
    "fields", [{"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "robin"}]
)
async def test_the_protocol_of_a_sync_must_be_named_and_right(interface, fields):
    member_id = (await joined(interface)).member_id
    assert (await sync(interface, member_id, **fields)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if "robin" not in fields.values():
        assert (await sync(interface, member_id, version=4)).error_code == 0


async def test_before_v1_there_is_one_timeout(interface):
    await join(interface, version=0)
    [member] = (await interface.broker.groups.describe("readers")).members
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)
    assert (member.client_id, member.client_host) == ("wire", "/127.0.0.1")
