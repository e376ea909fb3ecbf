"""DescribeGroups, ListGroups and DeleteGroups over the wire, in every version."""

import pytest
from tests.unit.frontends.kafka.test_group_membership import joined, sync
from tests.unit.frontends.kafka.test_group_offsets import away, commit

from millpond.model.acls import ResourceType
from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN
from millpond.security.rights import SUPPORTED


async def describe(interface, *groups, version=6, **fields):
    return (await interface.send(DescribeGroupsRequest(groups=list(groups), **fields), version)).groups


async def listed(interface, version=5, **filters):
    answer = await interface.send(ListGroupsRequest(**filters), version)
    assert answer.error_code == 0
    return {each.group_id: each for each in answer.groups}


async def delete(interface, *groups, version=2):
    answer = await interface.send(DeleteGroupsRequest(groups_names=list(groups)), version)
    return {each.group_id: each.error_code for each in answer.results}


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_in_every_version(interface, version):
    member = await joined(interface, group_instance_id="i1")
    [completing] = await describe(interface, "readers", version=version)
    assert (completing.group_state, completing.protocol_data) == ("CompletingRebalance", "")
    assert [bytes(each.member_metadata) for each in completing.members] == [b""]
    await sync(interface, member.member_id, work={member.member_id: b"all"})
    [group] = await describe(interface, "readers", version=version)
    assert (group.error_code, group.group_id, group.group_state) == (0, "readers", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    [one] = group.members
    assert (one.member_id, one.client_id, one.client_host) == (member.member_id, "wire", "/127.0.0.1")
    assert one.group_instance_id == ("i1" if version >= 4 else None)
    assert (bytes(one.member_metadata), bytes(one.member_assignment)) == (b"\x00meta", b"all")


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_does_not_exist_is_dead(interface, version):
    [group] = await describe(interface, "nobody", version=version)
    assert (group.group_id, group.group_state, group.members) == ("nobody", "Dead", [])
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert group.error_message == "Group 'nobody' does not exist."


async def test_what_may_be_done_is_told_to_who_asks(interface):
    await joined(interface)
    silent, told = [
        (await describe(interface, "readers", include_authorized_operations=asks))[0]
        for asks in (False, True)
    ]
    assert silent.authorized_operations == OPERATIONS_UNKNOWN
    assert told.authorized_operations == SUPPORTED[ResourceType.GROUP]


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(interface, version):
    await interface.topic()
    await joined(interface, group_id="workers", protocol_type="connect")
    await commit(interface, ("orders", 0, 1), group_id="simple")
    found = await listed(interface, version)
    assert {name: each.protocol_type for name, each in found.items()} == {"simple": "", "workers": "connect"}
    if version >= 4:
        assert found["workers"].group_state == "CompletingRebalance"
    if version >= 5:
        assert found["workers"].group_type == "classic"


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, {"simple", "workers"}),
        ({"states_filter": ["EMPTY", "stable"]}, {"simple"}),
        ({"states_filter": ["completingrebalance"]}, {"workers"}),
        ({"states_filter": ["Unheard of"]}, set()),
        ({"types_filter": ["Classic", "consumer"]}, {"simple", "workers"}),
        ({"types_filter": ["consumer"]}, set()),
        ({"types_filter": ["classic"], "states_filter": ["Empty"]}, {"simple"}),
    ],
)
async def test_groups_are_filtered(interface, filters, names):
    await interface.topic()
    await joined(interface, group_id="workers")
    await commit(interface, ("orders", 0, 1), group_id="simple")
    assert set(await listed(interface, **filters)) == names


@pytest.mark.parametrize("version", range(3))
async def test_empty_groups_are_deleted_in_every_version(interface, version):
    await interface.topic()
    await joined(interface)
    await commit(interface, ("orders", 0, 1), group_id="simple")
    assert await delete(interface, "readers", "simple", "nobody", version=version) == {
        "readers": ErrorCode.NON_EMPTY_GROUP,
        "simple": 0,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert set(await listed(interface)) == {"readers"}


async def test_a_catalog_that_is_away_is_a_passing_trouble_of_the_coordinator(interface, monkeypatch):
    monkeypatch.setattr(interface.log, "read", away)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    [group] = await describe(interface, "readers", include_authorized_operations=True)
    assert (group.error_code, group.group_state, group.authorized_operations) == (
        code,
        "",
        OPERATIONS_UNKNOWN,
    )
    assert (await interface.send(ListGroupsRequest(), 5)).error_code == code
    assert await delete(interface, "readers") == {"readers": code}
