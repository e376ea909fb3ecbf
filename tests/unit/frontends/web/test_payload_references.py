"""Payloads over HTTP: through the broker where the store has no URLs, by redirection where it has."""

import asyncio
import json
import time
import uuid

import httpx
import pytest

from millpond.model.payloads import new_payload_id
from millpond.records import crc32c
from millpond.testing import Faults, running_broker

MIB = 1024 * 1024
BODY = bytes(range(256)) * 1000


@pytest.fixture(params=["memory", "file", "s3"])
def kind(request):
    return request.param


@pytest.fixture
async def broker(kind, tmp_path, request):
    place = [tmp_path] if kind != "memory" else []
    settings = {"storage": request.getfixturevalue("s3_store")} if kind == "s3" else {}
    async with running_broker(*place, http=True, payload_broker_bytes_max=MIB, **settings) as running:
        await running.log.create_topic("films", 1, {"payload": "reference"})
        await running.log.create_topic("others", 1, {"payload": "reference"})
        await running.log.create_topic("plain", 1)
        yield running


def now_ms():
    return time.time_ns() // 1_000_000


def fresh():
    return str(new_payload_id(now_ms()))


async def test_a_body_there_and_back(client, kind):
    payload = fresh()
    url = f"/topics/films/payloads/{payload}"
    stored = await client.put(url, content=BODY, follow_redirects=True)
    assert stored.status_code == 200
    if kind != "s3":
        reference = f"{payload};bytes={len(BODY)};crc32c={crc32c(BODY):08x}"
        assert stored.json() == {"topic": "films", "id": payload, "bytes": len(BODY), "reference": reference}
    got = await client.get(url, follow_redirects=True)
    assert (got.status_code, got.content) == (200, BODY)
    assert int(got.headers["content-length"]) == len(BODY)
    assert len(got.history) == (1 if kind == "s3" else 0)


async def test_the_place_of_a_body(client, broker, kind):
    payload = fresh()
    answer = await client.post(f"/topics/films/payloads/{payload}", params={"bytes": len(BODY)})
    assert answer.status_code == 200
    place = answer.json()
    assert place["method"] == "PUT"
    host = httpx.URL(place["url"]).netloc.decode()
    assert (host == broker.listeners["http"]) == (kind != "s3")
    async with httpx.AsyncClient(timeout=60) as anybody:
        headers = {**place["headers"], "content-type": "application/octet-stream"}
        assert (await anybody.put(place["url"], content=BODY, headers=headers)).status_code == 200
        again = await anybody.put(place["url"], content=b"other", headers=headers)
        assert again.status_code == (412 if kind == "s3" else 409)
    got = await client.get(f"/topics/films/payloads/{payload}", follow_redirects=True)
    assert got.content == BODY


async def test_where_the_store_has_urls_the_broker_sees_no_body(client, kind):
    if kind != "s3":
        pytest.skip("there are none")
    payload = fresh()
    url = f"/topics/films/payloads/{payload}"
    put = await client.put(url, content=BODY)
    assert put.status_code == 307
    assert put.headers["location"] == put.json()["url"]
    assert (await client.get(url)).status_code == 404  # it has kept nothing of it
    await client.put(
        put.headers["location"], content=BODY, headers={"content-type": "application/octet-stream"}
    )
    got = await client.get(url)
    assert (got.status_code, got.headers["location"]) == (307, got.json()["url"])


async def test_a_head_brings_no_body(client, kind):
    payload = fresh()
    url = f"/topics/films/payloads/{payload}"
    await client.put(url, content=BODY, follow_redirects=True)
    if kind == "s3":
        return
    head = await client.head(url)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(BODY)))
    assert (await client.get(url)).content == BODY


async def test_a_head_reads_no_body_either(connected_to):
    faults = Faults()
    async with running_broker(http=True, faults=faults) as broker, connected_to(broker) as client:
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        url = f"/topics/films/payloads/{fresh()}"
        await client.put(url, content=BODY)
        faults.fail_before("read")
        assert (await client.head(url)).status_code == 200
        assert (await client.get("/topics")).status_code == 200  # on the same connection, hence afterwards
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            await client.get(url)  # only now the fault is met
        assert (await client.get(url)).content == BODY


@pytest.mark.parametrize("method", ["PUT", "POST", "GET"])
async def test_refusals(client, method):
    async def ask(topic, payload):
        answer = await client.request(method, f"/topics/{topic}/payloads/{payload}")
        return answer.status_code, answer.json()["code"]

    assert await ask("nowhere", fresh()) == (404, "UnknownTopic")
    assert await ask("plain", fresh()) == (409, "PayloadsNotTaken")
    for malformed in ("x", uuid.uuid4(), fresh().upper(), "..%2F..%2Fsecret"):
        assert await ask("films", malformed) == (400, "InvalidPayload")


async def test_another_topics_body_is_not_found(client):
    payload = fresh()
    await client.put(f"/topics/films/payloads/{payload}", content=BODY, follow_redirects=True)
    answer = await client.get(f"/topics/others/payloads/{payload}")
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownPayload")


async def test_nothing_is_replaced(client):
    url = f"/topics/films/payloads/{fresh()}"
    await client.put(url, content=b"first", follow_redirects=True)
    for method in ("PUT", "POST"):
        answer = await client.request(method, url, content=b"second" if method == "PUT" else None)
        assert (answer.status_code, answer.json()["code"]) == (409, "PayloadExists")
    assert (await client.get(url, follow_redirects=True)).content == b"first"


async def test_an_old_id_is_refused(client):
    old = str(new_payload_id(now_ms() - 13 * 3_600_000))
    answer = await client.post(f"/topics/films/payloads/{old}")
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidPayload")
    assert "ago" in answer.json()["message"]


async def test_too_much_is_refused(client, broker, kind):
    async def pieces():
        for _ in range(3):
            yield bytes(MIB // 2)

    if kind != "s3":
        for content in (bytes(MIB + 1), pieces()):
            answer = await client.put(f"/topics/films/payloads/{fresh()}", content=content)
            assert (answer.status_code, answer.json()["code"]) == (413, "PayloadTooLarge")
    answer = await client.post(f"/topics/films/payloads/{fresh()}", params={"bytes": 5 * 2**30 + 1})
    assert (answer.status_code, answer.json()["code"]) == (413, "PayloadTooLarge")
    assert list(broker.store.list("payloads/")) == []
    assert broker.payloads.held_bytes == 0


async def test_an_empty_body_is_refused(client, kind):
    if kind == "s3":
        pytest.skip("the store's own business")
    answer = await client.put(f"/topics/films/payloads/{fresh()}")
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidPayload")


async def test_who_breaks_off_has_stored_nothing(broker, kind):
    if kind == "s3":
        pytest.skip("the store's own business")
    host, port = broker.listeners["http"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"PUT /topics/films/payloads/{fresh()} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000\r\n\r\n"
    writer.write(head.encode() + bytes(500))
    await writer.drain()
    while not broker.payloads.held_bytes:
        await asyncio.sleep(0.01)
    writer.close()
    while broker.payloads.held_bytes:
        await asyncio.sleep(0.01)
    assert list(broker.store.list("payloads/")) == []
    assert await reader.read() == b""


async def test_a_message_that_refers_to_it(client, kind):
    if kind == "s3":
        pytest.skip("the answer is the store's own")
    payload = fresh()
    stored = (await client.put(f"/topics/films/payloads/{payload}", content=BODY)).json()
    binary = {"content-type": "application/octet-stream"}
    headers = {**binary, "x-millpond-header-millpond-payload": stored["reference"]}
    assert (await client.post("/topics/films/produce/0", headers=headers)).status_code == 200
    headers = {**binary, "x-millpond-header-millpond-payload": "something else"}
    refused = await client.post("/topics/films/produce/0", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "InvalidPayload")
    [message] = (await client.get("/topics/films/fetch/0")).json()["messages"]
    assert message["headers"] == [{"name": "millpond-payload", "value": stored["reference"]}]
    assert json.dumps(message["value"]) == '""'
