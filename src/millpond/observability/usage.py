"""Metrics of topics and their readers, made from the usage that was read last.

Their labels are names that clients chose. So each metric names at most `LABELS_MAX` of them, those with the largest
values; the label `(other)` has the sum of the rest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from millpond.model.usage import ReaderLag, Usage

LABELS_MAX: Final = 500
OTHER: Final = "(other)"
"""No topic can have this name."""
Labels = tuple[str, ...]


class UsageMetric(NamedTuple):
    name: str
    labels: Labels
    documentation: str


PARTITIONS: Final = UsageMetric("millpond_topic_partitions", ("topic",), "Partitions that this broker owns.")
OFFSETS: Final = UsageMetric("millpond_topic_offsets", ("topic",), "Offsets between log start and end.")
END_OFFSET: Final = UsageMetric(
    "millpond_topic_end_offset",
    ("topic",),
    "End offsets; they rise with every message, so their rate is that of messages.",
)
BYTES: Final = UsageMetric("millpond_topic_bytes", ("topic",), "Stored bytes.")
GROUP_LAG: Final = UsageMetric(
    "millpond_group_lag",
    ("group", "topic"),
    "Offsets between the committed offset of a group and the end.",
)
SUBSCRIPTION_LAG: Final = UsageMetric(
    "millpond_subscription_lag",
    ("subscription", "topic"),
    "Offsets between the first message that a subscription has not settled and the end.",
)
FAMILIES: Final = (PARTITIONS, OFFSETS, END_OFFSET, BYTES, GROUP_LAG, SUBSCRIPTION_LAG)


class UsageCollector(Collector):
    def __init__(self) -> None:
        self.usage = Usage()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield from (_metric(family, {}) for family in FAMILIES)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        topics = self.usage.topics
        yield _metric(PARTITIONS, {(each.topic,): each.partitions for each in topics})
        yield _metric(OFFSETS, {(each.topic,): each.offsets for each in topics})
        yield _metric(END_OFFSET, {(each.topic,): each.end_offset for each in topics})
        yield _metric(BYTES, {(each.topic,): each.bytes for each in topics})
        yield _metric(GROUP_LAG, _by_reader(self.usage.groups))
        yield _metric(SUBSCRIPTION_LAG, _by_reader(self.usage.subscriptions))


def _by_reader(lags: Iterable[ReaderLag]) -> dict[Labels, int]:
    return {(each.reader, each.topic): each.offsets for each in lags}


def _metric(family: UsageMetric, values: Mapping[Labels, int]) -> GaugeMetricFamily:
    metric = GaugeMetricFamily(family.name, family.documentation, labels=family.labels)
    shown, rest = _limited(values)
    for labels in shown:
        metric.add_metric(labels, values[labels])
    if rest:
        metric.add_metric([OTHER] * len(family.labels), sum(values[labels] for labels in rest))
    return metric


def _limited(values: Mapping[Labels, int]) -> tuple[Sequence[Labels], Sequence[Labels]]:
    """Those with the largest values, ordered by name, and the rest."""
    if len(values) <= LABELS_MAX:
        return sorted(values), ()
    largest = sorted(values, key=lambda labels: (-values[labels], labels))
    return sorted(largest[:LABELS_MAX]), largest[LABELS_MAX:]
