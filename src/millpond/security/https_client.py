"""Requests to the identity provider, over https only, without redirects and proxies, with a limit of size and time."""

import http.client
import io
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from millpond.model.clock import Clock

TIMEOUT_S: Final = 5
"""For the whole request. The system's resolver of names has its own limits."""
RESPONSE_BYTES_MAX: Final = 1 << 20
_PRINTABLE: Final = re.compile("[!-~]+")


class HttpsResponse(NamedTuple):
    """`body` has at most one byte more than `RESPONSE_BYTES_MAX`."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"HttpsResponse(status={self.status})"


def is_https(url: object) -> bool:
    """Whether it is an https URL of printable ASCII characters, with a host and without an invalid port."""
    if not isinstance(url, str) or not url.startswith("https://") or _PRINTABLE.fullmatch(url) is None:
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def send(
    url: str,
    clock: Clock,
    *,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> HttpsResponse:
    """GET an https URL, or POST a form to it. A redirect is a response like others, and is not followed. Raises
    OSError, ValueError and `http.client.HTTPException`."""
    parts = urlsplit(url)
    deadline = _Deadline(clock)
    connection = _Connection(
        str(parts.hostname), parts.port, context or ssl.create_default_context(), deadline
    )
    sent = {"Accept": "application/json", **(headers or {})}
    if form is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        connection.request("GET" if form is None else "POST", path, body=form, headers=sent)
        response = connection.getresponse()
        return HttpsResponse(response.status, _body(response))
    finally:
        connection.close()


def _body(response: http.client.HTTPResponse) -> bytes:
    body = b""
    while len(body) <= RESPONSE_BYTES_MAX and (piece := response.read1(1 << 16)):
        body += piece
    return body


# -- the deadline ---------------------------------------------------------------------------------------------


class _Deadline:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + 1000 * TIMEOUT_S

    def left_s(self) -> float:
        """Raises `TimeoutError` if nothing is left."""
        left_ms = self._ends_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError(f"the server did not send its response within {TIMEOUT_S} s")
        return left_ms / 1000


class _Connection(http.client.HTTPSConnection):
    """http.client has a timeout for each operation of the socket only: a server that sends a byte now and then could
    hold a thread forever."""

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext, deadline: _Deadline) -> None:
        super().__init__(host, port, context=context)
        self._tls = context
        self._deadline = deadline
        self.response_class = _responses_until(deadline)

    def connect(self) -> None:
        plain = self._connected()
        try:
            plain.settimeout(self._deadline.left_s())
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
            self.sock.settimeout(self._deadline.left_s())  # of the request, which is sent at once
        except BaseException:
            plain.close()
            raise

    def _connected(self) -> socket.socket:
        """Try the addresses of the host in turn."""
        failed: OSError = OSError("the host has no address")
        for *_, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            try:
                return socket.create_connection((str(address[0]), self.port), self._deadline.left_s())
            except TimeoutError:
                raise
            except OSError as error:
                failed = error
        raise failed


def _responses_until(deadline: _Deadline) -> type[http.client.HTTPResponse]:
    class DeadlineResponse(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
            super().__init__(sock, *args, **options)
            self.fp = io.BufferedReader(_DeadlineReader(sock, self.fp.detach(), deadline))

    return DeadlineResponse


class _DeadlineReader(io.RawIOBase):
    """What a socket receives until the deadline."""

    def __init__(self, sock: socket.socket, received: io.RawIOBase, deadline: _Deadline) -> None:
        super().__init__()
        self._sock = sock
        self._received = received
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.left_s())
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()
