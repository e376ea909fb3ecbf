"""The `Payloads` service over the wire: places, and bodies in chunks for clients that have only gRPC."""

import urllib.request
import uuid
from unittest.mock import ANY

import grpc
import pytest
from tests.unit.frontends.rpc.wire import details_of, serving

from millpond.model.payloads import new_payload_id
from millpond.records import crc32c
from millpond.stubs import log_pb2
from millpond.stubs import payloads_pb2 as pb

MIB = 1024 * 1024
BODY = bytes(range(256)) * 10_000


@pytest.fixture(params=["memory", "file", "s3"])
def kind(request):
    return request.param


@pytest.fixture
async def served(kind, tmp_path, request):
    place = [tmp_path] if kind != "memory" else []
    settings = {"storage": request.getfixturevalue("s3_store")} if kind == "s3" else {}
    async with serving(*place, payload_broker_bytes_max=4 * MIB, **settings) as (broker, wire):
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        await broker.log.create_topic("plain", 1)
        yield broker, wire


def fresh(broker):
    return str(new_payload_id(broker.clock.now_ms()))


def requests(payload, body, *, topic="films", size=None, checksum=None, chunk=1000):
    new = pb.NewPayload(
        topic=topic, id=payload, size_bytes=len(body) if size is None else size, crc32c=checksum
    )
    yield pb.UploadRequest(payload=new)
    for start in range(0, len(body), chunk):
        yield pb.UploadRequest(data=body[start : start + chunk])


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, details_of(caught.value)[1].reason


async def download(wire, payload, topic="films"):
    call = wire("Payloads.Download", pb.DownloadRequest(topic=topic, id=payload))
    return [(each.size_bytes, each.data) async for each in call]


async def test_a_body_there_and_back_in_chunks(served):
    broker, wire = served
    payload = fresh(broker)
    answer = await wire("Payloads.Upload", requests(payload, BODY, checksum=crc32c(BODY)))
    assert answer.reference == f"{payload};bytes={len(BODY)};crc32c={crc32c(BODY):08x}"
    pieces = await download(wire, payload)
    assert b"".join(data for _, data in pieces) == BODY
    assert {size for size, _ in pieces} == {len(BODY)}
    assert max(len(data) for _, data in pieces) <= MIB


async def test_places(served, kind):
    broker, wire = served
    payload = fresh(broker)
    place = await wire("Payloads.UploadPlace", pb.UploadPlaceRequest(topic="films", id=payload, size_bytes=4))
    assert (place.method, bool(place.url), place.expires_at_ms) == ("PUT", kind == "s3", ANY)
    if kind == "s3":
        headers = {**place.headers, "content-type": "application/octet-stream"}
        ask(urllib.request.Request(place.url, b"body", headers, method="PUT"))
    else:
        await wire("Payloads.Upload", requests(payload, b"body"))
    place = await wire("Payloads.DownloadPlace", pb.DownloadPlaceRequest(topic="films", id=payload))
    assert (place.method, bool(place.url)) == ("GET", kind == "s3")
    assert not place.url or ask(place.url) == b"body"


def ask(request):
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


async def test_refusals(served):
    broker, wire = served
    await wire("Payloads.Upload", requests(there := fresh(broker), b"x"))
    expected = {
        ("nowhere", fresh(broker)): ("NOT_FOUND", "UNKNOWN_TOPIC"),
        ("plain", fresh(broker)): ("FAILED_PRECONDITION", "PAYLOADS_NOT_TAKEN"),
        ("films", "x"): ("INVALID_ARGUMENT", "INVALID_PAYLOAD"),
        ("films", str(uuid.uuid4())): ("INVALID_ARGUMENT", "INVALID_PAYLOAD"),
        ("films", str(new_payload_id(1))): ("INVALID_ARGUMENT", "INVALID_PAYLOAD"),
        ("films", there): ("ALREADY_EXISTS", "PAYLOAD_EXISTS"),
    }
    for (topic, payload), told in expected.items():
        assert await refusal(wire("Payloads.Upload", requests(payload, b"y", topic=topic))) == told
        request = pb.UploadPlaceRequest(topic=topic, id=payload)
        assert await refusal(wire("Payloads.UploadPlace", request)) == told
    missing = fresh(broker)
    request = pb.DownloadPlaceRequest(topic="films", id=missing)
    assert await refusal(wire("Payloads.DownloadPlace", request)) == ("NOT_FOUND", "UNKNOWN_PAYLOAD")
    assert await refusal(download(wire, missing)) == ("NOT_FOUND", "UNKNOWN_PAYLOAD")


@pytest.mark.parametrize(
    "odd",
    [
        lambda payload: [],
        lambda payload: [pb.UploadRequest(data=b"x")],
        lambda payload: [*requests(payload, b"abc", size=2), *requests(payload, b"abc")],
        lambda payload: requests(payload, b"abc", size=4),
        lambda payload: requests(payload, b"abc", size=2),
        lambda payload: requests(payload, b"abc", checksum=1),
        lambda payload: requests(payload, b""),
        lambda payload: requests(payload, bytes(4 * MIB + 1), chunk=MIB),
        lambda payload: requests(payload, b"abc", size=5 * MIB),
    ],
)
async def test_an_upload_that_is_not_what_it_says_has_stored_nothing(served, odd):
    broker, wire = served
    code, _ = await refusal(wire("Payloads.Upload", iter(odd(fresh(broker)))))
    assert code == "INVALID_ARGUMENT"
    assert list(broker.store.list("payloads/")) == []
    assert broker.payloads.held_bytes == 0


async def test_a_stream_that_is_cancelled_has_stored_nothing(served):
    broker, wire = served
    call = wire("Payloads.Upload")
    first, second, *_ = requests(fresh(broker), BODY)
    await call.write(first)
    await call.write(second)
    call.cancel()
    with pytest.raises(BaseException):  # noqa: B017, PT011  # gRPC's own way to say so
        await call
    await wire("Payloads.Upload", requests(payload := fresh(broker), b"x"))
    assert [key.rpartition("/")[2] for key in broker.store.list("payloads/")] == [payload]


async def test_a_message_must_refer_to_what_can_be_found(served):
    _, wire = served
    message = log_pb2.NewMessage(value=b"", headers=[log_pb2.Header(name="millpond-payload", value=b"odd")])
    request = log_pb2.ProduceRequest(topic="films", messages=[message])
    assert await refusal(wire("Log.Produce", request)) == ("INVALID_ARGUMENT", "INVALID_PAYLOAD")
