"""Groups over HTTP: lag, positions, and members that must not be overruled."""

import struct

import pytest

from millpond.catalog.groups import GroupOffset
from millpond.groups import CommitSender, JoinRequest, Protocol, ShareHeartbeat, SyncRequest
from millpond.model.ids import TopicPartition
from millpond.security import OPEN_ACCESS
from millpond.testing import running_broker


@pytest.fixture
async def five(broker):
    await broker.administration.create_topic("pond", 2, access=OPEN_ACCESS)
    await broker.produce("pond", *[b"x"] * 5, partition=0)


def offsets(*pairs, topic="pond"):
    return {"topic": topic, "offsets": [{"partition": number, "offset": offset} for number, offset in pairs]}


@pytest.mark.usefixtures("five")
async def test_a_group_keeps_positions_and_its_lag_is_told(client):
    answer = await client.put("/groups/readers/offsets", json=offsets((0, 2), (1, 0)))
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await client.get("/groups")).json() == {
        "groups": [{"group": "readers", "state": "Empty", "protocol_type": "", "type": "classic"}]
    }
    found = (await client.get("/groups/readers")).json()
    assert (found["group"], found["state"], found["members"], found["lag"]) == ("readers", "Empty", [], 3)
    assert found["partitions"][0] == {
        "topic": "pond",
        "partition": 0,
        "offset": 2,
        "log_start": 0,
        "end_offset": 5,
        "lag": 3,
        "metadata": "",
    }


@pytest.mark.usefixtures("five")
async def test_a_group_may_have_any_name(client):
    for name in ("a%2Fb", "%20", "%F0%9F%90%9F", "offsets"):
        assert (await client.put(f"/groups/{name}/offsets", json=offsets((0, 1)))).status_code == 204
        assert (await client.get(f"/groups/{name}")).json()["lag"] == 4
    assert (await client.get("/groups/a%2Fb")).json()["group"] == "a/b"


@pytest.mark.usefixtures("five")
async def test_a_deleted_group_is_gone(client):
    await client.put("/groups/readers/offsets", json=offsets((0, 2)))
    assert (await client.delete("/groups/readers")).status_code == 204
    for method in ("GET", "DELETE"):
        answer = await client.request(method, "/groups/readers")
        assert (answer.status_code, answer.json()["code"]) == (404, "UnknownGroup")


async def test_a_group_with_members_is_not_overruled(connected_to):
    async with (
        running_broker(http=True, group_initial_rebalance_delay=0) as broker,
        connected_to(broker) as client,
    ):
        await broker.produce("pond", b"x")
        await check_members_are_not_overruled(client, broker)


async def check_members_are_not_overruled(client, broker):
    join = JoinRequest(
        "", "me", "here", 60_000, 60_000, "consumer", [Protocol("range", b"")], require_known_id=False
    )
    joined = await broker.groups.join("readers", join)
    found = (await client.get("/groups/readers")).json()
    assert [each["member_id"] for each in found["members"]] == [joined.member_id]
    assert found["members"][0]["client_id"] == "me"
    answer = await client.put("/groups/readers/offsets", json=offsets((0, 2)))
    assert (answer.status_code, answer.json()["code"]) == (409, "GroupInUse")
    answer = await client.delete("/groups/readers")
    assert (answer.status_code, answer.json()["code"]) == (409, "GroupNotEmpty")
    assert (await client.get("/groups/readers")).json()["partitions"] == []


async def test_the_lag_of_a_member_that_has_committed_nothing_is_null(connected_to):
    async with (
        running_broker(http=True, group_initial_rebalance_delay=0) as broker,
        connected_to(broker) as client,
    ):
        await broker.administration.create_topic("pond", 3, access=OPEN_ACCESS)
        await broker.produce("pond", *[b"x"] * 5, partition=1)
        member = await joined(broker)
        assert (await client.get("/groups/readers")).json()["lag"] is None
        assigned = assignment("pond", 0, 1)
        sync = SyncRequest(member.member_id, member.generation, assignments={member.member_id: assigned})
        await broker.groups.sync("readers", sync)
        found = (await client.get("/groups/readers")).json()
        assert [(each["partition"], each["offset"], each["lag"]) for each in found["partitions"]] == [
            (0, None, None),
            (1, None, None),
        ]
        identity = CommitSender(member.member_id, member.generation)
        topic_partition = TopicPartition(broker.log.topics.named("pond").id, 1)
        await broker.groups.commit_offsets("readers", [GroupOffset(topic_partition, 2)], identity)
        found = (await client.get("/groups/readers")).json()
        assert [each["lag"] for each in found["partitions"]] == [None, 3]
        assert found["lag"] is None, "a part of it is unknown"


async def joined(broker):
    protocols = [Protocol("range", b"")]
    request = JoinRequest("", "me", "here", 60_000, 60_000, "consumer", protocols, require_known_id=False)
    return await broker.groups.join("readers", request)


def assignment(topic, *partitions):
    """What the leader of a group of Kafka consumers gives to one of them."""
    named = struct.pack(">h", len(topic)) + topic.encode()
    numbers = struct.pack(f">{1 + len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + named + numbers + struct.pack(">i", -1)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (offsets((2, 0)), 404),
        (offsets((0, 0), topic="nowhere"), 404),
        (offsets((0, -1)), 400),
        (offsets((0, 1), (0, 2)), 400),
        (offsets(), 400),
        ({"topic": "pond"}, 400),
    ],
)
@pytest.mark.usefixtures("five")
async def test_positions_that_cannot_be_are_refused_and_none_is_kept(client, body, status):
    assert (await client.put("/groups/readers/offsets", json=body)).status_code == status
    assert (await client.get("/groups/readers")).status_code == 404


@pytest.mark.usefixtures("five")
async def test_a_share_group_is_listed_and_described_and_deleted(broker, client):
    joining = ShareHeartbeat("m1", 0, "c", "/h", topic_names=("pond",))
    await broker.share_groups.heartbeat("workers", joining)
    await broker.produce("pond", b"x", partition=1)
    assert (await client.get("/groups")).json() == {
        "groups": [{"group": "workers", "state": "Stable", "protocol_type": "share", "type": "share"}]
    }
    found = (await client.get("/groups/workers")).json()
    assert (found["type"], found["protocol"], found["epoch"], found["lag"]) == ("share", "simple", 1, 1)
    [member] = found["members"]
    assert (member["member_id"], member["instance_id"]) == ("m1", None)
    assert member["assigned"] == [{"topic": "pond", "partitions": [0, 1]}]
    assert [(each["offset"], each["end_offset"], each["lag"]) for each in found["partitions"]] == [
        (5, 5, 0),
        (0, 1, 1),
    ]
    assert (await client.delete("/groups/workers")).status_code == 409
    assert (await client.put("/groups/workers/offsets", json=offsets((0, 1)))).status_code == 409
    await broker.share_groups.heartbeat("workers", ShareHeartbeat("m1", -1, "c", "/h"))
    refused = await client.put("/groups/workers/offsets", json=offsets((0, 1)))
    assert (refused.status_code, refused.json()["code"]) == (404, "UnknownGroup")
    assert (await client.delete("/groups/workers")).status_code == 204
    assert await broker.queues.all() == []
