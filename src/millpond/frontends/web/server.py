"""The HTTP listener: accepts clients, closes stalled connections, and drains on stop.

It uses uvicorn's protocol without uvicorn's server, which would handle the process's signals and sleep before
it stops.
"""

import asyncio
import contextlib
import socket
from email.utils import formatdate

from uvicorn.config import Config
from uvicorn.server import ServerState

from millpond.frontends.web.app import Application
from millpond.frontends.web.connection import HttpConnection
from millpond.frontends.web.hosts import Hosts
from millpond.frontends.web.limits import WebLimits
from millpond.frontends.web.site import Site, WebServices
from millpond.security.addresses import ClientAddresses
from millpond.security.listener import ListenerTls, TlsListener

BACKLOG = 1024

__all__ = ["WebServer", "WebServices"]


class WebServer:
    """Call `bind` first, which returns the port; call `serve` when the services are ready. With `tls` clients must use
    TLS. `scheme` is that of the URLs by which clients reach the brokers."""

    application: Application

    def __init__(
        self,
        limits: WebLimits,
        tls: ListenerTls | None = None,
        *,
        scheme: str = "http",
        addresses: ClientAddresses | None = None,
    ) -> None:
        self.limits = limits
        self.addresses = addresses or ClientAddresses()
        self._tls = tls
        self._scheme = scheme
        self.stopping = False
        self._host = ""
        self._socket: socket.socket | None = None
        self._listener: asyncio.Server | TlsListener | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._site: Site | None = None
        self._state = ServerState()
        self._lost = asyncio.Event()

    async def bind(self, host: str, port: int) -> int:
        """Bind the port. Raises OSError if it is not available."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._host = host
        bound: int = self._socket.getsockname()[1]
        return bound

    async def serve(self, services: WebServices) -> None:
        assert self._socket is not None, "bind() comes first"
        hosts = Hosts(self._host, services.listeners.get("http", ""), self._tls)
        self._site = Site(services, self.limits, hosts, self._scheme)
        self.application = Application(self._site)
        self._listener = await self._listen(self._config(self.application), self._socket)
        self._sweeping = asyncio.create_task(self._sweep_periodically())

    async def _listen(self, config: Config, bound: socket.socket) -> asyncio.Server | TlsListener:
        def make_connection() -> HttpConnection:
            return HttpConnection(config, self._state, self)

        if self._tls is None:
            return await asyncio.get_running_loop().create_server(
                make_connection, sock=bound, backlog=BACKLOG
            )
        listener = TlsListener(
            [bound],
            make_connection,
            self._tls,
            interface="http",
            may_connect=self._may_connect,
            addresses=self.addresses,
        )
        await listener.start_serving()
        return listener

    def _may_connect(self, host: str, handshakes: int) -> bool:
        return len(self._state.connections) + handshakes < self.limits.connections_max

    def _config(self, application: Application) -> Config:
        config = Config(
            application,
            interface="asgi3",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=self.limits.idle_ms // 1000,
        )
        config.load()
        return config

    async def stop(self) -> None:
        """Stop accepting connections, finish the requests in progress, and close."""
        if self._socket is None:
            return
        if self._listener is None or self._site is None or self._sweeping is None:
            self._socket.close()
            return
        self.stopping = True
        self._site.pacer.stop()
        self._listener.close()
        if isinstance(self._listener, TlsListener):
            await self._listener.wait_closed()
        self._sweeping.cancel()
        for connection in self._connections():
            connection.shutdown()
        try:
            async with asyncio.timeout(self.limits.drain_ms / 1000):
                await self._drained()
        except TimeoutError:
            await self._abort_connections()
        self._site.close()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeping

    async def _drained(self) -> None:
        watching = asyncio.create_task(self._watch_readers())
        try:
            await self._all_closed()
        finally:
            watching.cancel()

    async def _watch_readers(self) -> None:
        while True:
            for connection in self._connections():
                connection.watch(asyncio.get_running_loop().time())
            await asyncio.sleep(self.limits.watch_at_stop_ms / 1000)

    async def _all_closed(self) -> None:
        while self._state.tasks or self._state.connections:
            if self._state.tasks:
                await asyncio.wait(list(self._state.tasks))
            if self._state.connections:
                self._lost.clear()
                await self._lost.wait()

    async def _abort_connections(self) -> None:
        for connection in self._connections():
            connection.abort()
        late = list(self._state.tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    # -- connections ------------------------------------------------------------------------------------------

    def lost(self) -> None:
        self._lost.set()

    def sweep(self, now: float) -> None:
        for connection in self._connections():
            connection.sweep(now)
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]

    async def _sweep_periodically(self) -> None:
        assert self._site is not None, "it serves"
        while True:
            self.sweep(asyncio.get_running_loop().time())
            self._site.guards.sweep()
            await asyncio.sleep(self.limits.sweep_ms / 1000)

    def _connections(self) -> list[HttpConnection]:
        return [each for each in self._state.connections if isinstance(each, HttpConnection)]
