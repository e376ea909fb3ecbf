"""The assembly of a broker: creates its parts from settings, and starts and stops them in order."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

from millpond.catalog.database import Database
from millpond.catalog.schema import read_meta
from millpond.cluster import BrokerIdentity, Membership, join, leave
from millpond.data_directory import DataDirectory, lock_data_dir
from millpond.frontends.kafka import KafkaServer, Node, Services
from millpond.frontends.rpc import RpcServer, RpcServices
from millpond.frontends.web import NotReady, WebServer, WebServices
from millpond.groups import Groups
from millpond.log import AppendResult, Log, Transactions, Writer
from millpond.maintenance import Maintenance, resume
from millpond.model.addresses import INTERFACES, is_wildcard, join_address, split_address
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import (
    CatalogWentBack,
    Defect,
    MillpondError,
    PortUnavailable,
    StoreFull,
)
from millpond.model.ids import new_session
from millpond.objects.disk_reserve import Reserve
from millpond.objects.open import open_store
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import Metrics
from millpond.process import tune_process
from millpond.queues import PullConsumers, Queues
from millpond.records import Record
from millpond.service import (
    Administration,
    ClusterAdministration,
    MessageWriter,
    Owners,
    PayloadTransfers,
    Poller,
    PollRequest,
    Workers,
)
from millpond.settings import Settings
from millpond.storage import BrokerDisk, open_database
from millpond.topology import Lease, Peers, RefreshRequests, ShardOwnership, Shards, TopologyView
from millpond.version import __version__

KAFKA, GRPC, HTTP = "kafka", "grpc", "http"
IN_MEMORY = "memory:"
LOCK_WAITS_PER_LEASE = 12
"""Another broker may be paused in the middle of a commit that holds locks on rows of this broker's
partitions. A commit that waits for them is tried four times before it fails, and this must leave time to
renew the lease."""

logger = logging.getLogger(__name__)
WrapStore = Callable[[ObjectStore], ObjectStore]
WrapDatabase = Callable[[Database], Database]


class Broker:
    """One node of a cluster. `async with Broker(Settings(...)) as broker:` starts it, and drains it at the
    end."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        wrap_store: WrapStore = lambda store: store,
        wrap_database: WrapDatabase = lambda database: database,
        make_writer: Callable[..., Writer] = Writer,
        make_refresh_requests: Callable[[], RefreshRequests] = RefreshRequests,
        random: Random | None = None,
        metrics: Metrics | None = None,
        maintain: bool = True,
        listen: bool = False,
        supervised: bool = False,
        trust_clock: bool = False,
    ) -> None:
        """Without `listen` the broker opens no port and is used only in this process. A `supervised` broker
        shares the data directory, which its supervisor has locked, with other brokers. Pass `metrics` to
        continue the counters of an earlier broker in this process. `trust_clock` ends a pause of retention
        that is stored in the catalog. `random` spreads the retries of commits."""
        self.settings = settings or Settings()
        self.session = new_session()
        self.metrics = metrics or Metrics()
        self.clock = clock or SystemClock()
        self._wrap_store = wrap_store
        self._wrap_database = wrap_database
        self._make_writer = make_writer
        self._make_refresh_requests = make_refresh_requests
        self._random = random
        self._maintain = maintain
        self._supervised = supervised
        self._trust_clock = trust_clock
        self.node_id = self.settings.node_id
        self._listen = listen
        self.listeners: dict[str, str] = {}
        """The address at which clients reach each interface, as `host:port`: `kafka`, `grpc`, `http`."""
        self.bound: dict[str, str] = {}
        """The address that each interface listens on, which may differ from the one that clients use."""
        self._directory: DataDirectory | None = None
        self._has_served = False
        self._services: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._failure: asyncio.Future[MillpondError] | None = None

    @property
    def reserve(self) -> Reserve | None:
        """The disk reserve of an SQLite catalog."""
        return self.disk.reserve

    @property
    def kafka_node(self) -> Node | None:
        """This broker's address for Kafka clients; None if the Kafka interface is off."""
        if KAFKA not in self.listeners:
            return None
        return Node(self.node_id, *split_address(self.listeners[KAFKA]))

    async def start(self) -> None:
        """Start the broker. It may be called again after a failure."""
        tune_process()
        settings = self.settings
        self.session = new_session()
        self.listeners = {}
        self._has_served = False
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(self._unlock)
            if settings.uses_data_dir() and not self._supervised:
                self._directory = lock_data_dir(settings.data_dir)
                undo.callback(self._remove_unserved)
            self.kafka = KafkaServer(settings.kafka_limits(), self.metrics.kafka)
            self.rpc = RpcServer(settings.rpc_limits())
            self.web = WebServer(settings.web_limits())
            undo.push_async_callback(self._close_interfaces)
            if self._listen:
                await self._bind()
            self.disk = BrokerDisk(settings)
            self.database = self._wrap_database(
                open_database(
                    settings,
                    name=self.session,
                    lock_wait_ms=settings.lease // LOCK_WAITS_PER_LEASE,
                    reserve=self.disk.reserve,
                )
            )
            undo.callback(self.database.close)
            self.database.migrate()
            self.store = self._wrap_store(
                open_store(
                    settings.storage_url(), self.session, metrics=self.metrics, reserve=self.disk.reserve
                )
            )
            undo.callback(self.store.close)
            sole_broker = self._is_sole_broker()
            self.lease = Lease(self.clock, settings.lease, sole_broker=sole_broker)
            identity = BrokerIdentity(
                self.session, self._reachable(), socket.gethostname(), self.bound, settings.node_id
            )
            self.node_id = join(
                self.database,
                identity,
                lease_ms=settings.lease,
                clock=self.clock,
                sole_broker=sole_broker,
                published=settings.published(),
            )
            await self._start_parts()
            undo.push_async_callback(self._stop_parts)
            self._has_served = True
            await self._serve()
            self.disk.allocate_reserve(self.metrics.disk)
            undo.pop_all()

    def _is_sole_broker(self) -> bool:
        """Whether no other broker can use this catalog: it is in this process, or in the directory that this
        broker has locked."""
        catalog = self.settings.catalog
        return not self._supervised and (
            catalog.startswith(IN_MEMORY) or (not catalog and self._directory is not None)
        )

    async def _bind(self) -> None:
        """Bind the ports before anything else is started, because a port in use is the most common reason for
        a failed start."""
        for interface, server in ((KAFKA, self.kafka), (GRPC, self.rpc), (HTTP, self.web)):
            address = self.settings.address(interface)
            if address is None:
                continue
            host, port = address
            try:
                port = await server.bind(host, port)
            except OSError as error:
                name, value = f"{interface}_listen", self.settings.listens(interface)
                reason = error.strerror or str(error)
                raise PortUnavailable(name=name, value=value, reason=reason) from error
            self.bound[interface] = join_address(host, port)
            told = self.settings.advertised(interface)
            shown, advertised = split_address(told) if told else (host, port)
            self.listeners[interface] = join_address(shown, advertised or port)

    def _reachable(self) -> dict[str, str]:
        """The addresses to which other brokers may redirect clients that request what this broker owns."""
        return {
            interface: address for interface, address in self.listeners.items() if not is_wildcard(address)
        }

    async def _serve(self) -> None:
        with self.database.read() as tx:
            cluster_id = read_meta(tx, "cluster_id")
        if KAFKA in self.listeners:
            await self.kafka.serve(self._kafka_services(cluster_id))
        if GRPC in self.listeners:
            await self.rpc.serve(self._rpc_services(cluster_id))
        if HTTP in self.listeners:
            await self.web.serve(self._web_services())

    async def _close_interfaces(self) -> None:
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

    def _kafka_services(self, cluster_id: str) -> Services:
        assert self.kafka_node is not None, "it has been bound"
        return Services(
            log=self.log,
            groups=self.groups,
            transactions=self.transactions,
            clock=self.clock,
            node=self.kafka_node,
            owners=self.owners,
            cluster=self.cluster,
            listener=self.kafka.listener,
            cluster_id=cluster_id,
            auto_create_topics=self.settings.auto_create_topics,
            default_partitions=self.settings.default_partitions,
            limits=self.settings.kafka_limits(),
            group_limits=self.settings.group_limits(),
            transaction_limits=self.settings.transaction_limits(),
        )

    def _rpc_services(self, cluster_id: str) -> RpcServices:
        return RpcServices(
            messages=self.messages,
            poller=self.poller,
            payloads=self.payloads,
            queues=self.queues,
            cluster=self.cluster,
            queue_limits=self.settings.queue_limits(),
            administration=self.administration,
            transactions=self.transactions,
            metrics=self.metrics.rpc,
            version=__version__,
            cluster_id=cluster_id,
            listeners=self.listeners,
        )

    def _web_services(self) -> WebServices:
        return WebServices(
            messages=self.messages,
            poller=self.poller,
            payloads=self.payloads,
            queues=self.queues,
            pulling=self.pulling,
            administration=self.administration,
            cluster=self.cluster,
            default_partitions=self.settings.http_partitions,
            expose_metrics=self.metrics.expose,
            metrics=self.metrics.web,
            why_not_ready=self.why_not_ready,
            version=__version__,
            listeners=self.listeners,
        )

    def why_not_ready(self) -> NotReady | None:
        """Why messages are not accepted now; None if they are."""
        if self._stopping is not None or self._failure is None or self._failure.done():
            return NotReady("not_serving", "The broker is starting, stopping, or has failed.")
        try:
            self.disk.check_space()
        except StoreFull as error:
            return NotReady("disk_full", str(error))
        if self.lease.is_overdue:
            return NotReady(
                "lease_overdue", "The broker could not renew its lease: the catalog commits nothing."
            )
        if self.log.failure is not None:
            return NotReady("writes_refused", str(self.log.failure))
        return None

    async def _start_parts(self) -> None:
        settings = self.settings
        self._failure = asyncio.get_running_loop().create_future()
        self.topology = TopologyView()
        self.peers = Peers(
            self.topology, self.session, self._make_refresh_requests(), may_exist=not self._is_sole_broker()
        )
        self.log = Log(
            self.database,
            self.store,
            self.session,
            clock=self.clock,
            limits=settings.log_limits(),
            broker_defaults=settings.topic_defaults(),
            metrics=self.metrics.log,
            on_failure=self._on_failure,
            view=self.topology,
            lease=self.lease,
            peers=self.peers,
            make_writer=self._make_writer,
            random=self._random,
            check_disk_space=self.disk.check_space,
        )
        self.coordinator_epochs = Shards(self.lease)
        shard_ownership = ShardOwnership(self.coordinator_epochs, self.topology, self.session)
        self.maintenance = Maintenance(
            self.log.upkeep,
            self.topology,
            self.store,
            self.session,
            clock=self.clock,
            limits=settings.maintenance_limits(),
            metrics=self.metrics.maintenance,
            free_bytes=self.disk.free_bytes,
            resumed=resume(self.database, self.clock, trust_clock=self._trust_clock),
        )
        self.transactions = Transactions(
            self.log,
            self.session,
            self.coordinator_epochs,
            clock=self.clock,
            limits=settings.transaction_limits(),
            trusts_clock=self.maintenance.guard.trusts_clock,
        )
        self.groups = Groups(
            self.log,
            self.session,
            self.coordinator_epochs,
            clock=self.clock,
            limits=settings.group_limits(),
            trusts_clock=self.maintenance.guard.trusts_clock,
        )
        self.owners = owners = Owners(self.topology, self.session)
        self._workers = Workers()
        self.messages = MessageWriter(
            self.log,
            owners,
            self._workers,
            clock=self.clock,
            auto_create_topics=settings.auto_create_topics,
            default_partitions=settings.default_partitions,
            limits=settings.service_limits(),
            payload_limits=settings.payload_limits(),
        )
        self.payloads = PayloadTransfers(
            self.log, self.store, clock=self.clock, limits=settings.payload_limits()
        )
        self.poller = Poller(self.log, owners, self._workers, limits=settings.service_limits())
        self.administration = Administration(
            self.log, self.groups, owners, default_partitions=settings.default_partitions
        )
        self.queues = Queues(
            self.log,
            self.session,
            clock=self.clock,
            limits=settings.queue_limits(),
            metrics=self.metrics.queues,
            copy_body=self.payloads.copy,
        )
        self.pulling = PullConsumers(self.queues, settings.queue_limits())
        self.membership = Membership(
            self.log,
            self.topology,
            self.peers,
            self.session,
            self.lease,
            partition_holders=(self.queues, self.log),
            shard_holders=(shard_ownership, self.groups),
            clock=self.clock,
            lease_ms=settings.lease,
            metrics=self.metrics.cluster,
        )
        self.cluster = ClusterAdministration(self.log, self.topology, self.peers, self.session)
        self.topology.subscribe(shard_ownership.apply)
        self.topology.subscribe(self.groups.drop_lost)
        self.topology.subscribe(self.membership.on_topology)
        try:
            await self.log.start()
        except BaseException:
            await self.log.stop()
            raise
        self.peers.notify_all()
        self._services = asyncio.create_task(self._run_services())
        self._services.add_done_callback(self._on_services_ended)

    async def _run_services(self) -> None:
        async with asyncio.TaskGroup() as services:
            services.create_task(self.membership.run())
            services.create_task(self.groups.run())
            services.create_task(self.queues.run())
            services.create_task(self.pulling.run())
            services.create_task(self.transactions.run())
            services.create_task(self.kafka.run())
            if self.disk.reserve is not None:
                services.create_task(self.disk.run())
            if self._maintain:
                services.create_task(self.maintenance.run())

    async def stop(self) -> None:
        """Drain: accept no new requests, complete the accepted ones, leave the cluster, release the
        directory. If the caller is cancelled, the drain continues, and the caller may call this again."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._services is not None:
            await self.membership.leave()
            self.poller.stop()
            self.pulling.stop()
            await self._close_interfaces()
            await self._stop_parts()
            self.database.close()
        self._unlock()

    async def _stop_parts(self) -> None:
        assert self._services is not None, "they have been started"
        await self.queues.stop()
        self._services.cancel()
        await asyncio.wait([self._services])
        self._services = None
        await self._workers.close()
        await self.payloads.close()
        with contextlib.suppress(MillpondError):
            await self.maintenance.pause.trusts_clock()  # also stores a clock jump since the last check
        await self.log.drain()
        self.store.close()  # otherwise running merges and large reads would continue, and delay the stop
        await self.log.stop()
        if not self._catalog_went_back():
            with contextlib.suppress(MillpondError):
                leave(self.database, self.session, clock=self.clock)
        await self.peers.close()

    async def failed(self) -> MillpondError:
        """Wait until the broker can no longer write, and return the reason."""
        assert self._failure is not None, "start() comes first"
        return await asyncio.shield(self._failure)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- simple calls -----------------------------------------------------------------------------------------

    async def produce(self, topic: str, *records: Record | bytes, partition: int = 0) -> AppendResult:
        """Append records to a topic, which is created if necessary. Returns when they are durable."""
        whole = [Record(value=each) if isinstance(each, bytes) else each for each in records]
        placed = await self.messages.produce(topic, whole, partition)
        return AppendResult(placed[0].offset, self._log_start(topic, partition), placed[0].timestamp)

    async def read(
        self, topic: str, offset: int = 0, *, partition: int = 0, wait_ms: int = 0
    ) -> list[Record]:
        """Records from `offset` on, up to about 1 MiB. Waits up to `wait_ms` for the first one."""
        request = PollRequest(topic, {partition: offset}, wait_ms=wait_ms, strict=True, committed=False)
        return [record for _, record in (await self.poller.poll(request)).records]

    def _log_start(self, topic: str, partition: int) -> int:
        return self.log.partition(self.log.topics.partition(topic, partition)).log_start

    def _on_failure(self, error: MillpondError) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(error)

    def _catalog_went_back(self) -> bool:
        """Whether the catalog was restored to an earlier state. If so, nothing is handed over: other brokers
        would continue at the catalog's current end and collect the objects that it no longer knows, before an
        operator has looked."""
        failure = self._failure
        return failure is not None and failure.done() and isinstance(failure.result(), CatalogWentBack)

    def _on_services_ended(self, services: "asyncio.Task[None]") -> None:
        """Services end only when they are cancelled. Otherwise it is a bug, and the broker must stop."""
        if not services.cancelled() and (error := services.exception()) is not None:
            logger.critical(
                "unexpected error in a service; broker is shutting down",
                exc_info=error,
                extra={"error": error},
            )
            self._on_failure(Defect(reason=f"a service ended: {error!r}"))

    def _remove_unserved(self) -> None:
        """Remove what a failed start has created. Once a client may have received a response, everything
        stays."""
        if self._directory is not None and not self._has_served:
            self._directory.remove_if_created()

    def _unlock(self) -> None:
        if self._directory is not None:
            self._directory.unlock()
            self._directory = None
