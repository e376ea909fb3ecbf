"""Frames of every length, whole and in part; and protocols that are not ours."""

import struct

import pytest
from tests.hostile.kafka.siege import (
    BY_HAND,
    FETCH_VERSION,
    PRODUCE_VERSION,
    STEP_SECONDS,
    eventually,
    fetch_request,
    framed,
    produce_request,
    send_batch,
    written,
)

from millpond.protocol import FRAME_BYTES_MAX, LENGTH_BYTES, ErrorCode, decode, read_response_header
from millpond.protocol.messages.produce import ProduceResponse
from millpond.records import Record, build_batch

MIB = 1 << 20
REFUSED_LENGTHS = [-1, -(2**31), 2**31 - 1, FRAME_BYTES_MAX + 1]
FOREIGN = {
    "TLS": (bytes.fromhex("16030100f1010000ed0303") + bytes(32), "it looks like TLS"),
    "HTTP": (b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", "it looks like HTTP"),
    "HTTP with a method longer than four letters": (
        b"OPTIONS * HTTP/1.1\r\n\r\n",
        "begins with the text 'OPTI'",
    ),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "begins with the text 'PRI '"),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", "begins with the text 'SSH-'"),
}


def test_a_length_that_cannot_be_closes_the_connection_and_costs_nothing(attacked_broker):
    with attacked_broker("impossible lengths") as siege:
        for length in REFUSED_LENGTHS:
            attacker = siege.attacker()
            attacker.send(struct.pack(">i", length))
            assert attacker.is_closed()
            assert f"a frame of {length} bytes" in siege.records.reasons()[-1]
        assert siege.held_bytes() < MIB


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\x12\0\0\0\0", b"\0\x12\0\0\0\0\0\1\0\5ab"])
def test_a_frame_too_short_for_a_header_closes_the_connection(attacked_broker, body):
    with attacked_broker(f"a frame of {len(body)} bytes") as siege:
        attacker = siege.attacker()
        attacker.send(framed(body))
        assert attacker.is_closed()


def test_the_largest_frame_is_answered_and_one_byte_more_is_not(attacked_broker):
    """The batch inside is too large, which is for the log to say and not for the interface."""
    overhead = len(written(produce_request("large", bytes(FRAME_BYTES_MAX - 100)), PRODUCE_VERSION)) - (
        FRAME_BYTES_MAX - 100 + LENGTH_BYTES
    )
    with attacked_broker("a frame of 100 MiB") as siege:
        siege.create_topic("large")
        for extra in (0, 1):
            attacker = siege.attacker()
            body = bytes(FRAME_BYTES_MAX - overhead + extra)
            frame = written(produce_request("large", body), PRODUCE_VERSION)
            assert len(frame) == LENGTH_BYTES + FRAME_BYTES_MAX + extra
            attacker.send(frame)
            answer = attacker.receive()
            if extra:
                assert answer is None
            else:
                _, position = read_response_header(answer, 0, PRODUCE_VERSION)
                response = decode(ProduceResponse, PRODUCE_VERSION, answer, position)
                assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_a_length_and_then_silence_is_closed_in_time(attacked_broker):
    with attacked_broker("a length and then silence", stalled_ms=300, sweep_ms=20) as siege:
        silent = [siege.attacker() for _ in range(4)]
        for attacker, begun in zip(silent, (1, 4, 5, 70_000), strict=True):
            attacker.send((struct.pack(">i", FRAME_BYTES_MAX) + bytes(100_000))[:begun])
        assert all(attacker.is_closed() for attacker in silent)
        assert any("it stopped in the middle of a request" in reason for reason in siege.records.reasons())


def test_a_frame_that_comes_byte_by_byte_is_closed_in_time(attacked_broker):
    """Each byte is a sign of life, and all of them together are none."""
    with attacked_broker("a frame that comes byte by byte", stalled_ms=300, sweep_ms=20) as siege:
        attacker = siege.attacker()
        attacker.send(struct.pack(">i", 1_000_000))
        eventually(lambda: not attacker.send(b"\0"), "the connection is closed")


def test_a_large_frame_on_a_slow_line_is_not_a_stalled_one(attacked_broker):
    """It takes longer than the limit in all, and never so long for its next 64 KiB."""
    with attacked_broker("a large frame on a slow line", **BY_HAND) as siege:
        siege.create_topic("slow")
        attacker = siege.attacker()
        ours = siege.served(attacker)
        frame = written(produce_request("slow", bytes(2 * MIB)), PRODUCE_VERSION)
        step = -(-len(frame) // 20)
        sent, now = 0, siege.call(siege.now)

        def has_come():
            return siege.call(lambda: ours._received_bytes) == sent

        while sent < len(frame):
            assert attacker.send(frame[sent : sent + step])
            sent = min(sent + step, len(frame))
            eventually(has_come, "it has come")
            now += STEP_SECONDS
            siege.call(siege.server.sweep, now)
        assert attacker.receive() is not None


def test_an_idle_connection_is_closed_and_one_that_waits_for_us_is_not(attacked_broker):
    """Both have been silent for an hour, or so it looks."""
    with attacked_broker("an idle connection") as siege:
        siege.create_topic("quiet")
        waiting, idle = siege.attacker(), siege.attacker()
        ours = [siege.served(each) for each in (waiting, idle)]
        waiting.send(written(fetch_request("quiet", 0, wait_ms=60_000), FETCH_VERSION))
        eventually(lambda: siege.call(lambda: [each.in_progress for each in ours]) == [1, 0], "one waits")

        def an_hour_later():
            for each in ours:
                each.active_at -= 3_600
            siege.server.sweep(siege.now())

        siege.call(an_hour_later)
        assert idle.is_closed()
        with siege.attacker() as sender:
            assert send_batch(sender, "quiet", build_batch([Record(b"x")])).error_code == ErrorCode.NONE
        assert waiting.receive() is not None
        assert siege.records.reasons() == ["it was idle"]


@pytest.mark.parametrize("kind", FOREIGN)
def test_another_protocol_is_told_apart_and_the_log_says_so(attacked_broker, kind):
    greeting, hint = FOREIGN[kind]
    with attacked_broker(kind) as siege:
        attacker = siege.attacker()
        attacker.send(greeting)
        assert attacker.is_closed()
        [reason] = siege.records.reasons()
        assert hint in reason


def test_a_client_that_was_refused_can_come_again(attacked_broker):
    with attacked_broker("a client that comes again") as siege:
        siege.create_topic("again")
        for _ in range(50):
            attacker = siege.attacker()
            attacker.send(b"\xff\xff\xff\xff")
            assert attacker.is_closed()
        with siege.attacker() as client:
            assert send_batch(client, "again", b"").error_code == ErrorCode.INVALID_RECORD
