"""The proxy itself: it passes on, holds, and cuts."""

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.faults.processes.proxy import Proxy, proxy_to

SILENCE_SECONDS = 0.2


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that says everything back, in capitals, to one client at a time."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(100):
                        connection.sendall(data.upper())

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[Proxy]:
    with proxy_to(echo) as made:
        yield made


def connect(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def hears_nothing(client: socket.socket) -> bool:
    client.settimeout(SILENCE_SECONDS)
    try:
        return client.recv(100) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)


def test_what_is_said_passes(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"HELLO"


@pytest.mark.parametrize("fault", ["silence", "hold_answers"])
def test_what_is_held_arrives_when_it_heals(proxy: Proxy, fault: str) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(100) == b"A"
        getattr(proxy, fault)()
        client.sendall(b"b")
        assert hears_nothing(client)
        proxy.heal()
        assert client.recv(100) == b"B"


def test_connections_are_refused(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(100) == b"A"
        proxy.refuse()
        assert client.recv(100) == b""
    with connect(proxy) as client:
        assert client.recv(100) == b""
    proxy.heal()
    with connect(proxy) as client:
        client.sendall(b"c")
        assert client.recv(100) == b"C"
