"""The gRPC listener: Millpond's services, MiniKafka's service, health and reflection, on one port."""

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from millpond.frontends.rpc.admin import AdminService
from millpond.frontends.rpc.binding import bind
from millpond.frontends.rpc.cluster import ClusterService
from millpond.frontends.rpc.guarding import CallGuards
from millpond.frontends.rpc.limits import RpcLimits
from millpond.frontends.rpc.log import LogService
from millpond.frontends.rpc.memory import RequestAdmission, ResponseMemory
from millpond.frontends.rpc.minikafka import MiniKafkaService
from millpond.frontends.rpc.outcomes import CallOutcomes
from millpond.frontends.rpc.payloads import PayloadService
from millpond.frontends.rpc.queue import QueueService
from millpond.frontends.rpc.unbound import UNKNOWN_METHOD, GuardedReflection, UnknownMethods
from millpond.log import Transactions
from millpond.observability.metrics import AnswerMetrics
from millpond.queues import QueueLimits, Queues
from millpond.security.gate import Gate
from millpond.service import (
    Administration,
    ClusterAdministration,
    MessageWriter,
    PayloadTransfers,
    Poller,
    SecurityAdministration,
)
from millpond.stubs import admin_pb2, cluster_pb2, log_pb2, minikafka_pb2, payloads_pb2, queue_pb2

LOG = log_pb2.DESCRIPTOR.services_by_name["Log"]
ADMIN = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
MINIKAFKA = minikafka_pb2.DESCRIPTOR.services_by_name["MiniKafka"]
PAYLOADS = payloads_pb2.DESCRIPTOR.services_by_name["Payloads"]
QUEUE = queue_pb2.DESCRIPTOR.services_by_name["Queue"]
CLUSTER = cluster_pb2.DESCRIPTOR.services_by_name["Cluster"]
SERVICES = (LOG, ADMIN, MINIKAFKA, PAYLOADS, QUEUE, CLUSTER)
NAMES = [service.full_name for service in SERVICES]
SERVING = health_pb2.HealthCheckResponse.SERVING
UNLIMITED = -1
KEEPALIVE_MS = 60_000
HANDSHAKE_TIMEOUT_MS = 10_000
"""A TLS handshake that takes longer is ended; gRPC's default is 120 s."""
FINAL_DRAIN_S = 0.2
"""Time for the last responses to reach their clients."""


@dataclass(frozen=True, slots=True)
class RpcServices:
    """The components that the gRPC interface uses."""

    messages: MessageWriter
    poller: Poller
    payloads: PayloadTransfers
    queues: Queues
    queue_limits: QueueLimits
    cluster: ClusterAdministration
    administration: Administration
    security: SecurityAdministration
    gate: Gate
    transactions: Transactions
    metrics: AnswerMetrics
    version: str
    cluster_id: str
    listeners: Mapping[str, str]


class RpcServer:
    """Call `bind` first, which returns the port; call `serve` when the services are ready. With `credentials` clients
    must use TLS."""

    guards: CallGuards

    def __init__(self, limits: RpcLimits, credentials: grpc.ServerCredentials | None = None) -> None:
        self._limits = limits
        self._credentials = credentials
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()
        self._admission = RequestAdmission(limits.requests_bytes_max)
        self._sweeping: asyncio.Task[None] | None = None
        self._log: LogService | None = None
        self._queue: QueueService | None = None

    async def bind(self, host: str, port: int) -> int:
        """Bind the port. Raises OSError if it is not available."""
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._limits.request_bytes_max),
                ("grpc.max_send_message_length", UNLIMITED),
                ("grpc.so_reuseport", 0),  # otherwise a second broker could silently share the port
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),  # detects clients that vanished without closing
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            ],
            maximum_concurrent_rpcs=self._limits.calls_max,
        )
        _check_free(host, port)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._credentials is not None:
                return self._server.add_secure_port(address, self._credentials)
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(None, f"gRPC cannot listen on {address}") from error

    async def serve(self, services: RpcServices) -> None:
        assert self._server is not None, "bind() comes first"
        response_memory = ResponseMemory(self._limits.responses_bytes_max, self._limits.response_bytes_min)
        self._log = LogService(
            services.messages, services.poller, services.transactions, response_memory, self._limits
        )
        admin = AdminService(
            services.administration,
            services.messages,
            services.security,
            version=services.version,
            cluster_id=services.cluster_id,
            listeners=services.listeners,
        )
        self._queue = QueueService(
            services.queues,
            services.administration,
            services.messages,
            response_memory,
            self._limits,
            services.queue_limits,
        )
        servicers = (
            self._log,
            admin,
            MiniKafkaService(services.messages, services.poller, response_memory),
            PayloadService(services.payloads, response_memory),
            self._queue,
            ClusterService(services.cluster, services.cluster_id),
        )
        self._add_handlers(self._server, services, servicers)
        await self._server.start()
        for name in ("", *NAMES):
            await self._health.set(name, SERVING)

    def _add_handlers(
        self, server: grpc.aio.Server, services: RpcServices, servicers: Iterable[object]
    ) -> None:
        guards = self.guards = CallGuards(services.gate)
        retry_after_ms = self._limits.retry_after_ms
        server.add_generic_rpc_handlers(
            tuple(
                bind(
                    service,
                    servicer,
                    self._admission,
                    services.metrics,
                    guards,
                    retry_after_ms=retry_after_ms,
                )
                for service, servicer in zip(SERVICES, servicers, strict=True)
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [*NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME]
        outcomes = CallOutcomes(reflection.SERVICE_NAME, services.metrics, retry_after_ms)
        GuardedReflection(names, guards, outcomes).add_to(server)
        if services.gate.enabled:
            outcomes = CallOutcomes(UNKNOWN_METHOD, services.metrics, retry_after_ms)
            server.add_generic_rpc_handlers((UnknownMethods(guards, outcomes),))
            self._sweeping = asyncio.create_task(guards.streams.run())

    async def stop(self) -> None:
        """Stop accepting calls, end the streams of waiting readers, and send responses to the produces in progress."""
        if self._server is None:
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._health.enter_graceful_shutdown()
        if self._log is not None:
            self.guards.pacer.stop()
            self._log.stop()
        if self._queue is not None:
            self._queue.stop()
        drain_s = self._limits.drain_ms / 1000
        draining = asyncio.create_task(self._server.stop(drain_s))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._admission.until_idle()
        await asyncio.wait([draining], timeout=FINAL_DRAIN_S)
        if not draining.done():  # a client still watches the health service
            await self._server.stop(0)
        await draining


def _check_free(host: str, port: int) -> None:
    """gRPC only reports that binding failed; the system reports why."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.create_server((host, port), family=family).close()
