"""The interfaces of a broker: Kafka, gRPC and HTTP servers, their ports, and the parts of the broker that each uses."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millpond.frontends.kafka import KafkaServer, Node, Services, ShareSessions
from millpond.frontends.rpc import RpcServer, RpcServices
from millpond.frontends.web import NotReady, WebServer, WebServices
from millpond.model.addresses import INTERFACES, is_wildcard, join_address, split_address
from millpond.model.clock import Clock
from millpond.model.errors import InvalidSettings, PortUnavailable
from millpond.observability.metrics import Metrics
from millpond.parts import Parts
from millpond.security.addresses import ClientAddresses
from millpond.security.tls_files import InvalidCertificate
from millpond.settings import Settings
from millpond.version import __version__

if TYPE_CHECKING:
    from millpond.security.tls import ServerTls

KAFKA: Final = "kafka"
GRPC: Final = "grpc"
HTTP: Final = "http"

logger = logging.getLogger(__name__)


def _tls_of(settings: Settings) -> "ServerTls | None":
    files = settings.tls_files()
    if files is None:
        return None
    from millpond.security.tls import ServerTls  # imported here, because it loads `cryptography`

    try:
        return ServerTls(files)
    except InvalidCertificate as error:
        name, value = "tls_certificate", settings.tls_certificate
        raise InvalidSettings(name=name, value=value, reason=str(error)) from error


class Interfaces:
    """Call `bind` first, and `serve` when the parts are ready."""

    def __init__(self, settings: Settings, metrics: Metrics, clock: Clock) -> None:
        self._settings = settings
        self._metrics = metrics
        self._addresses = ClientAddresses(settings.address_limits(), clock, metrics.quotas)
        self.tls = _tls_of(settings)
        """The certificate of all interfaces; None if they are plain."""
        if self.tls is not None:
            expiry = metrics.security.certificate_seconds.labels(settings.tls_certificate)
            expiry.set_function(self.tls.seconds_to_expiry)
        credentials = self.tls.grpc_credentials() if self.tls is not None else None
        self.kafka = KafkaServer(
            settings.kafka_limits(),
            metrics.kafka,
            self.tls,
            behind_tls_proxy=settings.is_behind_tls_proxy(),
            addresses=self._addresses,
        )
        self.rpc = RpcServer(settings.rpc_limits(), credentials)
        self.web = WebServer(
            settings.web_limits(), self.tls, scheme=settings.http_scheme(), addresses=self._addresses
        )
        self.listeners: dict[str, str] = {}
        """The address at which clients reach each interface, as `host:port`: `kafka`, `grpc`, `http`."""
        self.bound: dict[str, str] = {}
        """The address that each interface listens on, which may differ from the one that clients use."""

    async def bind(self) -> None:
        """Bind the ports before anything else is started, because a port in use is the most common reason for
        a failed start."""
        for interface, server in ((KAFKA, self.kafka), (GRPC, self.rpc), (HTTP, self.web)):
            address = self._settings.address(interface)
            if address is None:
                continue
            host, port = address
            try:
                port = await server.bind(host, port)
            except OSError as error:
                name, value = f"{interface}_listen", self._settings.listens(interface)
                reason = error.strerror or str(error)
                raise PortUnavailable(name=name, value=value, reason=reason) from error
            self.bound[interface] = join_address(host, port)
            told = self._settings.advertised(interface)
            shown, advertised = split_address(told) if told else (host, port)
            self.listeners[interface] = join_address(shown, advertised or port)

    def reachable(self) -> dict[str, str]:
        """The addresses to which other brokers may redirect clients that request what this broker owns."""
        return {
            interface: address for interface, address in self.listeners.items() if not is_wildcard(address)
        }

    def kafka_node(self, node_id: int) -> Node | None:
        """This broker's address for Kafka clients; None if the Kafka interface is off."""
        if KAFKA not in self.listeners:
            return None
        return Node(node_id, *split_address(self.listeners[KAFKA]))

    async def serve(
        self, parts: Parts, cluster_id: str, why_not_ready: Callable[[], NotReady | None]
    ) -> None:
        """Accept connections on the bound ports."""
        self._addresses.quota_of = parts.security.quotas.connection_rate
        if KAFKA in self.listeners:
            await self.kafka.serve(self._kafka_services(parts, cluster_id))
        if GRPC in self.listeners:
            await self.rpc.serve(self._rpc_services(parts, cluster_id))
        if HTTP in self.listeners:
            await self.web.serve(self._web_services(parts, why_not_ready))

    async def close(self) -> None:
        """Stop all interfaces concurrently; each one first completes the requests in progress."""
        stops = (self.kafka.stop(), self.rpc.stop(), self.web.stop())
        ends = await asyncio.gather(*stops, return_exceptions=True)
        for interface, error in zip(INTERFACES, ends, strict=True):
            if isinstance(error, BaseException):
                logger.error(
                    "unexpected error while an interface stopped",
                    exc_info=error,
                    extra={"interface": interface, "error": error},
                )

    def _kafka_services(self, parts: Parts, cluster_id: str) -> Services:
        node = self.kafka_node(parts.node_id)
        assert node is not None, "it has been bound"
        return Services(
            log=parts.log,
            groups=parts.groups,
            transactions=parts.transactions,
            share_consumers=parts.share_consumers,
            share_sessions=ShareSessions(),
            clock=parts.clock,
            node=node,
            owners=parts.owners,
            cluster=parts.cluster,
            topic_changes=parts.topic_changes,
            security=parts.security,
            authenticator=parts.authenticator,
            max_reauth_ms=self._settings.max_reauth,
            security_administration=parts.security_administration,
            listener=self.kafka.listener,
            cluster_id=cluster_id,
            config_administration=parts.config_administration,
            share_groups=parts.share_groups,
            limits=self._settings.kafka_limits(),
            group_limits=self._settings.group_limits(),
            transaction_limits=self._settings.transaction_limits(),
        )

    def _rpc_services(self, parts: Parts, cluster_id: str) -> RpcServices:
        return RpcServices(
            messages=parts.messages,
            poller=parts.poller,
            payloads=parts.payloads,
            queues=parts.queues,
            cluster=parts.cluster,
            queue_limits=self._settings.queue_limits(),
            administration=parts.administration,
            security=parts.security_administration,
            gate=parts.gate,
            transactions=parts.transactions,
            metrics=self._metrics.rpc,
            version=__version__,
            cluster_id=cluster_id,
            listeners=self.listeners,
        )

    def _web_services(self, parts: Parts, why_not_ready: Callable[[], NotReady | None]) -> WebServices:
        return WebServices(
            messages=parts.messages,
            poller=parts.poller,
            payloads=parts.payloads,
            queues=parts.queues,
            pulling=parts.pulling,
            administration=parts.administration,
            cluster=parts.cluster,
            security=parts.security_administration,
            gate=parts.gate,
            login=parts.browser_login,
            default_partitions=self._settings.http_partitions,
            metrics_page=parts.metrics_page,
            metrics=self._metrics.web,
            why_not_ready=why_not_ready,
            version=__version__,
            listeners=self.listeners,
        )
