"""Requests to the identity provider: which URLs they may have, and that none takes longer than its limit."""

import contextlib
import socket
import ssl
import threading
import time

import pytest
from tests.each import for_each
from tests.unit.security.x509_certificates import pem_files

from millpond.model.clock import SystemClock
from millpond.security import https_client
from millpond.security.https_client import is_https, send


@for_each("url", ["https://a", "https://a.example:8443/x?y=%20", "https://[::1]:1/", "https://a:65535"])
def test_an_https_url_is_accepted(url):
    assert is_https(url)


@for_each(
    "url",
    [
        *("", "https://", "https:///x", "http://a", "HTTPS://a", "https:a", None, 1, ["https://a"]),
        *("https://[", "https://a]", "https://[x]", "https://a:99999", "https://a:0", "https://a:x"),
        *("https://a b", "https://a\n", "https://a\t/", "https://a/\0", "https://a/\x7f", "https://ä"),
        "https://a\r\nx: y",
    ],
)
def test_another_url_is_refused(url):
    assert not is_https(url)


@contextlib.contextmanager
def serving(folder, respond):
    """An https server that calls `respond` with each connection, until the client closes it. Yields its URL and a
    context that trusts it."""
    chain, private = pem_files(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, private)

    def serve():
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), accepted:
                respond(accepted, context)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield (
                f"https://127.0.0.1:{listener.getsockname()[1]}/",
                ssl.create_default_context(cafile=chain),
            )
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def dripping(first, rest):
    def respond(accepted, context):
        with context.wrap_socket(accepted, server_side=True) as connection:
            connection.sendall(first)
            while True:
                time.sleep(0.02)
                connection.sendall(rest)

    return respond


def silent(accepted, _):
    while accepted.recv(1 << 16):
        pass


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "respond",
    [
        silent,
        dripping(b"", b"x"),
        dripping(HEAD, b"x: y\r\n"),
        dripping(HEAD + b"x: ", b"y"),
        dripping(HEAD + b"content-length: 1000000\r\n\r\n", b"y"),
        dripping(HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\ny\r\n"),
        dripping(HEAD + b"connection: close\r\n\r\n", b"y"),
    ],
)
def test_a_server_that_sends_a_little_now_and_then_does_not_hold_a_request(tmp_path, monkeypatch, respond):
    monkeypatch.setattr(https_client, "TIMEOUT_S", 0.5)
    with serving(tmp_path, respond) as (url, context), pytest.raises(TimeoutError):
        send(url, SystemClock(), context=context)
