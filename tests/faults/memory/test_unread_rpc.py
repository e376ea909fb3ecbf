"""Memory of a broker whose gRPC clients do not read, or stop halfway: bounded, measured on a process."""

import contextlib
import itertools
import time

import grpc
import pytest
from tests.hostile.rpc.siege import Attacker, eventually
from tests.proxy import Proxy

from millpond.stubs import log_pb2

MIB = 1024 * 1024

BACKLOG_BYTES = 64 * MIB

READERS = 24

UNREAD_BYTES_MAX = 600 * MIB

POLLS_BYTES_MAX = 6 * 256 * MIB
"""Answers that are being made or sent may take 256 MiB, and one is there a few times over. All would be gibibytes."""


def produce(topic, value):
    return log_pb2.ProduceRequest(topic=topic, messages=[log_pb2.NewMessage(value=value)]).SerializeToString()


def fill(client, topic):
    """More than the broker would give in one answer."""
    for _ in range(BACKLOG_BYTES // MIB):
        assert client.ask("Log.Produce", produce(topic, bytes(MIB - 200)))[0] is grpc.StatusCode.OK


@pytest.mark.parametrize("as_batches", [False, True], ids=["messages", "batches"])
def test_streams_that_nobody_reads_take_bounded_memory(attacked_broker, figures, as_batches):
    """Each asks for answers as large as there are, takes none, and stays."""
    request = log_pb2.ConsumeRequest(topic="large", bytes_max=2**32 - 1, as_batches=as_batches)
    with attacked_broker("unread streams", tail_bytes_max="8MiB", cache_bytes_max="8MiB") as siege:
        fill(siege.attacker(), "large")
        before = siege.rss_bytes()
        for _ in range(READERS):
            attacker = siege.attacker(("grpc.max_receive_message_length", -1))
            call = attacker.call("unary_stream", "Log.Consume")
            next(call(request.SerializeToString(), timeout=600))
        siege.good.prove()
        peak = siege.peak_rss_bytes() - before
        figures.append(
            f"{READERS} gRPC streams of {BACKLOG_BYTES // MIB} MiB that nobody reads: {peak // MIB} MiB"
        )
        assert peak < UNREAD_BYTES_MAX


def test_polls_that_nobody_takes_take_bounded_memory(attacked_broker, figures):
    """Large answers to many calls of each connection, and a network that lets only their beginning through."""
    request = log_pb2.PollRequest(topic="large", bytes_max=2**32 - 1).SerializeToString()
    with attacked_broker("untaken polls", tail_bytes_max="8MiB", cache_bytes_max="8MiB") as siege:
        fill(siege.attacker(), "large")
        before = siege.rss_bytes()
        with stalling(siege) as narrow:
            polls = [narrow().call("unary_unary", "Log.Poll") for _ in range(READERS)]
            asked = [poll.future(request, timeout=600) for poll in polls for _ in range(4)]
            eventually(lambda: siege.peak_rss_bytes() - before > 100 * MIB, "answers are made")
            peak = settled(lambda: siege.peak_rss_bytes() - before, POLLS_BYTES_MAX)
            siege.good.prove()
        figures.append(f"{len(asked)} gRPC polls of 16 MiB that nobody takes: {peak // MIB} MiB")
        assert peak < POLLS_BYTES_MAX


@contextlib.contextmanager
def stalling(siege):
    """Makes clients behind a network that lets a little through, and then nothing more."""
    proxy = Proxy(siege.address, lambda: ("stall", 20_000))
    with contextlib.ExitStack() as clients:
        clients.callback(proxy.close)
        yield lambda: clients.enter_context(Attacker(proxy.address))


def settled(measure, enough):
    """What is measured, when it has not grown for a second, or has grown enough."""
    last = -1
    while last < (now := measure()) < enough:
        last = now
        time.sleep(1)
    return now


def test_a_stream_that_is_never_read_is_not_read_for_ever(attacked_broker, figures):
    """It writes as fast as it can and takes no answer: the broker holds back, and does not hoard."""
    with attacked_broker("unread results") as siege:
        before = siege.rss_bytes()
        written = itertools.count()
        sent = [0]

        def flood():
            for number in written:
                sent[0] = number
                yield produce("flooded", bytes(20_000))

        call = siege.attacker().call("stream_stream", "Log.ProduceStream")(flood())
        eventually(lambda: sent[0] > 500, "it has written a good deal")
        siege.good.prove()
        peak = siege.peak_rss_bytes() - before
        call.cancel()
        figures.append(f"a gRPC stream that takes no answers: {peak // MIB} MiB")
        assert peak < UNREAD_BYTES_MAX


def test_messages_that_are_too_large_are_refused_and_their_bytes_not_kept(attacked_broker):
    """Buffers that were once needed may be kept for the next; how many of them depends on what the others do
    meanwhile, so that many rounds are compared: bytes that were kept would be there several times over."""
    refused = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    sizes = (2 * MIB, 15 * MIB, 17 * MIB, 40 * MIB)
    rounds, after = 8, []
    with attacked_broker("too large") as siege:
        client = siege.attacker(("grpc.max_send_message_length", -1))
        for _ in range(rounds):
            for size in sizes:
                assert client.ask("Log.Produce", produce("topic", bytes(size)))[0] in refused
                status, results = client.ask("Log.ProduceStream", produce("topic", bytes(size)))
                if status not in refused:  # then the stream lives, and says so of this request
                    [result] = log_pb2.ProduceStreamResponse.FromString(results[0]).results
                    assert result.error.reason == "RECORD_TOO_LARGE"
            siege.good.prove()
            after.append(siege.rss_bytes())
    assert after[-1] - after[0] < (rounds - 1) * sum(sizes) / 2


def test_large_uploads_that_are_cancelled_take_bounded_memory(attacked_broker, figures):
    """All of them may be there at once, a few times over: gRPC reads a request whole before the broker hears of it,
    so that only how many calls there are bounds this. None is there five times."""
    with attacked_broker("uploads") as siege:
        before = siege.rss_bytes()
        request = produce("topic", bytes(15 * MIB))
        calls = [
            siege.attacker().call("unary_unary", "Log.Produce").future(request, timeout=600)
            for _ in range(20)
        ]
        for call in calls[::2]:
            call.cancel()
        siege.good.prove()
        outcomes = {call.code() for call in calls[1::2]}
        peak = siege.peak_rss_bytes() - before
        figures.append(f"20 uploads of 15 MiB at once, half of them cancelled: {peak // MIB} MiB")
        assert outcomes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert peak < 5 * len(calls) * len(request)
