"""A broker: opens its storage, joins the cluster, and starts and stops its parts in order. `parts.py` lists the parts,
`interfaces.py` the servers."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import Self

from millpond.catalog.database import Database
from millpond.catalog.schema import read_meta
from millpond.cluster import BrokerIdentity, join, leave
from millpond.data_directory import DataDirectory, lock_data_dir
from millpond.frontends.kafka import KafkaServer, Node
from millpond.frontends.rpc import RpcServer
from millpond.frontends.web import NotReady, WebServer
from millpond.interfaces import Interfaces
from millpond.log import AppendResult, Writer
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import (
    CatalogWentBack,
    Defect,
    MillpondError,
    StoreFull,
)
from millpond.model.ids import new_session
from millpond.objects.open import open_store
from millpond.objects.store import ObjectStore
from millpond.observability.loop_lag import LoopLag
from millpond.observability.metrics import Metrics
from millpond.parts import Foundation, HasParts, Substitutes, build_parts
from millpond.process import tune_process
from millpond.records import Record
from millpond.security import OPEN_ACCESS, broker_tokens
from millpond.security.reloader import TlsReloader
from millpond.service import (
    PollRequest,
)
from millpond.settings import Settings
from millpond.storage import BrokerDisk, open_database
from millpond.topology import Lease, RefreshRequests

IN_MEMORY = "memory:"
LOCK_WAITS_PER_LEASE = 12
"""Another broker may be paused in the middle of a commit that holds locks on rows of this broker's
partitions. A commit that waits for them is tried four times before it fails, and this must leave time to
renew the lease."""

logger = logging.getLogger(__name__)
WrapStore = Callable[[ObjectStore], ObjectStore]
WrapDatabase = Callable[[Database], Database]


class Broker(HasParts):
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
        make_refresh_requests: Callable[[], RefreshRequests] | None = None,
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
        self.node_id = self.settings.node_id
        self._wrap_store = wrap_store
        self._wrap_database = wrap_database
        make_requests = make_refresh_requests or self._make_refresh_requests
        self._substitutes = Substitutes(make_writer, make_requests, random, trust_clock)
        self._maintain = maintain
        self._supervised = supervised
        self._listen = listen
        self._interfaces: Interfaces | None = None
        self._tls_reloader: TlsReloader | None = None
        self._directory: DataDirectory | None = None
        self._has_served = False
        self._services: asyncio.Task[None] | None = None
        self._loop_lag = LoopLag(self.metrics.loop_lag)
        self._stopping: asyncio.Task[None] | None = None
        self._failure: asyncio.Future[MillpondError] | None = None

    # -- addresses --------------------------------------------------------------------------------------------

    @property
    def listeners(self) -> dict[str, str]:
        """The address at which clients reach each interface, as `host:port`: `kafka`, `grpc`, `http`."""
        return self._interfaces.listeners if self._interfaces is not None else {}

    @property
    def bound(self) -> dict[str, str]:
        """The address that each interface listens on, which may differ from the one that clients use."""
        return self._interfaces.bound if self._interfaces is not None else {}

    @property
    def kafka_node(self) -> Node | None:
        """This broker's address for Kafka clients; None if the Kafka interface is off."""
        return self._interfaces.kafka_node(self.node_id) if self._interfaces is not None else None

    @property
    def interfaces(self) -> Interfaces:
        assert self._interfaces is not None, "start() comes first"
        return self._interfaces

    @property
    def kafka(self) -> KafkaServer:
        return self.interfaces.kafka

    @property
    def rpc(self) -> RpcServer:
        return self.interfaces.rpc

    @property
    def web(self) -> WebServer:
        return self.interfaces.web

    # -- start ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the broker. It may be called again after a failure."""
        tune_process()
        settings = self.settings
        self.session = new_session()
        self._interfaces = None
        self._has_served = False
        settings.check_audit_topic()
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(self._unlock)
            if settings.uses_data_dir() and not self._supervised:
                self._directory = lock_data_dir(settings.data_dir, is_private=settings.security)
                undo.callback(self._remove_unserved)
            self._interfaces = Interfaces(settings, self.metrics, self.clock)
            undo.push_async_callback(self._interfaces.close)
            if self._listen:
                await self._interfaces.bind()
            base = self._open_storage(undo)
            self.node_id = self._join(base)
            self._failure = asyncio.get_running_loop().create_future()
            self._set_parts(build_parts(settings, base, self.node_id, self._substitutes, self._on_failure))
            await self._start_parts()
            undo.push_async_callback(self._stop_parts)
            self._has_served = True
            await self._serve()
            base.disk.allocate_reserve(self.metrics.disk)
            undo.pop_all()

    def _open_storage(self, undo: contextlib.AsyncExitStack) -> Foundation:
        settings, disk = self.settings, BrokerDisk(self.settings)
        lock_wait_ms = settings.lease // LOCK_WAITS_PER_LEASE
        database = self._wrap_database(
            open_database(settings, name=self.session, lock_wait_ms=lock_wait_ms, reserve=disk.reserve)
        )
        undo.callback(database.close)
        database.migrate()
        store = self._wrap_store(
            open_store(settings.storage_url(), self.session, metrics=self.metrics, reserve=disk.reserve)
        )
        undo.callback(store.close)
        sole_broker = self._is_sole_broker()
        lease = Lease(self.clock, settings.lease, sole_broker=sole_broker)
        return Foundation(self.session, self.clock, self.metrics, disk, database, store, lease, sole_broker)

    def _is_sole_broker(self) -> bool:
        """Whether no other broker can use this catalog: it is in this process, or in the directory that this
        broker has locked."""
        catalog = self.settings.catalog
        return not self._supervised and (
            catalog.startswith(IN_MEMORY) or (not catalog and self._directory is not None)
        )

    def _join(self, base: Foundation) -> int:
        """Join the cluster; returns the node id."""
        settings = self.settings
        identity = BrokerIdentity(
            self.session, self._reachable(), socket.gethostname(), self.bound, settings.node_id
        )
        return join(
            base.database,
            identity,
            lease_ms=settings.lease,
            clock=self.clock,
            sole_broker=base.sole_broker,
            published=settings.published(),
        )

    def _reachable(self) -> dict[str, str]:
        return self.interfaces.reachable()

    async def _start_parts(self) -> None:
        try:
            await self.log.start()
            if self.security.enabled:
                await self.security.refresh()
                await self.topic_quotas.refresh(self.log.read)
            if self.parts.audit_topic is not None:
                await self.parts.audit_topic.open()
        except BaseException:
            await self.log.stop()
            raise
        self.peers.notify_all()
        self._loop_lag.start()
        self._services = asyncio.create_task(self._run_services())
        self._services.add_done_callback(self._on_services_ended)

    async def _run_services(self) -> None:
        parts = self.parts
        async with asyncio.TaskGroup() as services:
            services.create_task(parts.membership.run())
            services.create_task(parts.groups.run())
            services.create_task(parts.queues.run())
            services.create_task(parts.pulling.run())
            services.create_task(parts.transactions.run())
            services.create_task(parts.security.run())
            if parts.security.enabled:
                services.create_task(parts.topic_quotas.run(parts.log.read))
            services.create_task(self.kafka.run())
            if self.interfaces.tls is not None:
                self._tls_reloader = TlsReloader(
                    self.interfaces.tls,
                    on_reload=self._on_certificate,
                    on_refusal=self._on_refused_certificate,
                )
                services.create_task(self._tls_reloader.run())
            if parts.audit_topic is not None:
                services.create_task(parts.audit_topic.run())
            if parts.disk.reserve is not None:
                services.create_task(parts.disk.run())
            if self._maintain:
                services.create_task(parts.maintenance.run())

    def _on_certificate(self) -> None:
        self.parts.peers.renew_channels()
        self.security.audit.certificate_reloaded(self.node_id, self.settings.tls_certificate)

    def _on_refused_certificate(self, reason: str) -> None:
        self.security.audit.certificate_refused(self.node_id, self.settings.tls_certificate, reason)

    def _make_refresh_requests(self) -> RefreshRequests:
        """Other brokers are called over TLS if clients are, with a proof of this broker's identity."""
        tls = self.interfaces.tls
        if tls is None:
            return RefreshRequests(make_metadata=self._call_metadata)
        return RefreshRequests(tls.broker_channel, self._call_metadata)

    def _call_metadata(self) -> Sequence[tuple[str, str]]:
        """The proof of this broker's identity in its calls of other brokers."""
        if not self.security.enabled:
            return ()
        token = broker_tokens.create(self.security.secret, self.node_id, self.clock.now_ms())
        return (("authorization", f"Bearer {token}"),)

    def reload_tls(self) -> None:
        """Use the certificate files for new connections, if they are good. Without TLS it does nothing."""
        if self._tls_reloader is not None:
            self._tls_reloader.request()

    async def _serve(self) -> None:
        with self.database.read() as tx:
            cluster_id = read_meta(tx, "cluster_id")
        await self.interfaces.serve(self.parts, cluster_id, self.why_not_ready)
        self._report_insecure()

    def _report_insecure(self) -> None:
        """Whether the broker listens on what only the setting `insecure` allows."""
        addresses = self.settings.insecure_listeners() if self._listen else []
        self.metrics.security.insecure.set(1 if addresses else 0)
        if addresses:
            self.security.audit.insecure(self.node_id, ", ".join(addresses))

    # -- state ------------------------------------------------------------------------------------------------

    def why_not_ready(self) -> NotReady | None:
        """Why messages are not accepted now; None if they are."""
        if self._stopping is not None or self._failure is None or self._failure.done():
            return NotReady("not_serving", "The broker is starting, stopping, or has failed.")
        try:
            self.parts.disk.check_space()
        except StoreFull as error:
            return NotReady("disk_full", str(error))
        if self.lease.is_overdue:
            return NotReady(
                "lease_overdue", "The broker could not renew its lease: the catalog commits nothing."
            )
        if self.log.failure is not None:
            return NotReady("writes_refused", str(self.log.failure))
        return None

    async def failed(self) -> MillpondError:
        """Wait until the broker can no longer write, and return the reason."""
        assert self._failure is not None, "start() comes first"
        return await asyncio.shield(self._failure)

    # -- stop -------------------------------------------------------------------------------------------------

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
            await self.interfaces.close()
            await self._stop_parts()
            self.database.close()
        self._unlock()

    async def _stop_parts(self) -> None:
        assert self._services is not None, "they have been started"
        self._loop_lag.stop()
        await self.queues.stop()
        self._services.cancel()
        await asyncio.wait([self._services])
        self._services = None
        await self.parts.workers.close()
        self.parts.provider_threads.close()
        await self.payloads.close()
        with contextlib.suppress(MillpondError):
            await self.maintenance.pause.trusts_clock()  # also stores a clock jump since the last check
        if self.parts.audit_topic is not None:
            await self.parts.audit_topic.close()
        await self.log.drain()
        self.store.close()  # otherwise running merges and large reads would continue, and delay the stop
        await self.log.stop()
        if not self._catalog_went_back():
            with contextlib.suppress(MillpondError):
                leave(self.database, self.session, clock=self.clock)
        await self.peers.close()

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
        placed = await self.messages.produce(topic, whole, partition, access=OPEN_ACCESS)
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
