"""One connection over time: the order of answers, and what every answer has."""

import asyncio
import struct
from contextlib import asynccontextmanager

import pytest
from tests.quirks.client import LATEST, Client, batch_of, fetch_request, produce_request, values
from tests.quirks.wire import request_head, settle, until
from tests.unit.protocol.samples import smallest

from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import HANDLERS
from millpond.log.limits import LogLimits
from millpond.model import errors
from millpond.model.errors import MillpondError, StoreFull
from millpond.protocol import ErrorCode, decode, encode_request
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millpond.testing import Faults, running_broker

METADATA = 3
LONG_MS = 600_000
REFUSED_S = LogLimits().refuse_ms / 1000


async def test_quick_answers_wait_for_the_long_poll_before_them(client):
    """Clients match answers to requests by their order: Java's closes the connection at a correlation id that it did
    not expect, so a quick answer must not overtake a fetch that waits."""
    await client.topic()
    waiting = fetch_request("orders", max_wait_ms=LONG_MS)
    quick = ApiVersionsRequest()
    sent = [client.send(waiting, 11), client.send(quick, 0), client.send(MetadataRequest(topics=[]), 1)]
    early = asyncio.create_task(client.receive())
    async with client.another() as other:
        await until(lambda: any(connection._slots for connection in client.broker.kafka._connections))
        await settle()
        assert not early.done()
        await other.append("orders", b"now")
    answers = [await early, await client.receive(), await client.receive()]
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == sent
    assert client.read(waiting, 11, answers[0], sent[0]).responses[0].partitions[0].high_watermark == 1


async def test_requests_in_one_packet_are_all_answered_in_order(client):
    """Producers with several requests in flight write them in one go; some brokers answered only the first."""
    await client.topic()
    requests = [produce_request("orders", batch_of(b"%d" % number)) for number in range(20)]
    sent = [client.send(request, 9) for request in requests]
    answers = [client.read(requests[0], 9, await client.receive(), each) for each in sent]
    offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
    assert offsets == list(range(20))


async def test_produce_without_acks_is_silent_and_keeps_its_place(client):
    """An answer to acks=0 shifts all answers behind it by one. What follows on the connection must see the records,
    in the order in which they were sent."""
    await client.topic()
    for number in range(5):
        client.send(produce_request("orders", batch_of(b"%d" % number), acks=0), 9)
    answer = await client.produce("orders", batch_of(b"last"))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 5)
    assert (await client.list_offset("orders", LATEST)).offset == 6


@pytest.mark.parametrize(
    ("topic", "batch"), [("unknown", batch_of(b"a")), ("orders", batch_of(b"a")[:-3]), ("orders", None)]
)
async def test_produce_without_acks_that_is_refused_closes_the_connection(client, topic, batch):
    """There is no answer to say no with. Kafka hangs up, which makes producers look at the metadata again; a broker
    that stays silent loses records for as long as its client lives."""
    await client.topic()
    client.send(produce_request(topic, batch, acks=0), 9)
    assert await client.is_closed()


@pytest.mark.parametrize("acks", [2, -2])
async def test_acks_that_do_not_exist_are_refused(client, acks):
    """Old producers could ask for a number of replicas. Kafka refuses what is not -1, 0 or 1."""
    await client.topic()
    answer = await client.produce("orders", batch_of(b"a"), acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)


def tagged(number, data):
    return bytes((number, len(data))) + data


async def test_unknown_tags_are_passed_over_wherever_they_are(client):
    """Tags are how clients newer than the broker say more (KIP-482): a parser that refuses one it does not know
    breaks with the next release of the client."""
    await client.topic()
    unknown = b"\x02" + tagged(7, b"later") + tagged(100, b"")
    topic = bytes(16) + b"\x07orders" + unknown
    body = b"\x02" + topic + b"\x00" + b"\x00" + unknown
    client.write_framed(request_head(METADATA, 12) + unknown + body)
    answer = decode(MetadataResponse, 12, await client.receive(), 5)
    assert [(each.name, each.error_code) for each in answer.topics] == [("orders", ErrorCode.NONE)]


async def test_null_and_empty_arrays_are_told_apart_in_both_forms(client):
    """Null is -1 in the old form and 0 in the compact one, where an empty array is 1: a parser that takes one for
    the other lists no topics, or all of them."""
    await client.topic()
    null, empty = {8: b"\xff\xff\xff\xff", 12: b"\x00"}, {8: b"\x00\x00\x00\x00", 12: b"\x01"}
    rest = {8: bytes(3), 12: bytes(3)}

    async def names(version, array):
        tags = b"\0" if version == 12 else b""
        answer = await client.raw(METADATA, version, array[version] + rest[version], tags)
        return [each.name for each in decode(MetadataResponse, version, answer, 4 + len(tags)).topics]

    for version in (8, 12):
        assert await names(version, null) == ["__consumer_offsets", "orders"]
        assert await names(version, empty) == []


async def test_every_version_that_is_advertised_is_answered_and_throttles_nobody(client):
    """Clients take the highest version both sides have, so each advertised one must work. They also wait for as
    long as `throttle_time_ms` says: it must be there, and 0."""
    for handler in HANDLERS.values():
        versions = handler.request.versions
        for version in range(versions.first, versions.last + 1):
            request = smallest(handler.request, version)
            if hasattr(request, "acks"):
                request.acks = -1
            answer = await client.ask(request, version)
            assert getattr(answer, "throttle_time_ms", 0) == 0, (handler.request.__name__, version)


def leaves(kind):
    below = kind.__subclasses__()
    return [kind] if not below else [leaf for each in below for leaf in leaves(each)]


def test_only_our_own_bugs_have_the_code_that_makes_clients_give_up():
    """UNKNOWN_SERVER_ERROR is fatal to most clients. What can be foreseen, and may pass, has a code of its own."""
    fatal = {kind for kind in leaves(MillpondError) if code_of(kind()) == ErrorCode.UNKNOWN_SERVER_ERROR}
    assert fatal - {errors.Defect} == set(leaves(errors.CannotStart))


async def test_a_full_store_is_a_storage_error_and_passes(tmp_path, loop_time):
    """KAFKA_STORAGE_ERROR is retriable: producers wait and send again, and lose nothing once there is room."""
    faults = Faults()
    batch = batch_of(b"a" * 1000, producer_id=7, producer_epoch=0, base_sequence=0)
    again = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with on_disk(tmp_path, faults) as client:
        await client.topic()
        faults.fail_before("append", StoreFull(reason="no space left"))
        refused = await client.produce("orders", batch)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        code = (await client.produce("orders", batch)).error_code
        assert code in (*again, ErrorCode.NONE)
        loop_time.advance(REFUSED_S)
        answer = await client.produce("orders", batch)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


async def test_a_store_that_cannot_be_read_is_a_storage_error_of_that_partition(tmp_path):
    """The consumer keeps its place and tries again; an unknown error would have ended it."""
    faults = Faults()
    async with on_disk(tmp_path, faults) as client:
        await client.topic()
        await client.append("orders", b"a" * 1000)
    async with on_disk(tmp_path, faults) as client:
        faults.fail_before("read")
        part = await client.fetch("orders")
        assert (part.error_code, values(part)) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert len(values(await client.fetch("orders"))) == 1


@asynccontextmanager
async def on_disk(path, faults):
    """With everything in the store, nothing in the catalog."""
    settings = {"kafka": True, "inline_bytes_max": 0}
    async with running_broker(path, faults=faults, **settings) as broker, Client(broker) as client:
        yield client


async def padded_poll(client, padding):
    request = fetch_request("orders", 1, max_wait_ms=LONG_MS)
    frame = b"".join(bytes(part) for part in encode_request(request, 11, 1, "x").buffers)[4:]
    client.write_framed(frame + bytes(padding))
    await client._writer.drain()


def frames_held(connection):
    """Frames of requests in the local variables of the coroutines that serve this connection."""
    inner = connection._serving.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None)
        if frame is not None and isinstance(frame.f_locals.get("frame"), bytearray):
            yield frame
        inner = getattr(inner, "cr_await", None)


async def test_a_client_that_waits_holds_no_memory(broker):
    """A long poll may be followed by padding; a client whose request was answered holds nothing either."""
    await broker.log.create_topic("orders")
    async with Client(broker) as idle, Client(broker) as waiting:
        await idle.produce("orders", batch_of(b"x" * 500_000))
        await broker.log.delete_records(broker.log.topics.partition("orders", 0), 1)
        await padded_poll(waiting, 400_000)
        await until(lambda: any(connection._slots for connection in broker.kafka._connections))
        assert broker.kafka._held_bytes == 0
        assert [list(frames_held(connection)) for connection in broker.kafka._connections] == [[], []]
