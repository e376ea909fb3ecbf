"""The accept path of TLS: limits before and during the handshake, on both event loops."""

import asyncio
import errno
import os
import socket
import ssl

import pytest
import uvloop
from tests.tls import Pki, close, old_client_context, until

from millpond.observability.line_limit import LineLimit
from millpond.security.addresses import AddressLimits, ClientAddresses
from millpond.security.listener import Handshake, HandshakeLimits, TlsListener, bind_sockets, reason_of
from millpond.security.tls import ServerTls
from millpond.testing import SimulatedClock

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request):
    """Runs a coroutine on the event loop of the parameter."""

    def run_on(coroutine):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(coroutine)

    return run_on


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    open_now = 0
    made = 0

    def connection_made(self, transport):
        self.transport = transport
        Echo.open_now += 1
        Echo.made += 1

    def connection_lost(self, exc):
        Echo.open_now -= 1

    def data_received(self, data):
        self.transport.write(data)


class Listening:
    """A listener with an echo service, and its clients."""

    def __init__(self, pki, *, connections_max=1000, addresses=None, **limits):
        self.pki, self.tls = pki, ServerTls(pki.files())
        self._connections_max = connections_max
        self._limits = HandshakeLimits(**limits)
        self.addresses = addresses or ClientAddresses()
        Echo.open_now = Echo.made = 0

    async def __aenter__(self):
        self.listener = TlsListener(
            await bind_sockets("127.0.0.1", 0),
            Echo,
            self.tls,
            interface="kafka",
            may_connect=lambda _, handshakes: Echo.open_now + handshakes < self._connections_max,
            limits=self._limits,
            addresses=self.addresses,
        )
        await self.listener.start_serving()
        self.port = self.listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.listener.close()
        await self.listener.wait_closed()

    async def connect(self, context=None):
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context or self.pki.client_context(), server_hostname="localhost"
        )

    async def plain(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def check_served(self):
        reader, writer = await self.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        await close(writer)


async def ended(reader):
    """Wait until the server has closed a connection."""
    try:
        while await reader.read(1024):
            pass
    except ConnectionResetError:
        pass


def reasons(caplog):
    return [each.reason for each in caplog.records if each.message == "handshake failed"]


def test_a_client_is_served(pki, run):
    async def scenario():
        async with Listening(pki) as service:
            await service.check_served()
            assert (service.listener.handshakes, service.listener.failed, service.listener.refused) == (
                0,
                0,
                0,
            )

    run(scenario())


def test_old_versions_are_refused(pki, run, caplog):
    caplog.set_level("INFO")

    async def scenario():
        async with Listening(pki) as service:
            with pytest.raises(OSError):  # noqa: PT011  # an alert of TLS or a reset: it depends on the event loop
                await service.connect(old_client_context())
            await until(lambda: service.listener.failed == 1)
            await service.check_served()

    with pytest.warns(DeprecationWarning, match="TLSv1"):
        run(scenario())
    assert reasons(caplog) == ["unsupported protocol"]


def test_version_1_2_is_served_with_modern_ciphers_only(pki, run):
    modern, weak = pki.client_context(), pki.client_context()
    for context in (modern, weak):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE+AES:!AESGCM:!AESCCM")
    assert weak.get_ciphers()

    async def scenario():
        async with Listening(pki) as service:
            _, writer = await service.connect(modern)
            name, version, _ = writer.get_extra_info("cipher")
            assert version == "TLSv1.2"
            assert name.startswith("ECDHE-ECDSA-")
            assert "GCM" in name or "CHACHA20" in name
            await close(writer)
            with pytest.raises(OSError):  # noqa: PT011  # as above
                await service.connect(weak)

    run(scenario())


def test_a_plain_client_is_closed_quietly(pki, run, caplog):
    caplog.set_level("INFO")

    async def scenario():
        async with Listening(pki) as service:
            for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x13\0\x12\0\3\0\0\0\1" + bytes(40)):
                reader, writer = await service.plain()
                writer.write(greeting)
                await ended(reader)
                await close(writer)
            await until(lambda: service.listener.failed == 2)
            await service.check_served()

    run(scenario())
    failures = [record for record in caplog.records if record.message == "handshake failed"]
    assert [(each.levelname, each.reason, each.client) for each in failures] == [
        ("INFO", "the client does not use TLS", "127.0.0.1")
    ] * 2
    assert not any(record.exc_info or record.levelno > 20 for record in caplog.records)


def test_failed_handshakes_do_not_fill_the_log(pki, run, caplog):
    caplog.set_level("INFO")

    async def scenario():
        async with Listening(pki) as service:
            service.listener._failure_lines = LineLimit(2)
            for number in range(5):
                reader, writer = await service.plain()
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await ended(reader)
                await close(writer)
                await until(lambda number=number: service.listener.failed == number + 1)

    run(scenario())
    assert caplog.messages.count("handshake failed") == 2


def test_a_client_that_trusts_another_ca_is_counted(pki, run, tmp_path):
    (tmp_path / "other").mkdir()
    stranger = Pki(tmp_path / "other").client_context()

    async def scenario():
        async with Listening(pki) as service:
            with pytest.raises(ssl.SSLCertVerificationError):
                await service.connect(stranger)
            await until(lambda: service.listener.handshakes == 0)
            await service.check_served()

    run(scenario())


def test_a_handshake_that_takes_too_long_is_ended(pki, run, caplog):
    caplog.set_level("INFO")

    async def scenario():
        async with Listening(pki, timeout_s=0.05) as service:
            reader, writer = await service.plain()
            await ended(reader)
            await close(writer)
            await until(lambda: service.listener.handshakes == 0)
            assert service.listener.failed == 1

    run(scenario())
    assert reasons(caplog) == ["it took too long"]


def test_handshakes_of_one_address_are_limited(pki, run):
    async def scenario():
        async with Listening(pki, per_address_max=3) as service:
            silent = [await service.plain() for _ in range(3)]
            await until(lambda: service.listener.handshakes == 3)
            reader, writer = await service.plain()
            await ended(reader)
            assert (service.listener.refused, service.listener.handshakes) == (1, 3)
            await close(writer)
            await close(silent.pop()[1])
            await until(lambda: service.listener.handshakes == 2)
            await service.check_served()
            for _, each in silent:
                await close(each)

    run(scenario())


def test_silent_clients_do_not_keep_others_out(pki, run):
    """Ten times as many as there may be: each one that arrives ends the oldest, and a client is served."""

    async def scenario():
        async with Listening(pki, handshakes_max=8, per_address_max=100) as service:
            silent = [await service.plain() for _ in range(80)]
            await until(lambda: service.listener.refused == 72)
            assert service.listener.handshakes == 8
            await service.check_served()
            assert service.listener.handshakes <= 8
            await asyncio.gather(*(ended(reader) for reader, _ in silent[:72]))
            for _, writer in silent:
                await close(writer)
            await until(lambda: service.listener.handshakes == 0)

    run(scenario())


def test_the_address_with_most_handshakes_makes_room(pki, run, monkeypatch):
    """A lone client of another address keeps its place."""
    addresses = iter(["192.0.2.1", *["198.51.100.9"] * 20])
    monkeypatch.setattr("millpond.security.listener.network_of", lambda _: next(addresses))

    async def scenario():
        async with Listening(pki, handshakes_max=4) as service:
            lone = await service.plain()
            await until(lambda: service.listener.handshakes == 1)
            crowd = [await service.plain() for _ in range(20)]
            await until(lambda: service.listener.refused == 17)
            assert "192.0.2.1" in service.listener._by_network
            for _, writer in [lone, *crowd]:
                await close(writer)

    run(scenario())


def test_connections_are_counted_before_the_handshake(pki, run):
    async def scenario():
        async with Listening(pki, connections_max=2) as service:
            _, established = await service.connect()
            _, silent = await service.plain()
            await until(lambda: service.listener.handshakes == 1)
            reader, third = await service.plain()
            await ended(reader)
            assert (service.listener.refused, Echo.made) == (1, 1)
            for writer in (established, silent, third):
                await close(writer)

    run(scenario())


def test_the_connections_of_an_address_are_limited_during_handshakes(pki, run, monkeypatch):
    monkeypatch.setattr("millpond.security.addresses.LOOPBACK_FACTOR", 1)

    async def scenario():
        addresses = ClientAddresses(AddressLimits(open_max=2, per_second=0))
        async with Listening(pki, addresses=addresses) as service:
            silent = [await service.plain() for _ in range(2)]
            await until(lambda: service.listener.handshakes == 2)
            reader, third = await service.plain()
            await ended(reader)
            assert service.listener.refused == 1
            for _, writer in [*silent, (reader, third)]:
                await close(writer)
            await until(lambda: addresses.open_of("127.0.0.1") == 0)
            await service.check_served()

    run(scenario())


def test_a_connection_that_comes_too_fast_waits_for_its_handshake(pki, run, monkeypatch):
    """The second one would wait for a minute: it is not served, and does not delay the end of the listener."""
    monkeypatch.setattr("millpond.security.addresses.LOOPBACK_FACTOR", 1)

    async def scenario():
        addresses = ClientAddresses(AddressLimits(open_max=0, per_second=1), SimulatedClock(0))
        async with Listening(pki, addresses=addresses) as service:
            await service.check_served()
            handshake = asyncio.create_task(service.connect())
            await until(lambda: any(each.waits is not None for each in service.listener._handshakes))
            assert Echo.made == 1
            [waiting] = service.listener._handshakes
            waiting.begin()  # as its timer does
            _, writer = await handshake
            await until(lambda: Echo.made == 2)
            await close(writer)
            late = [await service.plain() for _ in range(3)]
            await until(lambda: service.listener.handshakes == 3)
        await asyncio.gather(*(ended(reader) for reader, _ in late))
        assert (Echo.made, addresses.open_of("127.0.0.1")) == (2, 0)
        for _, writer in late:
            await close(writer)

    run(scenario())


def test_a_handshake_that_is_ended_before_it_waits_does_not_wait(run):
    """The listener may close before the task of the handshake has begun."""

    async def scenario():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            handshake = Handshake(ours, "192.0.2.1")
            waiting = asyncio.ensure_future(handshake.wait(3_600))
            handshake.end()
            await asyncio.wait_for(waiting, 30)

    run(scenario())


def test_the_timer_of_a_handshake_ends_with_its_task(run):
    """Timers of one loop end in their order: a later one shows that the first one was cancelled."""

    class Counting(Handshake):
        begun = 0

        def begin(self):
            self.begun += 1

    async def scenario():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            handshake = Counting(ours, "192.0.2.1")
            waiting = asyncio.ensure_future(handshake.wait(0.01))
            while handshake.waits is None:
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.sleep(0.05)
            assert handshake.begun == 0

    run(scenario())


def test_a_new_certificate_is_for_new_connections(pki, run):
    async def scenario():
        async with Listening(pki) as service:
            reader, writer = await service.connect()
            first = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            pki.install(pki.issue())
            assert service.tls.reload()
            _, other = await service.connect()
            assert other.get_extra_info("ssl_object").getpeercert(binary_form=True) != first
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"still here"
            await close(writer)
            await close(other)

    run(scenario())


def test_failed_handshakes_leave_no_descriptors(pki, run):
    async def scenario():
        async with Listening(pki, timeout_s=0.05, handshakes_max=4) as service:
            await fail_some(service)  # the first ones may open descriptors of the event loop itself
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                await fail_some(service)
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before)

    async def fail_some(service):
        clients = [await service.plain() for _ in range(10)]
        clients[0][1].write(b"this is not TLS at all")
        await asyncio.gather(*(ended(reader) for reader, _ in clients))
        for _, writer in clients:
            await close(writer)
        await until(lambda: service.listener.handshakes == 0 and not service.listener._tasks)

    run(scenario())


def test_closing_ends_handshakes_and_keeps_connections(pki, run):
    async def scenario():
        async with Listening(pki) as service:
            reader, writer = await service.connect()
            silent, silent_writer = await service.plain()
            await until(lambda: service.listener.handshakes == 1)
            service.listener.close()
            await service.listener.wait_closed()
            await ended(silent)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            with pytest.raises(ConnectionRefusedError):
                await service.plain()
            await close(writer)
            await close(silent_writer)

    run(scenario())


def test_accepting_continues_after_the_system_refused(pki, run, caplog, monkeypatch):
    monkeypatch.setattr("millpond.security.listener.ACCEPT_RETRY_S", 0.0)
    failures = [OSError(errno.EMFILE, "Too many open files")] * 2

    class Exhausted(socket.socket):
        def accept(self):
            if failures:
                raise failures.pop()
            return super().accept()

    async def scenario():
        service = Listening(pki)
        with monkeypatch.context() as patched:
            patched.setattr("millpond.security.listener.socket.socket", Exhausted)
            await service.__aenter__()
        await service.check_served()
        await service.__aexit__()

    run(scenario())
    events = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [each.message for each in events] == ["connections cannot be accepted; will retry"] * 2


async def test_all_addresses_of_a_name_share_one_port():
    sockets = await bind_sockets("localhost", 0)
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for each in sockets:
        each.close()


async def test_a_port_in_use_is_an_error():
    taken = await bind_sockets("127.0.0.1", 0)
    taken[0].listen()
    with pytest.raises(OSError, match="in use"):
        await bind_sockets("127.0.0.1", taken[0].getsockname()[1])
    taken[0].close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionResetError(), "the client disconnected"),
        (ConnectionAbortedError("SSL handshake is taking longer"), "it took too long"),
        (TimeoutError(), "it took too long"),
    ],
)
def test_reasons_are_plain(error, reason):
    assert reason_of(error) == reason
