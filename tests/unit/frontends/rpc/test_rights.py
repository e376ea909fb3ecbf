"""Every method of the gRPC services: who may call it, and that a refused call changes nothing."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.unit.frontends.rpc.wire import METHODS, Wire, details_of
from tests.unit.frontends.secured import (
    ABSENT,
    GROUP,
    SUBSCRIPTION,
    TOPIC,
    partial_rights,
    renamed,
    secured_broker,
)

from millpond.frontends.rpc.guarding import rule_of
from millpond.records import Record, build_batch
from millpond.security import OPEN_ACCESS, broker_tokens
from millpond.stubs import admin_pb2, cluster_pb2, log_pb2, minikafka_pb2, payloads_pb2, queue_pb2

DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
PAYLOAD = "0199e8a0-0000-7000-8000-000000000000"
LETTERS = {"dead_letter_topic": "letters"}
ONE = log_pb2.NewMessage(value=b"x")
ACL = admin_pb2.Acl(resource_type="topic", name=TOPIC, principal="User:bob", operation="read")
QUOTA = admin_pb2.QuotaAlteration(entity=admin_pb2.QuotaEntity(user="bob"), set={"producer_byte_rate": 1_000})


def requests(topic, subscription, group):
    """For each method a request, or the requests of a stream."""
    named = {"topic": topic, "name": subscription}
    attach = queue_pb2.Attach(topic=topic, subscription=subscription, consumer="c")
    appended = queue_pb2.Appended(topic=topic, message=ONE)
    return {
        "Log.Produce": log_pb2.ProduceRequest(topic=topic, messages=[ONE]),
        "Log.ProduceStream": [log_pb2.ProduceRequest(topic=topic, messages=[ONE])],
        "Log.Poll": log_pb2.PollRequest(topic=topic),
        "Log.Consume": log_pb2.ConsumeRequest(topic=topic, until_end=True),
        "Log.InitProducer": log_pb2.InitProducerRequest(),
        "MiniKafka.Produce": minikafka_pb2.ProduceRequest(
            topic=minikafka_pb2.Topic(topic=topic), payload=minikafka_pb2.Payload(payload=b"x")
        ),
        "MiniKafka.Poll": minikafka_pb2.PollRequest(
            topic=topic, read_from=minikafka_pb2.MsgNumber(msg_number=1)
        ),
        "Payloads.UploadPlace": payloads_pb2.UploadPlaceRequest(topic=topic, id=PAYLOAD),
        "Payloads.DownloadPlace": payloads_pb2.DownloadPlaceRequest(topic=topic, id=PAYLOAD),
        "Payloads.Upload": [
            payloads_pb2.UploadRequest(
                payload=payloads_pb2.NewPayload(topic=topic, id=PAYLOAD, size_bytes=1), data=b"x"
            )
        ],
        "Payloads.Download": payloads_pb2.DownloadRequest(topic=topic, id=PAYLOAD),
        "Queue.CreateSubscription": queue_pb2.CreateSubscriptionRequest(
            topic=topic, name="second", config=LETTERS
        ),
        "Queue.AlterSubscription": queue_pb2.AlterSubscriptionRequest(**named, config=LETTERS),
        "Queue.DeleteSubscription": queue_pb2.DeleteSubscriptionRequest(**named),
        "Queue.ListSubscriptions": queue_pb2.ListSubscriptionsRequest(topic=topic),
        "Queue.DescribeSubscription": queue_pb2.DescribeSubscriptionRequest(**named),
        "Queue.ResetSubscription": queue_pb2.ResetSubscriptionRequest(
            **named, start=queue_pb2.Start(at=queue_pb2.Start.LATEST)
        ),
        "Queue.RedriveDeadLetters": queue_pb2.RedriveDeadLettersRequest(**named),
        "Queue.Unblock": queue_pb2.UnblockRequest(**named),
        "Queue.Subscribe": [
            queue_pb2.SubscribeRequest(attach=attach),
            queue_pb2.SubscribeRequest(detach=queue_pb2.Detach()),
        ],
        "Queue.Commit": queue_pb2.CommitRequest(
            topic=topic, subscription=subscription, consumer="c", messages=[appended]
        ),
        "Cluster.Look": cluster_pb2.LookRequest(),
        "Cluster.Status": cluster_pb2.ClusterStatusRequest(),
        "Cluster.Drain": cluster_pb2.DrainRequest(node_id=1),
        "Cluster.Rebalance": cluster_pb2.RebalanceRequest(),
        "Admin.CreateTopic": admin_pb2.CreateTopicRequest(name="new"),
        "Admin.ListTopics": admin_pb2.ListTopicsRequest(),
        "Admin.DescribeTopic": admin_pb2.DescribeTopicRequest(name=topic),
        "Admin.AlterTopic": admin_pb2.AlterTopicRequest(
            name=topic, partitions=2, set={"retention.ms": "1000"}
        ),
        "Admin.DeleteTopic": admin_pb2.DeleteTopicRequest(name=topic),
        "Admin.DeleteMessages": admin_pb2.DeleteMessagesRequest(topic=topic),
        "Admin.FindByTime": admin_pb2.FindByTimeRequest(topic=topic, timestamp_ms=1),
        "Admin.ListGroups": admin_pb2.ListGroupsRequest(),
        "Admin.DescribeGroup": admin_pb2.DescribeGroupRequest(name=group),
        "Admin.CommitPositions": admin_pb2.CommitPositionsRequest(group=group, topic=topic, read_from={0: 1}),
        "Admin.GroupHeartbeat": admin_pb2.GroupHeartbeatRequest(
            group=group, member_id="me", topics=[topic], rebalance_timeout_ms=60_000, owned={}
        ),
        "Admin.DeleteGroup": admin_pb2.DeleteGroupRequest(name=group),
        "Admin.DescribeBroker": admin_pb2.DescribeBrokerRequest(),
        "Admin.ListUsers": admin_pb2.ListUsersRequest(),
        "Admin.PutUser": admin_pb2.PutUserRequest(name="bob", password="secret"),
        "Admin.DeleteUser": admin_pb2.DeleteUserRequest(name="bob"),
        "Admin.ListTokens": admin_pb2.ListTokensRequest(),
        "Admin.CreateToken": admin_pb2.CreateTokenRequest(principal="User:bob"),
        "Admin.DeleteToken": admin_pb2.DeleteTokenRequest(id="aaaaaaaaaaaa"),
        "Admin.ListAcls": admin_pb2.ListAclsRequest(),
        "Admin.CreateAcls": admin_pb2.CreateAclsRequest(acls=[ACL]),
        "Admin.DeleteAcls": admin_pb2.DeleteAclsRequest(filter=ACL),
        "Admin.ListQuotas": admin_pb2.ListQuotasRequest(),
        "Admin.AlterQuotas": admin_pb2.AlterQuotasRequest(alterations=[QUOTA]),
    }


REQUESTS = requests(TOPIC, SUBSCRIPTION, GROUP)
OF_SUBSCRIPTION = f"G {TOPIC}/{SUBSCRIPTION}"
READ, WRITE, DESCRIBE = f"READ T {TOPIC}", f"WRITE T {TOPIC}", f"DESCRIBE T {TOPIC}"
CONSUME = [f"READ {OF_SUBSCRIPTION}", READ]
RIGHTS = {
    "Log.Produce": [WRITE],
    "Log.ProduceStream": [WRITE],
    "Log.Poll": [READ],
    "Log.Consume": [READ],
    "Log.InitProducer": ["IDEMPOTENT_WRITE C"],
    "MiniKafka.Produce": [WRITE],
    "MiniKafka.Poll": [READ],
    "Payloads.UploadPlace": [WRITE],
    "Payloads.DownloadPlace": [READ],
    "Payloads.Upload": [WRITE],
    "Payloads.Download": [READ],
    "Queue.CreateSubscription": [f"READ G {TOPIC}/second", READ, "WRITE T letters"],
    "Queue.AlterSubscription": [f"ALTER_CONFIGS {OF_SUBSCRIPTION}", "WRITE T letters"],
    "Queue.DeleteSubscription": [f"DELETE {OF_SUBSCRIPTION}"],
    "Queue.ListSubscriptions": [DESCRIBE],
    "Queue.DescribeSubscription": [f"DESCRIBE {OF_SUBSCRIPTION}", DESCRIBE],
    "Queue.ResetSubscription": CONSUME,
    "Queue.RedriveDeadLetters": [*CONSUME, WRITE],
    "Queue.Unblock": CONSUME,
    "Queue.Subscribe": CONSUME,
    "Queue.Commit": [*CONSUME, WRITE],
    "Cluster.Look": ["CLUSTER_ACTION C"],
    "Cluster.Status": ["DESCRIBE C"],
    "Cluster.Drain": ["ALTER C"],
    "Cluster.Rebalance": ["ALTER C"],
    "Admin.CreateTopic": ["CREATE T new"],
    "Admin.ListTopics": [],
    "Admin.DescribeTopic": [DESCRIBE],
    "Admin.AlterTopic": [f"ALTER T {TOPIC}", f"ALTER_CONFIGS T {TOPIC}"],
    "Admin.DeleteTopic": [f"DELETE T {TOPIC}"],
    "Admin.DeleteMessages": [f"DELETE T {TOPIC}"],
    "Admin.FindByTime": [DESCRIBE],
    "Admin.ListGroups": [],
    "Admin.DescribeGroup": [f"DESCRIBE G {GROUP}"],
    "Admin.CommitPositions": [f"READ G {GROUP}", READ],
    "Admin.GroupHeartbeat": [f"READ G {GROUP}", DESCRIBE],
    "Admin.DeleteGroup": [f"DELETE G {GROUP}"],
    "Admin.DescribeBroker": [],
    **{f"Admin.{each}": ["DESCRIBE C"] for each in ("ListUsers", "ListTokens", "ListAcls")},
    **{f"Admin.{each}": ["ALTER C"] for each in ("PutUser", "DeleteUser", "CreateToken", "DeleteToken")},
    **{f"Admin.{each}": ["ALTER C"] for each in ("CreateAcls", "DeleteAcls")},
    "Admin.ListQuotas": ["DESCRIBE_CONFIGS C"],
    "Admin.AlterQuotas": ["ALTER_CONFIGS C"],
}
"""The rights that each method needs for the requests of this test, written down apart from its declaration."""
CHECKED = [each for each, rights in RIGHTS.items() if rights]


class Sending:
    """The requests of a stream. The first one is sent at once if the client authenticates, each other one when there
    is a response: gRPC's client reports an error of its own if it writes while the server refuses the call."""

    def __init__(self, messages, *, at_once):
        self._messages = messages
        self.may_send = asyncio.Event()
        if at_once:
            self.may_send.set()

    async def __aiter__(self):
        for each in self._messages:
            await self.may_send.wait()
            self.may_send.clear()
            yield each


async def send(wire, name, authorization=None, given=REQUESTS):
    """The code and the message of the call's end, or of the first result that is an error."""
    request = given[name]
    metadata = [] if authorization is None else [("authorization", authorization)]
    if isinstance(request, list):
        request = Sending(request, at_once=authorization is not None)
    call = wire(name, request, metadata=metadata)
    try:
        if not METHODS[name].server_streaming:
            await call
            return grpc.StatusCode.OK, ""
        async for answer in call:
            if isinstance(request, Sending):
                request.may_send.set()
            if name == "Log.ProduceStream" and answer.results[0].HasField("error"):
                return CODES[answer.results[0].error.code], answer.results[0].error.message
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


CODES = {each.value[0]: each for each in grpc.StatusCode}


@pytest.fixture
async def secured():
    async with secured_broker(grpc=True) as running:
        yield running


@pytest.fixture
async def wire(secured):
    async with grpc.aio.insecure_channel(secured.broker.listeners["grpc"]) as channel:
        yield Wire(channel)


def test_every_method_is_in_the_tables():
    assert set(RIGHTS) == set(REQUESTS) == set(METHODS)


def test_a_method_without_a_rule_cannot_be_bound():
    class Forgetful:
        async def list_topics(self, _, __): ...

    with pytest.raises(TypeError, match="list_topics does not declare"):
        rule_of(Forgetful().list_topics)


@pytest.mark.parametrize("name", RIGHTS)
async def test_a_client_that_does_not_authenticate_is_refused(secured, wire, name):
    before = await secured.snapshot()
    assert (await send(wire, name))[0] is UNAUTHENTICATED
    assert await secured.snapshot() == before


@pytest.mark.parametrize("name", CHECKED)
async def test_each_right_is_needed_and_together_they_are_enough(secured, wire, name):
    for missing in RIGHTS[name]:
        others = [each for each in RIGHTS[name] if each != missing]
        user = await secured.user(*others)
        before = await secured.snapshot()
        assert (await send(wire, name, user))[0] is DENIED, missing
        assert await secured.snapshot() == before, missing
    code, message = await send(wire, name, await secured.user(*RIGHTS[name]))
    assert code not in (UNAUTHENTICATED, DENIED), message


@pytest.mark.parametrize("name", CHECKED)
async def test_a_refusal_does_not_tell_whether_a_resource_exists(secured, wire, name):
    """Whichever right is missing; a tenant has rights on names of its own, too."""
    own = ["READ T mine", "ALL G mine", "ALL G mine/mine"]
    for missing, rights in [("all", []), *partial_rights(RIGHTS[name])]:
        user = await secured.user(*own, *rights)
        before = await secured.snapshot()
        code, message = await send(wire, name, user)
        absent = await send(wire, name, user, requests(ABSENT, ABSENT, ABSENT))
        assert (DENIED, renamed(message)) == (code, renamed(message)) == absent, missing
        assert await secured.snapshot() == before


@pytest.mark.parametrize("name", [each for each in RIGHTS if each not in CHECKED])
async def test_every_client_that_has_authenticated_may_call_the_others(secured, wire, name):
    assert await send(wire, name, await secured.user()) == (grpc.StatusCode.OK, "")


@pytest.mark.parametrize(
    ("name", "right"), [("Admin.CreateTopic", "CREATE C"), ("Log.InitProducer", "WRITE T any")]
)
async def test_another_right_is_enough(secured, wire, name, right):
    assert await send(wire, name, await secured.user(right)) == (grpc.StatusCode.OK, "")


async def test_a_commit_needs_the_right_to_write_to_each_topic(secured, wire):
    user = await secured.user(*RIGHTS["Queue.Commit"])
    request = queue_pb2.CommitRequest(topic=TOPIC, subscription=SUBSCRIPTION, consumer="c")
    for topic in (TOPIC, "other"):
        request.messages.add(topic=topic, message=ONE)
    code, message = await send(wire, "Queue.Commit", user, {"Queue.Commit": request})
    assert (code, "other" in message) == (DENIED, True)


async def test_lists_show_what_the_client_may_describe(secured, wire):
    await secured.broker.administration.create_topic("hidden", access=OPEN_ACCESS)
    await secured.broker.administration.commit("hidden", TOPIC, {0: 1})
    await secured.broker.queues.create(TOPIC, "hidden")
    metadata = [("authorization", await secured.user(READ, f"DELETE G {GROUP}", f"READ {OF_SUBSCRIPTION}"))]
    topics = await wire("Admin.ListTopics", REQUESTS["Admin.ListTopics"], metadata=metadata)
    groups = await wire("Admin.ListGroups", REQUESTS["Admin.ListGroups"], metadata=metadata)
    broker = await wire("Admin.DescribeBroker", REQUESTS["Admin.DescribeBroker"], metadata=metadata)
    assert [each.name for each in topics.topics] == [TOPIC]
    assert [each.name for each in groups.groups] == [GROUP]
    assert broker.topics == 1
    for topic in ("", TOPIC):
        request = queue_pb2.ListSubscriptionsRequest(topic=topic)
        found = await wire("Queue.ListSubscriptions", request, metadata=metadata)
        assert [each.name for each in found.subscriptions] == [SUBSCRIPTION]


async def test_configs_are_shown_with_the_right_to_describe_them(secured, wire):
    await secured.broker.administration.alter_topic(
        TOPIC, changes={"retention.ms": "1000"}, access=OPEN_ACCESS
    )
    request = REQUESTS["Admin.DescribeTopic"]
    for rights, shown, overrides in (
        ([DESCRIBE], {"max.message.bytes", "payload"}, {}),
        ([DESCRIBE, f"DESCRIBE_CONFIGS T {TOPIC}"], None, {"retention.ms": "1000"}),
    ):
        metadata = [("authorization", await secured.user(*rights))]
        found = await wire("Admin.DescribeTopic", request, metadata=metadata)
        names = {each.name for each in found.configs}
        assert names == shown or (shown is None and "retention.ms" in names)
        assert dict(found.topic.configs) == overrides
        listed = await wire("Admin.ListTopics", REQUESTS["Admin.ListTopics"], metadata=metadata)
        assert [dict(each.configs) for each in listed.topics] == [overrides]


async def test_a_request_with_a_wrong_proof_uses_no_memory_of_requests(secured, wire, monkeypatch):
    held = []

    async def look(_):
        held.append(secured.broker.rpc._admission.held_bytes)

    monkeypatch.setattr(secured.broker.rpc.guards._gate, "_sleep", look)
    assert (await send(wire, "Log.Produce", "Bearer wrong"))[0] is UNAUTHENTICATED
    assert held == [0]


# -- creating topics by using them -----------------------------------------------------------------------------------


BATCH = build_batch([Record(value=b"x")], now_ms=1_000)
CREATING = {
    "Log.Produce": log_pb2.ProduceRequest(topic="new", messages=[ONE]),
    "Log.Produce ": log_pb2.ProduceRequest(topic="new", partition=0, batch=BATCH),
    "Log.ProduceStream": [log_pb2.ProduceRequest(topic="new", messages=[ONE])],
    "MiniKafka.Produce": minikafka_pb2.ProduceRequest(
        topic=minikafka_pb2.Topic(topic="new"), payload=minikafka_pb2.Payload(payload=b"x")
    ),
    "Admin.DescribeTopic": admin_pb2.DescribeTopicRequest(name="new", create=True),
}


@pytest.mark.parametrize("name", CREATING)
async def test_a_topic_is_created_only_with_the_right_to_create_it(secured, wire, name):
    given = {name.strip(): CREATING[name]}
    user = await secured.user("WRITE T new")
    assert (await send(wire, name.strip(), user, given))[0] is DENIED
    assert not secured.broker.log.topics.knows("new")
    user = await secured.user("WRITE T new", "CREATE T new")
    assert (await send(wire, name.strip(), user, given))[0] is grpc.StatusCode.OK
    assert secured.broker.log.topics.knows("new")


async def test_a_topic_is_planned_only_with_the_right_to_create_it(secured, wire):
    given = {"Admin.DescribeTopic": admin_pb2.DescribeTopicRequest(name="new", plan=True)}
    assert (await send(wire, "Admin.DescribeTopic", await secured.user("WRITE T new"), given))[0] is DENIED
    user = await secured.user("WRITE T new", "CREATE C")
    assert (await send(wire, "Admin.DescribeTopic", user, given))[0] is grpc.StatusCode.OK


async def test_a_commit_creates_topics_only_with_the_right_to_create_them(secured, wire):
    rights = [*CONSUME, "WRITE T new"]
    user = await secured.user(*rights)
    metadata = [("authorization", user)]
    request = queue_pb2.CommitRequest(topic=TOPIC, subscription=SUBSCRIPTION, consumer="c")
    request.messages.add(topic="new", message=ONE)
    attaching = asyncio.Event()

    async def attach():
        yield REQUESTS["Queue.Subscribe"][0]
        await attaching.wait()

    call = wire("Queue.Subscribe", attach(), metadata=metadata)
    await call.read()
    assert (await send(wire, "Queue.Commit", user, {"Queue.Commit": request}))[0] is DENIED
    assert not secured.broker.log.topics.knows("new")
    attaching.set()


# -- what is no method of ours ---------------------------------------------------------------------------------------


async def test_health_is_public(wire):
    health = health_pb2_grpc.HealthStub(wire.channel)
    assert (
        await health.Check(health_pb2.HealthCheckRequest())
    ).status == health_pb2.HealthCheckResponse.SERVING


async def reflect(wire, *metadata):
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(wire.channel)
    requests = Sending([request], at_once=bool(metadata))
    return [each async for each in stub.ServerReflectionInfo(requests, metadata=metadata)]


async def test_only_clients_that_have_authenticated_may_use_reflection(secured, wire):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await reflect(wire)
    assert refused.value.code() is UNAUTHENTICATED
    [answer] = await reflect(wire, ("authorization", await secured.user()))
    assert "millpond.v1.Log" in [each.name for each in answer.list_services_response.service]


@pytest.mark.parametrize("path", ["/millpond.v1.Log/Nothing", "/other.Service/Call"])
@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
async def test_only_clients_that_have_authenticated_learn_which_methods_exist(secured, wire, path, kind):
    async def code(*metadata):
        call = getattr(wire.channel, kind)(path)
        given = Sending([b""], at_once=False) if kind.startswith("stream") else b""
        return await call(given, metadata=metadata).code()

    assert await code() is UNAUTHENTICATED
    assert await code(("authorization", await secured.user())) is grpc.StatusCode.UNIMPLEMENTED


# -- credentials -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["", "Bearer wrong", "Bearer mp_aaaaaaaaaaaa_" + 43 * "a", "Basic !", "Digest x"]
)
async def test_a_wrong_proof_is_refused(wire, value):
    code, message = await send(wire, "Admin.ListTopics", value)
    assert (code, message.startswith("Authentication failed.")) == (UNAUTHENTICATED, True)


async def test_two_proofs_are_refused_even_if_both_are_right(secured, wire):
    user = await secured.user()
    call = wire("Admin.ListTopics", admin_pb2.ListTopicsRequest(), metadata=2 * [("authorization", user)])
    assert await call.code() is UNAUTHENTICATED


async def test_a_password_is_a_proof(secured, wire):
    admin = await secured.admin()
    put = {"Admin.PutUser": admin_pb2.PutUserRequest(name="bob", password="secret")}
    assert (await send(wire, "Admin.PutUser", admin, put))[0] is grpc.StatusCode.OK
    assert (await send(wire, "Admin.ListTopics", "Basic Ym9iOnNlY3JldA=="))[0] is grpc.StatusCode.OK
    assert (await send(wire, "Admin.ListTopics", "Basic Ym9iOndyb25n"))[0] is UNAUTHENTICATED


async def test_a_refusal_names_its_reason(secured, wire):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await wire("Log.Poll", REQUESTS["Log.Poll"], metadata=[("authorization", await secured.user())])
    _, info, retry = details_of(refused.value)
    assert (info.reason, dict(info.metadata)["topic"], retry) == ("TOPIC_NOT_AUTHORIZED", TOPIC, None)


async def test_brokers_may_look_and_nothing_else(secured, wire):
    broker = secured.broker
    token = broker_tokens.create(broker.security.secret, 7, broker.clock.now_ms())
    assert (await send(wire, "Cluster.Look", f"Bearer {token}"))[0] is grpc.StatusCode.OK
    for name in set(CHECKED) - {"Cluster.Look"}:
        assert (await send(wire, name, f"Bearer {token}"))[0] is DENIED, name


async def test_a_broker_proves_its_identity_to_others(secured):
    """It asks itself here, with the metadata that it sends to others."""
    broker = secured.broker
    await broker.peers._refresh_requests.send([broker.listeners["grpc"]])
    lines = broker.metrics.expose().decode().splitlines()
    assert 'millpond_grpc_requests_total{operation="millpond.v1.Cluster.Look",status="OK"} 1.0' in lines


async def test_altering_nothing_needs_the_right_to_see_the_topic(secured, wire):
    """The response describes it."""
    nothing = {"Admin.AlterTopic": admin_pb2.AlterTopicRequest(name=TOPIC)}
    user = await secured.user(f"ALTER_CONFIGS T {TOPIC}")
    assert (await send(wire, "Admin.AlterTopic", user, nothing))[0] is DENIED


async def test_adding_partitions_needs_more_than_the_right_to_change_configs(secured, wire):
    more = {"Admin.AlterTopic": admin_pb2.AlterTopicRequest(name=TOPIC, partitions=2)}
    user = await secured.user(f"DESCRIBE T {TOPIC}", f"ALTER_CONFIGS T {TOPIC}")
    before = await secured.snapshot()
    assert (await send(wire, "Admin.AlterTopic", user, more))[0] is DENIED
    assert await secured.snapshot() == before
