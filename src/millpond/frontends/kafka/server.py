"""The listener: accepts clients, limits the memory of all connections together, and closes stalled connections."""

import asyncio
import contextlib
import logging

from millpond.frontends.kafka import handlers  # noqa: F401  # handlers register themselves
from millpond.frontends.kafka.authentication import AuthenticationRules
from millpond.frontends.kafka.call import Services
from millpond.frontends.kafka.connection import KafkaConnection
from millpond.frontends.kafka.frames import STAGING_BYTES
from millpond.frontends.kafka.limits import KafkaLimits
from millpond.frontends.kafka.registry import HANDLERS
from millpond.model.addresses import is_loopback
from millpond.observability.line_limit import LineLimit
from millpond.observability.metrics import KafkaMetrics
from millpond.security.addresses import ClientAddresses
from millpond.security.listener import ListenerTls, TlsListener, bind_sockets

DRAIN_S = 10.0
TLS_CLOSE_S = 1.0
"""Time for clients to receive the last responses over TLS and to confirm that the connection is closed."""
IDLE_S_MIN = 0.01
"""Added to the idle time in `make_room`. Without it, the product would be 0 for a connection that is active right
now, and if all were active an arbitrary one would be closed."""

logger = logging.getLogger(__name__)


class KafkaServer:
    """Call `bind` first, which returns the port; `serve` when the services are ready; `run` alongside it. With `tls`
    clients must use TLS."""

    services: Services
    listener: str
    """The listening address, as host:port."""
    authentication: AuthenticationRules
    is_private: bool
    """Whether others cannot read plain connections: they stay on this machine, or come from a proxy that ends TLS."""

    def __init__(
        self,
        limits: KafkaLimits,
        metrics: KafkaMetrics,
        tls: ListenerTls | None = None,
        *,
        behind_tls_proxy: bool = False,
        addresses: ClientAddresses | None = None,
    ) -> None:
        self._limits = limits
        self._tls = tls
        self._behind_tls_proxy = behind_tls_proxy
        self._addresses = addresses or ClientAddresses()
        self.metrics = metrics
        self.staging = bytearray(STAGING_BYTES)
        self._connections: set[KafkaConnection] = set()
        self._waiting: dict[KafkaConnection, None] = {}
        self._held_bytes = 0
        self._swept_version = 0
        """Of users and tokens, when the connections were last checked."""
        self._listener: asyncio.Server | TlsListener | None = None
        self._all_closed = asyncio.Event()
        self._refusal_lines = LineLimit()
        self.lines_before_login = LineLimit()
        names = {key: handler.request.__name__.removesuffix("Request") for key, handler in HANDLERS.items()}
        self._requests = {key: metrics.request(name) for key, name in names.items()}
        self._latencies = {key: metrics.latency(name) for key, name in names.items()}

    async def bind(self, host: str, port: int) -> int:
        """Listen without accepting connections yet. Returns the port, which the system chooses if `port` is 0."""
        self._listener = await self._bind(host, port)
        bound: int = self._listener.sockets[0].getsockname()[1]
        self.listener = f"{host}:{bound}"
        self.is_private = self._behind_tls_proxy or is_loopback(host)
        return bound

    async def _bind(self, host: str, port: int) -> asyncio.Server | TlsListener:
        if self._tls is not None:
            return TlsListener(
                await bind_sockets(host, port),
                lambda: KafkaConnection(self),
                self._tls,
                interface="kafka",
                may_connect=self._may_connect,
                addresses=self._addresses,
            )
        return await asyncio.get_running_loop().create_server(
            lambda: KafkaConnection(self), host, port, backlog=1024, start_serving=False
        )

    async def serve(self, services: Services) -> None:
        assert self._listener is not None, "bind() comes first"
        self.services = services
        self.authentication = AuthenticationRules(
            services.security,
            services.authenticator,
            services.clock,
            services.max_reauth_ms,
        )
        self._swept_version = services.security.version
        await self._listener.start_serving()

    async def run(self) -> None:
        while True:
            await self._until_sweep()
            if self._connections:
                self.sweep(asyncio.get_running_loop().time())

    async def _until_sweep(self) -> None:
        """Until the next sweep is due, or users and tokens have changed: a client that waits, and sends nothing, must
        not keep its connection."""
        look_ms = min(self._limits.sweep_ms, self._limits.revocation_sweep_ms)
        for _ in range(self._limits.sweep_ms // look_ms):
            await asyncio.sleep(look_ms / 1000)
            if self._connections and self.authentication.view.version != self._swept_version:
                return

    async def stop(self) -> None:
        """Stop accepting connections, send responses to the produces in progress, and close all connections."""
        if self._listener is None:
            return
        self._listener.close()
        drains = [asyncio.create_task(connection.drain()) for connection in list(self._connections)]
        if drains:
            _, late = await asyncio.wait(drains, timeout=DRAIN_S)
            for task in late:
                task.cancel()
        for connection in list(self._connections):
            with contextlib.suppress(Exception):
                connection.abort("the broker is stopping")
        if isinstance(self._listener, TlsListener):
            await self._disconnect_encrypted(self._listener)

    async def _disconnect_encrypted(self, listener: TlsListener) -> None:
        """A client that does not confirm that its connection is closed must not keep it."""
        await listener.wait_closed()
        self._all_closed.clear()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TLS_CLOSE_S):
                    await self._all_closed.wait()
        for connection in list(self._connections):
            connection.disconnect()

    def sweep(self, now: float) -> None:
        """Close connections that have been idle or stalled for too long, and those whose access has ended."""
        self._swept_version = self.authentication.view.version
        for connection in list(self._connections):
            if connection.seconds_stalled(now) * 1000 > self._limits.stalled_ms:
                connection.abort("it stopped in the middle of a request, or does not read its responses")
            elif not connection.in_progress and (now - connection.active_at) * 1000 > self._limits.idle_ms:
                connection.abort("it was idle")
            elif (reason := connection.why_access_ends(now)) is not None:
                connection.abort(reason)

    # -- used by connections ---------------------------------------------------------------------------------------

    def _may_connect(self, host: str, handshakes: int = 0) -> bool:
        limit = self.services.broker_configs.connections_max
        if len(self._connections) + handshakes < limit:
            return True
        if self._refusal_lines.admits():
            logger.warning(
                "Kafka connection refused; connection limit reached",
                extra={
                    "client": host,
                    "limit": limit,
                    "unlogged": self._refusal_lines.take_unlogged(),
                },
            )
        return False

    def opened(self, connection: KafkaConnection) -> bool:
        """Whether the connection is served; one that comes too fast after others of its address is read later. An
        encrypted one was admitted when its handshake began."""
        if not self._may_connect(connection.host):
            return False
        if connection.encrypted:
            self._addresses.count(connection.host)
        elif (delay_ms := self._addresses.admit(connection.host)) is None:
            return False
        elif delay_ms > 0:
            asyncio.get_running_loop().call_soon(connection.mute, delay_ms)  # not before the transport reads
        self._connections.add(connection)
        self.metrics.connections.set(len(self._connections))
        return True

    def closed(self, connection: KafkaConnection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._addresses.forget(connection.host)
        self._waiting.pop(connection, None)
        for member in self.services.share_sessions.close_all_of(connection.authentication):
            self.services.share_consumers.release(member)
        self.metrics.connections.set(len(self._connections))
        if not self._connections:
            self._all_closed.set()

    def add_held_bytes(self, change: int) -> None:
        self._held_bytes += change
        if change < 0:
            while self._waiting and self._held_bytes < self._limits.frames_bytes_max:
                connection = next(iter(self._waiting))
                del self._waiting[connection]
                connection.resume_reading()

    def count_request(self, api_key: int) -> None:
        self._requests[api_key].inc()

    def count_response(self, api_key: int, seconds: float) -> None:
        self._latencies[api_key].observe(seconds)

    def wait_for_memory(self, connection: KafkaConnection) -> bool:
        """Whether to stop reading this connection for now."""
        if self._held_bytes < self._limits.frames_bytes_max:
            return False
        self.make_room()
        self._waiting[connection] = None
        return True

    def make_room(self) -> None:
        """Free memory if the limit is reached and most of it is stuck: close the connection with the highest
        product of stuck bytes and idle time, so that a client that makes no progress does not block the others."""
        if self._held_bytes < self._limits.frames_bytes_max:
            return
        stuck = {each: each.stuck_bytes for each in self._connections}
        if sum(stuck.values()) * 2 > self._limits.frames_bytes_max:
            now = asyncio.get_running_loop().time()
            worst = max(stuck, key=lambda each: stuck[each] * (now - each.active_at + IDLE_S_MIN))
            worst.abort("the broker ran out of memory for requests, and this connection made no progress")
