"""Payloads of every size and kind go in and come out byte for byte, in every kind of body."""

import base64
import os

import pytest

from millpond.testing import running_broker

MIB = 1024 * 1024
NASTY = b"\x00\r\n\xff:\n\x00\"'\\{}\xc3(\xe2\x82"
VALUES = {
    "nothing": b"",
    "one byte": b"\x00",
    "lines and zeros": NASTY * 100,
    "every byte": bytes(range(256)) * 4,
    "text": "Mühlteich 🐟\n".encode() * 50,
    "a mebibyte": os.urandom(MIB),
}


def raw(value):
    return value, {"Content-Type": "text/plain"}


def keyed(value):
    return b"key:" + value, {"Content-Type": "application/x-www-form-urlencoded"}


def as_json(value):
    text = base64.b64encode(value).decode()
    return b'{"value": {"base64": "%s"}}' % text.encode(), {"Content-Type": "application/json"}


def binary(value):
    return value, {"Content-Type": "application/octet-stream"}


KINDS = {"key:value": keyed, "json": as_json, "binary": binary}


@pytest.fixture
async def roomy_broker():
    async with running_broker(http=True, max_message_bytes=64 * MIB) as running:
        yield running


def bytes_of(shown, encoding):
    if isinstance(shown, dict):
        return base64.b64decode(shown["base64"], validate=True)
    return shown.encode() if encoding == "text" else base64.b64decode(shown, validate=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VALUES)
async def test_a_value_comes_back_identical(roomy_broker, connected_to, kind, name):
    value = VALUES[name]
    content, headers = KINDS[kind](value)
    async with connected_to(roomy_broker) as client:
        answer = await client.post("/topics/pond/produce/0", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert (await client.get("/topics/pond/fetch/0/0")).content == value
        for encoding in ("auto", "base64"):
            fetched = await client.get(f"/topics/pond/fetch/0?encoding={encoding}&max_bytes={4 * MIB}")
            message = fetched.json()["messages"][0]
            assert bytes_of(message["value"], message["encoding"]) == value


@pytest.mark.parametrize("kind", KINDS)
async def test_fifty_mebibytes_come_back_identical(roomy_broker, connected_to, kind):
    value = os.urandom(MIB) * 50
    content, headers = KINDS[kind](value)
    async with connected_to(roomy_broker) as client:
        answer = await client.post("/topics/pond/produce/0", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert (await client.get("/topics/pond/fetch/0/0")).content == value
        message = (await client.get("/topics/pond/fetch/0")).json()["messages"][0]
        assert bytes_of(message["value"], message["encoding"]) == value


async def test_a_body_sent_in_chunks_is_one_value(client):
    async def chunks():
        for piece in (b"a", b"", b"\x00" * 100_000, b"z"):
            yield piece

    headers = {"Content-Type": "application/octet-stream"}
    await client.post("/topics/pond/produce/0", content=chunks(), headers=headers)
    assert (await client.get("/topics/pond/fetch/0/0")).content == b"a" + b"\x00" * 100_000 + b"z"
