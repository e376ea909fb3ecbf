"""One client connection: uvicorn's parser and request cycle, with the limits that uvicorn lacks.

Uvicorn never times out an unfinished head, a stalled body or an unread response, and it sends error responses
in the middle of other responses. `sweep`, which the server calls, enforces the time limits.
"""

import logging
import socket
import sys
from http import HTTPStatus
from typing import Final, Protocol

import httptools
import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from millpond.frontends.web.guarding import CERTIFICATE
from millpond.frontends.web.limits import WebLimits
from millpond.frontends.web.schemas import ProblemJson
from millpond.security.addresses import ClientAddresses

HEADER_OVERHEAD: Final = 4
"""The colon, the space and the line end."""
KEEPALIVE_IDLE_S: Final = 60

quiet_logger = logging.getLogger("millpond.frontends.web.uvicorn")
quiet_logger.setLevel(logging.ERROR)
"""Client errors are reported to the client, not logged: any client could flood the log with them."""


class HttpConnectionHost(Protocol):
    """The parts of the server that a connection uses."""

    limits: WebLimits
    addresses: ClientAddresses
    stopping: bool

    def lost(self) -> None: ...


class _HeadTooLarge(Exception):
    """The head of a request exceeds its limit, or too many requests are pipelined."""


class HttpConnection(HttpToolsProtocol):
    """A protocol of asyncio: callbacks of the transport and of the HTTP parser, so there are more than 20."""

    def __init__(self, config: Config, state: ServerState, owner: HttpConnectionHost) -> None:
        super().__init__(config, state, {})
        self.logger = quiet_logger
        self.access_log = False
        self._limits = owner.limits
        self._owner = owner
        self._certificate: bytes | None = None
        self._counted_host: str | None = None
        self._data = b""
        self._in_head = False
        self._is_replaying_headers = False
        self._body_follows = False
        self._head_bytes = 0
        self._head_fed = 0
        self._head_since = 0.0
        self._discarded_bytes = 0
        self._last_received_at = self.loop.time()
        self._idle_since = self._last_received_at
        self._unread_since: float | None = None
        self._closing_since: float | None = None
        self._waiting_bytes = 0
        self._waiting_since: float | None = None

    # -- transport callbacks --------------------------------------------------------------------------------------

    def connection_made(self, transport) -> None:  # type: ignore[no-untyped-def]  # asyncio's, wider than uvicorn's
        super().connection_made(transport)
        _tune(transport.get_extra_info("socket"), self._limits.unread_wait_ms)
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            self._certificate = tls.getpeercert(binary_form=True)
        if self._owner.stopping:
            transport.close()
        elif len(self.connections) > self._limits.connections_max:
            self.refuse(
                503, "TooManyConnections", "No more connections can be served at a time.", retriable=True
            )
        else:
            self._admit(is_encrypted=tls is not None)

    def _admit(self, *, is_encrypted: bool) -> None:
        """Count the connection for its address. An encrypted one was admitted when its handshake began."""
        host, delay_ms = self.client[0] if self.client else "", 0
        if is_encrypted:
            self._owner.addresses.count(host)
        else:
            admitted = self._owner.addresses.admit(host)
            if admitted is None:
                message = "This address has too many open connections, or opens them too fast."
                self.refuse(503, "TooManyConnections", message, retriable=True)
                return
            delay_ms = admitted
        self._counted_host = host
        if delay_ms > 0:
            self.loop.call_soon(self._read_later, delay_ms / 1000)  # not before the transport reads

    def _read_later(self, delay_s: float) -> None:
        if not self.transport.is_closing():
            self.flow.pause_reading()
            self.loop.call_later(delay_s, self._read)

    def _read(self) -> None:
        if not self.transport.is_closing():
            self._idle_since = self.loop.time()
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._counted_host is not None:
            self._owner.addresses.forget(self._counted_host)
            self._counted_host = None
        self._owner.lost()

    def data_received(self, data: bytes) -> None:
        self._last_received_at = self.loop.time()
        self._data = data
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head and not self.transport.is_closing():
            self._head_fed += len(data)  # the parser does not report a header before it is complete
            if self._head_fed > self._limits.head_bytes_max:
                self._refuse_head()

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    # -- parser callbacks -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_replaying_headers:
            return
        super().on_message_begin()
        if self._certificate is not None:
            self.scope[CERTIFICATE] = self._certificate  # type: ignore[typeddict-unknown-key]  # ASGI allows our own
        self._in_head = True
        self._head_bytes = 0
        self._head_fed = 0
        self._head_since = self._last_received_at
        self._discarded_bytes = 0

    def on_url(self, url: bytes) -> None:
        if self._is_replaying_headers:
            return
        super().on_url(url)
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_replaying_headers:
            return
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value) + HEADER_OVERHEAD

    def on_headers_complete(self) -> None:
        if self._is_replaying_headers:
            return
        if self._head_bytes > self._limits.head_bytes_max or len(self.pipeline) >= self._limits.pipelined_max:
            raise _HeadTooLarge
        self._in_head = False
        self._body_follows = self.parser.should_upgrade() and bool(_length_headers(self.headers))
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > self._limits.discarded_bytes_max:
                self.transport.abort()

    def on_message_complete(self) -> None:
        if not self._body_follows:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Uvicorn calls this when a client offers a protocol upgrade, as Java's client does with every first
        request. The connection stays with HTTP/1.1. The parser has treated the body as data of the other
        protocol, so a new parser receives the length headers again and expects the body."""
        offered = sys.exc_info()[1]
        assert isinstance(offered, httptools.HttpParserUpgrade), "called where it was caught"
        rest = self._data[offered.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        if self._body_follows:
            self._body_follows = False
            self._is_replaying_headers = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % _length_headers(self.headers))
            self._is_replaying_headers = False
        if rest:
            self.data_received(rest)

    # -- refusals -------------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Uvicorn calls this when the parser fails or when one of the callbacks above raises."""
        if self._head_bytes > self._limits.head_bytes_max:
            self._refuse_head()
        else:
            self.refuse(400, "BadRequest", "This is not a valid HTTP/1.1 request.")

    def refuse(self, status: int, code: str, message: str, *, retriable: bool = False) -> None:
        """Send an error response and close. A response in progress is finished first, so that the client does
        not take this one for it. If that is not possible, the connection is aborted."""
        cycle = self.cycle
        in_progress = cycle is not None and not cycle.response_complete
        if in_progress and not cycle.more_body:
            cycle.keep_alive = False
            self.flow.pause_reading()
        elif self.pipeline or (in_progress and cycle.response_started):
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(self._refusal(status, ProblemJson(code, message, retriable, {})))
            self.transport.close()

    def _refuse_head(self) -> None:
        self.refuse(431, "HeadTooLarge", "The head of the request is too large.")

    def _refusal(self, status: int, problem: ProblemJson) -> bytes:
        content = msgspec.json.encode(problem)
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(content)}",
            "connection: close",
            *([f"retry-after: {self._limits.retry_after_s}"] if problem.retriable else []),
            "\r\n",
        ]
        return "\r\n".join(lines).encode() + content

    # -- timeouts and shutdown ------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Close the connection if it exceeds one of the time limits."""
        if self._is_unread(now):
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.more_body and _past(self._last_received_at, now, self._limits.body_wait_ms):
                self.refuse(408, "BodyTooSlow", "The body of the request made no progress.")
        elif self._in_head:
            if _past(self._head_since, now, self._limits.head_wait_ms):
                self.refuse(408, "HeadTooSlow", "The head of the request was not complete in time.")
        elif _past(self._idle_since, now, self._limits.idle_ms):
            self.transport.close()

    def shutdown(self) -> None:
        """Finish the request in progress and accept no more. A request whose body is incomplete is refused."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        elif self.cycle.more_body:
            self.refuse(503, "Stopping", "The broker is stopping.", retriable=True)
        else:
            self.cycle.keep_alive = False

    def watch(self, now: float) -> None:
        """Called repeatedly after `shutdown`: aborts the connection if the client stops reading its response."""
        waiting = self.transport.get_write_buffer_size()
        is_idle = waiting == 0 and not self.transport.is_closing()  # over TLS, closing waits for the client
        if self._waiting_since is None or is_idle or waiting != self._waiting_bytes:
            self._waiting_bytes, self._waiting_since = waiting, now
        elif _past(self._waiting_since, now, self._limits.unread_at_stop_ms):
            self.transport.abort()

    def abort(self) -> None:
        self.transport.abort()

    def _is_unread(self, now: float) -> bool:
        """Whether the client does not read: either a response, or the rest of it before the connection closes."""
        if self._closing_since is None and self.transport.is_closing():
            self._closing_since = now
        since = self._unread_since if self._unread_since is not None else self._closing_since
        return since is not None and _past(since, now, self._limits.unread_wait_ms)


def _past(since: float, now: float, limit_ms: int) -> bool:
    return (now - since) * 1000 > limit_ms


def _length_headers(headers: list[tuple[bytes, bytes]]) -> bytes:
    """The headers that give the length of a body; empty if there is no body."""
    found = [
        b"%s: %s\r\n" % (name, value)
        for name, value in headers
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
    ]
    return b"".join(found)


def _tune(connected: socket.socket, wait_ms: int) -> None:
    """Disable Nagle's algorithm, so that a response's body does not wait until its head is acknowledged
    (asyncio does this only for sockets that it created). Enable keepalive, so that the kernel detects a peer
    whose machine is gone."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, wait_ms)
