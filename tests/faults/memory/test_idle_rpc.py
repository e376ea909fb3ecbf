"""Memory of idle gRPC connections."""

import contextlib
import socket

import pytest

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def connection(siege):
    return socket.create_connection((siege.host, siege.port), timeout=30)


@pytest.mark.parametrize("count", [200, pytest.param(900, marks=pytest.mark.long)])
def test_many_connections_that_say_nothing_harm_nobody(attacked_broker, count, figures):
    with attacked_broker("idle connections") as siege, contextlib.ExitStack() as crowd:
        before = siege.rss_bytes()
        for _ in range(count):
            crowd.enter_context(connection(siege)).sendall(PREFACE + SETTINGS)
        siege.good.prove()
        each = (siege.rss_bytes() - before) / count / 1024
        figures.append(f"{count} idle gRPC connections: {each:.0f} KiB each")
        assert each < 256
