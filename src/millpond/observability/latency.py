"""Histograms of latency that cost the hot path a fraction of a microsecond for each observation."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets; above the last one there is one more."""


class LatencyCounts:
    """The observations of one label. Used on one event loop."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class LatencyHistogram(Collector):
    """Exposes labels that have observations. Labels come from short fixed lists, never from clients."""

    def __init__(self, registry: CollectorRegistry, name: str, documentation: str, label: str) -> None:
        self.name = name
        self.documentation = documentation
        self.label = label
        self._counts: dict[str, LatencyCounts] = {}
        registry.register(self)

    def of(self, value: str) -> LatencyCounts:
        """The counts of one label, for the caller to keep."""
        return self._counts.setdefault(value, LatencyCounts())

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = self._family()
        bounds = [*map(str, SECONDS), "+Inf"]
        for value, counts in sorted(self._counts.items()):
            if any(counts.counts):
                buckets = list(zip(bounds, accumulate(counts.counts), strict=True))
                family.add_metric([value], buckets, counts.total)
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.documentation, labels=[self.label])
