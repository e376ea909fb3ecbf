"""Who sends an HTTP request: proofs, and streams of clients that lose their rights or their credential."""

import asyncio
import base64
import json

import httpx
import pytest
from tests.unit.frontends.secured import SUBSCRIPTION, TOPIC, secured_broker
from tests.unit.frontends.web.wire import HOST, connect, until

from millpond.model.errors import NotOwner
from millpond.model.payloads import new_payload_id
from millpond.queues import StartAt, SubscriptionStart
from millpond.records import Record
from millpond.security import OPEN_ACCESS
from millpond.service import MessageWriter
from millpond.testing import running_broker

READ = f"READ T {TOPIC}"
LATEST = SubscriptionStart(StartAt.LATEST)


@pytest.fixture
async def secured():
    async with secured_broker(http=True) as running:
        yield running


@pytest.fixture
async def client(secured):
    base = f"http://{secured.broker.listeners['http']}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as opened:
        yield opened


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def lose(secured, how):
    await (secured.revoke("reader") if how == 401 else secured.deny_all("reader"))


# -- proofs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["", "x", "Bearer wrong", "Bearer mp_aaaaaaaaaaaa_" + 43 * "a", "Basic !", basic("bob", "x"), "Digest x"],
)
async def test_a_wrong_proof_is_refused(client, value):
    answer = await client.get("/topics", headers={"authorization": value})
    assert (answer.status_code, answer.json()["code"]) == (401, "AuthenticationFailed")
    assert answer.headers["www-authenticate"] == 'Basic realm="millpond", Bearer'


async def test_two_proofs_are_refused_even_if_both_are_right(secured, client):
    user = await secured.user()
    answer = await client.get("/topics", headers=[("authorization", user), ("authorization", user)])
    assert answer.status_code == 401


async def test_a_password_is_a_proof_until_it_is_replaced(secured, client):
    admin = {"authorization": await secured.admin()}
    put = await client.put("/security/users/bob", json={"password": "secret"}, headers=admin)
    assert put.status_code == 204
    old = {"authorization": basic("bob", "secret")}
    assert (await client.get("/topics", headers=old)).status_code == 200
    assert (await client.get("/topics", headers={"authorization": basic("bob", "other")})).status_code == 401
    await client.put("/security/users/bob", json={"password": "other"}, headers=admin)
    assert (await client.get("/topics", headers=old)).status_code == 401
    assert (await client.get("/topics", headers={"authorization": basic("bob", "other")})).status_code == 200
    await client.delete("/security/users/bob", headers=admin)
    assert (await client.get("/topics", headers={"authorization": basic("bob", "other")})).status_code == 401


async def test_names_in_headers_that_proxies_set_prove_nothing(client):
    headers = {"x-forwarded-user": "admin", "x-forwarded-for": "127.0.0.1", "cookie": "user=admin"}
    assert (await client.get("/topics", headers=headers)).status_code == 401


async def test_a_page_of_another_origin_is_refused_with_credentials_too(secured, client):
    headers = {"authorization": await secured.admin(), "origin": "http://elsewhere"}
    answer = await client.post("/topics", json={"name": "new"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "ForeignOrigin")


async def test_without_security_no_proof_is_looked_at():
    async with running_broker(http=True) as broker:
        url = f"http://{broker.listeners['http']}/topics"
        async with httpx.AsyncClient(timeout=60) as opened:
            assert (await opened.get(url, headers={"authorization": "wrong"})).status_code == 200


async def test_a_client_is_sent_to_the_owner_only_if_it_may_write(secured, client, monkeypatch):
    async def fail(*_, **__):
        raise NotOwner(owner_http="there:8000")

    monkeypatch.setattr(MessageWriter, "submit", fail)
    path = f"/topics/{TOPIC}/produce/0"
    writer = {"authorization": await secured.user(f"WRITE T {TOPIC}")}
    answer = await client.post(path, content=b"x", headers=writer)
    assert (answer.status_code, answer.headers["location"]) == (307, f"http://there:8000{path}")
    reader = {"authorization": await secured.user(READ)}
    assert (await client.post(path, content=b"x", headers=reader)).status_code == 403


async def test_a_refused_request_leaves_the_connection_usable(secured):
    user = (await secured.user(READ)).encode()
    async with connect(secured.broker) as wire:
        refused = await wire.ask(b"GET /topics HTTP/1.1\r\n", HOST, b"\r\n")
        accepted = await wire.ask(b"GET /topics HTTP/1.1\r\n", HOST, b"Authorization: ", user, b"\r\n\r\n")
    assert (refused.status, accepted.status) == (401, 200)


# -- rights that end -------------------------------------------------------------------------------------------------


async def reader(secured):
    return {"authorization": await secured.user(READ, f"READ G {TOPIC}/{SUBSCRIPTION}", name="reader")}


@pytest.mark.parametrize(("how", "code"), [(401, "AuthenticationFailed"), (403, "TopicNotAuthorized")])
@pytest.mark.parametrize("form", ["ndjson", "sse"])
async def test_a_sweep_ends_a_stream_and_says_why(secured, client, form, how, code):
    site = secured.broker.interfaces.web._site
    url, headers = f"/topics/{TOPIC}/stream?format={form}", await reader(secured)
    async with client.stream("GET", url, headers=headers) as answer:
        lines = (line async for line in answer.aiter_lines() if line and not line.startswith(":"))
        while "first" not in await anext(lines):
            pass
        site.guards.sweep()
        await lose(secured, how)
        site.guards.sweep()
        rest = [line async for line in lines]
    assert code in rest[-1]
    await until(lambda: site.streams == 0)


async def test_a_stream_delivers_nothing_that_arrives_after_its_client_has_lost_its_rights(secured, client):
    headers = await reader(secured)
    async with client.stream("GET", f"/topics/{TOPIC}/stream", headers=headers) as answer:
        lines = (line async for line in answer.aiter_lines() if line)
        assert json.loads(await anext(lines))["value"] == "first"
        await lose(secured, 403)
        await secured.broker.messages.produce(TOPIC, [Record(value=b"secret")], access=OPEN_ACCESS)
        [last] = [json.loads(line) async for line in lines]
    assert last["error"]["code"] == "TopicNotAuthorized"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/topics/{TOPIC}/fetch/0?offset=1&wait_ms=20000", None),
        (
            "POST",
            f"/topics/{TOPIC}/subscriptions/{SUBSCRIPTION}/pull",
            {"consumer": "c", "messages_max": 1, "wait_ms": 20000},
        ),
    ],
)
async def test_a_request_that_waits_returns_nothing_when_the_rights_have_ended(
    secured, client, monkeypatch, method, path, body
):
    broker, waits = secured.broker, asyncio.Event()
    await broker.queues.reset(TOPIC, SUBSCRIPTION, LATEST)
    for part, name in ((broker.poller, "poll"), (broker.pulling, "pull")):
        monkeypatch.setattr(part, name, noticed(getattr(part, name), waits))
    asking = asyncio.ensure_future(client.request(method, path, json=body, headers=await reader(secured)))
    await waits.wait()
    await lose(secured, 403)
    await broker.messages.produce(TOPIC, [Record(value=b"secret")], access=OPEN_ACCESS)
    answer = await asking
    assert (answer.status_code, "secret" in answer.text) == (403, False)


def noticed(work, waits):
    async def run(*given, **named):
        waits.set()
        return await work(*given, **named)

    return run


async def test_an_upload_ends_when_the_credential_ends(secured):
    topic = await secured.broker.administration.create_topic(
        "bodies", 1, {"payload": "reference"}, access=OPEN_ACCESS
    )
    user = (await secured.user(f"WRITE T {topic.name}", name="reader")).encode()
    payload = new_payload_id(secured.broker.clock.now_ms(), bytes)
    async with connect(secured.broker) as wire:
        path = f"PUT /topics/{topic.name}/payloads/{payload} HTTP/1.1\r\n".encode()
        wire.send(path, HOST, b"Authorization: ", user, b"\r\nContent-Length: 10\r\n\r\n", b"12345")
        await wire.flush()
        await until(lambda: secured.broker.payloads.held_bytes)
        await lose(secured, 401)
        secured.broker.interfaces.web._site.guards.sweep()
        answer = await wire.response()
    assert (answer.status, answer.json()["code"]) == (401, "AuthenticationFailed")
    assert secured.broker.payloads.held_bytes == 0
