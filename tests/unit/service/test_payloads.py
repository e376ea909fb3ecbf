"""Payloads as the service sees them, on every kind of store: places, the way through the broker, copies."""

import asyncio
import threading
import uuid

import pytest

from millpond.model.errors import (
    InvalidPayload,
    Overloaded,
    PayloadExists,
    PayloadsNotTaken,
    PayloadTooLarge,
    StoreUnavailable,
    UnknownPayload,
    UnknownTopic,
)
from millpond.model.payloads import AHEAD_MS_MAX, HEADER, Reference, new_payload_id
from millpond.records import Record, build_batch, crc32c
from millpond.security import OPEN_ACCESS
from millpond.service import PayloadLimits, PayloadTransfers
from millpond.testing import Faults, SimulatedClock, running_broker

HOUR_MS = 3_600_000
HALF_A_DAY_MS = 12 * HOUR_MS
MIB = 1024 * 1024


@pytest.fixture(params=["memory", "file", "s3"])
def kind(request):
    return request.param


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
async def broker(kind, clock, tmp_path, request):
    place = {"data_dir": tmp_path} if kind != "memory" else {}
    settings = {"storage": request.getfixturevalue("s3_store")} if kind == "s3" else {}
    async with running_broker(*place.values(), clock=clock, **settings) as running:
        await running.log.create_topic("films", 1, {"payload": "reference"})
        await running.log.create_topic("others", 1, {"payload": "reference"})
        await running.log.create_topic("plain", 1)
        yield running


@pytest.fixture
def payloads(broker):
    return broker.payloads


@pytest.fixture
def fresh(clock):
    return lambda: str(new_payload_id(clock.now_ms()))


async def chunks(*parts):
    for part in parts:
        yield part


async def whole(payloads, topic, payload):
    body = await payloads.read(topic, payload)
    got = b"".join([piece async for piece in body.pieces])
    assert len(got) == body.size
    return got


async def test_what_went_in_comes_out(payloads, fresh):
    payload = fresh()
    stored = await payloads.store(
        "films", payload, chunks(b"one ", b"", b"two"), size=7, checksum=crc32c(b"one two")
    )
    assert stored == Reference(uuid.UUID(payload), 7, crc32c(b"one two"))
    assert await whole(payloads, "films", payload) == b"one two"


async def test_it_comes_out_in_pieces(broker, clock, fresh):
    payloads = PayloadTransfers(broker.log, broker.store, clock=clock, limits=PayloadLimits(piece_bytes=1000))
    payload, content = fresh(), bytes(range(256)) * 10
    await payloads.store("films", payload, chunks(content))
    body = await payloads.read("films", payload)
    assert [len(piece) async for piece in body.pieces] == [1000, 1000, 560]
    assert await whole(payloads, "films", payload) == content
    await payloads.close()


async def test_an_id_is_that_of_one_topic(payloads, fresh):
    payload = fresh()
    await payloads.store("films", payload, chunks(b"x"))
    with pytest.raises(UnknownPayload):
        await payloads.read("others", payload)
    with pytest.raises(UnknownPayload):
        await payloads.download_place("others", payload)
    await payloads.store("others", payload, chunks(b"another"))
    assert await whole(payloads, "films", payload) == b"x"


async def test_nothing_is_stored_twice(payloads, fresh):
    payload = fresh()
    await payloads.store("films", payload, chunks(b"first"))
    with pytest.raises(PayloadExists):
        await payloads.store("films", payload, chunks(b"second"))
    with pytest.raises(PayloadExists):
        await payloads.upload_place("films", payload)
    assert await whole(payloads, "films", payload) == b"first"


@pytest.mark.parametrize("call", ["upload_place", "download_place", "read"])
async def test_refusals_that_are_common_to_all(payloads, fresh, call):
    with pytest.raises(UnknownTopic):
        await getattr(payloads, call)("nowhere", fresh())
    with pytest.raises(PayloadsNotTaken):
        await getattr(payloads, call)("plain", fresh())
    for malformed in ("", "x", "../films", str(uuid.uuid4()), fresh().upper()):
        with pytest.raises(InvalidPayload):
            await getattr(payloads, call)("films", malformed)


async def test_what_is_not_there(payloads, fresh):
    with pytest.raises(UnknownPayload):
        await payloads.read("films", fresh())
    with pytest.raises(UnknownPayload):
        await payloads.download_place("films", fresh())


async def test_an_upload_comes_soon_after_its_id(payloads, clock, fresh):
    payload = fresh()
    clock.advance(HALF_A_DAY_MS)
    await payloads.upload_place("films", payload)
    clock.advance(1)
    with pytest.raises(InvalidPayload, match="ago"):
        await payloads.upload_place("films", payload)
    with pytest.raises(InvalidPayload, match="ago"):
        await payloads.store("films", payload, chunks(b"x"))
    early = str(new_payload_id(clock.now_ms() + AHEAD_MS_MAX + 1))
    with pytest.raises(InvalidPayload, match="ahead"):
        await payloads.store("films", early, chunks(b"x"))


async def test_a_body_that_is_there_may_be_old(payloads, clock, fresh):
    payload = fresh()
    await payloads.store("films", payload, chunks(b"x"))
    clock.advance(30 * 24 * HOUR_MS)
    assert await whole(payloads, "films", payload) == b"x"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], {}),
        ([b""], {}),
        ([b"abc"], {"size": 4}),
        ([b"abc"], {"size": 2}),
        ([b"abc"], {"checksum": crc32c(b"abd")}),
    ],
)
async def test_a_body_must_be_what_was_announced(broker, payloads, fresh, parts, said):
    with pytest.raises(InvalidPayload):
        await payloads.store("films", fresh(), chunks(*parts), **said)
    assert list(broker.store.list("payloads/")) == []
    assert payloads.held_bytes == 0


async def test_who_breaks_off_has_stored_nothing(broker, payloads, fresh):
    async def broken():
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await payloads.store("films", fresh(), broken())
    assert list(broker.store.list("payloads/")) == []
    assert payloads.held_bytes == 0


async def test_limits(broker, clock, fresh, kind):
    limits = PayloadLimits(bytes_max=100, through_broker_bytes_max=10, held_bytes_max=15)
    payloads = PayloadTransfers(broker.log, broker.store, clock=clock, limits=limits)
    with pytest.raises(PayloadTooLarge):
        await payloads.store("films", fresh(), chunks(b"x" * 6, b"x" * 5))
    with pytest.raises(PayloadTooLarge):  # before anything is taken
        await payloads.store("films", fresh(), chunks(), size=11)
    await payloads.store("films", fresh(), chunks(b"x" * 10), size=10)
    assert payloads.held_bytes == 0
    with pytest.raises(PayloadTooLarge):
        await payloads.upload_place("films", fresh(), 101)
    if kind == "s3":
        assert (await payloads.upload_place("films", fresh(), 100)).url
    else:
        with pytest.raises(PayloadTooLarge):
            await payloads.upload_place("films", fresh(), 11)

    async def while_others_are_held():
        yield b"x" * 8
        with pytest.raises(Overloaded):
            await payloads.store("films", fresh(), chunks(b"x" * 8))

    await payloads.store("films", fresh(), while_others_are_held())
    assert payloads.held_bytes == 0
    await payloads.close()


async def test_only_a_store_with_urls_gives_some(payloads, kind, clock, fresh):
    payload = fresh()
    place = await payloads.upload_place("films", payload, 5)
    assert (place.method, bool(place.url)) == ("PUT", kind == "s3")
    if kind == "s3":
        assert place.headers == {"If-None-Match": "*"}
        assert place.expires_at_ms == clock.now_ms() + 15 * 60_000
    else:
        assert place.expires_at_ms == clock.now_ms() + HALF_A_DAY_MS
    await payloads.store("films", payload, chunks(b"x"))
    got = await payloads.download_place("films", payload)
    assert (got.method, bool(got.url)) == ("GET", kind == "s3")


async def test_a_url_is_not_good_for_longer_than_a_message_could_come(payloads, kind, clock, fresh):
    payload = fresh()
    clock.advance(HALF_A_DAY_MS - 10_000)
    place = await payloads.upload_place("films", payload)
    assert place.expires_at_ms == clock.now_ms() + 10_000
    if kind == "s3":
        assert "X-Amz-Expires=10&" in place.url


async def test_urls_can_be_turned_off(broker, clock, fresh):
    payloads = PayloadTransfers(broker.log, broker.store, clock=clock, limits=PayloadLimits(signs_urls=False))
    assert (await payloads.upload_place("films", fresh())).url is None
    await payloads.close()


# -- copies -------------------------------------------------------------------------------------------------------


async def test_a_copy_has_an_id_of_its_own_and_stays(broker, payloads, clock, fresh):
    payload = fresh()
    await payloads.store("films", payload, chunks(b"the body"))
    clock.advance(3 * 24 * HOUR_MS)
    copy = await payloads.copy("films", payload, "others")
    broker.store.delete([key for key in broker.store.list("payloads/") if payload in key])
    assert await whole(payloads, "others", str(copy)) == b"the body"
    reference = Reference(copy, 8, crc32c(b"the body"))
    await broker.messages.produce(
        "others", [Record(b"", headers=((HEADER, str(reference).encode()),))], access=OPEN_ACCESS
    )


async def test_a_copy_may_be_tried_again_under_the_same_id(payloads, clock, fresh):
    payload = fresh()
    await payloads.store("films", payload, chunks(b"the body"))
    copy = new_payload_id(clock.now_ms())
    assert await payloads.copy("films", payload, "others", copy) == copy
    assert await payloads.copy("films", payload, "others", copy) == copy
    assert await whole(payloads, "others", str(copy)) == b"the body"


async def test_a_copy_that_is_asked_for_again_and_again_is_made_once_in_a_while(
    broker, payloads, clock, fresh
):
    payload = fresh()
    await payloads.store("films", payload, chunks(b"the body"))
    copies = []
    for _ in range(24):
        copies.append(await payloads.copy("films", payload, "others"))
        clock.advance(HOUR_MS)
    assert len(set(copies)) <= 5
    assert len(list(broker.store.list("payloads/"))) == 1 + len(set(copies))
    another = fresh()
    await payloads.store("films", another, chunks(b"another"))
    assert await whole(payloads, "others", str(await payloads.copy("films", another, "others"))) == b"another"


async def test_copies_that_cannot_be(payloads, clock, fresh):
    payload = fresh()
    with pytest.raises(UnknownPayload):
        await payloads.copy("films", payload, "others")
    await payloads.store("films", payload, chunks(b"x"))
    with pytest.raises(PayloadsNotTaken):
        await payloads.copy("films", payload, "plain")
    with pytest.raises(UnknownTopic):
        await payloads.copy("films", payload, "nowhere")
    old = new_payload_id(clock.now_ms() - HALF_A_DAY_MS - 1)
    with pytest.raises(InvalidPayload):
        await payloads.copy("films", payload, "others", old)


async def test_a_store_that_fails_says_so():
    faults = Faults()
    async with running_broker(faults=faults) as broker:
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        payload = str(new_payload_id(broker.clock.now_ms()))
        faults.fail_before("put")
        with pytest.raises(StoreUnavailable):
            await broker.payloads.store("films", payload, chunks(b"x"))
        assert broker.payloads.held_bytes == 0
        await broker.payloads.store("films", payload, chunks(b"x"))


# -- messages that refer to them ------------------------------------------------------------------------------------


def referring(payload_id, text=None):
    return Record(b"", headers=((HEADER, (text or str(Reference(payload_id, 5, 1))).encode()),))


@pytest.fixture
async def memory_broker(clock):
    async with running_broker(clock=clock) as running:
        await running.log.create_topic("films", 1, {"payload": "reference"})
        await running.log.create_topic("plain", 1)
        yield running


async def produce(broker, topic, record):
    await broker.messages.produce(topic, [Record(b"fine"), record], access=OPEN_ACCESS)


async def produce_batch(broker, topic, record):
    data = build_batch([Record(b"fine"), record], now_ms=broker.clock.now_ms())
    await (await broker.messages.submit_batch(topic, 0, data, access=OPEN_ACCESS))


async def produce_large_batch(broker, topic, record):
    records = [Record(b"fine"), record, Record(bytes(100_000))]
    data = build_batch(records, now_ms=broker.clock.now_ms())
    await (await broker.messages.submit_batch(topic, 0, data, access=OPEN_ACCESS))


@pytest.mark.parametrize("way", [produce, produce_batch, produce_large_batch])
async def test_a_message_must_follow_soon_and_be_understood(memory_broker, clock, way):
    payload = new_payload_id(clock.now_ms())
    clock.advance(HALF_A_DAY_MS)
    await way(memory_broker, "films", referring(payload))
    clock.advance(1)
    with pytest.raises(InvalidPayload, match="ago") as caught:
        await way(memory_broker, "films", referring(payload))
    assert caught.value.facts["record"] == 1
    with pytest.raises(InvalidPayload, match="written"):
        await way(memory_broker, "films", referring(payload, "see elsewhere"))
    await way(memory_broker, "plain", referring(payload, "whatever it means there"))
    assert memory_broker.log.partition(memory_broker.log.topics.partition("films", 0)).end_offset <= 3


async def test_a_message_may_have_its_body_with_it(memory_broker):
    await produce(memory_broker, "films", Record(bytes(100_000)))


async def test_what_a_kafka_client_sends_is_passed_through(memory_broker, clock):
    topic_partition = memory_broker.log.topics.partition("films", 0)
    record = referring(None, "not a reference")
    await memory_broker.log.append(topic_partition, build_batch([record], now_ms=clock.now_ms()))
    assert (await memory_broker.read("films"))[0].headers == record.headers


async def test_a_body_counts_as_long_as_a_thread_holds_it_although_its_sender_has_gone(monkeypatch):
    async with running_broker() as broker:
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        opened, entered = threading.Event(), threading.Event()
        put = broker.store.put

        def slowly(key, parts):
            entered.set()
            opened.wait()
            put(key, parts)

        monkeypatch.setattr(broker.payloads._store, "put", slowly)
        payload = str(new_payload_id(broker.clock.now_ms()))
        storing = asyncio.create_task(broker.payloads.store("films", payload, chunks(b"body")))
        try:
            await asyncio.to_thread(entered.wait)
            storing.cancel()
            await asyncio.wait([storing])
            assert broker.payloads.held_bytes == 4
        finally:
            opened.set()
        async with asyncio.timeout(60):
            while broker.payloads.held_bytes:
                await asyncio.sleep(0.01)
