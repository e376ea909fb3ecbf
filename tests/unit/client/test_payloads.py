"""The client library puts bodies beside the log and gets them back, by URL where there are some."""

import asyncio
import http.server
import threading
from contextlib import contextmanager

import pytest

from millpond import AsyncConsumer, AsyncPayloads, AsyncProducer, PayloadReference, Payloads
from millpond.client import payloads as client_payloads
from millpond.client import transfer
from millpond.model.errors import (
    CorruptPayload,
    InvalidArgument,
    InvalidPayload,
    PayloadsNotTaken,
    PayloadTooLarge,
    Stopping,
    StoreUnavailable,
    UnknownPayload,
    Unreachable,
)
from millpond.records import crc32c
from millpond.segments.keys import payload_key
from millpond.testing import Faults, SimulatedClock, running_broker

BODY = bytes(range(256)) * 10_000


@pytest.fixture(params=["file", "s3"])
def kind(request):
    return request.param


@pytest.fixture
async def broker(kind, tmp_path, request):
    settings = {"storage": request.getfixturevalue("s3_store")} if kind == "s3" else {}
    async with running_broker(tmp_path, grpc=True, **settings) as running:
        await running.log.create_topic("films", 1, {"payload": "reference"})
        await running.log.create_topic("others", 1, {"payload": "reference"})
        await running.log.create_topic("plain", 1)
        yield running


@pytest.fixture
async def payloads(broker):
    async with AsyncPayloads(address=broker.listeners["grpc"]) as client:
        yield client


def key_of(broker, reference):
    return payload_key(
        broker.log.topics.named(reference.topic).id, client_payloads.parse_payload_id(reference.id)
    )


def replace_with(broker, reference, body):
    broker.store.delete([key_of(broker, reference)])
    broker.store.put(key_of(broker, reference), [body])


async def test_a_body_there_and_back(broker, payloads, kind, monkeypatch):
    by_url = []
    for name in ("put", "get"):
        original = getattr(transfer, name)
        monkeypatch.setattr(
            transfer, name, lambda *given, name=name, f=original: by_url.append(name) or f(*given)
        )
    reference = await payloads.upload(BODY, topic="films")
    assert (reference.topic, reference.bytes, reference.crc32c) == ("films", len(BODY), crc32c(BODY))
    assert await payloads.download(reference) == BODY
    assert by_url == (["put", "get"] if kind == "s3" else [])
    assert broker.store.size(key_of(broker, reference)) == len(BODY)


async def test_with_a_message(broker, payloads):
    reference = await payloads.upload(BODY, topic="films")
    address = broker.listeners["grpc"]
    async with (
        AsyncProducer("films", address=address) as producer,
        AsyncConsumer("films", address=address) as reader,
    ):
        await producer.send(b"", key=b"k", headers=[("genre", b"noir"), reference.header()])
        await producer.send(b"with its body")
        one, other = (await reader.poll(5)).messages
    assert PayloadReference.from_headers("films", one.headers) == reference
    assert PayloadReference.from_headers("films", other.headers) is None
    assert await payloads.download(PayloadReference.from_headers("films", one.headers)) == BODY


async def test_the_librarys_own_batches_are_looked_at(broker):
    async with AsyncProducer("films", address=broker.listeners["grpc"]) as producer:
        with pytest.raises(InvalidPayload):
            await producer.send(b"", headers=[("millpond-payload", b"odd")])
        await producer.send(b"the next one")


def test_a_header_that_nobody_can_read():
    with pytest.raises(InvalidPayload):
        PayloadReference.from_headers("films", [("millpond-payload", b"odd")])


async def test_refusals(payloads):
    with pytest.raises(PayloadsNotTaken):
        await payloads.upload(b"x", topic="plain")
    with pytest.raises(InvalidPayload):
        await payloads.upload(b"", topic="films")
    reference = await payloads.upload(b"x", topic="films")
    elsewhere = PayloadReference("others", reference.id, reference.bytes, reference.crc32c)
    with pytest.raises(UnknownPayload):
        await payloads.download(elsewhere)


async def test_too_much(tmp_path):
    async with running_broker(tmp_path, grpc=True, payload_broker_bytes_max=1000) as broker:
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        async with AsyncPayloads(address=broker.listeners["grpc"]) as payloads:
            with pytest.raises(PayloadTooLarge):
                await payloads.upload(bytes(1001), topic="films")
            await payloads.upload(bytes(1000), topic="films")


@pytest.mark.parametrize("found", [b"other", b"shorter", b"longer than it was"])
async def test_another_body_than_the_message_speaks_of(broker, payloads, found):
    reference = await payloads.upload(
        b"a body of 18 bytes" if found == b"shorter" else b"right", topic="films"
    )
    replace_with(broker, reference, found)
    with pytest.raises(CorruptPayload) as caught:
        await payloads.download(reference)
    assert caught.value.facts["payload"] == reference.id


async def test_a_body_that_is_gone(broker, payloads):
    reference = await payloads.upload(b"x", topic="films")
    broker.store.delete([key_of(broker, reference)])
    with pytest.raises(UnknownPayload):
        await payloads.download(reference)


async def test_a_body_that_goes_after_its_url_was_given(broker, payloads, kind, monkeypatch):
    if kind != "s3":
        pytest.skip("there are no URLs")
    reference, get = await payloads.upload(b"x", topic="films"), transfer.get

    def late(*given):
        broker.store.delete([key_of(broker, reference)])
        return get(*given)

    monkeypatch.setattr(transfer, "get", late)
    with pytest.raises(UnknownPayload):
        await payloads.download(reference)


async def test_a_client_whose_clock_is_wrong_is_told_so(broker):
    clock = SimulatedClock(1_000_000_000_000)
    async with AsyncPayloads(address=broker.listeners["grpc"]) as payloads:
        payloads._transfer = client_payloads.BodyTransfer(payloads._connections, clock)
        with pytest.raises(InvalidPayload, match="broker's clock"):
            await payloads.upload(b"x", topic="films")


async def test_an_answer_that_is_lost(tmp_path):
    """The store has it, and says that it has not: the next attempt finds it there."""
    faults = Faults()
    async with running_broker(tmp_path, grpc=True, faults=faults) as broker:
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        async with AsyncPayloads(address=broker.listeners["grpc"]) as payloads:
            faults.fail_after("put")
            reference = await payloads.upload(BODY, topic="films")
            faults.fail_before("read")
            assert await payloads.download(reference) == BODY


async def test_an_answer_that_is_lost_on_its_way_from_the_store(broker, payloads, kind, monkeypatch):
    if kind != "s3":
        pytest.skip("there are no URLs")
    put, calls = transfer.put, []

    def forgetful(*given):
        calls.append(put(*given))
        if len(calls) == 1:
            raise StoreUnavailable(reason="the answer was lost")
        return calls[-1]

    monkeypatch.setattr(transfer, "put", forgetful)
    reference = await payloads.upload(BODY, topic="films")
    assert await payloads.download(reference) == BODY
    assert len(calls) == 1  # the broker knew that it was there


async def test_a_store_that_never_answers(broker, payloads, kind, monkeypatch):
    if kind != "s3":
        pytest.skip("there are no URLs")
    attempts = []

    def failing(*_):
        attempts.append(1)
        raise StoreUnavailable(reason="no")

    monkeypatch.setattr(transfer, "put", failing)
    with pytest.raises(StoreUnavailable):
        await payloads.upload(b"x", topic="films")
    assert len(attempts) == client_payloads.ATTEMPTS_MAX


async def test_without_a_broker(monkeypatch):
    monkeypatch.setattr(client_payloads, "ATTEMPTS_MAX", 2)
    async with AsyncPayloads(address="127.0.0.1:1", timeout=2.5) as payloads:
        with pytest.raises(Unreachable):
            await payloads.upload(b"x", topic="films")


async def test_closed_in_the_middle(tmp_path):
    faults = Faults()
    async with running_broker(tmp_path, grpc=True, faults=faults) as broker:
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        payloads = AsyncPayloads(address=broker.listeners["grpc"])
        slow = faults.hold("put")
        uploading = asyncio.create_task(payloads.upload(b"x", topic="films"))
        await asyncio.to_thread(slow.wait_reached)
        await payloads.close()
        with pytest.raises(Stopping):
            await uploading
        slow.release()


async def test_a_client_with_a_topic_uploads_there_unless_the_call_names_another(broker):
    async with AsyncPayloads("films", address=broker.listeners["grpc"]) as payloads:
        references = [await payloads.upload(b"x"), await payloads.upload(b"y", topic="others")]
        assert [each.topic for each in references] == ["films", "others"]
        assert [await payloads.download(each) for each in references] == [b"x", b"y"]


async def test_a_client_without_a_topic_needs_one_for_each_upload(payloads):
    with pytest.raises(InvalidArgument, match="topic=None: expected a topic, because the client was created"):
        await payloads.upload(b"x")


def test_without_an_event_loop(millpond):
    millpond.admin().create_topic("films", configs={"payload": "reference"})
    with Payloads(address=millpond.grpc) as payloads:
        assert payloads.download(payloads.upload(BODY, topic="films")) == BODY


# -- a URL's other end, by the byte ----------------------------------------------------------------------------------


@contextmanager
def answering(status, headers, body):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET  # noqa: N815  # the name that http.server looks for

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/bucket/key?X-Amz-Signature=secret"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def test_a_download_that_breaks_off_is_no_body():
    with answering(200, {"content-length": "100"}, b"only this") as url, pytest.raises(StoreUnavailable):
        transfer.get(url, {}, 100, 5)


def test_no_more_is_read_than_the_message_speaks_of():
    with answering(200, {"content-length": "100000"}, bytes(100_000)) as url:
        assert len(transfer.get(url, {}, 10, 5)) == 11


@pytest.mark.parametrize("status", [301, 403, 500, 503])
def test_what_is_refused_may_be_tried_again_and_tells_no_secret(status):
    with answering(status, {"content-length": "2"}, b"no") as url:
        for call in (lambda: transfer.put(url, {}, b"x", 5), lambda: transfer.get(url, {}, 1, 5)):
            with pytest.raises(StoreUnavailable) as caught:
                call()
            assert str(status) in str(caught.value)
            assert "secret" not in str(caught.value)


def test_nobody_there():
    with pytest.raises(StoreUnavailable):
        transfer.get("http://127.0.0.1:1/bucket/key?x=secret", {}, 1, 5)
