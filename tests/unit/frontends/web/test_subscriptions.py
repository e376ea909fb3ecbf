"""Subscriptions over HTTP: their life, pulling and answering."""

import asyncio
import dataclasses

import pytest

from millpond.frontends.web import schemas
from millpond.model.subscriptions import SubscriptionConfig
from millpond.records import Record

AT = "/topics/orders/subscriptions"
NAME = f"{AT}/billing"
STOP_SECONDS_MAX = 30
"""Half of the time for which the pull would wait."""


@pytest.fixture
async def subscribe(client):
    """`await subscribe(mode="key_shared")` makes the topic and its subscription."""

    async def make(partitions=1, **config):
        await client.post("/topics", json={"name": "orders", "partitions": partitions})
        answer = await client.post(AT, json={"name": "billing", "config": config})
        assert answer.status_code == 200, answer.text
        return answer.json()

    return make


@pytest.fixture
def pull(client):
    async def pull(consumer="c", **more):
        answer = await client.post(f"{NAME}/pull", json={"consumer": consumer, "wait_ms": 20_000, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["deliveries"]

    return pull


@pytest.fixture
def tell(client):
    async def tell(what, deliveries, consumer="c", **more):
        ids = [each["ack_id"] for each in deliveries]
        answer = await client.post(f"{NAME}/{what}", json={"consumer": consumer, "ack_ids": ids, **more})
        assert answer.status_code == 200, answer.text
        assert [each["ack_id"] for each in answer.json()["results"]] == ids
        return [each["result"] for each in answer.json()["results"]]

    return tell


def test_the_schemas_have_every_value_of_the_config():
    names = [each.name for each in dataclasses.fields(SubscriptionConfig)]
    assert list(schemas.SubscriptionConfigJson.__struct_fields__) == names
    assert list(schemas.NewSubscriptionConfigJson.__struct_fields__) == names


async def test_a_subscriptions_life(client, subscribe):
    made = await subscribe(mode="key_shared", ack_timeout_ms=5_000)
    assert made.pop("created_at_ms") > 0
    assert made == {
        "topic": "orders",
        "name": "billing",
        "config": SubscriptionConfig().to_json() | {"mode": "key_shared", "ack_timeout_ms": 5_000},
    }
    await client.post(AT, json={"name": "audit"})
    assert [each["name"] for each in (await client.get(AT)).json()["subscriptions"]] == ["audit", "billing"]
    altered = await client.patch(NAME, json={"config": {"attempts_max": 2}})
    assert (altered.json()["config"]["attempts_max"], altered.json()["config"]["ack_timeout_ms"]) == (
        2,
        5_000,
    )
    assert (await client.delete(NAME)).status_code == 204
    assert (await client.get(NAME)).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "billing"}, 409, "SubscriptionExists"),
        ({"name": "a/b"}, 400, "InvalidSubscription"),
        ({"name": ""}, 400, "InvalidSubscription"),
        ({"name": "x", "config": {"mode": "any"}}, 400, "InvalidRequest"),
        ({"name": "x", "config": {"ack_timeout_ms": 1}}, 400, "InvalidSubscription"),
        ({"name": "x", "config": {"no_such": 1}}, 400, "InvalidRequest"),
        ({"name": "x", "start": {"at": "somewhere"}}, 400, "InvalidRequest"),
        ({}, 400, "InvalidRequest"),
    ],
)
async def test_what_makes_no_subscription_is_refused(client, subscribe, body, status, code):
    await subscribe()
    answer = await client.post(AT, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_what_is_not_there_is_not_found(client, subscribe):
    await subscribe()
    for path, body, code in (
        ("/topics/nowhere/subscriptions/x/pull", {"consumer": "c"}, "UnknownTopic"),
        (f"{AT}/nobody/pull", {"consumer": "c"}, "UnknownSubscription"),
        (f"{AT}/nobody/reset", {"start": {}}, "UnknownSubscription"),
        (f"{AT}/nobody/redrive", {}, "UnknownSubscription"),
        (f"{NAME}/ack", {"consumer": "c", "ack_ids": ["x"]}, "UnknownConsumer"),
        (f"{NAME}/nack", {"consumer": "c", "ack_ids": ["x"]}, "UnknownConsumer"),
        (f"{NAME}/extend", {"consumer": "c", "ack_ids": ["x"], "extend_ms": 1}, "UnknownConsumer"),
    ):
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, code)


async def test_the_mode_stays(client, subscribe):
    await subscribe()
    answer = await client.patch(NAME, json={"config": {"mode": "exclusive"}})
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidSubscription")


async def test_a_message_is_pulled_and_acknowledged_and_never_comes_again(
    client, broker, subscribe, pull, tell
):
    await subscribe()
    await broker.produce("orders", Record(value=b"\xff", key=b"k", headers=(("colour", b"blue"),)))
    [delivery] = await pull()
    assert delivery.pop("ack_id")
    assert delivery.pop("timestamp_ms") > 0
    assert delivery.pop("age_ms") >= 0
    assert delivery == {
        "partition": 0,
        "offset": 0,
        "number": 1,
        "retry_count": 0,
        "key": "k",
        "value": {"base64": "/w=="},
        "headers": [{"name": "colour", "value": "blue"}],
        "encoding": "text",
    }
    await broker.produce("orders", b"next")
    [later] = await pull(encoding="base64")
    assert (later["value"], later["encoding"]) == ("bmV4dA==", "base64")
    assert await tell("ack", [later]) == ["ok"]
    assert await tell("ack", [later]) == ["stale"]
    found = (await client.get(NAME)).json()
    assert (found["partitions"][0]["floor"], found["partitions"][0]["leased"]) == (0, 1)
    assert [each["name"] for each in found["consumers"]] == ["c"]


async def test_reserved_headers_are_not_shown_but_where_the_body_is(broker, subscribe, pull):
    await subscribe()
    headers = (("millpond-attempts", b"9"), ("millpond-payload", b"there"), ("a", None))
    await broker.produce("orders", Record(value=b"", headers=headers))
    [delivery] = await pull()
    assert delivery["headers"] == [
        {"name": "millpond-payload", "value": "there"},
        {"name": "a", "value": None},
    ]


async def test_a_refused_message_comes_again_and_says_so(broker, subscribe, pull, tell):
    await subscribe(backoff_ms=0)
    await broker.produce("orders", b"x")
    first = await pull()
    assert await tell("nack", first) == ["ok"]
    second = await pull()
    assert (second[0]["offset"], second[0]["retry_count"]) == (0, 1)
    assert await tell("ack", first) == ["stale"]
    assert await tell("nack", second, delay_ms=600_000) == ["ok"]
    assert await pull(wait_ms=0) == []


async def test_ids_that_nobody_gave_are_unknown_one_by_one(broker, subscribe, pull, tell):
    await subscribe()
    await broker.produce("orders", b"x")
    [delivery] = await pull()
    forged = delivery["ack_id"][:-4] + ("AAAA" if delivery["ack_id"][-4:] != "AAAA" else "BBBB")
    ids = [{"ack_id": each} for each in ("", "é", "x" * 44, forged, delivery["ack_id"])]
    assert await tell("extend", ids, extend_ms=1000) == ["unknown"] * 4 + ["ok"]
    assert await tell("ack", ids) == ["unknown"] * 4 + ["ok"]


async def test_a_pull_gives_no_more_than_it_was_asked_for(broker, subscribe, pull):
    await subscribe()
    await broker.produce("orders", *[b"12345678"] * 10)
    assert [each["offset"] for each in await pull(messages_max=3)] == [0, 1, 2]
    assert [each["offset"] for each in await pull(messages_max=100, bytes_max=17)] == [3, 4]
    assert [each["offset"] for each in await pull(bytes_max=1)] == [5]


async def test_a_second_pull_of_a_consumer_is_refused_while_the_first_waits(client, broker, subscribe, pull):
    await subscribe()
    waiting = asyncio.create_task(pull("c"))
    while not broker.pulling._pullers:
        await asyncio.sleep(0.01)
    answer = await client.post(f"{NAME}/pull", json={"consumer": "c"})
    assert (answer.status_code, answer.json()["code"]) == (409, "SubscriptionBusy")
    assert "'c' is pulling already" in answer.json()["message"]
    await broker.produce("orders", b"x")
    assert [each["value"] for each in await waiting] == ["x"]


async def test_an_exclusive_subscription_has_one_consumer(client, subscribe, pull):
    await subscribe(mode="exclusive")
    assert await pull("first", wait_ms=0) == []
    answer = await client.post(f"{NAME}/pull", json={"consumer": "second"})
    assert (answer.status_code, answer.json()["code"]) == (409, "SubscriptionBusy")


async def test_consumers_share_and_keys_stay_in_order(broker, subscribe, pull, tell):
    await subscribe(mode="key_shared")
    await pull("a", wait_ms=0)
    await pull("b", wait_ms=0)
    await broker.produce("orders", *[Record(value=b"%d" % n, key=b"%d" % (n % 8)) for n in range(40)])
    seen = {}
    while sum(map(len, seen.values())) < 40:
        for consumer in "ab":
            for delivery in await pull(consumer, wait_ms=0):
                seen.setdefault((delivery["key"], consumer), []).append(delivery["offset"])
                assert await tell("ack", [delivery], consumer) == ["ok"]
    assert len({key for key, _ in seen}) == len(seen) == 8, "one consumer for each key"
    assert all(offsets == sorted(offsets) for offsets in seen.values())


async def test_dead_letters_are_driven_back_and_blocked_ones_let_go(client, broker, subscribe, pull, tell):
    await subscribe(attempts_max=1)
    await broker.produce("orders", b"poison")
    await tell("nack", await pull(), reason="it is\u0007 poison")
    while not (letters := await _letters(client)):
        await asyncio.sleep(0.02)
    assert letters[0]["value"] == "poison"
    headers = {each["name"]: each["value"] for each in letters[0]["headers"]}
    assert headers["millpond-last-reason"] == "it is poison"
    assert (await client.post(f"{NAME}/redrive", json={})).json() == {"redriven": 1}
    [again] = await pull()
    assert (again["value"], again["offset"], again["retry_count"]) == ("poison", 1, 0)

    await client.patch(NAME, json={"config": {"on_exhausted": "block"}})
    await tell("nack", [again])
    assert await pull(wait_ms=0) == []
    [partition] = (await client.get(NAME)).json()["partitions"]
    failing = {"offset": 1, "attempts": 1, "why": "blocked", "until_ms": 0}
    assert partition["failing"] == [{**failing, "reasons": ["no reason given"]}]
    assert (await client.post(f"{NAME}/unblock")).json() == {"unblocked": 1}
    assert [each["offset"] for each in await pull()] == [1]


async def _letters(client):
    answer = await client.get("/topics/orders.billing.dead/fetch/0")
    return answer.json()["messages"] if answer.status_code == 200 else []


async def test_a_reset_subscription_begins_anew_and_its_consumer_goes_on(
    client, broker, subscribe, pull, tell
):
    await subscribe()
    await broker.produce("orders", b"a", b"b", b"c")
    assert await tell("ack", await pull()) == ["ok"] * 3
    answer = await client.post(f"{NAME}/reset", json={"start": {"at": "offset", "value": 1}})
    assert answer.status_code == 204
    assert [each["value"] for each in await pull()] == ["b", "c"]


async def test_a_waiting_pull_hears_that_its_subscription_is_gone(client, broker, subscribe):
    await subscribe()
    waiting = asyncio.create_task(client.post(f"{NAME}/pull", json={"consumer": "c", "wait_ms": 60_000}))
    while not broker.pulling._pullers:
        await asyncio.sleep(0.01)
    await client.delete(NAME)
    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownSubscription")


async def test_a_broker_that_stops_waits_for_no_pull(client, broker, subscribe):
    await subscribe()
    waiting = asyncio.create_task(client.post(f"{NAME}/pull", json={"consumer": "c", "wait_ms": 60_000}))
    while not broker.pulling._pullers:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(STOP_SECONDS_MAX):
        await broker.stop()
    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (503, "Stopping")
