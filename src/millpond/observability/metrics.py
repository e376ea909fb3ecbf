"""Every metric by name, in one registry that belongs to one broker: two brokers in a process do not mix.

A part of the broker is given its own group (`metrics.store`) and counts in it; nothing else is global.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

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


class Metrics:
    """All groups of metrics over one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.store = StoreMetrics(self.registry)

    def expose(self) -> bytes:
        """The registry in Prometheus' text format."""
        return generate_latest(self.registry)
