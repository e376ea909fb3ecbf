"""Membership: how consumers share out their work, and what keeps those who are out from going on."""

import asyncio
import struct

import pytest
from tests.quirks.member import GROUP, SESSION_MS, Member, subscription
from tests.quirks.wire import settle
from tests.shards import take_all_shards

from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from millpond.protocol.messages.groups import LeaveGroupRequest, MemberIdentity
from millpond.testing import running_broker


@pytest.fixture
async def member(broker):
    async with Member(broker) as connected:
        yield connected


@pytest.fixture
async def other(broker):
    async with Member(broker) as connected:
        yield connected


async def in_rebalance(member, other):
    """The other one is waiting to join, and the member has been told."""
    await member.lead()
    joining = asyncio.create_task(other.join())
    while (code := await member.heartbeat()) == ErrorCode.NONE:
        await asyncio.sleep(0.005)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    return joining


# -- joining --------------------------------------------------------------------------------------------------


async def test_from_v4_a_first_join_only_gets_an_id(member):
    """A client that gives up waiting and joins anew would otherwise leave a ghost in the group each time, for which
    every rebalance waits (KIP-394)."""
    for version in range(4, 10):
        member.group, member.id = f"readers{version}", ""
        answer = await member.ask(member.join_request(), version)
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert answer.member_id
        assert (answer.leader, answer.members) == ("", [])
        assert answer.protocol_name == (None if version >= 7 else "")
        member.id = answer.member_id
        answer = await member.ask(member.join_request(), version)
        assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
        assert answer.member_id == member.id


async def test_before_v4_the_first_join_is_enough(member):
    """Older clients do not know the code, and would give up."""
    for version in range(4):
        member.group = f"readers{version}"
        answer = await member.ask(member.join_request(), version)
        assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
        assert answer.leader == answer.member_id != ""


@pytest.mark.parametrize("kind", ["consumer", "connect", "sr", "anything"])
async def test_groups_are_of_any_kind_and_their_metadata_is_their_own(member, kind):
    """Kafka Connect, schema registries and Faust share out work of their own with the same requests: a broker that
    looks into the metadata, or knows only consumers, breaks them."""
    metadata = bytes(range(256))
    joined = await member.join(protocol_type=kind, protocols=[("own", metadata)])
    assert (joined.error_code, joined.protocol_type, joined.protocol_name) == (ErrorCode.NONE, kind, "own")
    assert [each.metadata for each in joined.members] == [metadata]
    synced = await member.sync({member.id: metadata}, protocol_type=kind, protocol_name="own")
    assert (synced.protocol_type, synced.protocol_name, synced.assignment) == (kind, "own", metadata)
    described = await member.described()
    assert (described.protocol_type, described.protocol_data, described.group_state) == (
        kind,
        "own",
        "Stable",
    )


async def test_who_is_of_another_kind_or_has_no_protocol_in_common_is_refused(member, other):
    """It would stop a group that works."""
    await member.lead()
    for wrong in ({"protocol_type": "connect"}, {"protocols": [("sticky", b"")]}):
        assert (await other.join(**wrong)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await member.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 10}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 36_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_join_that_cannot_be_is_refused_at_once(member, wrong, code):
    """Each with the code that clients know: with UNKNOWN_MEMBER_ID they join anew, with the others they stop."""
    answer = await member.ask(member.join_request(**wrong), 9)
    assert (answer.error_code, answer.generation_id) == (code, -1)


async def test_only_the_leader_sees_the_members(member, other):
    """The others get an empty list, by which Java and librdkafka know that they have nothing to assign."""
    joining = await in_rebalance(member, other)
    leader, follower = await member.join(), await joining
    assert leader.generation_id == follower.generation_id == 2
    assert leader.leader == follower.leader == member.id
    assert {each.member_id for each in leader.members} == {member.id, other.id}
    assert follower.members == []


async def test_the_protocol_that_all_have_is_chosen_and_each_ones_metadata_is_for_it(member, other):
    """Consumers that are being upgraded to another assignor have both for a while."""
    both = [("cooperative-sticky", b"new"), ("range", b"old")]
    await member.join(protocols=both)
    await member.sync({member.id: b""}, protocol_name="cooperative-sticky")
    joining = asyncio.create_task(other.join(protocols=[("range", b"only")]))
    while await member.heartbeat() == ErrorCode.NONE:
        await asyncio.sleep(0.005)
    leader = await member.join(protocols=both)
    await joining
    assert leader.protocol_name == "range"
    assert {each.metadata for each in leader.members} == {b"old", b"only"}


# -- assignments ----------------------------------------------------------------------------------------------


async def test_an_empty_assignment_is_bytes_of_length_zero(member):
    """A leader may give a member nothing. franz-go failed to parse an assignment that was cut off or null."""
    await member.join()
    request = member.sync_request({})
    for version in range(6):
        sent = member.send(request, version)
        raw = await member.receive()
        answer = member.read(request, version, raw, sent)
        assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"")
        assert raw.endswith(b"\x01\x00" if version >= 4 else struct.pack(">i", 0))


async def test_followers_wait_until_the_leader_has_assigned(member, other):
    """And each gets what it was given, not the leader's."""
    joining = await in_rebalance(member, other)
    await member.join()
    await joining
    waiting = asyncio.create_task(other.sync())
    await settle()
    assert not waiting.done()
    leaders = await member.sync({member.id: b"one", other.id: b"two"})
    assert (leaders.assignment, (await waiting).assignment) == (b"one", b"two")


async def test_a_sync_may_be_repeated(member):
    """A client whose answer was lost asks again, and gets the same."""
    await member.lead()
    again = await member.sync()
    assert (again.error_code, again.assignment) == (ErrorCode.NONE, b"mine")


# -- fencing --------------------------------------------------------------------------------------------------


async def test_old_generations_and_strangers_are_kept_out(member):
    """Two consumers that both believe to own a partition is the one thing a group must prevent. Clients join again
    at ILLEGAL_GENERATION, and forget their id at UNKNOWN_MEMBER_ID."""
    await member.topic()
    await member.lead()
    wrong, unknown = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID
    old, stranger = {"generation_id": 9}, {"member_id": "nobody"}
    assert (await member.heartbeat(**old), await member.heartbeat(**stranger)) == (wrong, unknown)
    assert [(await member.sync({}, **each)).error_code for each in (old, stranger)] == [wrong, unknown]
    commits = [await member.commit(1, generation_id_or_member_epoch=9), await member.commit(1, **stranger)]
    assert commits == [wrong, unknown]
    assert await member.heartbeat() == ErrorCode.NONE


async def test_nobody_commits_while_the_group_is_being_rebalanced(member, other):
    """Between two generations the partition may be another's already."""
    await member.topic()
    joining = await in_rebalance(member, other)
    assert await member.commit(1) == ErrorCode.NONE  # it still has its partitions, and may say how far it got
    await member.join()
    await joining
    assert await member.commit(2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await member.committed()).committed_offset == 1


async def test_a_group_with_members_takes_no_commits_from_outside(member, client):
    """An administrator that moves offsets under a running group would be undone by its next commit."""
    await member.topic()
    await member.lead()
    async with Member(member.broker) as stranger:
        assert await stranger.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_that_falls_silent_is_out(member, clock):
    """Its partitions must go to others, and it must learn of it however it comes back."""
    await member.topic()
    await member.lead()
    clock.advance(SESSION_MS - 1)
    member.broker.groups.tick()
    assert await member.heartbeat() == ErrorCode.NONE
    clock.advance(SESSION_MS + 1)
    member.broker.groups.tick()
    assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert await member.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
    described = await member.described()
    assert (described.group_state, described.members) == ("Empty", [])


async def test_members_and_generations_survive_a_restart(tmp_path):
    """Clients go on with their generation after the coordinator has moved; a rebalance of all groups at once is
    what makes a restart hurt."""
    async with running_broker(tmp_path, kafka=True) as broker, Member(broker) as member:
        await member.lead()
    async with running_broker(tmp_path, kafka=True) as broker, Member(broker) as again:
        again.id, again.generation = member.id, member.generation
        assert await again.heartbeat() == ErrorCode.NONE
        assert (await again.sync()).assignment == b"mine"


async def test_a_group_that_another_broker_keeps_is_not_coordinated_here(member):
    """The code makes clients ask where their coordinator is; with any other they would stay, and be two groups."""
    await member.topic()
    await member.lead()
    take_all_shards(member.broker)
    moved = ErrorCode.NOT_COORDINATOR
    assert await member.heartbeat() == moved
    assert await member.commit(1) == moved
    assert (await member.sync()).error_code == moved
    assert (await member.ask(member.join_request(), 9)).error_code == moved
    assert (await member.described()).error_code == moved


# -- static members -------------------------------------------------------------------------------------------


async def test_a_static_member_that_is_started_anew_takes_its_place_without_a_rebalance(broker):
    """Same generation, same assignment, another id (KIP-345): that is what an instance id is for. The one it
    replaced is fenced. From v9 a leader is told not to assign (KIP-814)."""
    async with Member(broker, instance="one") as first, Member(broker, instance="one") as second:
        joined = await first.ask(first.join_request(), 9)
        assert (
            joined.error_code == ErrorCode.NONE
        )  # no MEMBER_ID_REQUIRED: the instance is known by its own name
        first.id, first.generation = joined.member_id, joined.generation_id
        await first.sync({first.id: b"mine"})
        replaced = await second.join()
        assert (replaced.generation_id, replaced.skip_assignment) == (joined.generation_id, True)
        assert second.id != first.id
        assert (await second.sync()).assignment == b"mine"
        assert await first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        assert await second.heartbeat() == ErrorCode.NONE


async def test_an_older_static_leader_is_not_told_that_it_leads(broker):
    """Before v9 there is no word for it; a client that believed to lead would assign, and nobody would listen."""
    async with Member(broker, instance="one") as first, Member(broker, instance="one") as second:
        await first.lead()
        replaced = await second.join(version=8)
        assert (replaced.error_code, replaced.generation_id) == (ErrorCode.NONE, first.generation)
        assert replaced.leader != second.id
        assert (await second.sync()).assignment == b"mine"


async def test_a_static_member_is_removed_by_its_instance_alone(broker, client):
    """Administrators know no member ids. The answer names what was asked for."""
    async with Member(broker, instance="one") as static:
        await static.lead()
        leaving = [MemberIdentity(member_id="", group_instance_id=name) for name in ("one", "two")]
        answer = await client.ask(LeaveGroupRequest(group_id=GROUP, members=leaving), 5)
        assert answer.error_code == ErrorCode.NONE
        assert [(each.group_instance_id, each.error_code) for each in answer.members] == [
            ("one", ErrorCode.NONE),
            ("two", ErrorCode.UNKNOWN_MEMBER_ID),
        ]


# -- leaving and looking --------------------------------------------------------------------------------------


async def test_leaving_has_one_error_up_to_v2_and_one_for_each_member_from_v3(member):
    """Old clients read the error of the answer, newer ones those of the members: the other place must be clean."""
    await member.lead()
    old = await member.ask(LeaveGroupRequest(group_id=GROUP, member_id="nobody"), 2)
    assert old.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    members = [MemberIdentity(member_id=name) for name in ("nobody", member.id)]
    new = await member.ask(LeaveGroupRequest(group_id=GROUP, members=members), 3)
    assert new.error_code == ErrorCode.NONE
    assert [each.error_code for each in new.members] == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert (await member.described()).group_state == "Empty"


async def test_a_group_that_does_not_exist_is_dead_and_from_v6_an_error(client):
    """Kafka's tools tell by "Dead" that there is no such group; from v6 they may also read an error (KIP-1043)."""
    for version in range(7):
        (group,) = (await client.ask(DescribeGroupsRequest(groups=["nobody"]), version)).groups
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert (group.error_code, group.group_id, group.group_state) == (code, "nobody", "Dead")
        assert (group.members, group.protocol_type, group.protocol_data) == ([], "", "")
        assert bool(group.error_message) == (version >= 6)


async def test_members_are_described_as_tools_show_them(member):
    """The client id and where it comes from are all that tells an operator which process it is."""
    await member.lead()
    (row,) = (await member.described()).members
    assert (row.member_id, row.client_id, row.client_host) == (member.id, "quirks", "/127.0.0.1")
    assert (row.member_metadata, row.member_assignment) == (subscription("orders"), b"mine")


async def test_groups_are_listed_with_state_and_type_by_version(member, client):
    """Consoles ask with filters; older versions have no room for what newer ones tell."""
    await member.topic()
    await member.lead()
    async with Member(member.broker, group="idle") as idle:
        await idle.commit(1)

    async def listed(version, **filters):
        answer = await client.ask(ListGroupsRequest(**filters), version)
        assert answer.error_code == ErrorCode.NONE
        return {
            each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups
        }

    assert await listed(0) == {GROUP: ("consumer", "", ""), "idle": ("", "", "")}
    assert await listed(5) == {GROUP: ("consumer", "Stable", "classic"), "idle": ("", "Empty", "classic")}
    assert set(await listed(4, states_filter=["stable"])) == {GROUP}
    assert set(await listed(4, states_filter=["Empty"])) == {"idle"}
    assert await listed(5, types_filter=["consumer"]) == {}
