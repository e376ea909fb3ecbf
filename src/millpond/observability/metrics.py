"""Every metric by name, in one registry that belongs to one broker: two brokers in a process do not mix.

A part of the broker is given its own group (`metrics.store`) and counts in it; nothing else is global.
"""

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from millpond.observability.latency import SECONDS, LatencyCounts, LatencyHistogram
from millpond.observability.usage import UsageCollector
from millpond.version import __version__

STORE_SECONDS_BUCKETS = (
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    30,
)


class StoreMetrics:
    """The object store, as its callers see it: retries are inside an operation."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.operations = Counter(
            "millpond_store_operations",
            "Calls to the object store, failed ones included.",
            ["operation"],
            registry=registry,
        )
        self.bytes = Counter(
            "millpond_store_bytes",
            "Bytes moved by calls that succeeded: to the store by append and put, from it by read.",
            ["operation"],
            registry=registry,
        )
        self.seconds = Histogram(
            "millpond_store_seconds",
            "Duration of a call, failed ones included; a listing counts until its last page.",
            ["operation"],
            buckets=STORE_SECONDS_BUCKETS,
            registry=registry,
        )
        self.errors = Counter(
            "millpond_store_errors",
            "Calls that failed, by the kind of error.",
            ["operation", "kind"],
            registry=registry,
        )
        self.retries = Counter(
            "millpond_store_retries",
            "Retries of calls.",
            ["operation"],
            registry=registry,
        )


class ClusterMetrics:
    """The broker among others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.brokers = Gauge(
            "millpond_cluster_brokers", "Live brokers, this one included.", registry=registry
        )
        self.handed_over = Counter(
            "millpond_cluster_given", "Partitions handed over to other brokers.", registry=registry
        )
        self.declared_dead = Counter(
            "millpond_cluster_buried", "Brokers that this one has declared dead.", registry=registry
        )


class LogMetrics:
    """The log engine. Counted once for each flush and fetch, never for each record."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.appends = Counter("millpond_log_appends", "Appends acknowledged.", registry=registry)
        self.append_bytes = Counter(
            "millpond_log_append_bytes", "Bytes of acknowledged appends.", registry=registry
        )
        self.fenced = Counter(
            "millpond_log_fenced",
            "Appends that the catalog rejected because the partition had moved or this broker was declared dead.",
            registry=registry,
        )
        self.halted = Counter(
            "millpond_log_halted",
            "Partitions halted because the catalog was restored to an earlier state.",
            registry=registry,
        )
        self.refusals = Counter(
            "millpond_log_refusals", "Appends that failed after they had been accepted.", registry=registry
        )
        flushes = Counter(
            "millpond_log_flushes",
            "Flushes committed, by where their bytes are: inline in the catalog, or stored in an object.",
            ["way"],
            registry=registry,
        )
        self.inline_flushes, self.stored_flushes = flushes.labels("inline"), flushes.labels("stored")
        self.flush_seconds = Histogram(
            "millpond_log_flush_seconds",
            "Time from sealing a flush to acknowledging its appends.",
            buckets=STORE_SECONDS_BUCKETS,
            registry=registry,
        )
        self.held_bytes = Gauge(
            "millpond_log_held_bytes", "Bytes accepted and not yet acknowledged.", registry=registry
        )
        self.inline_bytes = Gauge(
            "millpond_log_inline_bytes",
            "Inline bytes of this broker's partitions that are not yet merged into objects.",
            registry=registry,
        )
        fetched = Counter(
            "millpond_log_fetch_bytes",
            "Bytes returned to readers, by source: tail cache, read cache or store.",
            ["source"],
            registry=registry,
        )
        self.from_tail, self.from_cache = fetched.labels("tail"), fetched.labels("cache")
        self.from_store = fetched.labels("store")


class MaintenanceMetrics:
    """What upkeep has done."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.done = Counter(
            "millpond_maintenance_done",
            "Log starts moved by retention, extents replaced by merging, records removed by compaction, "
            "objects collected by garbage, rows expired.",
            ["duty"],
            registry=registry,
        )
        self.failures = Counter(
            "millpond_maintenance_failures",
            "Maintenance passes that failed and will be retried.",
            ["duty"],
            registry=registry,
        )
        self.waiting_bytes = Gauge(
            "millpond_maintenance_waiting_bytes",
            "Bytes that merging or compaction waits to write because the disk has no room; 0 if it does not wait.",
            ["duty"],
            registry=registry,
        )
        self.freed_bytes = Counter(
            "millpond_compaction_freed_bytes",
            "Bytes by which compaction has reduced partitions.",
            registry=registry,
        )


class DiskMetrics:
    """The disk of an SQLite catalog and of a store of files."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.full = Gauge(
            "millpond_disk_full",
            "1 while the disk reserve is released and appends are refused, otherwise 0.",
            registry=registry,
        )
        self.reserve_bytes = Gauge(
            "millpond_disk_reserve_bytes",
            "Disk space held in reserve; 0 if it is released, or if there is none.",
            registry=registry,
        )


class QueueMetrics:
    """Subscriptions. Counted once for each batch of deliveries and each commit; refusals one by one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deliveries = Counter(
            "millpond_queue_deliveries",
            "Messages delivered to consumers, redeliveries included.",
            registry=registry,
        )
        settled = Counter(
            "millpond_queue_settled",
            "Messages settled durably: acked, dead (moved to dead letters) or dropped.",
            ["how"],
            registry=registry,
        )
        self.acked, self.dead, self.dropped = map(settled.labels, ("acked", "dead", "dropped"))
        failures = Counter(
            "millpond_queue_failures",
            "Deliveries that failed: rejected by the consumer (nack), or not acknowledged in time (timeout).",
            ["how"],
            registry=registry,
        )
        self.nacks, self.timeouts = failures.labels("nack"), failures.labels("timeout")
        self.revoked = Counter(
            "millpond_queue_revoked",
            "Deliveries revoked because an earlier message of their key failed.",
            registry=registry,
        )
        self.voided = Counter(
            "millpond_queue_voided",
            "Offsets that expired or were deleted from the log before their subscription settled them.",
            registry=registry,
        )
        self.saves = Counter(
            "millpond_queue_saves",
            "Commits of subscription state, each for many partitions.",
            registry=registry,
        )
        self.leased = Gauge(
            "millpond_queue_leased",
            "Deliveries that are not yet acknowledged or rejected.",
            registry=registry,
        )
        self.consumers = Gauge("millpond_queue_consumers", "Attached consumers.", registry=registry)
        self.full = Gauge(
            "millpond_queue_full",
            "Subscription partitions that do not read ahead: too many messages wait, or an old one is not settled.",
            registry=registry,
        )


class KafkaMetrics:
    """The Kafka interface."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge("millpond_kafka_connections", "Connected clients.", registry=registry)
        self.malformed = Counter(
            "millpond_kafka_malformed", "Connections closed because of malformed requests.", registry=registry
        )
        self._requests = Counter(
            "millpond_kafka_requests", "Requests received, by API.", ["api"], registry=registry
        )
        self._seconds = LatencyHistogram(
            registry,
            "millpond_kafka_request_seconds",
            "Time from the start of a request to its response. A fetch may wait for messages as long as its client "
            "allows, and members of groups wait for each other.",
            "api",
        )

    def request(self, api: str) -> Counter:
        """Returns the counter of one API, for the caller to keep."""
        return self._requests.labels(api)

    def latency(self, api: str) -> LatencyCounts:
        """Returns the latency counts of one API, for the caller to keep."""
        return self._seconds.of(api)


class QuotaMetrics:
    """Quotas of clients, on every interface."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "millpond_quota_throttled_requests",
            "Requests after which a client had to wait, or that were refused, by the quota that was exceeded.",
            ["quota"],
            registry=registry,
        )
        self._seconds = Counter(
            "millpond_quota_throttled_seconds",
            "Time that clients had to wait, by the quota that was exceeded.",
            ["quota"],
            registry=registry,
        )

        self.refused_connections = Counter(
            "millpond_connections_refused",
            "Connections closed because their address has too many, or opens them too fast.",
            registry=registry,
        )

    def throttled(self, quota: str, delay_ms: int) -> None:
        """The label is one of the few keys of quotas, never a name that a client chose."""
        self._requests.labels(quota).inc()
        self._seconds.labels(quota).inc(delay_ms / 1000)


class AnswerMetrics:
    """Responses of one interface, by operation and status."""

    def __init__(self, registry: CollectorRegistry, interface: str, name: str) -> None:
        self._counter = Counter(
            f"millpond_{interface}_requests",
            f"{name} responses, by operation and status.",
            ["operation", "status"],
            registry=registry,
        )
        self._known: dict[tuple[str, str], Counter] = {}
        self._seconds = LatencyHistogram(
            registry,
            f"millpond_{interface}_request_seconds",
            f"Time from the start of a request over {name} until its response is ready; streams do not count.",
            "operation",
        )

    def took(self, operation: str, seconds: float) -> None:
        """Counts how long a response took. The label comes from a short fixed list."""
        self._seconds.of(operation).observe(seconds)

    def answered(self, operation: str, status: str) -> None:
        """Counts a response. Both labels come from short fixed lists, never from clients, because each pair is kept."""
        counter = self._known.get((operation, status))
        if counter is None:
            counter = self._known[operation, status] = self._counter.labels(operation, status)
        counter.inc()


class SecurityMetrics:
    """Logins, rights, certificates and the audit log."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.insecure = Gauge(
            "millpond_insecure",
            "1 if the broker listens beyond this machine without authentication or TLS, because `insecure` is set.",
            registry=registry,
        )
        self.certificate_seconds = Gauge(
            "millpond_certificate_expiry_seconds",
            "Seconds until the certificate of the listeners expires; negative when it has expired. Absent without TLS.",
            ["path"],
            registry=registry,
        )
        self.authentication_failures = Counter(
            "millpond_authentication_failures",
            "Clients that sent a wrong proof of who they are.",
            ["interface"],
            registry=registry,
        )
        self.authorization_denials = Counter(
            "millpond_authorization_denials", "Requests that lacked a right.", registry=registry
        )
        self.audit_dropped = Counter(
            "millpond_audit_dropped",
            "Events that the topic `__audit` lacks, because it could not be written fast enough, or refused them.",
            registry=registry,
        )


class Metrics:
    """All groups of metrics over one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Gauge(
            "millpond_build_info",
            "Always 1; the labels say what runs.",
            ["version", "python"],
            registry=self.registry,
        )
        build.labels(__version__, platform.python_version()).set(1)
        self.loop_lag = Histogram(
            "millpond_event_loop_lag_seconds",
            "How late a timer of the event loop was, measured four times a second: what every request waits.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.usage = UsageCollector()
        self.registry.register(self.usage)
        self.store = StoreMetrics(self.registry)
        self.cluster = ClusterMetrics(self.registry)
        self.log = LogMetrics(self.registry)
        self.maintenance = MaintenanceMetrics(self.registry)
        self.disk = DiskMetrics(self.registry)
        self.queues = QueueMetrics(self.registry)
        self.security = SecurityMetrics(self.registry)
        self.kafka = KafkaMetrics(self.registry)
        self.quotas = QuotaMetrics(self.registry)
        self.rpc = AnswerMetrics(self.registry, "grpc", "gRPC")
        self.web = AnswerMetrics(self.registry, "http", "HTTP")

    def expose(self) -> bytes:
        """The registry in Prometheus' text format."""
        return generate_latest(self.registry)
