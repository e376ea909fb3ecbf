"""Accepts TLS connections, with limits that apply before and during the handshake.

asyncio's own server knows a connection only when its handshake is complete, so a client that never completes it would
count nowhere. This listener counts a socket from `accept` on. It serves every interface that has a port of its own; a
listener without TLS uses asyncio's server.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from millpond.model.addresses import network_of
from millpond.observability.line_limit import LineLimit
from millpond.security.addresses import ClientAddresses

BACKLOG: Final = 1024
ACCEPTS_PER_TURN: Final = 4
"""Maximum number of sockets that are accepted before the event loop serves other clients."""
ACCEPT_RETRY_S: Final = 1.0
"""Delay after `accept` failed, for example because the process has no file descriptors left."""
NOT_TLS: Final = frozenset({"HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL"})

logger = logging.getLogger(__name__)


class ListenerTls(Protocol):
    """The certificate of a listener; `ServerTls` implements it."""

    @property
    def current(self) -> ssl.SSLContext:
        """For the next handshake."""

    @property
    def names(self) -> frozenset[str]:
        """DNS names and IP addresses in the current certificate, in lower case; a name may begin with `*.`."""


@dataclass(frozen=True, slots=True)
class HandshakeLimits:
    handshakes_max: int = 512
    """Maximum number of handshakes at a time. Beyond it, the oldest handshake of the address that has most of them is
    ended."""
    per_address_max: int = 128
    """Maximum number of handshakes at a time of one IPv4 address or IPv6 /64 network; further ones are refused."""
    timeout_s: float = 10.0
    """A handshake that takes longer is ended."""
    close_timeout_s: float = 30.0
    """Maximum time to send the rest and to wait for the client's closing message when a connection is closed."""


class Handshake:
    """A socket whose handshake is not complete."""

    __slots__ = ("host", "is_ended", "network", "socket", "waits")

    def __init__(self, connected: socket.socket, host: str) -> None:
        self.socket = connected
        self.host = host
        self.network = network_of(host)
        self.is_ended = False
        self.waits: asyncio.Future[None] | None = None
        """While its address opens connections too fast."""

    def end(self) -> None:
        """The handshake then fails by itself, and its socket is closed by the event loop, which owns it."""
        self.is_ended = True
        self.begin()
        with contextlib.suppress(OSError):  # the client may have disconnected
            self.socket.shutdown(socket.SHUT_RDWR)

    async def wait(self, delay_s: float) -> None:
        """Until the time is over, or the handshake is ended."""
        if self.is_ended:  # before its task began
            return
        loop = asyncio.get_running_loop()
        self.waits = loop.create_future()
        timer = loop.call_later(delay_s, self.begin)
        try:
            await self.waits
        finally:
            timer.cancel()

    def begin(self) -> None:
        if self.waits is not None and not self.waits.done():
            self.waits.set_result(None)


class TlsListener:
    """Has the calls of `asyncio.Server` that the interfaces use. `may_connect` receives the client's host and the
    number of handshakes, and returns whether one more connection is within the limit of its interface."""

    def __init__(
        self,
        sockets: list[socket.socket],
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ListenerTls,
        *,
        interface: str,
        may_connect: Callable[[str, int], bool],
        limits: HandshakeLimits | None = None,
        addresses: ClientAddresses | None = None,
    ) -> None:
        self.sockets = tuple(sockets)
        self.failed = 0
        """Number of handshakes that failed."""
        self.refused = 0
        """Number of sockets that were closed without a handshake, or during it because of a limit."""
        self._make_protocol = make_protocol
        self._tls = tls
        self._interface = interface
        self._may_connect = may_connect
        self._limits = limits or HandshakeLimits()
        self._addresses = addresses or ClientAddresses()
        self._handshakes: dict[Handshake, None] = {}
        self._by_network: dict[str, dict[Handshake, None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        self._is_closed = False
        self._failure_lines = LineLimit()

    @property
    def handshakes(self) -> int:
        """Number of handshakes in progress."""
        return len(self._handshakes)

    async def start_serving(self) -> None:
        for each in self.sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
            self._watch(each)

    def close(self) -> None:
        """Accept nothing more, and end the handshakes in progress. Connections continue."""
        if self._is_closed:
            return
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for retry in self._retries.values():
            retry.cancel()
        for each in self.sockets:
            loop.remove_reader(each)
            each.close()
        for handshake in self._handshakes:
            handshake.end()

    async def wait_closed(self) -> None:
        """Until the handshakes that `close` ended are gone."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- accepting --------------------------------------------------------------------------------------------

    def _watch(self, listening: socket.socket) -> None:
        self._retries.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._retry_later(listening, error)
                return
            self._admit(connected, str(address[0]))

    def _retry_later(self, listening: socket.socket, error: OSError) -> None:
        logger.warning(
            "connections cannot be accepted; will retry",
            extra={"interface": self._interface, "error": str(error), "delay_s": ACCEPT_RETRY_S},
        )
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._retries[listening] = loop.call_later(ACCEPT_RETRY_S, self._watch, listening)

    def _admit(self, connected: socket.socket, host: str) -> None:
        handshake = Handshake(connected, host)
        of_network = self._by_network.get(handshake.network, {})
        if len(of_network) >= self._limits.per_address_max or not self._may_connect(host, self.handshakes):
            self._refuse(connected)
            return
        delay_ms = self._addresses.admit(host)
        if delay_ms is None:
            self._refuse(connected)
            return
        if self.handshakes >= self._limits.handshakes_max:
            self._make_room()
        self._begin(handshake, delay_ms / 1000)

    def _refuse(self, connected: socket.socket) -> None:
        self.refused += 1
        connected.close()

    def _make_room(self) -> None:
        """The address with most handshakes is most likely the one that does not complete them."""
        busiest = max(self._by_network.values(), key=len)
        oldest = next(iter(busiest))
        self.refused += 1
        self._forget(oldest)
        oldest.end()

    # -- handshakes -------------------------------------------------------------------------------------------

    def _begin(self, handshake: Handshake, delay_s: float) -> None:
        handshake.socket.setblocking(False)
        handshake.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._handshakes[handshake] = None
        self._by_network.setdefault(handshake.network, {})[handshake] = None
        task = asyncio.get_running_loop().create_task(self._complete(handshake, delay_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _complete(self, handshake: Handshake, delay_s: float) -> None:
        try:
            if delay_s > 0:
                await handshake.wait(delay_s)
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol,
                handshake.socket,
                ssl=self._tls.current,
                ssl_handshake_timeout=self._limits.timeout_s,
                ssl_shutdown_timeout=self._limits.close_timeout_s,
            )
            if handshake.is_ended:
                transport.abort()
        except OSError as error:
            self._on_failure(handshake, error)
        finally:
            self._forget(handshake)

    def _on_failure(self, handshake: Handshake, error: OSError) -> None:
        if self._is_closed:
            return
        if not handshake.is_ended:
            self.failed += 1
        if not self._failure_lines.admits():
            return
        reason = "too many handshakes" if handshake.is_ended else reason_of(error)
        logger.info(
            "handshake failed",
            extra={
                "interface": self._interface,
                "client": handshake.host,
                "reason": reason,
                "unlogged": self._failure_lines.take_unlogged(),
            },
        )

    def _forget(self, handshake: Handshake) -> None:
        if handshake not in self._handshakes:
            return
        del self._handshakes[handshake]
        self._addresses.forget(handshake.host)
        of_network = self._by_network.get(handshake.network)
        if of_network is not None:
            of_network.pop(handshake, None)
            if not of_network:
                del self._by_network[handshake.network]


def reason_of(error: OSError) -> str:
    """Why a handshake failed, in a few words."""
    if isinstance(error, ssl.SSLError):
        if error.reason in NOT_TLS:
            return "the client does not use TLS"
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, TimeoutError | ConnectionAbortedError):
        return "it took too long"
    return "the client disconnected"


async def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of `host`, all on the same port; not yet listening. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(_bind(family, (address[0], port or _port_of(sockets), *address[2:])))
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _port_of(sockets: list[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1]) if sockets else 0


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
