"""Quotas over gRPC, HTTP and in the client library: what exceeds a quota is served, and what follows waits."""

import asyncio
import json

import grpc
import httpx
import pytest
from tests.unit.frontends.rpc.wire import METHODS, Wire, details_of
from tests.unit.frontends.secured import ADMIN, SUBSCRIPTION, TOPIC, secured_broker

from millpond import AsyncConsumer
from millpond.client.calls import BACKOFF_MIN_S, Pauses
from millpond.frontends.rpc.admin import AdminService
from millpond.frontends.rpc.cluster import ClusterService
from millpond.frontends.rpc.guarding import rule_of
from millpond.frontends.rpc.log import LogService
from millpond.frontends.rpc.minikafka import MiniKafkaService
from millpond.frontends.rpc.payloads import PayloadService
from millpond.frontends.rpc.queue import QueueService
from millpond.frontends.web.operations import OPERATIONS
from millpond.model.errors import QuotaExceeded, Stopping
from millpond.model.quotas import QuotaEntity
from millpond.records import Record
from millpond.security import OPEN_ACCESS, Identity
from millpond.security.throttling import QuotaPacer
from millpond.stubs import admin_pb2, log_pb2, queue_pb2
from millpond.testing import SimulatedClock

RATE = 10_000
LARGE = 3 * RATE
PRODUCER, CONSUMER, MUTATION = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
RIGHTS = [
    *(f"{each} T {TOPIC}" for each in ("READ", "WRITE", "ALTER", "DELETE")),
    f"READ G {TOPIC}/{SUBSCRIPTION}",
    "CREATE C",
]
COUNTED = {
    "Log.Produce": PRODUCER,
    "Log.ProduceStream": PRODUCER,
    "Log.Poll": CONSUMER,
    "Log.Consume": CONSUMER,
    "MiniKafka.Produce": PRODUCER,
    "MiniKafka.Poll": CONSUMER,
    "Payloads.Upload": PRODUCER,
    "Payloads.Download": CONSUMER,
    "Queue.Subscribe": CONSUMER,
    "Queue.Commit": PRODUCER,
    "produce": PRODUCER,
    "produce_to_partition": PRODUCER,
    "fetch": CONSUMER,
    "fetch_message": CONSUMER,
    "stream": CONSUMER,
    "pull": CONSUMER,
    "upload_payload": PRODUCER,
    "download_payload": CONSUMER,
}

SERVICERS = {
    "Log": LogService,
    "Admin": AdminService,
    "MiniKafka": MiniKafkaService,
    "Payloads": PayloadService,
    "Queue": QueueService,
    "Cluster": ClusterService,
}


class Stage:
    def __init__(self, secured, clock, wire, client):
        self.secured, self.clock, self.wire, self.client = secured, clock, wire, client
        self.broker = secured.broker

    async def limited_user(self, **quotas):
        """Returns the `Authorization` value of a new user with these quotas."""
        name = f"limited{len(self.secured.token_ids)}"
        authorization = await self.secured.user(*RIGHTS, name=name)
        await self.broker.security_administration.alter_quotas(
            self.broker.security.access(Identity(ADMIN, "test"), "127.0.0.1"),
            [(QuotaEntity(name, None), quotas)],
        )
        return authorization

    def call(self, name, request, authorization):
        return self.wire(name, request, metadata=[("authorization", authorization)])

    def throttled(self, quota):
        name = "millpond_quota_throttled_requests_total"
        return self.broker.metrics.registry.get_sample_value(name, {"quota": quota}) or 0


@pytest.fixture
async def stage():
    clock = SimulatedClock()
    async with (
        secured_broker(grpc=True, http=True, clock=clock) as secured,
        grpc.aio.insecure_channel(secured.broker.listeners["grpc"]) as channel,
        httpx.AsyncClient(base_url=f"http://{secured.broker.listeners['http']}", timeout=60) as client,
    ):
        yield Stage(secured, clock, Wire(channel), client)


@pytest.fixture
def waits(monkeypatch):
    """The delays of streams, which do not happen."""
    found = []

    async def note(_, delay_ms):
        if delay_ms > 0:
            found.append(delay_ms)

    monkeypatch.setattr(QuotaPacer, "_wait", note)
    return found


def message(size=LARGE):
    return log_pb2.ProduceRequest(topic=TOPIC, messages=[log_pb2.NewMessage(value=bytes(size))])


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


def test_what_moves_messages_counts_their_bytes():
    operations = {each.name: each.rule.counts for each in OPERATIONS if each.rule.counts is not None}
    assert operations == {name: quota for name, quota in COUNTED.items() if name in operations}
    assert COUNTED.keys() - operations.keys() <= METHODS.keys()


def test_every_method_counts_what_the_table_says():
    for name in METHODS:
        service, _, method = name.partition(".")
        snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in method).lstrip("_")
        assert rule_of(getattr(SERVICERS[service], snake)).counts == COUNTED.get(name), name


async def test_a_produce_over_grpc_waits_for_the_one_that_exceeded_the_quota(stage):
    user = await stage.limited_user(**{PRODUCER: RATE})
    await stage.call("Log.Produce", message(), user)
    refused = await refusal(stage.call("Log.Produce", message(1), user))
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    delay_ms = int(dict(refused.trailing_metadata())["retry-after-ms"])
    assert 2_000 <= delay_ms < 2_100
    assert f"{PRODUCER} is exceeded. Try again in {delay_ms} ms." in refused.details()
    _, info, retry = details_of(refused)
    assert (info.reason, retry.retry_delay.ToMilliseconds()) == ("QUOTA_EXCEEDED", delay_ms)
    await stage.call("Log.Produce", message(1), await stage.secured.user(*RIGHTS))  # others do not wait
    stage.clock.advance(delay_ms)
    await stage.call("Log.Produce", message(1), user)


async def test_a_produce_over_http_waits_for_the_one_that_exceeded_the_quota(stage):
    headers = {"authorization": await stage.limited_user(**{PRODUCER: RATE})}
    url = f"/topics/{TOPIC}/produce"
    assert (await stage.client.post(url, content=b"x" * LARGE, headers=headers)).status_code == 200
    refused = await stage.client.post(url, content=b"x", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "QuotaExceeded")
    delay_ms = refused.json()["details"]["retry_after_ms"]
    assert refused.headers["retry-after"] == str(-(-delay_ms // 1000)) == "3"
    stage.clock.advance(delay_ms)
    assert (await stage.client.post(url, content=b"x", headers=headers)).status_code == 200


async def test_reading_counts_the_responses(stage):
    await stage.broker.messages.produce(TOPIC, [Record(bytes(LARGE))], access=OPEN_ACCESS)
    user = await stage.limited_user(**{CONSUMER: RATE})
    poll = log_pb2.PollRequest(topic=TOPIC)
    assert len((await stage.call("Log.Poll", poll, user)).messages) == 2
    refused = await refusal(stage.call("Log.Poll", poll, user))
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    headers, pull = {"authorization": user}, {"consumer": "c", "messages_max": 1}
    for method, url, body in (
        ("GET", f"/topics/{TOPIC}/fetch/0", None),
        ("GET", f"/topics/{TOPIC}/fetch/0/0", None),
        ("GET", f"/topics/{TOPIC}/stream?follow=false", None),
        ("POST", f"/topics/{TOPIC}/subscriptions/{SUBSCRIPTION}/pull", pull),
    ):
        answer = await stage.client.request(method, url, json=body, headers=headers)
        assert answer.status_code == 429, url
    stage.clock.advance(60_000)
    assert (await stage.client.get(f"/topics/{TOPIC}/fetch/0", headers=headers)).status_code == 200
    assert (await stage.client.get(f"/topics/{TOPIC}/fetch/0", headers=headers)).status_code == 429


async def test_a_stream_of_produces_is_slowed_down_and_goes_on(stage, waits):
    user = await stage.limited_user(**{PRODUCER: RATE})
    call = stage.call("Log.ProduceStream", iter([message(), message(1), message(1)]), user)
    results = [result async for response in call for result in response.results]
    assert [each.produced.numbers for each in results] == [[2], [3], [4]]
    assert len(waits) == 3
    assert min(waits) >= 2_000


async def test_streams_to_readers_are_slowed_down_and_go_on(stage, waits):
    await stage.broker.messages.produce(TOPIC, [Record(bytes(LARGE))] * 2, access=OPEN_ACCESS)
    user = await stage.limited_user(**{CONSUMER: RATE})
    call = stage.call("Log.Consume", log_pb2.ConsumeRequest(topic=TOPIC, until_end=True, bytes_max=1), user)
    read = [each.number async for response in call for each in response.messages]
    assert read == [1, 2, 3]
    assert len(waits) >= 2
    waits.clear()
    stage.clock.advance(120_000)
    answer = await stage.client.get(f"/topics/{TOPIC}/stream?follow=false", headers={"authorization": user})
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [0, 1, 2]
    assert waits
    waits.clear()
    stage.clock.advance(120_000)
    await subscribed(stage, user)
    assert waits


async def subscribed(stage, user):
    attach = queue_pb2.Attach(topic=TOPIC, subscription=SUBSCRIPTION, consumer="c")
    credit = queue_pb2.SubscribeRequest(credit=queue_pb2.Credit(messages=3))
    received = asyncio.Event()

    async def requests():
        yield queue_pb2.SubscribeRequest(attach=attach)
        yield credit
        await received.wait()
        yield queue_pb2.SubscribeRequest(detach=queue_pb2.Detach())

    count = 0
    async for response in stage.call("Queue.Subscribe", requests(), user):
        count += len(response.deliveries.deliveries)
        if count == 3:
            received.set()
    assert count == 3


async def test_a_broker_that_stops_does_not_wait_for_slow_streams():
    pacer = QuotaPacer()
    waiting = asyncio.ensure_future(pacer._wait(60 * 60 * 1000))
    await asyncio.sleep(0)
    pacer.stop()
    await asyncio.wait_for(waiting, 30)


async def test_creating_and_deleting_topics_counts_partitions(stage):
    user = await stage.limited_user(**{MUTATION: 1})
    headers = {"authorization": user}
    create = admin_pb2.CreateTopicRequest(name="first", partitions=30)
    await stage.call("Admin.CreateTopic", create, user)
    delete = admin_pb2.DeleteTopicRequest(name=TOPIC)
    alter = admin_pb2.AlterTopicRequest(name=TOPIC, partitions=2)
    produce = log_pb2.ProduceRequest(topic="new", messages=[log_pb2.NewMessage(value=b"x")])
    await stage.secured.allow(f"limited{len(stage.secured.token_ids) - 1}", "WRITE T new")
    for name, request in (
        ("Admin.CreateTopic", admin_pb2.CreateTopicRequest(name="second")),
        ("Admin.AlterTopic", alter),
        ("Admin.DeleteTopic", delete),
        ("Log.Produce", produce),
    ):
        refused = await refusal(stage.call(name, request, user))
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, name
    for method, url, body in (
        ("POST", "/topics", {"name": "second", "partitions": 1}),
        ("PATCH", f"/topics/{TOPIC}", {"partitions": 2}),
        ("DELETE", f"/topics/{TOPIC}", None),
        ("POST", "/topics/new/produce", {"value": "x"}),
    ):
        answer = await stage.client.request(method, url, json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (429, "QuotaExceeded"), url
    assert not stage.broker.log.topics.knows("second")
    assert not stage.broker.log.topics.knows("new")
    stage.clock.advance(25_000)
    await stage.call("Admin.AlterTopic", alter, user)
    await stage.call("Admin.DeleteTopic", delete, user)


async def test_a_client_waits_as_long_as_the_broker_says(stage):
    await stage.broker.messages.produce(TOPIC, [Record(bytes(RATE + 1_000))], access=OPEN_ACCESS)
    user = await stage.limited_user(**{CONSUMER: RATE})
    address, token = stage.broker.listeners["grpc"], user.removeprefix("Bearer ")
    async with AsyncConsumer(TOPIC, address=address, token=token, group=None) as consumer:
        assert len((await consumer.poll(30)).messages) == 2
        await stage.broker.messages.produce(TOPIC, [Record(b"next")], access=OPEN_ACCESS)
        before = stage.throttled(CONSUMER)
        polling = asyncio.ensure_future(consumer.poll(30))
        async with asyncio.timeout(60):
            while stage.throttled(CONSUMER) == before:
                await asyncio.sleep(0.001)
        stage.clock.advance(10_000)
        assert [each.value for each in (await polling).messages] == [b"next"]


def test_the_pause_before_a_retry_is_what_the_broker_says():
    assert Pauses().take(QuotaExceeded(quota=CONSUMER, retry_after_ms="2500")) == 2.5
    assert Pauses().take(Stopping()) == Pauses().take() == BACKOFF_MIN_S
