"""The parts of a running broker, from the bottom to the top, and what each of them is built from."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from millpond.catalog.database import Database
from millpond.cluster import Membership
from millpond.groups import Groups
from millpond.log import Log, Transactions, Writer
from millpond.log.topic_quotas import TopicQuotas
from millpond.maintenance import Maintenance, resume
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError
from millpond.model.group_configs import GroupConfigs
from millpond.model.ids import AUDIT_TOPIC, Session
from millpond.model.share_groups import ShareGroupConfig
from millpond.objects.store import ObjectStore
from millpond.observability.metrics import Metrics
from millpond.queues import PullConsumers, Queues, ShareConsumers
from millpond.security import SecurityView
from millpond.security.audit import AuditLog
from millpond.security.authenticator import Authenticator
from millpond.security.gate import Gate
from millpond.security.provider_threads import ProviderThreads
from millpond.security.sessions import Sessions
from millpond.service import (
    Administration,
    AuditedTopicChanges,
    AuditTopic,
    BrowserLogin,
    ClusterAdministration,
    ConfigAdministration,
    MessageWriter,
    MetricsPage,
    Owners,
    PayloadTransfers,
    Poller,
    SecurityAdministration,
    ShareGroups,
    Workers,
)
from millpond.settings import Settings
from millpond.storage import BrokerDisk
from millpond.topology import (
    BrokerConfigs,
    DynamicConfigView,
    Lease,
    OwnedShards,
    Peers,
    RefreshRequests,
    TopologyView,
)

if TYPE_CHECKING:
    from millpond.security.oidc import IdentityProvider


@dataclass(frozen=True, slots=True)
class Foundation:
    """What a broker has when it joins the cluster. The parts are built on it."""

    session: Session
    clock: Clock
    metrics: Metrics
    disk: BrokerDisk
    database: Database
    store: ObjectStore
    lease: Lease
    sole_broker: bool
    """Whether no other broker can use the catalog."""


@dataclass(frozen=True, slots=True)
class Substitutes:
    """What a simulation replaces. `random` spreads the retries of commits. `trust_clock` ends a pause of retention
    that is stored in the catalog."""

    make_writer: Callable[..., Writer] = Writer
    make_refresh_requests: Callable[[], RefreshRequests] = RefreshRequests
    random: Random | None = None
    trust_clock: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    node_id: int
    clock: Clock
    disk: BrokerDisk
    database: Database
    store: ObjectStore
    lease: Lease
    topology: TopologyView
    configs: DynamicConfigView
    peers: Peers
    log: Log
    owned_shards: OwnedShards
    maintenance: Maintenance
    transactions: Transactions
    groups: Groups
    queues: Queues
    pulling: PullConsumers
    share_consumers: ShareConsumers
    membership: Membership
    owners: Owners
    workers: Workers
    metrics_page: MetricsPage
    messages: MessageWriter
    payloads: PayloadTransfers
    poller: Poller
    topic_changes: AuditedTopicChanges
    share_groups: ShareGroups
    administration: Administration
    cluster: ClusterAdministration
    config_administration: ConfigAdministration
    security: SecurityView
    topic_quotas: TopicQuotas
    audit_topic: AuditTopic | None
    provider_threads: ProviderThreads
    authenticator: Authenticator
    gate: Gate
    sessions: Sessions
    browser_login: BrowserLogin
    security_administration: SecurityAdministration


def build_parts(
    settings: Settings,
    base: Foundation,
    node_id: int,
    substitutes: Substitutes,
    on_failure: Callable[[MillpondError], None],
) -> Parts:
    """Build the parts of a broker that has joined; nothing is started. `on_failure` is called when the broker can no
    longer write."""
    session, clock, metrics = base.session, base.clock, base.metrics
    topology = TopologyView()
    configs = DynamicConfigView(GroupConfigs(settings.group_config_bounds()))
    peers = Peers(topology, session, substitutes.make_refresh_requests(), may_exist=not base.sole_broker)
    topic_quotas = TopicQuotas(lambda: security.quotas.stored, exempt=_written_by_brokers(settings))
    log = Log(
        base.database,
        base.store,
        session,
        clock=clock,
        limits=settings.log_limits(),
        broker_defaults=settings.topic_defaults(),
        metrics=metrics.log,
        on_failure=on_failure,
        view=topology,
        configs=configs,
        lease=base.lease,
        peers=peers,
        make_writer=substitutes.make_writer,
        random=substitutes.random,
        check_disk_space=base.disk.reserve.check if base.disk.reserve is not None else _has_space,
        full_topics=topic_quotas.full,
    )
    broker_configs = BrokerConfigs(node_id, settings.broker_configs(), configs, log.topics)
    owned_shards = OwnedShards(base.lease, topology, session)
    maintenance = Maintenance(
        log.upkeep,
        topology,
        base.store,
        session,
        clock=clock,
        limits=settings.maintenance_limits(),
        metrics=metrics.maintenance,
        free_bytes=base.disk.free_bytes,
        resumed=resume(base.database, clock, trust_clock=substitutes.trust_clock),
    )
    transactions = Transactions(
        log,
        session,
        owned_shards.epoch_of,
        clock=clock,
        limits=settings.transaction_limits(),
        trusts_clock=maintenance.guard.trusts_clock,
    )
    groups = Groups(
        log,
        session,
        owned_shards.epoch_of,
        clock=clock,
        limits=settings.group_limits(),
        config_of=configs.group_config,
        trusts_clock=maintenance.guard.trusts_clock,
    )
    audit = AuditLog(clock, enabled=settings.security, metrics=metrics.security)
    topic_changes = AuditedTopicChanges(log, audit, node_id)
    audit_topic = _audit_topic(settings, base, log, node_id)
    if audit_topic is not None:
        audit.recorder = audit_topic.add
    owners = Owners(topology, session)
    workers = Workers()
    messages = MessageWriter(
        log,
        owners,
        workers,
        topic_changes,
        clock=clock,
        configs=broker_configs,
        limits=settings.service_limits(),
        payload_limits=settings.payload_limits(),
    )
    payloads = PayloadTransfers(log, base.store, clock=clock, limits=settings.payload_limits())

    def share_config_of(group_id: str) -> ShareGroupConfig:
        return configs.group_config(group_id).share

    queues = Queues(
        log,
        session,
        clock=clock,
        limits=settings.queue_limits(),
        metrics=metrics.queues,
        copy_body=payloads.copy,
        create_topic=topic_changes.create_by_broker,
        share_config_of=share_config_of,
    )
    share_groups = ShareGroups(log, groups, queues.of_share_groups, configs.group_config)
    sessions = Sessions(log.read, log.write, clock=clock)
    security = SecurityView(
        log.read,
        enabled=settings.security,
        super_users=settings.super_users,
        clock=clock,
        audit=audit,
        read_only_topics=_written_by_brokers(settings),
        metrics=metrics.quotas,
        sessions=sessions,
    )
    provider_threads = ProviderThreads()
    authenticator = Authenticator(
        security,
        clock=clock,
        settings=settings.authentication(),
        off_loop=asyncio.to_thread,
        provider_off_loop=provider_threads.run,
    )
    gate = Gate(
        security,
        authenticator,
        clock=clock,
        sessions=sessions,
        behind_tls_proxy=settings.is_behind_tls_proxy(),
    )
    membership = Membership(
        log,
        topology,
        peers,
        session,
        base.lease,
        partition_holders=(queues, log),
        shard_holders=(owned_shards, groups),
        clock=clock,
        lease_ms=settings.lease,
        metrics=metrics.cluster,
    )
    # In this order: groups are dropped by the shards that this broker still owns.
    topology.subscribe(owned_shards.apply)
    topology.subscribe(groups.drop_lost)
    topology.subscribe(membership.on_topology)
    return Parts(
        node_id=node_id,
        clock=clock,
        disk=base.disk,
        database=base.database,
        store=base.store,
        lease=base.lease,
        topology=topology,
        configs=configs,
        peers=peers,
        log=log,
        owned_shards=owned_shards,
        maintenance=maintenance,
        transactions=transactions,
        groups=groups,
        queues=queues,
        pulling=PullConsumers(queues, settings.queue_limits()),
        share_consumers=ShareConsumers(queues, log, share_config_of),
        membership=membership,
        owners=owners,
        workers=workers,
        metrics_page=MetricsPage(metrics, log, session, clock),
        messages=messages,
        payloads=payloads,
        poller=Poller(log, owners, workers, limits=settings.service_limits()),
        topic_changes=topic_changes,
        share_groups=share_groups,
        administration=Administration(log, groups, share_groups, owners, topic_changes, broker_configs),
        cluster=ClusterAdministration(log, topology, peers, session, audit),
        config_administration=ConfigAdministration(log, configs, broker_configs, topology, audit),
        security=security,
        topic_quotas=topic_quotas,
        audit_topic=audit_topic,
        provider_threads=provider_threads,
        authenticator=authenticator,
        gate=gate,
        sessions=sessions,
        browser_login=BrowserLogin(
            security,
            gate,
            authenticator,
            sessions,
            clock=clock,
            provider=_identity_provider(settings, clock, provider_threads),
        ),
        security_administration=SecurityAdministration(
            log.write, security, clock=clock, iterations=settings.password_iterations
        ),
    )


def _written_by_brokers(settings: Settings) -> Collection[str]:
    """Topics that clients can only read, and that no quota of topics limits."""
    return [AUDIT_TOPIC] if settings.audit_topic else ()


def _audit_topic(settings: Settings, base: Foundation, log: Log, node_id: int) -> AuditTopic | None:
    if not settings.audit_topic:
        return None
    return AuditTopic(
        log, node_id=node_id, retention_ms=settings.audit_retention, metrics=base.metrics.security
    )


def _identity_provider(
    settings: Settings, clock: Clock, threads: ProviderThreads
) -> "IdentityProvider | None":
    """Raises `InvalidSettings`."""
    oidc = settings.oidc()
    if oidc is None:
        return None
    from millpond.security.oidc import (
        IdentityProvider,
    )  # imported here, because few brokers need its packages

    return IdentityProvider(oidc, clock=clock, off_loop=threads.run)


def _has_space() -> None:
    """Without a disk reserve appends are never refused because of the disk."""


class HasParts:
    """The parts of a broker as its attributes. They exist once it has started, and stay when it has stopped."""

    def _set_parts(self, parts: Parts) -> None:
        self.parts = parts
        self.reserve = parts.disk.reserve
        self.database = parts.database
        self.store = parts.store
        self.lease = parts.lease
        self.topology = parts.topology
        self.configs = parts.configs
        self.peers = parts.peers
        self.log = parts.log
        self.owned_shards = parts.owned_shards
        self.maintenance = parts.maintenance
        self.transactions = parts.transactions
        self.groups = parts.groups
        self.queues = parts.queues
        self.pulling = parts.pulling
        self.share_consumers = parts.share_consumers
        self.membership = parts.membership
        self.owners = parts.owners
        self.messages = parts.messages
        self.payloads = parts.payloads
        self.poller = parts.poller
        self.topic_changes = parts.topic_changes
        self.share_groups = parts.share_groups
        self.administration = parts.administration
        self.cluster = parts.cluster
        self.config_administration = parts.config_administration
        self.security = parts.security
        self.topic_quotas = parts.topic_quotas
        self.sessions = parts.sessions
        self.authenticator = parts.authenticator
        self.security_administration = parts.security_administration
