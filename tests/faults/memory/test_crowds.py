"""More clients than there is room for: idle ones by the thousand, and hundreds with half a large request.

The broker runs in its own process here, because its memory is what counts.
"""

import contextlib
import resource
import struct
import time

import pytest
from tests.hostile.kafka.siege import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    ProcessBroker,
    WellBehaved,
    Wire,
    create_topic,
    eventually,
    fetch_request,
    produce_request,
    send_batch,
    written,
)

from millpond.protocol import ErrorCode
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.records import Record, build_batch

KIB, MIB = 1 << 10, 1 << 20
IDLE = 2_000
LARGE_BYTES = 50 * MIB
FILES_BESIDES = 200


@contextlib.contextmanager
def files_allowed(count):
    """Raise this process's limit, and with it that of the brokers it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"{count} files are needed and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def serve(tmp_path):
    """`with serve(setting=value) as (broker, good):` starts a broker with a well-behaved client beside."""

    @contextlib.contextmanager
    def start(**settings):
        broker = ProcessBroker(tmp_path / "data", **settings)
        good = WellBehaved(broker.port)
        try:
            good.start()
            good.prove()
            yield broker, good
            good.prove()
        finally:
            good.stop()
            log = broker.stop()
        assert "unexpected error" not in log, log[-2000:]
        assert "Traceback" not in log, log[-2000:]

    return start


def test_thousands_of_idle_clients_cost_little_and_the_next_is_refused(serve, figures):
    with (
        files_allowed(IDLE + FILES_BESIDES),
        serve(connections_max=IDLE + 1) as (broker, good),
        contextlib.ExitStack() as crowd,
    ):
        before = broker.rss_bytes()
        idle = [crowd.enter_context(Wire(broker.port)) for _ in range(IDLE)]
        for client in idle[::100]:
            assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        each = (broker.rss_bytes() - before) / IDLE
        good.prove()

        for _ in range(20):
            with Wire(broker.port) as late:
                late.send(written(ApiVersionsRequest(), 0))
                assert late.receive() is None, "one too many was let in"
        assert all(client.ask(ApiVersionsRequest(), 0).api_keys for client in idle[::50])

        for client in idle[:500]:
            client.socket.close()
        eventually(lambda: _is_let_in(broker.port), "there is room again")
        assert all(client.ask(ApiVersionsRequest(), 0).api_keys for client in idle[500::50])
        figures.append(
            f"{IDLE} idle clients: {each / KIB:.1f} KiB each;"
            f" the slowest round of the well-behaved one took {good.worst_ms:.0f} ms"
        )
        assert each < 32 * KIB


def _is_let_in(port):
    with Wire(port) as client:
        client.send(written(ApiVersionsRequest(), 0))
        return client.receive() is not None


@pytest.mark.parametrize("halves", [40, pytest.param(200, marks=pytest.mark.long)])
def test_halves_of_large_requests_take_no_more_than_the_limit(serve, figures, halves):
    """All of them would need gibibytes; 256 MiB are allowed, and what malloc keeps comes on top."""
    half = struct.pack(">i", LARGE_BYTES) + bytes(LARGE_BYTES // 2)
    with serve() as (broker, good), contextlib.ExitStack() as crowd:
        before = broker.rss_bytes()
        closed = 0
        for _ in range(halves):
            closed += not crowd.enter_context(Wire(broker.port)).send(half)
        good.prove()
        peak = broker.peak_rss_bytes() - before
        figures.append(
            f"{halves} halves of requests of {LARGE_BYTES // MIB} MiB: {peak / MIB:.0f} MiB at most;"
            f" the slowest round of the well-behaved client took {good.worst_ms:.0f} ms"
        )
        assert peak < 2 * 256 * MIB


def test_large_answers_that_nobody_reads_take_no_more_than_the_limit(serve, figures):
    """Many clients ask for twenty mebibytes each, of more than the caches hold, and read nothing. What is being
    gathered for answers comes on top of the limit; all of it would be gibibytes."""
    readers = 200
    with (
        serve(tail_bytes_max=8 * MIB, cache_bytes_max=8 * MIB) as (broker, good),
        contextlib.ExitStack() as crowd,
    ):
        create_topic(broker.port, "large")
        batch = build_batch([Record(bytes(1000 * KIB))])
        with Wire(broker.port) as client:
            for _ in range(200):
                assert send_batch(client, "large", batch).error_code == ErrorCode.NONE
        before = broker.rss_bytes()
        for number in range(readers):
            client = crowd.enter_context(Wire(broker.port, receive_bytes=4096))
            ask = fetch_request("large", 2 * number % 180, bytes_max=20 * MIB)
            client.send(written(ask, FETCH_VERSION) * 20)
        time.sleep(2)
        good.prove()
        peak = broker.peak_rss_bytes() - before
        figures.append(
            f"{readers} clients that ask for 20 MiB twenty times and read nothing: {peak / MIB:.0f} MiB at most"
        )
        assert peak < 6 * 256 * MIB


def test_a_bomb_in_a_batch_takes_no_more_than_the_limit(serve, figures):
    """Of what the broker must look into, 64 MiB may be unpacked; a few copies of that are made on the way."""
    bomb = build_batch([Record(bytes(400 * MIB), key=b"k")], compression=1)
    with serve() as (broker, good):
        create_topic(broker.port, "compacted", cleanup_policy="compact", max_message_bytes="10000000")
        before = broker.rss_bytes()
        with Wire(broker.port) as client:
            for _ in range(3):
                assert send_batch(client, "compacted", bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
        good.prove()
        peak = broker.peak_rss_bytes() - before
        figures.append(
            f"400 MiB in a batch of {len(bomb) // KIB} KiB: {peak / MIB:.0f} MiB at most;"
            f" the slowest round of the well-behaved client took {good.worst_ms:.0f} ms"
        )
        assert peak < 8 * 64 * MIB


@pytest.mark.parametrize("count", [10_000, pytest.param(99_000, marks=pytest.mark.long)])
def test_requests_of_many_elements_are_survived(serve, figures, count):
    """Nothing forbids them. How long others wait meanwhile is a figure, not an assertion."""
    with serve() as (broker, good):
        create_topic(broker.port, "many")
        fetch, lots = fetch_request("many", 0), produce_request("many", b"")
        fetch.topics[0].partitions *= count
        lots.topic_data[0].partition_data *= count
        asked, slowest = [written(fetch, FETCH_VERSION), written(lots, PRODUCE_VERSION)], []
        with Wire(broker.port) as client:
            for frame in asked:
                good.prove()
                good.worst_ms = 0.0
                client.send(frame)
                assert client.receive() is not None
                good.prove()
                slowest.append(good.worst_ms)
        figures.append(
            f"a request of {count} partitions: others wait {slowest[0]:.0f} ms for a fetch,"
            f" {slowest[1]:.0f} ms for a produce"
        )
