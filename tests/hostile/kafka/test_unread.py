"""Clients that ask and do not read, ask ahead without end, or leave in the middle of anything."""

import socket
import struct
import time

import pytest
from tests.hostile.kafka.siege import (
    BY_HAND,
    FETCH_VERSION,
    GOOD_TOPIC,
    PRODUCE_VERSION,
    STEP_SECONDS,
    eventually,
    fetch_request,
    framed,
    produce_request,
    send_batch,
    values_at,
    written,
)

from millpond.protocol import ErrorCode
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from millpond.records import Record, build_batch

KIB, MIB = 1 << 10, 1 << 20
BATCH_BYTES = 900 * KIB


def fill(siege, topic, mebibytes):
    siege.create_topic(topic)
    with siege.attacker() as wire:
        for _ in range(mebibytes):
            answer = send_batch(wire, topic, build_batch([Record(bytes(BATCH_BYTES))]))
            assert answer.error_code == ErrorCode.NONE


def greedy(offset=0):
    return written(fetch_request("large", offset, bytes_max=20 * MIB), FETCH_VERSION)


def release(siege, topic):
    """Let a fetch have what it waits for."""
    with siege.attacker() as wire:
        assert send_batch(wire, topic, build_batch([Record(b"x")])).error_code == ErrorCode.NONE


def unread(siege):
    """Bytes of answers that connections keep for their clients."""
    return siege.call(lambda: sum(each.unsent_bytes for each in siege.server._connections))


def test_answers_that_nobody_reads_are_bounded_and_then_given_up(attacked_broker, figures):
    """One fetch may be larger than the limit. A second one must not be answered before the first was read."""
    with attacked_broker("answers that nobody reads", stalled_ms=1_000, sweep_ms=20) as siege:
        fill(siege, "large", 16)
        attacker = siege.attacker(receive_bytes=4096)
        most = 0
        attacker.send(greedy() * 500)

        def is_gone():
            nonlocal most
            most = max(most, unread(siege))
            return siege.connections() == 0

        eventually(is_gone, "the connection is closed")
        assert 8 * MIB < most < 2 * 20 * MIB
        figures.append(f"500 fetches of 16 MiB that nobody reads: at most {most / MIB:.1f} MiB kept for them")


def test_a_sign_of_life_now_and_then_is_not_reading(attacked_broker):
    with attacked_broker(
        "answers that nobody reads, and signs of life", stalled_ms=300, sweep_ms=20
    ) as siege:
        fill(siege, "large", 16)
        attacker = siege.attacker(receive_bytes=4096)
        attacker.send(greedy())
        small = written(ApiVersionsRequest(), 0)
        eventually(lambda: not attacker.send(small[:3]), "the connection is closed")


def test_answers_that_are_read_slowly_are_not_given_up(attacked_broker):
    """In all it takes longer than the limit. What the system keeps on the way is less than one piece."""
    with attacked_broker("answers that are read slowly", **BY_HAND) as siege:
        fill(siege, "large", 16)
        attacker = siege.attacker(receive_bytes=64 * KIB)
        ours = siege.served(attacker)
        sends = ours._transport.get_extra_info("socket")
        siege.call(sends.setsockopt, socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
        attacker.send(greedy())
        (length,) = struct.unpack(">i", attacker._exactly(4))
        left, now, looks = length, siege.call(siege.now), 0
        while left:
            piece = attacker._exactly(min(left, 512 * KIB))
            assert piece is not None, f"closed with {left} of {length} bytes to go"
            left -= len(piece)
            looks += siege.call(lambda: ours.is_write_blocked)
            now += STEP_SECONDS
            siege.call(siege.server.sweep, now)
        assert looks > 20, "nearly always there is more to read"


def test_answers_behind_a_slow_one_are_bounded(attacked_broker):
    """The first fetch waits for what never comes; those behind it are ready at once and must wait for it."""
    with attacked_broker("answers behind one that waits") as siege:
        fill(siege, "large", 16)
        siege.create_topic("never")
        attacker = siege.attacker()
        wait = written(fetch_request("never", 0, wait_ms=3_000), FETCH_VERSION)
        attacker.send(wait + greedy() * 60)
        time.sleep(0.5)
        siege.good.prove()
        assert unread(siege) < 2 * 20 * MIB


def test_large_requests_behind_a_slow_one_do_not_starve_others(attacked_broker):
    """The first fetch waits for what never comes, and the second for the first."""
    with attacked_broker("large requests behind one that waits", frames_bytes_max=8 * MIB) as siege:
        siege.create_topic("never")
        wait = written(fetch_request("never", 0, wait_ms=300_000), FETCH_VERSION)
        large = written(produce_request("never", bytes(3 * MIB)), PRODUCE_VERSION)
        for waits in (1, 2):
            attacker = siege.attacker()
            attacker.send(wait * waits + large * 3)
            for _ in range(3):
                siege.good.prove()


def test_small_answers_behind_a_slow_one_are_bounded(attacked_broker):
    """A fetch waits for what comes later; what was asked behind it is ready, and has to wait for it."""
    with attacked_broker("small answers behind one that waits", unread_bytes_max=1_000) as siege:
        siege.create_topic("slow")
        client = siege.attacker()
        wait = written(fetch_request("slow", 0, wait_ms=60_000), FETCH_VERSION)
        client.send(wait + written(ApiVersionsRequest(), 0) * 60)
        eventually(lambda: unread(siege) > 1_000, "some are ready")
        siege.good.prove()
        ready = unread(siege)
        release(siege, "slow")
        sizes = [len(client.receive()) for _ in range(61)]
        assert 1_000 < ready <= 1_000 + 2 * max(sizes) < sum(sizes)


def test_whoever_is_not_read_does_not_stall(attacked_broker):
    """Half a request has come, and no more of it is read, because so many before it wait for an answer of ours."""
    with attacked_broker("a request that we do not read", **BY_HAND) as siege:
        siege.create_topic("slow")
        client = siege.attacker()
        ours = siege.served(client)
        small = written(ApiVersionsRequest(), 0)
        wait = written(fetch_request("slow", 0, wait_ms=60_000), FETCH_VERSION)
        client.send(wait * 2 + small * 20 + small[:-3])
        eventually(
            lambda: siege.call(lambda: ours._reader.in_progress and not ours._is_reading), "it is not read"
        )
        now = siege.call(siege.now)
        for step in range(4):
            siege.call(siege.server.sweep, now + step * STEP_SECONDS)
        release(siege, "slow")
        assert client.receive() is not None, "closed while it was not read"
        client.send(small[-3:])
        for _ in range(22):
            assert client.receive() is not None


def test_a_request_that_waits_for_its_turn_is_given_up_with_its_client(attacked_broker):
    """The only one that waits, behind an answer that is not read."""
    with attacked_broker("a request that waits for its turn") as siege:
        fill(siege, "large", 8)
        for _ in range(5):
            attacker = siege.attacker(receive_bytes=4096)
            attacker.send(greedy())
            eventually(lambda: unread(siege) > MIB, "the answer is not read")
            attacker.send(written(ApiVersionsRequest(), 0))
            time.sleep(0.05)
            attacker.reset()
            eventually(lambda: siege.connections() == 0, "it is gone")


def test_many_half_requests_do_not_starve_a_large_one(attacked_broker, figures):
    """Whoever sends what is larger than theirs is not to blame: those who have waited are."""
    with attacked_broker("many half requests", frames_bytes_max=8 * MIB) as siege:
        siege.create_topic("large")
        half = written(produce_request("large", bytes(600 * KIB)), PRODUCE_VERSION)[: 300 * KIB]
        for _ in range(40):
            siege.attacker().send(half)
        batch = build_batch([Record(bytes(BATCH_BYTES))])

        def come_or_closed():
            come = sum(each._received_bytes == len(half) for each in siege.server._connections)
            return come + len(siege.records.reasons())

        def a_second_later():
            for each in siege.server._connections:
                each.active_at -= 1

        eventually(lambda: siege.call(come_or_closed) == 40, "all have come, and some were closed for it")
        with siege.attacker() as client:
            for _ in range(10):
                siege.call(a_second_later)
                assert send_batch(client, "large", batch).error_code == ErrorCode.NONE
                siege.attacker().send(half)
        left = siege.connections()
        assert 1 < left <= 8 * MIB // (300 * KIB)
        figures.append(f"40 halves of requests of 600 KiB where 8 MiB are allowed: {left} may wait")


def test_ten_thousand_requests_ahead_are_answered_in_order_when_they_are_read(attacked_broker):
    with attacked_broker("ten thousand requests ahead") as siege:
        attacker = siege.attacker()
        attacker.socket.setblocking(False)
        frames = b"".join(written(ApiVersionsRequest(), 0, number) for number in range(10_000))
        sent = stuck = 0
        while sent < len(frames) and stuck < 50:
            try:
                sent += attacker.socket.send(frames[sent : sent + 65_536])
                stuck = 0
            except BlockingIOError:
                stuck += 1
                time.sleep(0.01)
        siege.good.prove()
        assert unread(siege) < 2 * MIB
        attacker.socket.setblocking(True)
        attacker.socket.settimeout(30)
        whole = sent // (len(frames) // 10_000)
        for number in range(whole):
            assert struct.unpack(">i", attacker.receive()[:4]) == (number,)
        assert whole > 100


# -- leaving -------------------------------------------------------------------------------------------------------


def join_request(group):
    member = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[member],
    )


LEAVINGS = ("reset", "close", "finish")
JOIN_VERSION = 2

MOMENTS = {
    "before anything": lambda: b"",
    "in a length": lambda: b"\0\0",
    "in a small frame": lambda: written(ApiVersionsRequest(), 0)[:-3],
    "in a large frame": lambda: written(produce_request(GOOD_TOPIC, bytes(5 * MIB)), PRODUCE_VERSION)[
        : 3 * MIB
    ],
    "in a long poll": lambda: written(fetch_request("never", 0, wait_ms=300_000), FETCH_VERSION),
    # Whoever is not read because it asked so far ahead is only seen to be gone when the first is answered.
    "in many long polls": lambda: written(fetch_request("never", 0, wait_ms=500), FETCH_VERSION) * 100,
    "in a join": lambda: written(join_request("g"), JOIN_VERSION),
    "in a join with more behind it": lambda: (
        written(join_request("g"), JOIN_VERSION) + written(ApiVersionsRequest(), 0) * 20
    ),
    "in a produce": lambda: written(
        produce_request("never", build_batch([Record(bytes(1000))]), partition=1), PRODUCE_VERSION
    ),
    "in many fetches": lambda: greedy() * 20,
    "behind a request that is refused": lambda: framed(b"nothing") + written(ApiVersionsRequest(), 0) * 20,
    "in a produce behind unread answers": lambda: (
        greedy() * 4
        + written(produce_request("never", build_batch([Record(bytes(1000))]), partition=1), PRODUCE_VERSION)
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_leaving_in_the_middle_leaves_nothing_behind(attacked_broker, moment):
    data = MOMENTS[moment]()
    settings = {"group_initial_rebalance_delay": 3_000}
    with attacked_broker(f"leaving {moment}", settings) as siege:
        fill(siege, "large", 3)
        siege.create_topic("never", partitions=2)
        for number in range(60):
            attacker = siege.attacker(receive_bytes=4096)
            attacker.send(data)
            time.sleep(0.003 * (number % 3))
            leave = LEAVINGS[number % len(LEAVINGS)]
            if leave == "close":
                attacker.socket.close()
            else:
                getattr(attacker, leave)()


def test_a_produce_that_was_sent_whole_is_kept_although_its_sender_has_left(attacked_broker):
    """acks=0: it never asked for an answer, so it may well have gone."""
    with attacked_broker("producers that leave at once") as siege:
        siege.create_topic("kept")
        for client in range(20):
            batches = [build_batch([Record(b"%d/%d" % (client, number))]) for number in range(50)]
            requests = [written(produce_request("kept", batch, acks=0), PRODUCE_VERSION) for batch in batches]
            with siege.attacker() as sender:
                sender.send(b"".join(requests))
        with siege.attacker() as reader:
            eventually(lambda: len(values_at(reader, "kept", 0)) == 1_000, "all are there", 10)


def test_a_produce_that_waits_behind_an_unread_answer_is_kept_when_its_sender_leaves(attacked_broker):
    with attacked_broker("producers that leave without reading") as siege:
        fill(siege, "large", 8)
        siege.create_topic("kept")
        sender = siege.attacker(receive_bytes=4096)
        sender.send(greedy())
        eventually(lambda: unread(siege) > MIB, "the answer is not read")
        batches = [build_batch([Record(b"%d" % number)]) for number in range(5)]
        sender.send(
            b"".join(written(produce_request("kept", each, acks=0), PRODUCE_VERSION) for each in batches)
        )
        queued = lambda: sum(len(each._frames) for each in siege.server._connections)  # noqa: E731
        eventually(lambda: siege.call(queued) >= 5, "they wait for their turn")
        sender.reset()
        with siege.attacker() as reader:
            eventually(lambda: len(values_at(reader, "kept", 0)) == 5, "all are there", 10)
