"""Every metric by name, in one registry that belongs to one broker: two brokers in a process do not mix.

A part of the broker is given its own group (`metrics.store`) and counts in it; nothing else is global.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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
            "How long a call took, failed ones included; of a listing, until it was exhausted.",
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
            "Attempts after the first of a call.",
            ["operation"],
            registry=registry,
        )


class ClusterMetrics:
    """The broker among others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.brokers = Gauge(
            "millpond_cluster_brokers", "Brokers that live, this one included.", registry=registry
        )
        self.given = Counter(
            "millpond_cluster_given", "Partitions handed over to other brokers.", registry=registry
        )
        self.buried = Counter(
            "millpond_cluster_buried", "Brokers that this one has declared dead.", registry=registry
        )


class LogMetrics:
    """The log engine. Counted once for each flush and fetch, never for each record."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.appends = Counter(
            "millpond_log_appends", "Appends that were answered with offsets.", registry=registry
        )
        self.append_bytes = Counter(
            "millpond_log_append_bytes", "Bytes of the batches in them.", registry=registry
        )
        self.fenced = Counter(
            "millpond_log_fenced",
            "Appends that the catalog refused because the partition had moved to another broker, or this one was dead.",
            registry=registry,
        )
        self.halted = Counter(
            "millpond_log_halted",
            "Partitions halted because the catalog went back in time.",
            registry=registry,
        )
        self.refusals = Counter(
            "millpond_log_refusals", "Appends that failed after they had been accepted.", registry=registry
        )
        flushes = Counter(
            "millpond_log_flushes",
            "Flushes committed, by the way their bytes went: inline in the catalog, or stored in an object.",
            ["way"],
            registry=registry,
        )
        self.inline_flushes, self.stored_flushes = flushes.labels("inline"), flushes.labels("stored")
        self.flush_seconds = Histogram(
            "millpond_log_flush_seconds",
            "From sealing a flush to answering its appends.",
            buckets=STORE_SECONDS_BUCKETS,
            registry=registry,
        )
        self.held_bytes = Gauge(
            "millpond_log_held_bytes", "Bytes accepted and not yet answered.", registry=registry
        )
        self.inline_bytes = Gauge(
            "millpond_log_inline_bytes",
            "Bytes of its partitions that ride in the catalog and wait to be merged into objects.",
            registry=registry,
        )
        fetched = Counter(
            "millpond_log_fetch_bytes",
            "Bytes given to readers, by where they were found: tail, cache or store.",
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
            "Passes that failed and are tried again.",
            ["duty"],
            registry=registry,
        )
        self.waiting_bytes = Gauge(
            "millpond_maintenance_waiting_bytes",
            "Bytes that merging or compaction is about to write and the disk has no room for; 0 if it does not wait.",
            ["duty"],
            registry=registry,
        )
        self.freed_bytes = Counter(
            "millpond_compaction_freed_bytes",
            "By how much compaction has made partitions smaller.",
            registry=registry,
        )


class DiskMetrics:
    """The disk of an SQLite catalog and of a store of files."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.full = Gauge(
            "millpond_disk_full",
            "1 while the disk's reserve is released and appends are refused, else 0.",
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
            "Messages handed to consumers, again ones included.",
            registry=registry,
        )
        settled = Counter(
            "millpond_queue_settled",
            "Messages that subscriptions are done with, durably: acked, dead (letters) or dropped.",
            ["how"],
            registry=registry,
        )
        self.acked, self.dead, self.dropped = map(settled.labels, ("acked", "dead", "dropped"))
        failures = Counter(
            "millpond_queue_failures",
            "Deliveries that failed: refused by the consumer (nack), or not answered in time (timeout).",
            ["how"],
            registry=registry,
        )
        self.nacks, self.timeouts = failures.labels("nack"), failures.labels("timeout")
        self.revoked = Counter(
            "millpond_queue_revoked",
            "Deliveries taken back because an earlier message of their key failed.",
            registry=registry,
        )
        self.voided = Counter(
            "millpond_queue_voided",
            "Offsets that expired or were removed from the log while a subscription was at work on them.",
            registry=registry,
        )
        self.saves = Counter(
            "millpond_queue_saves",
            "Commits of what was decided, each for many partitions.",
            registry=registry,
        )
        self.leased = Gauge("millpond_queue_leased", "Deliveries that wait for an answer.", registry=registry)
        self.consumers = Gauge("millpond_queue_consumers", "Consumers that are attached.", registry=registry)
        self.full = Gauge(
            "millpond_queue_full",
            "Partitions of subscriptions that look no further: too many messages wait, or an old one is not settled.",
            registry=registry,
        )


class KafkaMetrics:
    """The Kafka face."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge(
            "millpond_kafka_connections", "Clients that are connected.", registry=registry
        )
        self.malformed = Counter(
            "millpond_kafka_malformed", "Connections closed because of what they sent.", registry=registry
        )
        self._requests = Counter(
            "millpond_kafka_requests", "Requests begun, by API.", ["api"], registry=registry
        )

    def request(self, api: str) -> Counter:
        """The counter of one API; whoever counts keeps it."""
        return self._requests.labels(api)


class AnswerMetrics:
    """A face that answers calls: how many, by what was asked and what was answered."""

    def __init__(self, registry: CollectorRegistry, face: str, name: str) -> None:
        self._counter = Counter(
            f"millpond_{face}_requests",
            f"{name} requests answered, by operation and status.",
            ["operation", "status"],
            registry=registry,
        )
        self._known: dict[tuple[str, str], Counter] = {}

    def answered(self, operation: str, status: str) -> None:
        """Both come from short lists of our own, never from clients: each pair is kept."""
        counter = self._known.get((operation, status))
        if counter is None:
            counter = self._known[operation, status] = self._counter.labels(operation, status)
        counter.inc()


class Metrics:
    """All groups of metrics over one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.store = StoreMetrics(self.registry)
        self.cluster = ClusterMetrics(self.registry)
        self.log = LogMetrics(self.registry)
        self.maintenance = MaintenanceMetrics(self.registry)
        self.disk = DiskMetrics(self.registry)
        self.queues = QueueMetrics(self.registry)
        self.kafka = KafkaMetrics(self.registry)
        self.rpc = AnswerMetrics(self.registry, "grpc", "gRPC")
        self.web = AnswerMetrics(self.registry, "http", "HTTP")

    def expose(self) -> bytes:
        """The registry in Prometheus' text format."""
        return generate_latest(self.registry)
