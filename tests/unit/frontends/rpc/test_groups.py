"""Members of groups over the wire: heartbeats, commits, and what describes them."""

import uuid

import grpc
import pytest
from tests.unit.frontends.rpc.wire import Wire, details_of, serving
from tests.unit.frontends.secured import GROUP, TOPIC, secured_broker

from millpond.stubs import admin_pb2 as pb

LONG = "x" * 1_001
TOPIC_ID = str(uuid.uuid4())


@pytest.fixture
async def served():
    async with serving() as (broker, wire):
        await broker.log.create_topic("t", 2)
        await broker.log.create_topic("u", 1)
        yield broker, wire


def heartbeat(epoch=0, **fields):
    given = {"group": "g", "member_id": "m", "member_epoch": epoch}
    if epoch == 0:
        given |= {"topics": ["t"], "rebalance_timeout_ms": 60_000, "owned": {}}
    return pb.GroupHeartbeatRequest(**given | fields)


async def beat(wire, request):
    return await wire("Admin.GroupHeartbeat", request)


def assigned(response):
    return {each.topic: list(each.partitions) for each in response.assignment.topics}


def owned(topic_id, *partitions):
    return pb.Assignment(topics=[pb.TopicPartitions(topic_id=topic_id, partitions=partitions)])


async def reason_of(wire, name, request):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await wire(name, request)
    return refused.value.code(), details_of(refused.value)[1].reason, refused.value.details()


async def test_a_member_joins_keeps_its_partitions_and_leaves(served):
    broker, wire = served
    joined = await beat(wire, heartbeat())
    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("m", 1, 5_000)
    [topic] = joined.assignment.topics
    topic_id = broker.log.topics.named("t").id
    assert (topic.topic, topic.partitions, topic.topic_id) == ("t", [0, 1], str(uuid.UUID(bytes=topic_id)))
    again = await beat(wire, heartbeat(1, owned=owned(topic.topic_id, 0, 1)))
    assert (again.member_epoch, again.HasField("assignment")) == (1, False), "it keeps what it has"
    other = await beat(wire, heartbeat(1, topics=["t", "u"], owned=owned(topic.topic_id, 0, 1)))
    assert (other.member_epoch, assigned(other)) == (2, {"t": [0, 1], "u": [0]})
    assert (await beat(wire, heartbeat(-1))).member_epoch == -1
    left = await wire("Admin.DescribeGroup", pb.DescribeGroupRequest(name="g"))
    assert (left.group.state, left.group.type, list(left.members)) == ("Empty", "consumer", [])


async def test_a_member_commits_in_its_epoch(served):
    _, wire = served
    await beat(wire, heartbeat())
    commit = {"group": "g", "topic": "t", "read_from": {0: 1}}
    member = {"member_id": "m", "member_epoch": 1}
    await wire("Admin.CommitPositions", pb.CommitPositionsRequest(**commit, **member))
    refused = {
        "no member": ({}, "GROUP_IN_USE"),
        "another member": ({"member_id": "n", "member_epoch": 1}, "UNKNOWN_MEMBER"),
        "no epoch": ({"member_id": "m"}, "STALE_MEMBER_EPOCH"),
        "the largest epoch": (member | {"member_epoch": 2**31 - 1}, "STALE_MEMBER_EPOCH"),
        "the smallest epoch": (member | {"member_epoch": -(2**31)}, "STALE_MEMBER_EPOCH"),
        "another topic": (member | {"topic_id": TOPIC_ID}, "TOPIC_REPLACED"),
        "no topic id": (member | {"topic_id": "x"}, "INVALID_REQUEST"),
    }
    for case, (fields, reason) in refused.items():
        request = pb.CommitPositionsRequest(**commit, **fields)
        assert (await reason_of(wire, "Admin.CommitPositions", request))[1] == reason, case


async def test_members_are_described_with_their_partitions(served):
    _, wire = served
    await beat(wire, heartbeat(client_id="worker"))
    found = await wire("Admin.DescribeGroup", pb.DescribeGroupRequest(name="g"))
    assert (found.group.type, found.group.state, found.epoch) == ("consumer", "Stable", 1)
    [member] = found.members
    assert (member.id, member.client_id, member.client_host) == ("m", "worker", "/127.0.0.1")
    assert {each.topic: list(each.partitions) for each in member.assigned} == {"t": [0, 1]}
    [listed] = (await wire("Admin.ListGroups", pb.ListGroupsRequest())).groups
    assert (listed.name, listed.type) == ("g", "consumer")


REFUSED = {
    "no member id": (heartbeat(member_id=""), "INVALID_REQUEST", "the member id is empty"),
    "no group": (heartbeat(group=""), "INVALID_GROUP_ID", ""),
    "a long member id": (heartbeat(member_id=LONG), "INVALID_REQUEST", "more than 1000 bytes"),
    "a NUL": (heartbeat(member_id="\0"), "INVALID_REQUEST", "control character"),
    "a long client id": (heartbeat(client_id=LONG), "INVALID_REQUEST", "longer than 1000 characters"),
    "an unknown member": (heartbeat(1), "UNKNOWN_MEMBER", "no member 'm'"),
    "the largest epoch": (heartbeat(2**31 - 1), "UNKNOWN_MEMBER", "no member 'm'"),
    "leaving unknown": (heartbeat(-1), "UNKNOWN_MEMBER", "no member 'm'"),
    "an epoch below all": (heartbeat(-(2**31)), "UNKNOWN_MEMBER", ""),
    "a join without topics": (heartbeat(topics=[]), "INVALID_REQUEST", "without a subscription"),
    "a join that owns": (heartbeat(owned=owned(TOPIC_ID, 0)), "INVALID_REQUEST", "owns no partitions"),
    "a join without owned": (heartbeat(owned=None), "INVALID_REQUEST", "owns no partitions"),
    "no timeout": (heartbeat(rebalance_timeout_ms=None), "INVALID_REQUEST", "without a rebalance timeout"),
    "a negative timeout": (heartbeat(rebalance_timeout_ms=-5), "INVALID_REQUEST", "rebalance timeout"),
    "too many topics": (heartbeat(topics=["t"] * 10_001), "INVALID_REQUEST", "10001 topic names"),
    "a long topic name": (heartbeat(topics=["t" * 250]), "INVALID_REQUEST", "longer than 249"),
    "no topic id": (heartbeat(1, owned=owned("t", 0)), "INVALID_REQUEST", "'t' is no topic id"),
    "an empty topic id": (heartbeat(1, owned=owned("", 0)), "INVALID_REQUEST", "ids of topics"),
}


async def test_what_is_no_heartbeat_is_refused_with_the_reason(served):
    _, wire = served
    for case, (request, reason, words) in REFUSED.items():
        _, found, details = await reason_of(wire, "Admin.GroupHeartbeat", request)
        assert (found, words in details) == (reason, True), (case, details)


async def test_a_member_is_fenced_and_joins_again(served):
    _, wire = served
    await beat(wire, heartbeat())
    absurd = {
        "a later epoch": (heartbeat(2**31 - 1), "FENCED_MEMBER_EPOCH"),
        "no epoch": (heartbeat(-(2**31)), "INVALID_REQUEST"),
        "a pause": (heartbeat(-2), "INVALID_REQUEST"),
        "too many partitions": (heartbeat(1, owned=owned(TOPIC_ID, *range(100_001))), "INVALID_REQUEST"),
    }
    for case, (request, reason) in absurd.items():
        code, found, details = await reason_of(wire, "Admin.GroupHeartbeat", request)
        assert found == reason, (case, details)
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
    unknown = await beat(wire, heartbeat(1, owned=owned(TOPIC_ID, 2**32 - 1)))
    assert unknown.member_epoch == 1
    again = await beat(wire, heartbeat())
    assert (again.member_epoch, assigned(again)) == (1, {"t": [0, 1]})


async def test_a_topic_that_does_not_exist_is_subscribed_to_until_it_does(served):
    broker, wire = served
    joined = await beat(wire, heartbeat(topics=["new"]))
    assert (joined.HasField("assignment"), assigned(joined)) == (True, {})
    await broker.log.create_topic("new", 1)
    assert assigned(await beat(wire, heartbeat(1, owned={}))) == {"new": [0]}


async def test_only_a_join_looks_up_topics_in_the_catalog(served, monkeypatch):
    broker, wire = served
    looked_up = []

    async def catch_up():
        looked_up.append(1)

    monkeypatch.setattr(broker.log, "catch_up", catch_up)
    await beat(wire, heartbeat(topics=["t", "new"]))
    assert looked_up
    looked_up.clear()
    await beat(wire, heartbeat(1, topics=["t", "new"]))
    assert not looked_up, "a member sends many heartbeats"


async def test_an_assignment_shows_no_topic_that_the_client_may_not_describe():
    """The response to a heartbeat may be that of another member: here it looks like a heartbeat that is repeated."""
    async with secured_broker(grpc=True) as secured:
        await secured.broker.log.create_topic("other", 1)
        read, one, other = f"READ G {GROUP}", f"DESCRIBE T {TOPIC}", "DESCRIBE T other"
        async with grpc.aio.insecure_channel(secured.broker.listeners["grpc"]) as channel:
            wire = Wire(channel)

            async def shown(user, epoch, **fields):
                request = heartbeat(epoch, group=GROUP, **fields)
                found = await wire("Admin.GroupHeartbeat", request, metadata=[("authorization", user)])
                return set(assigned(found))

            member = await secured.user(read, one, other)
            assert await shown(member, 0, topics=[TOPIC]) == {TOPIC}
            assert await shown(member, 1, topics=[TOPIC, "other"], owned={}) == {TOPIC, "other"}
            assert await shown(member, 1, owned={}) == {TOPIC, "other"}
            assert await shown(await secured.user(read, one), 1, owned={}) == {TOPIC}
            assert await shown(await secured.user(read, other), 1, owned={}) == {"other"}
            assert await shown(await secured.user(read), 1, owned={}) == set()
